"""What is known of a sealed file, and its key, which the custodian alone can open.

    header      name, store, arrivals, rows, columns, digest of the encrypted bytes: public
    wrapped     the file's key, sealed to the custodian (HPKE), the header bound in

A changed header, or a key that belongs to another file, does not open. Where the vault
forgets after a time, the file is *locked*: what is wrapped is the exclusive or of its key and
a lock, as long and as random, that the store keeps until that time is over. Either tells
nothing of the key without the other. So the custodian's key opens the file no more then, in no
copy, whatever else was kept.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from pyramidion.errors import FormatError
from pyramidion.vault.key_pairs import PrivateKey, PublicKey, coded, decoded

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
    def seal(
        cls, header: Header, key: bytes, custodian: PublicKey, *, lock: bytes | None = None
    ) -> Self:
        """Seal a file's key to the custodian; who calls this forgets it then."""
        locked = lock is not None
        half = key if lock is None else joined(key, lock)
        return cls(header, custodian.seal(half, _context(header, locked)), locked)

    def key(self, custodian: PrivateKey) -> bytes:
        """For who holds the custodian's private half, the file's key; of a locked file, a half.

        `joined` with the lock it is the key.
        """
        return custodian.open(self.wrapped, _context(self.header, self.locked))

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


def joined(half: bytes, lock: bytes) -> bytes:
    """A key of a half and its lock, or the other way round.

    >>> joined(joined(b"key", b"abc"), b"abc")
    b'key'
    """
    return bytes(one ^ other for one, other in zip(half, lock, strict=True))


def canonical(told: object) -> bytes:
    """JSON with one way to write each thing."""
    return json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def damaged() -> FormatError:
    """An envelope that says something else than envelopes do."""
    return FormatError(
        "the envelope of a vault file is damaged or from a newer version; restore it from a "
        "copy of the vault, or upgrade pyramidion"
    )


def _context(header: Header, locked: bool) -> bytes:
    what = b"pyramidion half of a vault key\n" if locked else b"pyramidion vault key\n"
    return what + header.canonical()


def lock_context(header: Header) -> bytes:
    """What a lock is sealed to a broker for."""
    return b"pyramidion vault lock\n" + header.canonical()
