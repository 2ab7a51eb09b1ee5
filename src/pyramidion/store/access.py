"""How the classes behind `store.models`, `store.groups` and the others reach an open store.

`Pyramid` makes these objects when they are asked for and keeps none of them. They hold its bound
methods, so keeping them would make a reference cycle, and a store that is dropped without `close`
would stay in memory, with its threads, until the garbage collector runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pyramidion.storage.audit_log import Fact
from pyramidion.storage.outbox import AuditOutbox, PendingEntry
from pyramidion.workers import Threads

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Access:
    """What every public method needs: a check, the time, a thread to work in, the audit log."""

    threads: Threads
    outbox: AuditOutbox
    present: Callable[[], int]
    """The time of the system clock, in microseconds, by which the audit log is dated."""
    check_open: Callable[[], None]
    """Raises `StateError` if the store is closed."""
    now: Callable[[], int]
    """The store's own time, in microseconds."""
    start_due_work: Callable[[int], None]
    """Does in the background what is due at a time."""

    def begin(self) -> int:
        """Raise if the store is closed; return its time."""
        self.check_open()
        return self.now()

    def run(self, work: Callable[[], T]) -> T:
        """Do work in the thread that moves windows, and wait for it."""
        return self.threads.move(work)

    def record(
        self, kind: str, now: int, facts: dict[str, Fact], work: Callable[[PendingEntry], T]
    ) -> T:
        """Do work as `run` does, given its audit log entry, which an erasure commits with itself.

        Then the entry is appended to the log.
        """
        at = max(now, self.present())
        return self.run(lambda: self.outbox.do(kind, at, facts, work))
