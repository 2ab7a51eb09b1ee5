"""What people carry: an engineer's request, a custodian's grant, a revocation.

    request     who asks, for which arrivals and columns, why, of which broker; the envelopes
                of the files that hold them. Signed by the engineer's key
    grant       the keys of just those files, sealed anew to that broker for that engineer,
                columns and time, and for one purpose: to read or to erase a person. Signed by
                the custodian
    revocation  that a grant is over. Signed by the custodian

Nothing in them is secret to a bystander: a request has keys that the custodian alone opens,
a grant such that the broker alone opens, each bound to everything that the grant says. Where
files are locked, the store's locks are in both, for the broker alone: once that has ended, a
kept request opens nothing for the custodian either.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from typing import Any, ClassVar, Literal, Self, get_args

from pyramidion.errors import FormatError, SchemaError
from pyramidion.vault.envelope import (
    Envelope,
    Header,
    canonical,
    damaged,
    joined,
    lock_context,
)
from pyramidion.vault.key_pairs import PrivateKey, PublicKey, coded, decoded

Purpose = Literal["read", "erase"]
"""What a grant is for: its rows are read, or its files are rewritten without a person's rows."""
PURPOSES = get_args(Purpose)

LONGEST = 10_000  # letters of a reason


class Document:
    """Something signed, as JSON: its kind, what it says, and the signature over both."""

    kind: ClassVar[str]
    signature: bytes

    def said(self) -> dict[str, Any]:
        """All but the signature, as plain values."""
        raise NotImplementedError

    def body(self) -> bytes:
        """What is signed."""
        return canonical({"kind": self.kind, **self.said()})

    @property
    def digest(self) -> str:
        """Tells this document from every other."""
        return sha256(self.body()).hexdigest()

    def to_json(self) -> str:
        """The document for a file."""
        told = {"kind": self.kind, **self.said(), "signature": coded(self.signature)}
        return json.dumps(told, indent=1, sort_keys=True) + "\n"

    @classmethod
    def read(cls, text: str | bytes) -> dict[str, Any]:
        """A document's fields, if it is one of this kind."""
        try:
            told = json.loads(text)
        except (ValueError, RecursionError):
            told = None
        if not isinstance(told, dict) or told.get("kind") != cls.kind:
            raise FormatError(f"this file is no {cls.kind[:-2]}; give the one that was sent")
        del told["kind"]
        return told


@dataclass(frozen=True)
class Request(Document):
    """An engineer asks for rows that arrived from ``first`` up to, not with, ``last``."""

    kind: ClassVar[str] = "pyramidion vault request 1"

    id: str
    store: str
    made: int
    engineer: str
    key: PublicKey
    broker: PublicKey
    purpose: Purpose
    first: int
    last: int
    columns: tuple[str, ...]
    reason: str
    files: tuple[Envelope, ...]
    locks: tuple[bytes, ...]
    """The lock of each file, sealed to the broker; empty where it has none."""
    signature: bytes = b""

    @classmethod
    def make(
        cls,
        files: Sequence[Envelope],
        *,
        store: str,
        now: int,
        engineer: str,
        key: PrivateKey,
        broker: PublicKey,
        first: int,
        last: int,
        columns: Sequence[str],
        reason: str,
        purpose: Purpose = "read",
        locks: Mapping[str, bytes] | None = None,
    ) -> Self:
        """A signed request; ``locks`` has those of the store, by the names of files."""
        if not reason.strip() or len(reason) > LONGEST:
            raise SchemaError(
                f"a request needs a reason of 1 to {LONGEST} letters; say what the rows are for"
            )
        if not engineer.strip():
            raise SchemaError("a request needs the name of who asks; give one")
        if first >= last:
            raise SchemaError("a request ends before it begins; give --from before --to")
        draft = cls(
            id=secrets.token_hex(8),
            store=store,
            made=now,
            engineer=engineer,
            key=key.public,
            broker=broker,
            purpose=purpose,
            first=first,
            last=last,
            columns=tuple(columns),
            reason=reason,
            files=tuple(files),
            locks=tuple(_sealed_lock(file, broker, locks or {}) for file in files),
        )
        return cls(**_fields(draft) | {"signature": key.sign(draft.body())})

    def said(self) -> dict[str, Any]:
        """All but the signature."""
        told = _fields(self) | {
            "key": self.key.to_code(),
            "broker": self.broker.to_code(),
            "columns": list(self.columns),
            "files": [file.to_dict() for file in self.files],
            "locks": [coded(lock) for lock in self.locks],
        }
        del told["signature"]
        return told

    @classmethod
    def from_draft(cls, text: str | bytes, key: PrivateKey) -> Self:
        """A request that somebody else drafted, as a service does, signed by its engineer."""
        told = cls.read(text)
        told.pop("signature", None)
        signature = key.sign(canonical({"kind": cls.kind, **told}))
        signed = {"kind": cls.kind, **told, "signature": coded(signature)}
        return cls.from_json(json.dumps(signed))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """A request that its engineer signed."""
        told = _checked(cls, cls.read(text))
        request = cls(
            **told
            | {
                "key": PublicKey.from_code(told["key"]),
                "broker": PublicKey.from_code(told["broker"]),
                "columns": tuple(map(str, told["columns"])),
                "files": tuple(map(Envelope.of, told["files"])),
                "locks": tuple(decoded(lock, "a request") for lock in told["locks"]),
            }
        )
        if len(request.locks) != len(request.files) or request.purpose not in PURPOSES:
            raise _unlike("request")
        if not request.key.signed(request.signature, request.body()):
            raise FormatError("a request was changed after it was signed; have it sent again")
        return request


@dataclass(frozen=True)
class Granted:
    """A file that a grant opens: its header, and its key and lock, sealed to the broker."""

    header: Header
    wrapped: bytes
    lock: bytes

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        header = asdict(self.header) | {"columns": list(self.header.columns)}
        return {"header": header, "wrapped": coded(self.wrapped), "lock": coded(self.lock)}

    @classmethod
    def of(cls, told: Any) -> Self:
        """As JSON told it."""
        if not isinstance(told, dict):
            raise damaged()
        wrapped, lock = (decoded(told.get(name), "a grant") for name in ("wrapped", "lock"))
        return cls(Header.of(told.get("header")), wrapped, lock)


@dataclass(frozen=True)
class Grant(Document):
    """A custodian lets an engineer have rows, until ``expires``, through one broker."""

    kind: ClassVar[str] = "pyramidion vault grant 1"

    id: str
    request: str
    store: str
    custodian: PublicKey
    broker: PublicKey
    engineer: str
    key: PublicKey
    purpose: Purpose
    first: int
    last: int
    columns: tuple[str, ...]
    reason: str
    issued: int
    expires: int
    files: tuple[Granted, ...]
    signature: bytes = b""

    @classmethod
    def make(cls, request: Request, custodian: PrivateKey, *, now: int, expires: int) -> Self:
        """Approve a request: open the keys of its files, seal them to its broker, and sign."""
        if expires <= now:
            raise SchemaError("a grant would be over before it begins; give a later --expires")
        draft = cls(
            id=secrets.token_hex(8),
            request=request.digest,
            store=request.store,
            custodian=custodian.public,
            broker=request.broker,
            engineer=request.engineer,
            key=request.key,
            purpose=request.purpose,
            first=request.first,
            last=request.last,
            columns=request.columns,
            reason=request.reason,
            issued=now,
            expires=expires,
            files=(),
        )
        files = tuple(
            draft._granted(envelope, lock, custodian)
            for envelope, lock in zip(request.files, request.locks, strict=True)
        )
        granted = cls(**_fields(draft) | {"files": files})
        return cls(**_fields(granted) | {"signature": custodian.sign(granted.body())})

    def _granted(self, envelope: Envelope, lock: bytes, custodian: PrivateKey) -> Granted:
        header = envelope.header
        if header.store != self.store or header.last < self.first or header.first >= self.last:
            raise FormatError(
                f"vault file {header.name} has no row that the request is about; refuse it, and "
                f"ask who made it"
            )
        key = envelope.key(custodian)
        return Granted(header, self.broker.seal(key, self._context(header)), lock)

    def file_key(self, file: Granted, broker: PrivateKey) -> bytes:
        """The key of a file, for the broker that this grant is sealed to."""
        key = broker.open(file.wrapped, self._context(file.header))
        if not file.lock:
            return key
        return joined(key, broker.open(file.lock, lock_context(file.header)))

    def _context(self, header: Header) -> bytes:
        """Everything that a file's key is granted for."""
        told = self.said()
        del told["files"]
        return canonical({"kind": self.kind, **told, "header": asdict(header)})

    def said(self) -> dict[str, Any]:
        """All but the signature."""
        told = _fields(self) | {
            "custodian": self.custodian.to_code(),
            "broker": self.broker.to_code(),
            "key": self.key.to_code(),
            "columns": list(self.columns),
            "files": [file.to_dict() for file in self.files],
        }
        del told["signature"]
        return told

    @classmethod
    def from_json(cls, text: str | bytes, custodian: PublicKey) -> Self:
        """A grant that this custodian signed."""
        told = _checked(cls, cls.read(text))
        grant = cls(
            **told
            | {
                "custodian": PublicKey.from_code(told["custodian"]),
                "broker": PublicKey.from_code(told["broker"]),
                "key": PublicKey.from_code(told["key"]),
                "columns": tuple(map(str, told["columns"])),
                "files": tuple(map(Granted.of, told["files"])),
            }
        )
        if grant.custodian != custodian or not custodian.signed(grant.signature, grant.body()):
            raise FormatError(
                "a grant is not signed by this store's custodian, or was changed since; have it "
                "sent again"
            )
        if grant.purpose not in PURPOSES:
            raise _unlike("grant")
        return grant

    def refuse_unless(self, purpose: Purpose) -> None:
        """Raise for a grant that is for something else: what it is for is all that it does."""
        if self.purpose == purpose:
            return
        if purpose == "read":
            raise SchemaError(
                f"grant {self.id} is to erase a person and gives no rows; use it with "
                f"`erase-person --grant`, or ask for rows with `vault request`"
            )
        raise SchemaError(
            f"grant {self.id} is for reading and erases nobody; ask with `vault request --erase`"
        )


@dataclass(frozen=True)
class Revocation(Document):
    """A custodian takes a grant back."""

    kind: ClassVar[str] = "pyramidion vault revocation 1"

    grant: str
    made: int
    signature: bytes = b""

    @classmethod
    def make(cls, grant: str, custodian: PrivateKey, *, now: int) -> Self:
        """A signed revocation of the grant of this id."""
        return cls(grant, now, custodian.sign(cls(grant, now).body()))

    def said(self) -> dict[str, Any]:
        """All but the signature."""
        return {"grant": self.grant, "made": self.made}

    @classmethod
    def from_json(cls, text: str | bytes, custodian: PublicKey) -> Self:
        """A revocation that this custodian signed."""
        found = cls(**_checked(cls, cls.read(text)))
        if not custodian.signed(found.signature, found.body()):
            raise FormatError(
                "a revocation is not signed by this store's custodian, or was changed since; have "
                "it sent again"
            )
        return found


_LISTS = ("columns", "files", "locks")
_WHOLE = ("made", "issued", "expires", "first", "last")


def _sealed_lock(file: Envelope, broker: PublicKey, locks: Mapping[str, bytes]) -> bytes:
    if not file.locked:
        return b""
    return broker.seal(locks[file.header.name], lock_context(file.header))


def _fields(document: Any) -> dict[str, Any]:
    return {field.name: getattr(document, field.name) for field in fields(document)}


def _checked(cls: type, told: dict[str, Any]) -> dict[str, Any]:
    """The fields of a document, each of the type it has; the signature as bytes."""
    if set(told) != {field.name for field in fields(cls)}:
        raise _unlike(cls.__name__.lower())
    for name, value in told.items():
        kind = list if name in _LISTS else int if name in _WHOLE else str
        if not isinstance(value, kind) or isinstance(value, bool):
            raise _unlike(cls.__name__.lower())
    return told | {"signature": decoded(told["signature"], f"a {cls.__name__.lower()}")}


def _unlike(what: str) -> FormatError:
    return FormatError(
        f"a {what} is damaged or from a newer version; have it sent again, or upgrade pyramidion"
    )
