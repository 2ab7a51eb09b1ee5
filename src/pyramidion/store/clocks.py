"""The time that a store goes by, and what keeps a wrong clock from erasing anything.

A clock that is given (a test's, a demo's, ``--now``) is trusted: the store goes by it. The system's
clock is compared, at every reading, with two others:

- the *boot-time clock*, which nobody sets and which goes on while the machine sleeps: since the
  store was opened both must have counted the same time;
- the *stored clock*, the latest time that the store has seen: the system's must not be far behind.

`LIMIT` is how far apart they may be, and `DRIFT` what a clock may gain or lose over time: steps of
NTP are below a second, and its slewing is below 0.05 %. Beyond that there is an `Alarm`. From then
on the store goes by its *own time*: the last one that all clocks agreed on, and what the boot-time
clock has counted since. Nothing is erased or sealed by it, and a person says which clock is right.

One store goes by neither: a history that was imported has ended at some time of the past, and by
today's clock all of it may be past its time. So its store goes by the rows, until rows come that
are not a history:

    nothing yet ── import ──► goes by its rows ── the first live rows ──► goes by the system's clock
         └───────────────────────── live rows ───────────────────────────────────▲
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, NamedTuple, cast

from pyramidion.errors import StateError

Clock = Callable[[], float]
"""Seconds since 1970."""

Follows = Literal["nothing", "rows", "system", "given"]
"""What moves a store's time: nothing came yet, imported rows, the system's clock, a given one."""

FOLLOWS = "clock_follows"
"""The fact in the catalogue that says which; a store without it goes by the system's clock."""
ALARM = "clock_alarm"
"""The fact in the catalogue that there is an alarm, and which."""

SECOND = 1_000_000  # microseconds
LIMIT = 1_000 * SECOND
"""How far clocks may be apart: as far as ntpd sets a clock without being told to by a person."""
DRIFT = 1_000  # of so many seconds that pass, clocks may differ by one
_SYSTEM = time.time
_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def since_boot() -> float:
    """Seconds since the machine started, asleep or awake where the system counts that."""
    return time.clock_gettime(_BOOT)


def boot_id() -> str:
    """A text that is another one after each start of the machine; empty where there is none."""
    with suppress(OSError):
        return _BOOT_ID.read_text("ascii").strip()
    return ""


class Reading(NamedTuple):
    """What the system's clocks show at one moment, in microseconds."""

    wall: int
    boot: int


class SystemClock:
    """The system's clocks: the one that people set, and the one that counts since the start.

    ``boot_id`` tells one start of the machine from another.
    """

    def __init__(
        self,
        wall: Clock = time.time,
        boot: Callable[[], float] = since_boot,
        boot_id: Callable[[], str] = boot_id,
    ) -> None:
        self._wall, self._boot = wall, boot
        self.boot_id = boot_id()

    def __call__(self) -> float:
        """Seconds since 1970, as the system's clock shows them."""
        return self._wall()

    def read(self) -> Reading:
        """Both clocks."""
        return Reading(int(self._wall() * SECOND), int(self._boot() * SECOND))


@dataclass(frozen=True)
class Alarm:
    """Clocks disagreed: when that was, by the store's own time, and what the system's showed."""

    at: int
    shown: int
    boot: int = 0
    boot_id: str = ""
    """The boot-time clock at that moment, and which start of the machine it counts from."""
    step: int = 0
    window: int = 0
    """The first hot step and the first window that take rows from then on."""

    def to_json(self) -> str:
        """For the catalogue."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Alarm | None:
        """What `to_json` made; None for no text."""
        return cls(**json.loads(text)) if text else None


@dataclass(frozen=True)
class ClockStatus:
    """The time that a store goes by. Times are microseconds since 1970."""

    follows: Follows
    present: int
    """The time by the clock; the store's own is earlier where it follows imported rows."""
    system: int
    """What the clock shows: in an alarm, something else."""
    alarm: Alarm | None = None

    @property
    def problem(self) -> str:
        """What is wrong with the clocks, in one sentence; empty where they agree."""
        if self.alarm is None:
            return ""
        apart = (self.system - self.present) // SECOND
        state = f"is {abs(apart):,} seconds {'ahead of' if apart > 0 else 'behind'}"
        if abs(apart) * SECOND <= LIMIT:
            state = "had jumped and agrees again with"
        return (
            f"the system's clock {state} the store's own time, so nothing is erased or sealed; see "
            f"that the clock is right, then correct or confirm it"
        )

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {
            "follows": self.follows,
            "present": self.present,
            "system": self.system,
            "alarm": None if self.alarm is None else self.alarm.at,
            "problem": self.problem,
        }


def clock_of(clock: Clock) -> Clock:
    """The clock that a store goes by; ``time.time`` is the system's, which is not just trusted."""
    return SystemClock() if clock in (_SYSTEM, time.time) else clock


class StoreClock:
    """What time it is for a store, in microseconds since 1970; by itself it never goes back.

    ``latest`` is the time of the newest acknowledged row, ``follows`` what moved the time so far,
    and ``alarm`` one that nobody has answered yet.

    >>> clock = StoreClock(SystemClock(lambda: 500.0, lambda: 0.0), latest=0, follows="nothing")
    >>> clock.rows_came(100 * SECOND, history=True)
    >>> clock.now() // SECOND, clock.present() // SECOND
    (100, 500)
    >>> clock.rows_came(500 * SECOND, history=False)
    >>> clock.now() // SECOND
    500

    A clock that jumps raises the alarm, and the store's own time goes on:

    >>> times = iter([500.0, 510.0, 9_999.0, 9_999.0])
    >>> boot = iter([1.0, 11.0, 21.0, 21.0])
    >>> clock = StoreClock(SystemClock(lambda: next(times), lambda: next(boot)), latest=0)
    >>> clock.present() // SECOND, clock.present() // SECOND, clock.alarm is not None
    (510, 520, True)
    """

    def __init__(
        self, clock: Clock, *, latest: int, follows: str = "system", alarm: Alarm | None = None
    ) -> None:
        self._clock = clock_of(clock)
        self._lock = threading.Lock()
        self._rows = latest
        self.noted = cast(Follows, follows)
        """What moves the time of the store, as its catalogue says."""
        self.alarm = alarm
        """Why the store goes by its own time, if it does."""
        self._latest = latest
        self._settled = 0
        """What time it was made when a person last said so."""
        self._begun = self._good = Reading(0, 0)
        """Where the clocks were when they were first compared, and the last time they agreed;
        there with the store's own time."""
        if isinstance(self._clock, SystemClock):
            self._begin(self._clock)

    def _begin(self, clock: SystemClock) -> None:
        self._begun = clock.read()
        alarm, latest = self.alarm, self._latest
        self._good = Reading(latest if alarm is None else max(latest, alarm.at), self._begun.boot)
        if alarm is not None and alarm.boot_id == clock.boot_id != "":
            self._good = Reading(alarm.at, alarm.boot)

    @property
    def follows(self) -> Follows:
        """What moves the time of the store; a clock that is given does."""
        return self.noted if isinstance(self._clock, SystemClock) else "given"

    def status(self) -> ClockStatus:
        """What a store goes by."""
        return ClockStatus(self.follows, self.present(), int(self._clock() * SECOND), self.alarm)

    # --- what time it is ------------------------------------------------------------------------

    def now(self) -> int:
        """The store's time: what is due by it is done."""
        present = self.present()
        return self._rows if self.follows == "rows" else present

    def present(self) -> int:
        """The time by the clock, also where the store goes by its rows; in an alarm its own."""
        clock = self._clock
        if not isinstance(clock, SystemClock):
            shown = int(clock() * SECOND)
            with self._lock:
                self._latest = max(self._latest, shown)
                return self._latest
        with self._lock:
            found = clock.read()
            if self.alarm is None and self._disagree(found):
                own = self._own(found)
                self.alarm = Alarm(own, found.wall, found.boot, clock.boot_id)
            if self.alarm is None:
                self._latest = max(self._latest, found.wall)
                self._good = Reading(self._latest, found.boot)
            else:
                self._latest = max(self._latest, self._own(found))
            return self._latest

    def _own(self, found: Reading) -> int:
        """The last time that clocks agreed on, and what has passed since."""
        return self._good.wall + max(0, found.boot - self._good.boot)

    def _disagree(self, found: Reading) -> bool:
        passed = found.boot - self._begun.boot
        apart = abs(found.wall - self._begun.wall - passed)
        behind = self.follows != "rows" and found.wall < self._latest - LIMIT
        return behind or apart > LIMIT + max(0, passed) // DRIFT

    def arrival(self, now: int) -> int:
        """When live rows arrive that asked for the time some moments ago.

        If a person has set the store's time meanwhile, they arrive at the new one.
        """
        present = self.present()
        return now if self._settled <= now <= present else present

    def horizon(self, now: int) -> int:
        """The latest time that it may be: by the store's time, and in an alarm by any clock."""
        return now if self.alarm is None else max(now, int(self._clock() * SECOND))

    # --- rows come -------------------------------------------------------------------------------

    def becomes(self, *, history: bool) -> Follows:
        """What moves the time once rows are acknowledged: of a history, or live ones."""
        return "rows" if history and self.noted in ("nothing", "rows") else "system"

    def rows_came(self, now: int, *, history: bool) -> None:
        """Rows were acknowledged at a time."""
        self.noted = self.becomes(history=history)
        with self._lock:
            self._rows = max(self._rows, now)
            if self.follows == "given":
                self._latest = max(self._latest, now)

    # --- a person says which is right ------------------------------------------------------------

    def refuse_apart(self) -> None:
        """Raise where the clock and the store's own time are too far apart to go on with both."""
        own, shown = self.present(), int(self._clock() * SECOND)
        if abs(shown - own) > LIMIT:
            raise StateError(
                f"the system's clock is {abs(shown - own) // SECOND:,} seconds "
                f"{'ahead of' if shown > own else 'behind'} the store's own time; set it right, or "
                f"confirm it if it is"
            )

    def shown(self) -> int:
        """What the clock shows, right or wrong."""
        return int(self._clock() * SECOND)

    def correct(self) -> None:
        """Compare the clocks from here on; the store's own time was right."""
        with self._lock:
            self.alarm = None
            self._compare()

    def confirm(self, now: int) -> None:
        """Go by the clock from here on: it is this time, also where that is earlier."""
        with self._lock:
            self.alarm, self.noted = None, "system"
            self._latest = self._rows = self._settled = now
            self._compare()

    def _compare(self) -> None:
        if isinstance(self._clock, SystemClock):
            self._begun = self._clock.read()
            self._good = Reading(self._latest, self._begun.boot)
