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
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TypeVar

from pyramidion.errors import FormatError, PyramidionError, StorageError
from pyramidion.storage.audit_chain import Entry, Fact, refuse_unusable
from pyramidion.storage.audit_log import AuditLog
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.fault_points import reach

T = TypeVar("T")

UNTOLD = "untold"
"""The fact in the catalogue that holds the notes."""
MOST_WHY = 1_000  # letters of a reason that the audit log keeps


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


class PendingEntry:
    """An entry that is stored with the change it tells of, as an edit of that change."""

    def __init__(self, outbox: AuditOutbox, note: Note) -> None:
        self._outbox, self._note = outbox, note
        self.stored = False

    def write(self, at: int) -> Collection[int]:  # noqa: ARG002
        """Store it; within the transaction of the change."""
        self._outbox.keep(self._note)
        self.stored = True
        return ()

    def remember(self) -> None:
        """It is read from the catalogue."""


class AuditOutbox:
    """The notes of one store, and its log."""

    def __init__(self, catalogue: Catalogue, log: AuditLog) -> None:
        self._catalogue, self._log = catalogue, log
        self._telling = threading.Lock()
        self._known = 0
        with suppress(FormatError, StorageError):
            self._known = log.length

    # --- what is done -----------------------------------------------------------------------

    def do(
        self, kind: str, at: int, facts: dict[str, Fact], verb: Callable[[PendingEntry], T]
    ) -> T:
        """Run a verb that commits its entry with what it does; then append the entry, or raise.

        The verb is given the pending entry. If it does not commit it, nothing was erased, and the
        entry is stored afterwards. A verb that fails after its commit has happened all the same:
        its entry is appended.
        """
        short = {n: v[:MOST_WHY] if isinstance(v, str) else v for n, v in facts.items()}
        refuse_unusable(kind, at, short)
        entry = PendingEntry(self, Note(kind, at, short, self._known))
        try:
            done = verb(entry)
        except BaseException:
            self.make_up()
            raise
        if not entry.stored:
            entry.write(at)
        reach("log.noted")
        self.tell()
        return done

    def note(self, kind: str, at: int, **facts: Fact) -> None:
        """Note an entry; within the transaction that does what it tells."""
        self.keep(Note(kind, at, facts, self._known))

    def keep(self, note: Note) -> None:
        """Store a note; within the transaction that does what it tells."""
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
            self._catalogue.forget(UNTOLD)
