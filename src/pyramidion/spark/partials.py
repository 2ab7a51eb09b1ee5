"""What executors do: judge rows, count them exactly by window, and hand the counts on.

A task counts the rows of its partition into tables of zeros, one set of them for each window,
and holds no more of these at once than `HELD` bytes (one at least). Where rows of yet another
window come, the tables that were used longest ago are handed on, packed, table by table:

    part   0, or which part of the shuffle takes this table of this window
    slot   the window
    table  its number; FACTS: how many rows were counted or refused
    cells  what was counted, packed

All of it is a function of the partition's rows: a task that is run again, or twice, hands on
the same sums. Nothing is kept besides them; no accumulator counts anything.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.counts.layout import Layout
from pyramidion.counts.partials import Partial, pack, unpack
from pyramidion.counts.windows import Slots
from pyramidion.rows.observations import Door, Observations

HELD = 64 << 20
"""Bytes of tables that one task holds; with what Python and Arrow take, it stays below 500 MB."""
ROWS = 32_768
"""Rows that are counted at once; fewer where they are long."""
BYTES = 8 << 20

FACTS = -1
FORM = "part int, slot long, table int, cells binary"
_SCHEMA = pa.schema(
    [("part", pa.int32()), ("slot", pa.int64()), ("table", pa.int32()), ("cells", pa.binary())]
)

Counts = dict[int, bytes]
"""Packed cells by the number of the table."""


@dataclass(frozen=True)
class Recipe:
    """All that an executor needs to count rows as their store would."""

    schema: Schema
    settings: Settings
    secret: bytes = field(repr=False)
    layout: Layout = field(repr=False)
    slots: Slots | None
    """None: all rows are of one window."""
    latest: int | None
    keyed_by: str
    parts: int
    spread: int
    """Over how many parts the tables of one window are spread."""
    held: int = HELD

    @cached_property
    def door(self) -> Door:
        """Judges rows and makes their keys, as the store's own does."""
        return Door(self.schema, self.settings, self.secret, self.keyed_by)

    def part(self, slot: int, table: int) -> int:
        """The part of the shuffle that takes a table of a window; the first one takes facts.

        >>> Recipe.part(Recipe(None, None, b"", None, None, None, "text", parts=9, spread=4), 3, 6)
        7
        """
        return 1 + (slot * self.spread + table % self.spread) % (self.parts - 1)

    def parts_of(self, slot: int) -> list[int]:
        """All parts that have tables of a window."""
        return sorted({self.part(slot, table) for table in range(self.spread)})


# --- on the way into the shuffle ---------------------------------------------------------------


def counting(recipe: Any) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does with its partition; the recipe comes broadcast."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _Task(recipe.value).counts(batches)

    return task


class _Task:
    """Counts one partition."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._most = recipe.settings.max_rows_per_window
        self._held: OrderedDict[int, Partial] = OrderedDict()
        self._rows: Counter[int] = Counter()
        self._problems: Counter[str] = Counter()
        self._refused = 0

    def counts(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The counts of all rows, and the facts at last."""
        for table in _joined(batches):
            found = self._recipe.door.observations(table, "skip", latest=self._recipe.latest)
            self._refused += found.refused
            self._problems.update({why: len(rows) for why, rows in found.problems.items()})
            for slot, rows in _by_slot(found, self._recipe.slots):
                yield from self._room(slot, len(rows))
                self._held[slot].add(rows)
                self._rows[slot] += len(rows)
        while self._held:
            yield from self._handed_on()
        yield self._facts()

    def _room(self, slot: int, rows: int) -> Iterator[pa.RecordBatch]:
        """Have tables for some rows of a window, the most recently used ones from now on."""
        if slot in self._held:
            self._held.move_to_end(slot)
            if self._held[slot].rows + rows > self._most:  # the driver refuses so many, in words
                self._held.move_to_end(slot, last=False)
                yield from self._handed_on()
        if slot not in self._held:
            made = Partial(self._recipe.layout, max(self._most, rows))
            while self._held and (len(self._held) + 1) * made.layout.nbytes > self._recipe.held:
                yield from self._handed_on()
            self._held[slot] = made

    def _handed_on(self) -> Iterator[pa.RecordBatch]:
        """The tables that were used longest ago, table by table."""
        slot, counts = self._held.popitem(last=False)
        for table, cells in counts.packed():
            yield _row(self._recipe.part(slot, table), slot, table, cells)

    def _facts(self) -> pa.RecordBatch:
        told = {"rows": self._rows, "refused": self._refused, "problems": self._problems}
        return _row(0, 0, FACTS, json.dumps(told).encode())


def _row(part: int, slot: int, table: int, cells: bytes) -> pa.RecordBatch:
    return pa.record_batch([[part], [slot], [table], [cells]], schema=_SCHEMA)


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Small batches together: judging has a price for each column, however few the rows."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= ROWS or size >= BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(held)


def _by_slot(found: Observations, slots: Slots | None) -> Iterator[tuple[int, Observations]]:
    if slots is None or found.times is None:
        each: NDArray[np.int64] = np.zeros(len(found), dtype=np.int64)
    else:
        each = slots.all_at(found.times)
    there = np.unique(each).tolist()
    for slot in there:
        yield slot, found if len(there) == 1 else found.take(np.flatnonzero(each == slot))


# --- on the way out of it ----------------------------------------------------------------------


def summing(slot: int) -> Callable[[Iterable[Any]], Iterator[tuple[int, bytes]]]:
    """Adds up, in one part of the shuffle, what tasks counted in each table of a window."""

    def task(rows: Iterable[Any]) -> Iterator[tuple[int, bytes]]:
        sums: dict[int, NDArray[np.int64]] = {}
        for row in rows:
            if row.slot != slot or row.table == FACTS:
                continue
            cells = unpack(row.cells)
            if row.table not in sums:
                sums[row.table] = cells.astype(np.int64)
            else:
                sums[row.table] += cells
        return iter([(table, pack(cells)) for table, cells in sums.items()])

    return task


@dataclass(frozen=True)
class Facts:
    """How many rows were counted, by window; how many were refused, and why."""

    rows: dict[int, int]
    refused: int
    problems: dict[str, int]


def facts_of(told: Iterable[bytes]) -> Facts:
    """What all tasks told together."""
    rows: Counter[int] = Counter()
    problems: Counter[str] = Counter()
    refused = 0
    for each in map(json.loads, told):
        rows.update({int(slot): count for slot, count in each["rows"].items()})
        problems.update(each["problems"])
        refused += each["refused"]
    return Facts(dict(rows), refused, dict(sorted(problems.items())))
