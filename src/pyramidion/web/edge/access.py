"""Whose tokens an edge answers: a file of hashes, as the service keeps them or line by line.

A token is ``pyr_ID_SECRET``. The file is that of the service (those with the role ``predict``
may ask), or has lines ``ID SHA256``, the hash of the secret in hexadecimal. It is read again
when it changes.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
import threading
from pathlib import Path
from typing import NamedTuple

from pyramidion.errors import (
    ForbiddenError,
    FormatError,
    PyramidionError,
    StorageError,
    UnknownCallerError,
)

LOG = logging.getLogger("pyramidion.edge")
EVERY = "*"
_TOKEN = re.compile(r"pyr_([0-9A-Za-z-]{1,64})_([A-Za-z0-9_-]{16,128})")
_LINE = re.compile(r"([0-9A-Za-z-]{1,64})\s+([0-9a-f]{64})")
_NOBODY = hashlib.sha256(b"nobody").hexdigest()


class Known(NamedTuple):
    """What is known of a token."""

    id: str
    digest: str
    roles: tuple[str, ...]
    streams: tuple[str, ...]

    def refuse_without(self, role: str) -> None:
        """Raise unless it has a role."""
        if role not in self.roles:
            raise ForbiddenError(f"this needs a token with the role {role}; ask an admin for one")

    def refuse_other(self, stream: str) -> None:
        """Raise unless it is for a stream."""
        if EVERY not in self.streams and stream not in self.streams:
            raise ForbiddenError("this token is for other streams; ask an admin for one")


class HashesError(StorageError):
    """The file of token hashes cannot be trusted, so that nobody is let in."""

    status = 503


class Callers:
    """The tokens in a file, by their hashes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int, int] | None = None
        self._known: dict[str, Known] = {}
        self._current()  # a file that cannot be read is told at once

    def caller(self, header: str | None) -> Known:
        """Whose token an ``Authorization`` header holds."""
        scheme, _, text = (header or "").partition(" ")
        found = _TOKEN.fullmatch(text.strip()) if scheme.lower() == "bearer" else None
        mark, secret = found.groups() if found else ("", "")
        known = self._known_now().get(mark)
        digest = hashlib.sha256(secret.encode()).hexdigest()
        same = hmac.compare_digest(digest, known.digest if known else _NOBODY)
        if known is None or not same:
            raise UnknownCallerError(
                "no token, or none that this edge knows; send `Authorization: Bearer TOKEN`"
            )
        return known

    def _known_now(self) -> dict[str, Known]:
        try:
            return self._current()
        except PyramidionError as problem:
            LOG.error("nobody is let in", extra={"trouble": str(problem)})
            raise HashesError(
                "this edge cannot tell who calls; its log says what is wrong with its tokens"
            ) from None

    def _current(self) -> dict[str, Known]:
        with self._lock:
            try:
                found = os.stat(self._path)
                stamp = (found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode)
                if stamp != self._stamp:
                    self._known, self._stamp = read(self._path.read_bytes()), stamp
            except OSError:
                self._known, self._stamp = {}, None
            if self._stamp is None:
                raise HashesError(
                    f"{self._path}, the file of token hashes, cannot be read; see to it"
                )
            if self._stamp[-1] & 0o022:
                raise HashesError(
                    f"{self._path}, the file of token hashes, can be changed by others than its "
                    f"owner; chmod go-w {self._path}"
                )
            return self._known


def read(data: bytes) -> dict[str, Known]:
    """The tokens of a file by their ids.

    >>> list(read(b"a1 " + b"0" * 64))
    ['a1']
    """
    text = data.decode("utf-8", "replace")
    if text.lstrip().startswith("{"):
        return _of_service(text)
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    found = [_LINE.fullmatch(line.strip()) for line in lines]
    if None in found:
        raise FormatError("a line of the file of token hashes is not `ID SHA256`; correct it")
    return {
        line[1]: Known(line[1], line[2], ("predict",), (EVERY,))
        for line in found
        if line is not None
    }


def _of_service(text: str) -> dict[str, Known]:
    try:
        told = json.loads(text)
        if told["format"] != 1:
            raise ValueError
        return {
            each["id"]: Known(
                each["id"], each["digest"], tuple(each["roles"]), tuple(each["streams"])
            )
            for each in told["tokens"]
        }
    except (ValueError, KeyError, TypeError):
        pass
    raise FormatError("the file of tokens is damaged or from a newer version; copy it again")
