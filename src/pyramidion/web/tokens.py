"""Bearer tokens with roles: who may call a service or an edge, and for what.

A token is ``pyr_ID_SECRET``: the id finds it, the secret proves it. Files hold hashes alone.
Secrets are 256 random bits, so one round of SHA-256 is enough; they are compared in constant time.
A file is read again when it changes, so tokens come and go while a process runs. A file that is
damaged, or that others may change, admits nobody.

The service writes its own file (`pyramidion.web.service.tokens`). An edge reads a copy of it, or a
file of lines ``ID SHA256``, the hash of the secret in hexadecimal; those have the role ``predict``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import threading
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pyramidion.config.checks import nearest
from pyramidion.errors import (
    ForbiddenError,
    FormatError,
    PyramidionError,
    SchemaError,
    StateError,
    StorageError,
    UnknownCallerError,
)
from pyramidion.web.errors import LOG

Role = Literal["observe", "train", "predict", "admin", "custodian-request"]
ROLES: tuple[Role, ...] = get_args(Role)
ANY: tuple[Role, ...] = ROLES
"""For routes that any known token may call: each has a role. It must be named, not left out."""
EVERY = "*"
"""Stands for all streams, later ones included."""

_TOKEN = re.compile(r"pyr_([0-9A-Za-z-]{1,64})_([A-Za-z0-9_-]{16,128})")
_LINE = re.compile(r"([0-9A-Za-z-]{1,64})\s+([0-9a-f]{64})")
_ID = re.compile(r"[0-9a-f]{16}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NOBODY = hashlib.sha256(b"nobody").hexdigest()

Stamp = tuple[int, int, int, int]
"""Changes with a file: modification time, size, inode and mode."""


@dataclass(frozen=True)
class Token:
    """All that is stored of a token; not its secret."""

    id: str
    name: str
    roles: tuple[Role, ...]
    streams: tuple[str, ...]
    digest: str
    made: int

    def to_dict(self) -> dict[str, object]:
        """Plain values, without the digest."""
        values = asdict(self)
        del values["digest"]
        return values

    def may_see(self, stream: str) -> bool:
        """Whether it is for a stream."""
        return EVERY in self.streams or stream in self.streams

    def refuse_other(self, stream: str) -> None:
        """Raise unless it is for a stream, which need not exist yet."""
        if not self.may_see(stream):
            raise ForbiddenError("this token is for other streams; ask an admin of all for one")

    def refuse_part(self) -> None:
        """Raise unless it is for all streams: some routes are not for an admin of a few."""
        if EVERY not in self.streams:
            raise ForbiddenError("this is for admins of all streams; ask one of them")

    def refuse_without(self, roles: Collection[Role]) -> None:
        """Raise unless it has one of the roles."""
        if not set(roles) & set(self.roles):
            wanted = " or ".join(sorted(roles))
            raise ForbiddenError(f"this needs a token with the role {wanted}; ask an admin for one")


def needed(path: str, roles: Iterable[Role]) -> frozenset[Role]:
    """The roles of which a route needs one; raises if none is named.

    >>> sorted(needed("/models", ("predict", "train")))
    ['predict', 'train']
    """
    found = frozenset(roles)
    if not found:
        raise StateError(f"{path} says no role; name those that may call it, or *ANY for all")
    return found


class TokensError(StorageError):
    """The file of tokens cannot be trusted, so nobody is admitted."""

    status = 503


class TokenFile:
    """The tokens in a file that somebody else writes."""

    host = "edge"
    """What asks for tokens, for messages."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._stamp: Stamp | None = None
        self._loaded = False
        self._known: dict[str, Token] = {}

    def check(self) -> None:
        """Raise if the file cannot be read or trusted."""
        self._current()

    def caller(self, header: str | None) -> Token:
        """The token in an ``Authorization`` header."""
        scheme, _, text = (header or "").partition(" ")
        found = _TOKEN.fullmatch(text.strip()) if scheme.lower() == "bearer" else None
        mark, secret = found.groups() if found else ("", "")
        token = self.known(mark)
        same = hmac.compare_digest(digest_of(secret), token.digest if token else _NOBODY)
        if token is None or not same:
            raise UnknownCallerError(
                f"no token, or none that this {self.host} knows; send `Authorization: Bearer TOKEN`"
            )
        return token

    def known(self, mark: str) -> Token | None:
        """The token of an id, as it is now; None once it was removed."""
        try:
            return self._current().get(mark)
        except PyramidionError as problem:
            LOG.error("nobody is let in", extra={"trouble": str(problem)})
            raise TokensError(
                f"this {self.host} cannot tell who calls; its log says what is wrong with tokens"
            ) from None

    def _current(self) -> dict[str, Token]:
        with self._lock:
            return self._refreshed()

    def _refreshed(self) -> dict[str, Token]:
        try:
            found = os.stat(self._path)
        except OSError as problem:
            self._missing(problem)
            self._change({}, None)
            return self._known
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode)
        if stamp != self._stamp:
            self._refuse_exposed(found)
            self._change(self._parse(self._bytes()), stamp)
        return self._known

    def _missing(self, _: OSError) -> None:
        raise self._unreadable() from None

    def _refuse_exposed(self, found: os.stat_result) -> None:
        if found.st_mode & 0o022:
            raise TokensError(
                f"{self._path}, the file of token hashes, can be changed by others than its "
                f"owner; chmod go-w {self._path}"
            )

    def _bytes(self) -> bytes:
        try:
            return self._path.read_bytes()
        except OSError:
            raise self._unreadable() from None

    def _parse(self, data: bytes) -> dict[str, Token]:
        return read_tokens(data)

    def _unreadable(self) -> TokensError:
        return TokensError(
            f"{self._path}, the file of token hashes, cannot be read; check that it exists and "
            f"that this process may read it"
        )

    def _change(self, known: dict[str, Token], stamp: Stamp | None) -> None:
        """Take in what the file holds; tokens that came or went since the last time are logged."""
        if self._loaded and known != self._known:
            for mark in known.keys() - self._known.keys():
                token = known[mark]
                about = {"token": mark, "roles": list(token.roles), "streams": list(token.streams)}
                LOG.info("token added", extra=about)
            for mark in self._known.keys() - known.keys():
                LOG.info("token removed", extra={"token": mark})
        self._known, self._stamp, self._loaded = known, stamp, True


def read_tokens(data: bytes) -> dict[str, Token]:
    """The tokens of a file by their ids: the service's JSON, or lines.

    >>> list(read_tokens(b"a1 " + b"0" * 64))
    ['a1']
    """
    if data.lstrip()[:1] == b"{":
        return tokens_in_json(data)
    text = data.decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    found = [_LINE.fullmatch(line.strip()) for line in lines]
    if None in found:
        raise FormatError("a line of the file of token hashes is not `ID SHA256`; correct it")
    tokens = [Token(m[1], "", ("predict",), (EVERY,), m[2], 0) for m in found if m is not None]
    return {token.id: token for token in tokens}


def tokens_in_json(data: bytes) -> dict[str, Token]:
    """The tokens of a service's file by their ids."""
    try:
        content = json.loads(data)
        if content["format"] != 1:
            raise ValueError
        tokens = [_token(each) for each in content["tokens"]]
    except (ValueError, KeyError, TypeError, SchemaError, RecursionError):
        raise FormatError(
            "the file of tokens is damaged or from a newer version; copy it again"
        ) from None
    return {token.id: token for token in tokens}


def _token(values: dict[str, Any]) -> Token:
    mark, digest, made = values["id"], values["digest"], values["made"]
    texts = [mark, values["name"], digest, *values["streams"]]
    if not all(isinstance(text, str) for text in texts) or type(made) is not int:
        raise ValueError
    if not _ID.fullmatch(mark) or not _DIGEST.fullmatch(digest):
        raise ValueError
    roles, streams = checked_roles(values["roles"]), tuple(values["streams"])
    return Token(mark, values["name"], roles, streams, digest, made)


def checked_roles(roles: Iterable[str]) -> tuple[Role, ...]:
    """Roles that exist, at least one, in their usual order."""
    given = set(roles)
    for role in sorted(given - set(ROLES)):
        raise SchemaError(f"there is no role {role!r}; {nearest(role, ROLES)}")
    if not given:
        raise SchemaError(f"a token without a role can do nothing; give {', '.join(ROLES)}")
    return tuple(role for role in ROLES if role in given)


def digest_of(secret: str) -> str:
    """The hash of a secret, as files hold it."""
    return hashlib.sha256(secret.encode()).hexdigest()
