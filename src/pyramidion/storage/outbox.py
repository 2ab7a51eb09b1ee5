"""What was done with a store and the audit log does not tell yet.

The log is a file of its own, so no entry can be part of the transaction that does what it
tells. So that transaction notes the entry in the catalogue. Then it is appended, and the note
goes:

    what is done, and the note ── the entry ── the note goes

What a full disk, a damaged log or a crash kept from being told is told as soon as the log
takes entries: after the next thing that is done, at `advance`, at `open`. Whoever comes back
after a crash looks first whether the entry is there: nothing is told twice.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TypeVar

from pyramidion.errors import FormatError, PyramidionError, StorageError
from pyramidion.storage.audit_chain import Entry, Fact, refuse_unusable
from pyramidion.storage.audit_log import AuditLog
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.deletions import Kind
from pyramidion.storage.fault_points import reach

T = TypeVar("T")

UNTOLD = "untold"
"""The fact in the catalogue that holds the notes."""
MOST_WHY = 1_000  # letters of a reason that the audit log keeps
ERASURES: dict[str, Kind] = {
    "tables.withdrawn": "withdrawn",
    "tables.rebuilt": "rebuilt",
    "person.erased": "person",
    "store.reseeded": "ended",
}
"""Which erasure does what an entry tells. A verb may seal windows first: that is not it."""


@dataclass(frozen=True)
class Note:
    """An entry to come; it is none of those before ``since``."""

    kind: str
    at: int
    facts: dict[str, Fact]
    since: int

    def is_told_by(self, entry: Entry) -> bool:
        """Whether an entry is this one."""
        same = entry.kind == self.kind and dict(entry.facts) == self.facts
        return same and entry.at >= self.at


class Untold:
    """The notes of one store, and its log."""

    def __init__(self, catalogue: Catalogue, log: AuditLog) -> None:
        self._catalogue, self._log = catalogue, log
        self._telling = threading.Lock()
        self._known = 0
        with suppress(FormatError, StorageError):
            self._known = log.length
        self._deed: Note | None = None

    # --- what is done -----------------------------------------------------------------------

    def do(self, kind: str, at: int, facts: dict[str, Fact], verb: Callable[[], T]) -> T:
        """Do a verb that ends in an erasure, which notes it; then the log tells it, or raises.

        What breaks off after its erasure was done all the same, and is told.
        """
        told = {n: v[:MOST_WHY] if isinstance(v, str) else v for n, v in facts.items()}
        refuse_unusable(kind, at, told)
        self._deed = Note(kind, at, told, self._known)
        try:
            done = verb()
        except BaseException:
            self._deed = None
            self.make_up()
            raise
        self._note_deed()  # where nothing was erased
        reach("log.noted")
        self.tell()
        return done

    def erased(self, kind: Kind) -> None:
        """An erasure is being done: the one of a verb, or another; within its transaction."""
        if self._deed is not None and ERASURES.get(self._deed.kind) == kind:
            self._note_deed()

    def _note_deed(self) -> None:
        note, self._deed = self._deed, None
        if note is not None:
            self._keep(note)

    def note(self, kind: str, at: int, **facts: Fact) -> None:
        """Note an entry; within the transaction that does what it tells."""
        self._keep(Note(kind, at, facts, self._known))

    def _keep(self, note: Note) -> None:
        with self._catalogue.transaction():
            self._write([*self.notes(), note])

    def append(self, kind: str, at: int, **facts: Fact) -> None:
        """Tell what is about to be done, or raise."""
        self._known = self._log.append(kind, at, **facts).number + 1

    # --- what is told -----------------------------------------------------------------------

    def notes(self) -> list[Note]:
        """What waits to be told, in order."""
        return [Note(**note) for note in json.loads(self._catalogue.about(UNTOLD, "[]"))]

    def entries(self) -> Iterator[Entry]:
        """What the log tells."""
        return self._log.entries()

    def tell(self) -> None:
        """Append all that waits; raises what the log raises. Not within a transaction."""
        with self._telling:
            since = 0
            for note in self.notes():
                since = max(since, note.since)
                found = [e.number for e in self._log.entries(since) if note.is_told_by(e)]
                if not found:
                    found = [self._log.append(note.kind, note.at, **note.facts).number]
                since = self._known = found[0] + 1
                reach("log.told")
                self._forget(note)

    def make_up(self) -> None:
        """Append what can be appended now: a log that takes nothing keeps nobody from anything."""
        with suppress(PyramidionError):
            self.tell()

    def _forget(self, note: Note) -> None:
        with self._catalogue.transaction():
            notes = self.notes()
            notes.remove(note)
            self._write(notes)

    def _write(self, notes: list[Note]) -> None:
        if notes:
            self._catalogue.note(untold=json.dumps([asdict(note) for note in notes]))
        else:
            self._catalogue.run("DELETE FROM about WHERE name = ?", UNTOLD)
