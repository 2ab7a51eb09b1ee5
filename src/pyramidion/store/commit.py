"""One commit: bundles that are written, counted and acknowledged together, or not at all.

    for each bundle   place ── write its record ── count in memory
    for all of them   sync ── commit ── hot

Records are written beside the counting, one behind the other, and one sync makes all of them
durable; one transaction acknowledges them. A failure takes all counts back. After a crash all
of it is there, or nothing: records beyond the length that the catalogue knows are cut off.

What a bundle cannot keep is left out before anything is written: an arrival whose window is
full is refused by itself, and one under a key that another one of this commit came under is
the same as that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.errors import PyramidionError, StateError
from pyramidion.rows.containers import take
from pyramidion.rows.observations import Observations
from pyramidion.storage import records
from pyramidion.storage.fault_points import reach
from pyramidion.storage.hot import Appended, Fresh, Parts, Receipt
from pyramidion.store.batching import Bundle, Member
from pyramidion.store.contributions import Counts
from pyramidion.store.state import StoreState
from pyramidion.store.windows import OpenSets, Part, TableSet

Answers = dict[int, Receipt | PyramidionError]
"""What became of arrivals, by their place among those that came together."""


@dataclass
class Taken:
    """A bundle on its way: all that it takes to count it, and to take that back."""

    number: int
    bundle: Bundle
    parts: Sequence[Part]
    table: pa.Table
    """Its rows in the order of their windows, as they lie in the hot window and the vault."""
    appended: Appended
    counts: Counts | None = None
    counted: list[tuple[TableSet, Observations, set[str]]] = field(default_factory=list)
    """The table sets that it was counted in, and in which of their tables."""

    @property
    def windows(self) -> Parts:
        """Window and rows of each part, in the order they lie."""
        rows = len(self.bundle.found)
        return [(p.window.number, rows if p.rows is None else len(p.rows)) for p in self.parts]

    def receipts(self) -> list[Receipt]:
        """What became of the rows of each member."""
        late = np.zeros(len(self.bundle.found), dtype=np.int64)
        for part in self.parts:
            late[part.late] = 1
        blanked = np.zeros_like(late) if self.counts is None else 1 - self.counts
        starts = self.bundle.starts
        each = np.add.reduceat(late, starts).tolist(), np.add.reduceat(blanked, starts).tolist()
        return [
            Receipt(member.rows, member.refused, *more)
            for member, *more in zip(self.bundle.members, *each, strict=True)
        ]

    def since(self, now: int, *, history: bool) -> int:
        """When its first row arrived: rows of a history at the times that they say themselves."""
        times = self.bundle.found.times
        return now if times is None or not history else min(int(times.min()), now)

    def fresh(self, since: int) -> Fresh:
        """The batch that it becomes, whose first row arrived then."""
        keys = [member.once for member in self.bundle.members]
        lie = self.counts
        if lie is not None and len(self.parts) > 1:
            lie = lie[_order(self.parts)]
        receipts = list(zip(keys, self.receipts(), strict=True))
        return Fresh(self.number, self.appended, receipts, self.windows, lie, since)


class Commit:
    """Takes bundles in until it is committed; by who holds the lock of arrivals."""

    def __init__(
        self, lifecycle: StoreState, now: int, came: int, answers: Answers, threads: int
    ) -> None:
        self._state = lifecycle
        self._now, self._came = now, came
        self._answers = answers
        self._threads = threads
        self._keys: dict[tuple[str, str], Member] = {}
        """The arrivals in it that came under keys."""
        self._same: dict[int, int] = {}
        """Arrivals that came again, by the place of the first one."""
        self.taken: list[Taken] = []
        self._last = False
        """Whether the last record was appended as such, and so is durable once it is written."""

    # --- in ----------------------------------------------------------------------------

    def add(self, bundle: Bundle, *, last: bool) -> bool:
        """Write and count a bundle, or what of it can be; False where a window is not open yet."""
        lifecycle, now = self._state, self._now
        parts = self._placed(bundle)
        members = self._fitting(bundle, parts)
        if not parts or not members:
            return bool(parts)
        if len(members) < len(bundle.members):
            bundle = bundle.only(members)
            parts = self._placed(bundle)
        for part in parts:
            lifecycle.people.refuse_outside(part.window.start, part.window.stop, now)
        table = _in_order(records.table_of(bundle.batch), parts)
        before = self.taken[-1] if self.taken else None
        number = lifecycle.last_batch() + 1 if before is None else before.number + 1
        behind = None if before is None else before.appended
        appended = lifecycle.hot.append(number, table, now, behind, last)
        self._last = last
        self.taken.append(Taken(number, bundle, parts, table, appended))
        self._count(self.taken[-1])
        return True

    def _placed(self, bundle: Bundle) -> list[Part]:
        """Where its rows go; nowhere, where a window is not open yet."""
        parts = self._state.place(bundle.found, self._now)
        return [part for part in parts if isinstance(part, Part)]

    def _fitting(self, bundle: Bundle, parts: Sequence[Part]) -> list[Member]:
        """The members that are to be taken; the others are answered, or the same as one that is."""
        room = [_room(part.window, self._state.open_sets) for part in parts]
        fitting: list[Member] = []
        for member, needs in zip(bundle.members, _needs(bundle, parts), strict=True):
            first = None if member.once is None else self._keys.get(member.once.name)
            full = next((n for n, rows in enumerate(needs) if rows > room[n]), None)
            if first is not None and first.once == member.once:
                self._same[member.place] = first.place
            elif first is not None:
                self._answers[member.place] = other_content()
            elif full is not None:
                window, left = parts[full].window.number, room[full]
                self._answers[member.place] = _overfull(window, left, needs[full])
            else:
                fitting.append(member)
                room = [left - rows for left, rows in zip(room, needs, strict=True)]
                self._keys |= {} if member.once is None else {member.once.name: member}
        return fitting

    def _count(self, taken: Taken) -> None:
        found = taken.bundle.found
        taken.counts = self._state.people.count(found, self._now)
        found = found.counting(taken.counts)
        for part in taken.parts:
            rows = found if part.rows is None else found.take(part.rows)
            for tables in self._state.open_sets.of(part.window.number):
                coded = rows.under(tables.encoder)
                shared = tables.shared(part.window.arena.layout.index)
                tables.arena.add(coded, self._threads, shared)
                taken.counted.append((tables, coded, shared))

    # --- all or nothing ----------------------------------------------------------------

    def commit(self, note: Callable[[int], None], *, history: bool) -> None:
        """Make all that was added durable, in one transaction with what ``note`` notes.

        That is called with the number of the last batch. Rows of a ``history`` say themselves when
        they arrived.
        """
        for each in self.taken:
            each.appended.written.result()
        if not self._last:
            self._state.hot.sync(self.taken[-1].appended)
        reach("commit.before")
        catalogue, hot = self._state.catalogue, self._state.hot
        fresh = [each.fresh(each.since(self._now, history=history)) for each in self.taken]
        starts = any(part.window.start is None for each in self.taken for part in each.parts)
        with catalogue.transaction():
            self._state.keys.must_be_held()  # or nobody could ever read what is acknowledged
            if starts:
                self._state.pins.check()
            stored = hot.acknowledge(fresh, self._now, self._came)
            for window, rows in _summed(fresh).items():
                self._state.sets.add_rows(window, rows, self._now)
            if starts:
                self._state.pins.seal()  # the first row of a window starts it
            last = self.taken[-1].number
            catalogue.note(next_batch=last + 1, clock=self._now)
            note(last)
        reach("commit.after")
        hot.acknowledged(fresh[0].appended.step, stored)
        self._settle(fresh)

    def _settle(self, fresh: Sequence[Fresh]) -> None:
        """It is durable: windows know of it, and everybody is answered."""
        for tables, rows, _ in (each for taken in self.taken for each in taken.counted):
            tables.fresh += len(rows)
            if tables.start is None and not tables.level:
                tables.start = self._now
        for taken, made in zip(self.taken, fresh, strict=True):
            for member, (_, receipt) in zip(taken.bundle.members, made.receipts, strict=True):
                self._answers[member.place] = receipt
        self._answers |= {place: self._answers[first] for place, first in self._same.items()}

    def take_back(self) -> None:
        """Undo all that was counted: none of it was acknowledged."""
        for taken in reversed(self.taken):
            taken.appended.written.exception()
            self._state.people.take_back(taken.bundle.found, taken.counts)
            for tables, rows, shared in taken.counted:
                tables.arena.take_back(rows, self._threads, shared)


def _room(window: TableSet, sets: OpenSets) -> int:
    """How many more rows fit into a window and the nodes over it."""
    arenas = [tables.arena for tables in sets.of(window.number)]
    return min(arena.max_rows - arena.rows for arena in arenas)


def _needs(bundle: Bundle, parts: Sequence[Part]) -> list[list[int]]:
    """How many rows each member has for each part."""
    sizes = [member.rows for member in bundle.members]
    whose = np.repeat(np.arange(len(sizes)), sizes)
    theirs = [whose if part.rows is None else whose[part.rows] for part in parts]
    needs = [np.bincount(each, minlength=len(sizes)).tolist() for each in theirs]
    return [list(each) for each in zip(*needs, strict=True)] or [[] for _ in sizes]


def _overfull(window: int, room: int, rows: int) -> StateError:
    return StateError(
        f"window {window} has room for {room} rows and {rows} came for it; "
        f"make a store with shorter windows or a larger `max_rows_per_window`"
    )


def other_content() -> StateError:
    """Why an arrival is refused that is not the one that came under its key before."""
    return StateError(
        "this idempotency key came with other rows before, and these were not taken; send them "
        "under a key of their own"
    )


def _summed(fresh: Sequence[Fresh]) -> dict[int, int]:
    rows: dict[int, int] = {}
    for window, more in (part for each in fresh for part in each.parts):
        rows[window] = rows.get(window, 0) + more
    return rows


def _in_order(table: pa.Table, parts: Sequence[Part]) -> pa.Table:
    """Rows lie in the order of their windows, in the hot window and in the vault."""
    if len(parts) == 1:
        return table
    order = _order(parts)
    columns = [take(column, order) for column in table.columns]
    return pa.table(columns, names=table.column_names)


def _order(parts: Sequence[Part]) -> NDArray[np.int64]:
    return np.concatenate([part.rows for part in parts if part.rows is not None])
