"""Who may do what: bearer tokens with roles, kept as hashes.

A token is ``pyr_ID_SECRET``: the id finds it, the secret proves it. Secrets are 256 random
bits, so one round of SHA-256 keeps them; the comparison takes the same time wherever they
differ. The file is read again when it changes, so tokens come and go while a service runs.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import threading
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Self, get_args

from pyramidion.checks import nearest
from pyramidion.errors import (
    ForbiddenError,
    FormatError,
    MissingError,
    SchemaError,
    UnknownCallerError,
)
from pyramidion.storage.disk import read, replace_durably

Role = Literal["observe", "train", "predict", "admin", "custodian-request"]
ROLES: tuple[Role, ...] = get_args(Role)
EVERY = "*"
"""Stands for all streams, those to come included."""
OWN = ".service"
"""What a service keeps for itself in its data directory."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@-]{0,63}")
_TOKEN = re.compile(r"pyr_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_NOBODY = hashlib.sha256(b"nobody").hexdigest()


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
        """Raise unless it has one of the roles; no roles: any will do."""
        if roles and not set(roles) & set(self.roles):
            wanted = " or ".join(sorted(roles))
            raise ForbiddenError(f"this needs a token with the role {wanted}; ask an admin for one")


class Tokens:
    """The tokens of one service, in a file that only its owner reads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._read: tuple[int, int, int] | None = None
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
        with self._lock:
            known = dict(self._refreshed())
            known[mark] = Token(mark, name, checked, told, _digest(secret), now)
            self._write(known)
        return f"pyr_{mark}_{secret}"

    def remove(self, mark: str) -> Token:
        """Take a token back; nobody gets in with it from now on."""
        with self._lock:
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
        token = self._current().get(mark)
        same = hmac.compare_digest(_digest(secret), token.digest if token else _NOBODY)
        if token is None or not same:
            raise UnknownCallerError(
                "no token, or none that this service knows; send `Authorization: Bearer TOKEN`"
            )
        return token

    # --- the file ---------------------------------------------------------------------------

    def _current(self) -> dict[str, Token]:
        with self._lock:
            return self._refreshed()

    def _refreshed(self) -> dict[str, Token]:
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            self._known, self._read = {}, None
            return self._known
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        if stamp != self._read:
            self._known, self._read = _known(read(self._path)), stamp
        return self._known

    def _write(self, known: dict[str, Token]) -> None:
        told = [asdict(token) for token in known.values()]
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_durably(self._path, json.dumps({"format": 1, "tokens": told}, indent=1).encode())


def _known(data: bytes) -> dict[str, Token]:
    try:
        told = json.loads(data)
        if told["format"] != 1:
            raise ValueError
        tokens = [
            Token(
                each["id"],
                each["name"],
                _checked_roles(each["roles"]),
                tuple(each["streams"]),
                each["digest"],
                each["made"],
            )
            for each in told["tokens"]
        ]
    except (ValueError, KeyError, TypeError, SchemaError):
        raise FormatError(
            "the file of tokens is damaged or from a newer version; restore it, or remove it and "
            "make the tokens anew"
        ) from None
    return {token.id: token for token in tokens}


def _checked_roles(roles: Iterable[str]) -> tuple[Role, ...]:
    given = set(roles)
    for role in sorted(given - set(ROLES)):
        raise SchemaError(f"there is no role {role!r}; {nearest(role, ROLES)}")
    if not given:
        raise SchemaError(f"a token without a role can do nothing; give {', '.join(ROLES)}")
    return tuple(role for role in ROLES if role in given)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
