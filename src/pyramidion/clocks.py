"""The time that a store goes by.

A clock that is given (a test's, a demo's, ``--now``) is trusted: the store goes by it. By the
system's clock the store goes by the latest time that it has seen, with one exception: a history
that was imported has ended at some time of the past, and by today's clock all of it may be past
its time. So its store goes by the rows, until rows come that are not a history:

    nothing yet ── import ──► goes by its rows ── the first live rows ──► goes by the system's clock
         └───────────────────────── live rows ───────────────────────────────────▲
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

Clock = Callable[[], float]
"""Seconds since 1970."""

Follows = Literal["nothing", "rows", "system", "given"]
"""What moves a store's time: nothing came yet, imported rows, the system's clock, a given one."""

FOLLOWS = "clock_follows"
"""The fact in the catalogue that says which; a store without it goes by the system's clock."""

SECOND = 1_000_000  # microseconds
_SYSTEM = time.time


@dataclass(frozen=True)
class ClockStatus:
    """The time that a store goes by."""

    follows: Follows
    present: int
    """The time by the clock, in microseconds since 1970; the store's own may be earlier."""


class SystemClock:
    """The system's clock, in seconds since 1970."""

    def __init__(self, wall: Clock = time.time) -> None:
        self._wall = wall

    def __call__(self) -> float:
        """What the system's clock shows."""
        return self._wall()


def clock_of(clock: Clock) -> Clock:
    """The clock that a store goes by; ``time.time`` is the system's, which is not just trusted."""
    return SystemClock() if clock in (_SYSTEM, time.time) else clock


class StoreClock:
    """What time it is for a store, in microseconds since 1970; it never goes back.

    ``latest`` is the time of the newest acknowledged row, ``follows`` what moved the time so far.

    >>> clock = StoreClock(SystemClock(lambda: 500.0), latest=0, follows="nothing")
    >>> clock.rows_came(100 * SECOND, history=True)
    >>> clock.now() // SECOND, clock.present() // SECOND
    (100, 500)
    >>> clock.rows_came(500 * SECOND, history=False)
    >>> clock.now() // SECOND
    500
    """

    def __init__(self, clock: Clock, *, latest: int, follows: str = "system") -> None:
        self._clock = clock_of(clock)
        self._lock = threading.Lock()
        self._given = not isinstance(self._clock, SystemClock)
        self._latest = self._rows = latest
        self.noted = cast(Follows, follows)
        """What moves the time of the store, as its catalogue says."""

    @property
    def follows(self) -> Follows:
        """What moves the time of the store; a clock that is given does."""
        return "given" if self._given else self.noted

    def status(self) -> ClockStatus:
        """What a store goes by."""
        return ClockStatus(self.follows, self.present())

    def now(self) -> int:
        """The store's time: what is due by it is done."""
        return self._rows if self.follows == "rows" else self.present()

    def present(self) -> int:
        """The time by the clock, also where the store goes by its rows."""
        shown = int(self._clock() * SECOND)
        with self._lock:
            self._latest = max(self._latest, shown)
            return self._latest

    def becomes(self, *, history: bool) -> Follows:
        """What moves the time once rows are acknowledged: of a history, or live ones."""
        return "rows" if history and self.noted in ("nothing", "rows") else "system"

    def rows_came(self, now: int, *, history: bool) -> None:
        """Rows were acknowledged at a time."""
        self.noted = self.becomes(history=history)
        with self._lock:
            self._rows = max(self._rows, now)
            if self._given:
                self._latest = max(self._latest, now)
