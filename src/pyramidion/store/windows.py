"""Populating table sets: windows, and the nodes of a tree over them.

A row belongs to one window, and is counted in every table set that counts this window: the window
itself and, in a tree, one node of each level above it. `OpenSets` decides which window a row
belongs to, which table sets are over, and which window must be prepared next.

A node begins with its first window, on noise of its own, and counts the rows of every window in its
slots. It populates until the last of them is over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pyramidion.config.settings import Settings
from pyramidion.config.window_tree import Levels
from pyramidion.counts.arena import Arena
from pyramidion.counts.windows import Slots
from pyramidion.errors import StateError
from pyramidion.rows.encoding import Encoder
from pyramidion.rows.observations import Observations
from pyramidion.storage.table_sets import SetId, window_id

LEAD = 10  # the next window's noise is drawn when less than a tenth of the current one is left
NEVER = -(1 << 62)  # a slot


@dataclass
class TableSet:
    """A populating table set: the tables of a window, or of a node over several windows."""

    id: SetId
    slot: int
    """Which set of its level it is: it covers the window slots from ``slot`` times its span on."""
    start: int | None
    """When a window's slot begins; if windows are cut by rows, when its first row came."""
    stop: int | None
    arena: Arena
    encoder: Encoder
    after: int
    """The checkpoint on disk has all batches up to this one."""
    windows: set[int] = field(default_factory=set)
    """The windows whose rows it counts."""
    fresh: int = 0
    """Rows counted since the last checkpoint that was due; a checkpoint that the erasure of a
    person makes does not reset it."""
    closed: bool = False
    """Whether it is being sealed: a window takes no more rows, a node no more windows."""

    @property
    def number(self) -> int:
        """Its number among windows, or among nodes."""
        return self.id.number

    @property
    def level(self) -> int:
        """0 for a window."""
        return self.id.level

    def shared(self, tables: Collection[str]) -> set[str]:
        """The tables that it has in common with a window."""
        return {name for name in self.arena.layout.index if name in tables}


def _none() -> NDArray[np.int64]:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Part:
    """Rows of a batch that belong to one window."""

    window: TableSet
    rows: NDArray[np.int64] | None  # None: all
    late: NDArray[np.int64] = field(default_factory=_none)
    """Those that came after their own window was over, by their number in the batch."""


class OpenSets:
    """The populating table sets of a store. Callers that change them hold the lock of arrivals."""

    def __init__(self, settings: Settings, *, strict: bool = False) -> None:
        self._settings = settings
        self._strict = strict
        """Whether a window takes no row that comes after its stop, even if it is not sealed."""
        self.slots = Slots.of_windows(settings)
        self.levels: Levels | None = settings.levels
        self.sets: dict[SetId, TableSet] = {}
        self.passed = NEVER
        """The slot of the last window that was seen to be over."""
        self.first = 0
        """Windows with a lower number take no rows: while clocks disagree, those opened before."""

    # --- which there are ---------------------------------------------------------------------

    def all(self) -> list[TableSet]:
        """All table sets: windows by number, then nodes by number."""
        return [*self.windows(), *self.nodes()]

    def windows(self) -> list[TableSet]:
        """The windows in order, also those that are being sealed."""
        return self._sorted(lambda each: each.level == 0)

    def nodes(self) -> list[TableSet]:
        """The nodes in order."""
        return self._sorted(lambda each: each.level > 0)

    def _sorted(self, which: Callable[[TableSet], bool]) -> list[TableSet]:
        return sorted(filter(which, list(self.sets.values())), key=lambda each: each.number)

    def window(self, number: int) -> TableSet | None:
        """A populating window."""
        return self.sets.get(window_id(number))

    def of(self, window: int) -> list[TableSet]:
        """The table sets that count the rows of a window, the window itself first."""
        return [each for each in self.all() if window in each.windows]

    def taking(self) -> list[TableSet]:
        """The windows that take rows, in order."""
        return [each for each in self.windows() if not each.closed and each.number >= self.first]

    # --- where rows go -----------------------------------------------------------------------

    def place(
        self, observations: Observations, now: int, last: Callable[[], int]
    ) -> list[Part] | list[int]:
        """The windows that rows belong to; or, if some are not open yet, their slots.

        ``last`` returns the slot of the last window that is over, for windows cut by rows.

        Event time decides. Rows whose window does not populate any longer (with a unit: whose
        window is over) belong to the current one and are late; so do rows of a time beyond
        `max_skew`, which come only while clocks disagree. Windows cut by rows fill one after the
        other.
        """
        if self.slots is None:
            return self._place_by_rows(len(observations), last)
        times = observations.times
        # A caller may have read the time before a window was over, and arrive after it was sealed.
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
        limit, parts, start = int(self._settings.window_rows or 0), list[Part](), 0
        if rows > limit:
            raise StateError(
                f"a batch of {rows} rows is more than a window of {limit} takes; send it in parts"
            )
        for window in self.taking():
            room = min(limit - window.arena.rows, rows - start)
            if room > 0:
                parts.append(Part(window, np.arange(start, start + room)))
                start += room
        if start < rows:
            slots = [last(), *(window.slot for window in self.windows())]
            return [max(slots) + 1]
        return [Part(parts[0].window, None)] if len(parts) == 1 else parts

    # --- what is due -------------------------------------------------------------------------

    def over(self, now: int) -> list[TableSet]:
        """Windows whose time or rows are full, and those whose first row is past retention."""
        limit, oldest = self._settings.window_rows, now - self._settings.retention_us
        return [
            window
            for window in self.windows()
            if window.closed
            or (window.stop is not None and window.stop <= now)
            or (limit is not None and window.arena.rows >= limit)
            or (window.start is not None and window.start <= oldest)
        ]

    def nodes_over(self, now: int, last: int) -> list[TableSet]:
        """Nodes that no more rows can come to: none of their windows takes any or can be opened.

        ``last`` is the slot of the newest window, for windows cut by rows.
        """
        taking = {window.number for window in self.windows()}
        return [
            node
            for node in self.nodes()
            if node.windows.isdisjoint(taking) and (node.closed or self._is_past(node, now, last))
        ]

    def _is_past(self, node: TableSet, now: int, last: int) -> bool:
        end = (node.slot + 1) * self._span(node.level)
        if self.slots is not None:
            return self.slots.start(end) <= now
        return last >= end - 1

    def full(self) -> list[TableSet]:
        """Table sets with so many rows since their checkpoint that a new one is due."""
        limit = self._settings.checkpoint_rows
        return [
            each for each in self.all() if each.fresh >= limit and (each.level or not each.closed)
        ]

    def next(self, now: int) -> int | None:
        """The slot to prepare: the current window is nearly over and the next one not open."""
        taking = self.taking()
        if not taking:
            return None
        last = taking[-1]
        if self.slots is None:
            limit = int(self._settings.window_rows or 0)
            return last.slot + 1 if (limit - last.arena.rows) * LEAD < limit else None
        lead = max(self._settings.max_skew_us, self.slots.length // LEAD)
        near = last.slot == self.slots.at(now) and self.slots.stop(last.slot) - now <= lead
        return last.slot + 1 if near and last.arena.rows else None

    def wanted(self, slot: int) -> list[tuple[int, int, TableSet | None]]:
        """Level, slot and node of each level over a window in a slot; None: one must begin.

        If a node begins, all nodes below it begin too. So nodes are nested or disjoint.
        """
        found: list[tuple[int, int, TableSet | None]] = []
        begins = False
        for level in range((self.levels.depth if self.levels else 1) - 1, 0, -1):
            place = slot // self._span(level)
            open_ = [
                node
                for node in self.nodes()
                if (node.level, node.slot) == (level, place) and not node.closed
            ]
            begins = begins or not open_
            found.append((level, place, None if begins else open_[-1]))
        return found

    def _span(self, level: int) -> int:
        return self.levels.span(level) if self.levels is not None else 1


def purpose(node: SetId) -> str:
    """What a node is called in the ledger."""
    return str(node)
