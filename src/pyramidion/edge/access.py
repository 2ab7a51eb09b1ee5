"""Whose tokens an edge answers: a file of hashes, as the service keeps them or line by line.

A token is ``pyr_ID_SECRET``. The file is that of the service (those with the role ``predict``
may ask), or has lines ``ID SHA256``, the hash of the secret in hexadecimal. It is read again
when it changes.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import threading
from pathlib import Path
from typing import NamedTuple

from pyramidion.errors import ForbiddenError, FormatError, StorageError, UnknownCallerError

EVERY = "*"
_TOKEN = re.compile(r"pyr_([0-9A-Za-z-]{1,64})_([A-Za-z0-9_-]{16,128})")
_LINE = re.compile(r"([0-9A-Za-z-]{1,64})\s+([0-9a-f]{64})")
_NOBODY = hashlib.sha256(b"nobody").hexdigest()


class Known(NamedTuple):
    """What is known of a token."""

    digest: str
    predicts: bool
    streams: tuple[str, ...]


class Callers:
    """The tokens in a file, by their hashes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._known: dict[str, Known] = {}
        self._current()  # a file that cannot be read is told at once

    def refuse_stranger(self, header: str | None, stream: str) -> None:
        """Raise unless an ``Authorization`` header holds a token that may ask for predictions."""
        scheme, _, text = (header or "").partition(" ")
        found = _TOKEN.fullmatch(text.strip()) if scheme.lower() == "bearer" else None
        mark, secret = found.groups() if found else ("", "")
        known = self._current().get(mark)
        digest = hashlib.sha256(secret.encode()).hexdigest()
        same = hmac.compare_digest(digest, known.digest if known else _NOBODY)
        if known is None or not same:
            raise UnknownCallerError(
                "no token, or none that this edge knows; send `Authorization: Bearer TOKEN`"
            )
        if not known.predicts:
            raise ForbiddenError("this needs a token with the role predict; ask an admin for one")
        if EVERY not in known.streams and stream not in known.streams:
            raise ForbiddenError("this token is for other streams; ask an admin for one")

    def _current(self) -> dict[str, Known]:
        with self._lock:
            try:
                found = os.stat(self._path)
                stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
                if stamp != self._stamp:
                    self._known, self._stamp = read(self._path.read_bytes()), stamp
            except OSError:
                self._known, self._stamp = {}, None
            if self._stamp is None:
                raise StorageError(
                    f"{self._path}, the file of token hashes, cannot be read; see to it"
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
    return {line[1]: Known(line[2], True, (EVERY,)) for line in found if line is not None}


def _of_service(text: str) -> dict[str, Known]:
    try:
        told = json.loads(text)
        if told["format"] != 1:
            raise ValueError
        return {
            each["id"]: Known(each["digest"], "predict" in each["roles"], tuple(each["streams"]))
            for each in told["tokens"]
        }
    except (ValueError, KeyError, TypeError):
        pass
    raise FormatError("the file of tokens is damaged or from a newer version; copy it again")
