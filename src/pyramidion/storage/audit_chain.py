"""The chain of an audit log: entries, each bound to the one before and signed by a key used once.

    entry 0 ──hash──► entry 1 ──hash──► entry 2          previous: the hash of the entry before
       └────next───────┘ └────next───────┘               next: the key that signs the entry after

An entry's *signature* is over all its fields but signature and hash; its *hash* over all but
itself, both as canonical JSON: keys sorted, no spaces, ASCII. The private half of a key is
destroyed once it has signed, so who breaks in later can sign nothing in the place of an entry
that is there. Two entries name a key of their own in their facts: entry 0, which it signs, and
``store.copied``, which is followed by ``store.restored`` in the copy and nowhere else.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import Any, Self, TypeGuard

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pyramidion.config.checks import encodable
from pyramidion.errors import SchemaError

GENESIS, COPIED, RESTORED = "log.genesis", "store.copied", "store.restored"
CONFIRMED = "clock.confirmed"
"""The one kind of entry that may be earlier than the one before: a person set the clock."""
NOTHING = "0" * 64
"""The hash that stands before entry 0."""

MOST = 64 * 1024  # bytes of the facts of an entry
LARGEST = 2**63 - 1
KIND = re.compile(r"[a-z]+(\.[a-z]+)*")
HEX = re.compile(r"[0-9a-f]+")

Fact = str | int | list[str] | list[int] | list[str | int] | None
Facts = Mapping[str, Fact]
GRANT_USED = ("vault.opened", "vault.rewritten")
"""Kinds of entries that say that a grant of the vault was used: to read, or to erase."""


@dataclass(frozen=True)
class Entry:
    """What happened, when, and what binds it to the entries before and after."""

    number: int
    at: int
    """Microseconds since 1970, never less than the entry before says."""
    kind: str
    facts: Facts
    previous: str
    next: str
    """The public key that signs the entry after this one."""
    signature: str
    hash: str

    @property
    def line(self) -> str:
        """The entry as a line of an export."""
        return canonical(_fields(self))

    @classmethod
    def of(cls, line: str) -> Self:
        """The entry that a line says; raises `ValueError` for what is none."""
        told = json.loads(line)
        if not isinstance(told, dict) or set(told) != {each.name for each in fields(cls)}:
            raise ValueError("not the fields of an entry")
        entry = cls(**told)
        refuse_unusable(entry.kind, entry.at, entry.facts)
        keys = ((entry.previous, 64), (entry.next, 64), (entry.signature, 128), (entry.hash, 64))
        if not _whole(entry.number) or not all(_hex(*each) for each in keys):
            raise ValueError("not the values of an entry")
        return entry

    @property
    def contents(self) -> str:
        """The hash that this entry must have."""
        return sha256(canonical(_fields(self, "hash")).encode()).hexdigest()

    def signed_by(self, key: Fact) -> bool:
        """Whether the private half of this public key made the signature."""
        told = canonical(_fields(self, "signature", "hash")).encode()
        try:
            public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(str(key)))
            public.verify(bytes.fromhex(self.signature), told)
        except (InvalidSignature, ValueError):
            return False
        return True

    def signer(self, before: Entry | None) -> Fact:
        """The public key that must have signed this entry."""
        if before is None:
            return self.facts.get("key")
        if before.kind == COPIED and self.kind == RESTORED and not self.signed_by(before.next):
            return before.facts.get("key")
        return before.next


def _fields(entry: Entry, *but: str) -> dict[str, Any]:
    return {each.name: getattr(entry, each.name) for each in fields(entry) if each.name not in but}


def canonical(value: Mapping[str, Any]) -> str:
    """JSON that can be written in one way only.

    >>> canonical({"b": ["é", 1], "a": None})
    '{"a":null,"b":["\\\\u00e9",1]}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _whole(value: object) -> TypeGuard[int]:
    return type(value) is int and -LARGEST <= value <= LARGEST


def _hex(value: object, digits: int) -> bool:
    return isinstance(value, str) and len(value) == digits and HEX.fullmatch(value) is not None


def refuse_unusable(kind: object, at: object, facts: object) -> None:
    """Raise for what an entry may not say."""
    if not isinstance(kind, str) or not KIND.fullmatch(kind) or len(kind) > 100:
        raise SchemaError("the kind of an audit entry is words with dots; write 'store.created'")
    if not _whole(at) or at < 0:
        raise SchemaError(
            f"the time of a {kind!r} entry is whole microseconds since 1970; give an int"
        )
    if not isinstance(facts, Mapping):
        raise SchemaError(f"the facts of a {kind!r} entry are names and values; give a mapping")
    for name, value in facts.items():
        each = value if isinstance(value, list) else [value] if value is not None else []
        if not isinstance(name, str) or not all(map(_plain, [name, *each])):
            raise SchemaError(
                f"the fact {name!r} of a {kind!r} entry is not text, a whole number, None or a "
                f"list of these; make it one"
            )
    if len(canonical(facts)) > MOST:
        raise SchemaError(f"the facts of a {kind!r} entry are over {MOST} bytes; say less")


def _plain(value: object) -> bool:
    return _whole(value) or (type(value) is str and encodable(value))


# --- writing --------------------------------------------------------------------------------


def fresh() -> bytes:
    """A new private key as it is stored, drawn by the operating system.

    OpenSSL would draw it with a generator of its own, which now and then never answers in a
    process that was forked.
    """
    return os.urandom(32)


def public(private: bytes) -> str:
    """The public half of a stored private key."""
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw().hex()


def signed(
    before: Entry | None, private: bytes, kind: str, at: int, facts: Facts
) -> tuple[Entry, bytes]:
    """The entry after another one, and the private key that signs what follows it."""
    refuse_unusable(kind, at, facts)
    following = fresh()
    if before is None:
        number, previous = 0, NOTHING
    else:
        number, previous = before.number + 1, before.hash
        at = at if kind == CONFIRMED else max(at, before.at)
    draft = Entry(number, at, kind, facts, previous, public(following), "", "")
    told = canonical(_fields(draft, "signature", "hash")).encode()
    signature = Ed25519PrivateKey.from_private_bytes(private).sign(told).hex()
    whole = Entry(number, at, kind, facts, previous, draft.next, signature, "")
    return Entry(**(_fields(whole) | {"hash": whole.contents})), following


def genesis() -> tuple[Entry, bytes]:
    """Entry 0 of a new log, and the private key that signs what follows it."""
    private = fresh()
    return signed(None, private, GENESIS, 0, {"key": public(private)})


# --- verifying ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verification:
    """Whether a log is as it was written, and if not, what is wrong with which entry."""

    entries: int
    first: str
    """The hash of entry 0: the log's fingerprint."""
    head: str
    """The hash of the last entry; note it elsewhere, and later logs must have it."""
    problems: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


class Chain:
    """Goes along a log line by line, and notes all that is wrong."""

    def __init__(self, *, head: str | None = None, first: str | None = None) -> None:
        self._head = None if head is None else checked_hash(head)
        self._first = None if first is None else checked_hash(first)
        self._found = head is None
        self._expected = 0
        self._count = 0
        self._begin = ""
        self.last: Entry | None = None
        """None before entry 0, and after a line that says nothing."""
        self.problems: list[str] = []

    def add(self, line: str) -> None:
        """Check the next line."""
        self._count += 1
        try:
            entry = Entry.of(line)
            if entry.line != line:
                raise ValueError("written another way")
        except (TypeError, ValueError, RecursionError):
            self.problems.append(
                f"entry {self._expected} was edited: it is not written as an entry is"
            )
            self.last, self._expected = None, self._expected + 1
            return
        self.problems += self._wrong(entry)
        self._found |= entry.hash == entry.contents == self._head
        self._begin = entry.hash if self._count == 1 else self._begin
        self.last, self._expected = entry, entry.number + 1

    def _wrong(self, entry: Entry) -> Iterator[str]:
        before, name = self.last, f"entry {entry.number}"
        if entry.number != self._expected:
            yield (
                f"{name} stands where entry {self._expected} should: entries were removed, "
                f"repeated or moved"
            )
        if entry.hash != entry.contents:
            yield f"{name} was edited: its hash is not that of its contents"
        if self._count == 1 and entry.previous != NOTHING:
            yield f"{name} is not the beginning of a log"
        if (entry.kind == GENESIS) != (entry.number == 0):
            yield f"{name} is of kind {entry.kind!r}: entry 0, and it alone, is {GENESIS!r}"
        if before is None and self._count > 1:
            return  # the entry before says nothing, and is told
        if before is not None and entry.previous != before.hash:
            yield f"{name} does not follow the entry before it: one of them was changed"
        if not entry.signed_by(entry.signer(before)):
            yield f"{name} is not signed by the key that the entry before it names"
        if before is not None and entry.at < before.at and entry.kind != CONFIRMED:
            yield f"{name} is earlier than the entry before it"

    def end(self) -> Verification:
        """What is known once all lines are through."""
        problems = list(self.problems)
        if self._count == 0:
            problems.append("there is no entry 0: the log is empty")
        if not self._found:
            problems.append(
                "the noted head is not in the log: the entries up to it were cut off or rewritten"
            )
        if self._first is not None and self._first != self._begin:
            problems.append("entry 0 is not the noted first one: this is another log")
        last = "" if self.last is None else self.last.hash
        return Verification(self._count, self._begin, last, problems)


def checked_hash(text: str) -> str:
    """A hash as people note it.

    >>> checked_hash(" AB" + 62 * "0" + "\\n")[:3]
    'ab0'
    """
    told = text.strip().lower()
    if not _hex(told, 64):
        raise SchemaError("a noted hash is 64 hexadecimal digits; give it as it was printed")
    return told


def verify_lines(
    lines: Iterable[str], *, head: str | None = None, first: str | None = None
) -> Verification:
    """Check an export, as `AuditLog.verify` checks a log.

    An export does not tell whether entries were cut off at its end; a ``head`` that was noted
    elsewhere does. ``first`` is the hash of entry 0, by which a log is told from another one.
    """
    chain = Chain(head=head, first=first)
    for line in lines:
        chain.add(line.removesuffix("\n"))
    return chain.end()
