"""The windows that take rows: which row goes to which, which are over, which comes next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pyramidion.config.settings import Settings
from pyramidion.counts.arena import Arena
from pyramidion.counts.windows import Slots
from pyramidion.errors import StateError
from pyramidion.rows.encoding import Encoder
from pyramidion.rows.observations import Observations

LEAD = 10  # the next window's noise is drawn when less than a tenth of the current one is left
NEVER = -(1 << 62)  # a slot


@dataclass
class Window:
    """A populating window."""

    number: int
    slot: int
    start: int | None
    """When its slot begins; by rows, when its first row came."""
    stop: int | None
    arena: Arena
    encoder: Encoder
    after: int
    """The checkpoint on disk has all batches up to this one."""
    fresh: int = 0
    """Rows counted since the last checkpoint that was due: the erasure of a person makes others."""
    closed: bool = False
    """Whether it is being sealed: it takes no more rows."""


def _none() -> NDArray[np.int64]:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Part:
    """Rows of a batch that go to one window."""

    window: Window
    rows: NDArray[np.int64] | None  # None: all
    late: NDArray[np.int64] = field(default_factory=_none)
    """Those that came after their own window was over, by their number in the batch."""


class Populating:
    """Populating windows by number. Whoever changes them holds the lock of arrivals."""

    def __init__(self, settings: Settings, *, strict: bool = False) -> None:
        self._settings = settings
        self._strict = strict
        """Whether a window takes no row that comes after its stop, sealed or not."""
        self.slots = Slots.of_windows(settings)
        self.windows: dict[int, Window] = {}
        self.passed = NEVER
        """The slot of the last window whose time was seen to be over."""
        self.first = 0
        """The number of the first window that takes rows: since clocks disagree, or all."""

    def all(self) -> list[Window]:
        """The windows in order, also those that are being sealed."""
        return sorted(self.windows.values(), key=lambda window: window.number)

    def taking(self) -> list[Window]:
        """The windows that take rows, in order."""
        return [each for each in self.all() if not each.closed and each.number >= self.first]

    def place(
        self, observations: Observations, now: int, last: Callable[[], int]
    ) -> list[Part] | list[int]:
        """The windows that rows go to; or, where some are not open yet, their slots.

        ``last`` tells the slot of the last window that is over, where rows cut windows.

        Event time decides. Rows whose window is not populating any more (where people are
        protected: whose window is over) go to the current one and are late; so do rows of a time
        beyond `max_skew`, which come only while clocks disagree. By rows, windows fill one after
        the other.
        """
        if self.slots is None:
            return self._place_by_rows(len(observations), last)
        times = observations.times
        # Who asked for the time before a window was over may come after it was sealed.
        current = max(self.slots.at(now), self.passed + 1)
        if times is None:
            now = max(now, self.slots.start(current))
            times = np.full(len(observations), now, dtype=np.int64)
        slots = self.slots.all_at(times)
        ahead = max(current, self.slots.at(now + self._settings.max_skew_us))
        open_ = {window.slot: window for window in self.taking()}
        one = not slots.size or slots.min() == slots.max()
        targets = {
            slot: slot
            if current <= slot <= ahead or (slot < current and slot in open_ and not self._strict)
            else current
            for slot in (slots[:1] if one else np.unique(slots)).tolist()
        }
        missing = sorted({slot for slot in targets.values() if slot not in open_})
        if missing or not targets:
            return missing
        if len(targets) == 1:
            ((slot, target),) = targets.items()
            late = np.arange(len(observations) if slot != target else 0)
            return [Part(open_[target], None, late)]
        goes = np.array([targets[slot] for slot in slots.tolist()], dtype=np.int64)
        parts = []
        for target in sorted(set(targets.values())):
            rows = np.flatnonzero(goes == target)
            parts.append(Part(open_[target], rows, rows[slots[rows] != target]))
        return parts

    def _place_by_rows(self, rows: int, last: Callable[[], int]) -> list[Part] | list[int]:
        most, parts, start = int(self._settings.window_rows or 0), list[Part](), 0
        if rows > most:
            raise StateError(
                f"a batch of {rows} rows is more than a window of {most} takes; send it in parts"
            )
        for window in self.taking():
            room = min(most - window.arena.rows, rows - start)
            if room > 0:
                parts.append(Part(window, np.arange(start, start + room)))
                start += room
        if start < rows:
            slots = [last(), *(window.slot for window in self.windows.values())]
            return [max(slots) + 1]
        return [Part(parts[0].window, None)] if len(parts) == 1 else parts

    def over(self, now: int) -> list[Window]:
        """Windows whose time or rows are full, and those whose first row is past retention."""
        most, oldest = self._settings.window_rows, now - self._settings.retention_us
        return [
            window
            for window in self.all()
            if window.closed
            or (window.stop is not None and window.stop <= now)
            or (most is not None and window.arena.rows >= most)
            or (window.start is not None and window.start <= oldest)
        ]

    def full(self) -> list[Window]:
        """Windows with so many rows since their checkpoint that a new one is due."""
        limit = self._settings.checkpoint_rows
        return [each for each in self.all() if not each.closed and each.fresh >= limit]

    def next(self, now: int) -> int | None:
        """The slot to prepare: the current window is nearly over and the next one not open."""
        taking = self.taking()
        if not taking:
            return None
        last = taking[-1]
        if self.slots is None:
            most = int(self._settings.window_rows or 0)
            return last.slot + 1 if (most - last.arena.rows) * LEAD < most else None
        lead = max(self._settings.max_skew_us, self.slots.length // LEAD)
        near = last.slot == self.slots.at(now) and self.slots.stop(last.slot) - now <= lead
        return last.slot + 1 if near and last.arena.rows else None
