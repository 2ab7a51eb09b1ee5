"""What is known of a sealed file, and its key, which the custodian alone can open.

    header      name, store, arrivals, rows, columns, digest of the encrypted bytes: public
    wrapped     the file's key, sealed to the custodian (HPKE), the header bound in

A changed header, or a key that belongs to another file, does not open. Where the vault
forgets after a time, what was wrapped is *locked* under a key that dies with the file's
time: then the custodian's key opens it no more, in no copy.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from pyramidion.errors import FormatError, StateError
from pyramidion.storage.ciphers import opened, sealed
from pyramidion.vault.custody import PrivateKey, PublicKey, coded, decoded

KIND = "pyramidion vault file 1"


@dataclass(frozen=True)
class Header:
    """A file of the vault. Times are arrivals, in microseconds since 1970."""

    name: str
    store: str
    custodian: str
    first: int
    last: int
    first_batch: int
    last_batch: int
    rows: int
    size: int
    columns: tuple[str, ...]
    digest: str

    def canonical(self) -> bytes:
        """The same bytes wherever it is written."""
        return canonical(asdict(self))

    @classmethod
    def of(cls, told: Any) -> Self:
        """A header as JSON told it."""
        wanted = {field.name: str(field.type) for field in fields(cls)}
        if not isinstance(told, dict) or set(told) != set(wanted):
            raise damaged()
        for name, kind in wanted.items():
            value = told[name]
            ok = isinstance(value, int) and not isinstance(value, bool)
            if kind == "str":
                ok = isinstance(value, str)
            elif kind.startswith("tuple"):
                ok = isinstance(value, list) and all(isinstance(each, str) for each in value)
            if not ok:
                raise damaged()
        return cls(**{**told, "columns": tuple(told["columns"])})


@dataclass(frozen=True)
class Envelope:
    """A header with the file's key, sealed."""

    header: Header
    wrapped: bytes
    locked: bool = False

    @classmethod
    def seal(cls, header: Header, key: bytes, custodian: PublicKey) -> Self:
        """Seal a file's key to the custodian; who calls this forgets it then."""
        return cls(header, custodian.seal(key, _context(header)))

    def key(self, custodian: PrivateKey) -> bytes:
        """The file's key, for who holds the custodian's private half."""
        if self.locked:
            raise StateError(
                f"vault file {self.header.name} is locked by its store; ask with a request that "
                f"the store makes"
            )
        return custodian.open(self.wrapped, _context(self.header))

    def lock(self, key: bytes) -> Self:
        """Lock what is wrapped under a key of the store."""
        made = b"".join(sealed(key, [self.wrapped], _context(self.header)))
        return replace(self, wrapped=made, locked=True)

    def unlock(self, key: bytes) -> Self:
        """Take the store's lock off."""
        what = f"the envelope of vault file {self.header.name}"
        data = opened(key, self.wrapped, _context(self.header), what=what)
        return replace(self, wrapped=bytes(data), locked=False)

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        header = {name: coded(value) for name, value in asdict(self.header).items()}
        return {
            "kind": KIND,
            "header": {**header, "columns": list(self.header.columns)},
            "wrapped": coded(self.wrapped),
            "locked": self.locked,
        }

    def to_bytes(self) -> bytes:
        """One line of JSON."""
        return canonical(self.to_dict()) + b"\n"

    @classmethod
    def of(cls, told: Any) -> Self:
        """An envelope as JSON told it."""
        if not isinstance(told, dict) or told.get("kind") != KIND:
            raise damaged()
        locked = told.get("locked")
        if not isinstance(locked, bool):
            raise damaged()
        wrapped = decoded(told.get("wrapped"), "the envelope of a vault file")
        return cls(Header.of(told.get("header")), wrapped, locked)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """What `to_bytes` made."""
        try:
            told = json.loads(data)
        except (ValueError, RecursionError):
            told = None
        return cls.of(told)


def canonical(told: object) -> bytes:
    """JSON with one way to write each thing."""
    return json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def damaged() -> FormatError:
    """An envelope that says something else than envelopes do."""
    return FormatError(
        "the envelope of a vault file is damaged or from a newer version; restore it from a "
        "copy of the vault, or upgrade pyramidion"
    )


def _context(header: Header) -> bytes:
    return b"pyramidion vault key\n" + header.canonical()
