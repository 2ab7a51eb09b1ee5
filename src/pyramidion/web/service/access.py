"""Who may do what: bearer tokens with roles, kept as hashes.

A token is ``pyr_ID_SECRET``: the id finds it, the secret proves it. Secrets are 256 random
bits, so one round of SHA-256 keeps them; the comparison takes the same time wherever they
differ. The file is read again when it changes, so tokens come and go while a service runs; one
that is damaged, or that others may change, lets nobody in.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args

from pyramidion.config.checks import nearest
from pyramidion.config.secret_files import refuse_exposed
from pyramidion.errors import (
    ForbiddenError,
    MissingError,
    PyramidionError,
    SchemaError,
    StateError,
    StorageError,
    UnknownCallerError,
)
from pyramidion.storage.disk import explained, read, replace_durably

LOG = logging.getLogger("pyramidion.serve")

Role = Literal["observe", "train", "predict", "admin", "custodian-request"]
ROLES: tuple[Role, ...] = get_args(Role)
ANY: tuple[Role, ...] = ROLES
"""For what any token may do that is known: each has a role. It is said, and never left out."""
EVERY = "*"
"""Stands for all streams, those to come included."""
OWN = ".service"
"""What a service keeps for itself in its data directory."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@-]{0,63}")
_TOKEN = re.compile(r"pyr_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_MARK = re.compile(r"[0-9a-f]{16}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NOBODY = hashlib.sha256(b"nobody").hexdigest()


Stamp = tuple[int, int, int, int]
"""What changes with a file: its time, size, number and rights."""


@dataclass(frozen=True)
class Token:
    """What is known of a token: everything but its secret."""

    id: str
    name: str
    roles: tuple[Role, ...]
    streams: tuple[str, ...]
    digest: str
    made: int

    def to_dict(self) -> dict[str, object]:
        """Plain values, without the digest."""
        told = asdict(self)
        del told["digest"]
        return told

    def may_see(self, stream: str) -> bool:
        """Whether it is for a stream."""
        return EVERY in self.streams or stream in self.streams

    def refuse_other(self, stream: str) -> None:
        """Raise unless it is for a stream that may not be there yet."""
        if not self.may_see(stream):
            raise ForbiddenError("this token is for other streams; ask an admin of all for one")

    def refuse_part(self) -> None:
        """Raise unless it is for all streams: what concerns all is not for an admin of some."""
        if EVERY not in self.streams:
            raise ForbiddenError("this is for admins of all streams; ask one of them")

    def refuse_without(self, roles: Collection[Role]) -> None:
        """Raise unless it has one of the roles."""
        if not set(roles) & set(self.roles):
            wanted = " or ".join(sorted(roles))
            raise ForbiddenError(f"this needs a token with the role {wanted}; ask an admin for one")


def needed(path: str, roles: Iterable[Role]) -> frozenset[Role]:
    """The roles of which a route asks for one; raises where none is said.

    >>> sorted(needed("/models", ("predict", "train")))
    ['predict', 'train']
    """
    found = frozenset(roles)
    if not found:
        raise StateError(f"{path} says no role; name those that may call it, or *ANY for all")
    return found


class TokensError(StorageError):
    """The file of tokens cannot be trusted, so that nobody is let in."""

    status = 503


class Tokens:
    """The tokens of one service, in a file that only its owner reads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._read: Stamp | None = None
        self._looked = False
        self._known: dict[str, Token] = {}

    @classmethod
    def of(cls, data: Path) -> Self:
        """Those of the service of a data directory."""
        return cls(data / OWN / "tokens.json")

    def __len__(self) -> int:
        return len(self._current())

    def all(self) -> list[Token]:
        """Every token, the oldest first."""
        return sorted(self._current().values(), key=lambda token: (token.made, token.id))

    def add(self, name: str, roles: Iterable[str], streams: Iterable[str], now: int) -> str:
        """Make a token; its text is told once, here."""
        checked, told = _checked_roles(roles), tuple(dict.fromkeys(streams)) or (EVERY,)
        if not _NAME.fullmatch(name):
            raise SchemaError(
                "a token's name is 1 to 64 letters, digits, spaces or any of ._@-; say who has it"
            )
        mark, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        with self._lock, self.alone():
            known = dict(self._refreshed())
            known[mark] = Token(mark, name, checked, told, _digest(secret), now)
            self._write(known)
        return f"pyr_{mark}_{secret}"

    def remove(self, mark: str) -> Token:
        """Take a token back; nobody gets in with it from now on."""
        with self._lock, self.alone():
            known = dict(self._refreshed())
            gone = known.pop(mark, None)
            if gone is None:
                raise MissingError(f"there is no token of this id; {nearest(mark, known)}")
            self._write(known)
        return gone

    def caller(self, header: str | None) -> Token:
        """Whose token an ``Authorization`` header holds."""
        scheme, _, text = (header or "").partition(" ")
        found = _TOKEN.fullmatch(text.strip()) if scheme.lower() == "bearer" else None
        mark, secret = found.groups() if found else ("", "")
        token = self.known(mark)
        same = hmac.compare_digest(_digest(secret), token.digest if token else _NOBODY)
        if token is None or not same:
            raise UnknownCallerError(
                "no token, or none that this service knows; send `Authorization: Bearer TOKEN`"
            )
        return token

    def known(self, mark: str) -> Token | None:
        """The token of an id, as it is now; None once it was taken back."""
        try:
            return self._current().get(mark)
        except PyramidionError as problem:
            LOG.error("nobody is let in", extra={"trouble": str(problem)})
            raise TokensError(
                "the service cannot tell who calls; its log says what is wrong with its tokens"
            ) from None

    # --- the file ---------------------------------------------------------------------------

    def _current(self) -> dict[str, Token]:
        with self._lock:
            return self._refreshed()

    def _refreshed(self) -> dict[str, Token]:
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            self._change({}, None)
            return self._known
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode)
        if stamp != self._read:
            refuse_exposed(self._path, found, TokensError)
            self._change(_known(read(self._path)), stamp)
        return self._known

    def _change(self, known: dict[str, Token], stamp: Stamp | None) -> None:
        """Take in what the file says; who came and went since the last look is logged."""
        if self._looked and known != self._known:
            for mark in known.keys() - self._known.keys():
                token = known[mark]
                told = {"token": mark, "roles": list(token.roles), "streams": list(token.streams)}
                LOG.info("token added", extra=told)
            for mark in self._known.keys() - known.keys():
                LOG.info("token removed", extra={"token": mark})
        self._known, self._read, self._looked = known, stamp, True

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other process changes the tokens meanwhile."""
        with explained(self._path):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._path.with_name("tokens.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _write(self, known: dict[str, Token]) -> None:
        told = [asdict(token) for token in known.values()]
        replace_durably(self._path, json.dumps({"format": 1, "tokens": told}, indent=1).encode())
        self._refreshed()


def _known(data: bytes) -> dict[str, Token]:
    try:
        told = json.loads(data)
        if told["format"] != 1:
            raise ValueError
        tokens = [_token(each) for each in told["tokens"]]
    except (ValueError, KeyError, TypeError, SchemaError, RecursionError):
        raise TokensError(
            "the file of tokens is damaged or from a newer version; restore it, or remove it and "
            "make the tokens anew"
        ) from None
    return {token.id: token for token in tokens}


def _token(told: dict[str, Any]) -> Token:
    mark, digest, made = told["id"], told["digest"], told["made"]
    texts = [mark, told["name"], digest, *told["streams"]]
    if not all(isinstance(text, str) for text in texts) or type(made) is not int:
        raise ValueError
    if not _MARK.fullmatch(mark) or not _DIGEST.fullmatch(digest):
        raise ValueError
    roles, streams = _checked_roles(told["roles"]), tuple(told["streams"])
    return Token(mark, told["name"], roles, streams, digest, made)


def _checked_roles(roles: Iterable[str]) -> tuple[Role, ...]:
    given = set(roles)
    for role in sorted(given - set(ROLES)):
        raise SchemaError(f"there is no role {role!r}; {nearest(role, ROLES)}")
    if not given:
        raise SchemaError(f"a token without a role can do nothing; give {', '.join(ROLES)}")
    return tuple(role for role in ROLES if role in given)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
