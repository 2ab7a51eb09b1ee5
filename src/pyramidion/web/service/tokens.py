"""The tokens of a service: made, removed, and kept in a file that only its owner reads."""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Self

from pyramidion.config.checks import nearest
from pyramidion.config.secret_files import refuse_exposed
from pyramidion.errors import FormatError, MissingError, SchemaError
from pyramidion.storage.disk import explained, read, replace_durably
from pyramidion.web.tokens import (
    EVERY,
    Token,
    TokenFile,
    TokensError,
    checked_roles,
    digest_of,
    tokens_in_json,
)

OWN = ".service"
"""The service's own folder in its data directory."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@-]{0,63}")


class Tokens(TokenFile):
    """The tokens of one service. Without a file there are none."""

    host = "service"

    @classmethod
    def of(cls, data: Path) -> Self:
        """The tokens of the service of a data directory."""
        return cls(data / OWN / "tokens.json")

    def __len__(self) -> int:
        return len(self._current())

    def all(self) -> list[Token]:
        """Every token, the oldest first."""
        return sorted(self._current().values(), key=lambda token: (token.made, token.id))

    def add(self, name: str, roles: Iterable[str], streams: Iterable[str], now: int) -> str:
        """Make a token and return its text, which is stored nowhere."""
        checked, given = checked_roles(roles), tuple(dict.fromkeys(streams)) or (EVERY,)
        if not _NAME.fullmatch(name):
            raise SchemaError(
                "a token's name is 1 to 64 letters, digits, spaces or any of ._@-; say who has it"
            )
        mark, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        with self._lock, self.alone():
            known = dict(self._refreshed())
            known[mark] = Token(mark, name, checked, given, digest_of(secret), now)
            self._write(known)
        return f"pyr_{mark}_{secret}"

    def remove(self, mark: str) -> Token:
        """Remove a token; it admits nobody from now on."""
        with self._lock, self.alone():
            known = dict(self._refreshed())
            removed = known.pop(mark, None)
            if removed is None:
                raise MissingError(f"there is no token of this id; {nearest(mark, known)}")
            self._write(known)
        return removed

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from changing the tokens meanwhile."""
        with explained(self._path):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._path.with_name("tokens.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _missing(self, problem: OSError) -> None:
        if not isinstance(problem, FileNotFoundError):
            raise problem

    def _refuse_exposed(self, found: os.stat_result) -> None:
        refuse_exposed(self._path, found, TokensError)

    def _bytes(self) -> bytes:
        return read(self._path)

    def _parse(self, data: bytes) -> dict[str, Token]:
        try:
            return tokens_in_json(data)
        except FormatError:
            raise TokensError(
                "the file of tokens is damaged or from a newer version; restore it, or remove it "
                "and make the tokens anew"
            ) from None

    def _write(self, known: dict[str, Token]) -> None:
        tokens = [asdict(token) for token in known.values()]
        replace_durably(self._path, json.dumps({"format": 1, "tokens": tokens}, indent=1).encode())
        self._refreshed()
