"""When a copy must go, wherever it is: by a clock that never goes back.

What the store hands out, a snapshot or a model, ends when the store's own does, also where
there is no network any more and where somebody sets the clock back.

The clock shows the latest of the system's clock, of what has passed since it was made (by a clock
that nobody sets, and that goes on while the machine sleeps), and of every time it was told
of: that of the audit log's last entry, first of all, which outlives the process. Set ahead,
it stays ahead: what ends by it ends too early rather than too late.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def wall() -> int:
    """The system's clock, in microseconds since 1970."""
    return time.time_ns() // 1_000


def passing() -> int:
    """Microseconds since the machine started; where there is such a clock, asleep or awake."""
    return time.clock_gettime_ns(_BOOT) // 1_000


class HighWater:
    """The time, in microseconds since 1970, at least ``latest`` and never less than it was.

    >>> times = iter([1_000, 5_000, 2_000])
    >>> clock = HighWater(0, wall=lambda: next(times), passing=lambda: 0)
    >>> clock(), clock()
    (5000, 5000)
    >>> HighWater(7_000, wall=lambda: 3, passing=lambda: 0)()
    7000
    """

    def __init__(
        self,
        latest: int = 0,
        *,
        wall: Callable[[], int] = wall,
        passing: Callable[[], int] = passing,
    ) -> None:
        self._wall, self._passing = wall, passing
        self._lock = threading.Lock()
        self._mark, self._marked = max(latest, wall()), passing()

    def __call__(self) -> int:
        """What time it is."""
        return self.seen(0)

    def seen(self, at: int) -> int:
        """What time it is, now that somebody has seen this one."""
        with self._lock:
            passed, shown = self._passing(), self._wall()
            latest = self._mark + (passed - self._marked if passed > self._marked else 0)
            if shown > latest:  # no max(): every row that is featurized asks
                latest = shown
            self._mark, self._marked = latest if latest > at else at, passed
            return self._mark


class Deadline:
    """The moment from which on a copy answers no more, in microseconds since 1970.

    ``clock`` is in seconds, as the store's, or a `HighWater` that several deadlines share; it is
    at least ``latest``, such as when the store made the copy. Once passed, a deadline stays passed.

    >>> times = iter([1.0, 2.0, 5.0, 1.0])
    >>> deadline = Deadline(5_000_000, lambda: next(times), passing=lambda: 0)
    >>> deadline.passed(), deadline.passed(), deadline.passed()
    (False, True, True)
    """

    def __init__(
        self,
        expires_us: int,
        clock: Callable[[], float] | HighWater,
        *,
        latest: int = 0,
        passing: Callable[[], int] = passing,
    ) -> None:
        self.expires = expires_us
        if isinstance(clock, HighWater):
            self._time = clock
            clock.seen(latest)
        else:
            self._time = HighWater(latest, wall=lambda: int(clock() * 1_000_000), passing=passing)

    def now(self) -> int:
        """What time it is: the latest of the clock, of what it showed, and of what has passed."""
        return self._time()

    def passed(self) -> bool:
        """Whether the copy must answer no more."""
        return self._time.seen(0) >= self.expires
