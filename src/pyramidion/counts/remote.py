"""Features from tables that are elsewhere: each row's cells are read for it, nothing is kept.

The kernels are those of tables in memory, given a plan in which every hash row of every table
has a single bucket, the row's own: multipliers are zero, so that any key falls there, and signs
still come from the key. So features are equal to the last bit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.counts import kernels
from pyramidion.counts.arena import Arena
from pyramidion.counts.columns import Columns
from pyramidion.counts.estimates import Estimates, Studied, numbered
from pyramidion.counts.layout import Layout
from pyramidion.errors import StateError

Indices = NDArray[np.int64]
Fetch = Callable[[Indices, Indices], Sequence[bytes | memoryview]]
"""Gives the cells of some buckets, each of one table, by their numbers ``row * width + place``."""

AT_ONCE = 64
"""Rows whose cells are read together: 195 cells each, 1.8 MB."""
_WORD = 8  # bytes: the cells of a table begin at multiples of it


class FarArena(Arena):
    """Tables that are elsewhere: how they are laid out and how many rows they count, no cells."""

    def __init__(self, layout: Layout, *, rows: int, max_rows: int) -> None:
        self.layout, self.max_rows, self.rows = layout, max_rows, rows
        self.sealed, self.raw, self._broken = True, False, False

    def __getattr__(self, name: str) -> Any:
        if name == "_block":
            raise StateError(
                "these tables are read row by row where they are; load them to have all cells"
            )
        raise AttributeError(name)


class RemoteEstimates(Estimates):
    """Estimates on tables that are elsewhere."""

    together = True

    def __init__(
        self,
        schema: Schema,
        settings: Settings,
        arena: Arena,
        columns: Columns,
        *,
        studied: Studied,
        fetch: Fetch,
    ) -> None:
        self._fetch = fetch
        self._near = _Near(arena.layout)
        self._filling = threading.Lock()
        super().__init__(schema, settings, arena, columns, studied)

    def _cells(self) -> tuple[NDArray[Any], ...]:
        return self._near.plan, *self._near.cells

    def one(self, keys: NDArray[np.uint64], out: NDArray[np.float32]) -> None:
        """Write the features of one row; its cells are read in one go."""
        where, (cells,) = self._read(keys, numbered(keys, None))
        with self._filling:
            self._near.fill(where, cells)
            super().one(keys, out)

    def features(
        self,
        keys: NDArray[np.uint64],
        out: NDArray[np.float32],
        tables: Sequence[int] | None = None,
        start: int = 0,
        *,
        shown: int = 0,
    ) -> None:
        """Write the features of keys[table, row]; the cells of some rows are read together."""
        for at in range(0, keys.shape[1], AT_ONCE):
            some = keys[:, at : at + AT_ONCE]
            where, found = self._read(some, numbered(keys, tables))
            for number, cells in enumerate(found, at):
                with self._filling:
                    self._near.fill(where, cells)
                    row = np.ascontiguousarray(keys[:, number : number + 1])
                    super().features(row, out, tables, start + number, shown=shown)

    def _read(
        self, keys: NDArray[np.uint64], tables: Indices
    ) -> tuple[Indices, list[Sequence[bytes | memoryview]]]:
        """Hash rows of some tables, and for each row the cells of its keys in these."""
        where, tables, buckets, bad = self._near.buckets(keys, tables)
        if bad:
            self.refuse_code(bad)
        rows = keys.shape[1]
        found = self._fetch(np.tile(tables, rows), buckets.T.reshape(-1)) if rows else []
        each = len(tables)
        return where, [found[at : at + each] for at in range(0, rows * each, each)]


class _Near:
    """The cells of one row: a plan for the kernels, and where each hash row's bucket goes."""

    def __init__(self, layout: Layout) -> None:
        whole, labels = layout.plan, layout.labels
        self.plan = whole.copy()
        self.plan[:, kernels.PLAN_WIDTH] = 1
        self.plan[:, kernels.PLAN_SHIFT] = 63
        self.plan[:, kernels.PLAN_MULTIPLIER :] = 0
        dense = whole[:, kernels.PLAN_KIND] == kernels.DENSE
        self.plan[dense, kernels.PLAN_KIND] = kernels.COUNT_MIN  # of one hash row: the same
        self._codes = np.where(dense, whole[:, kernels.PLAN_WIDTH], 0)
        pairs = [(t, row) for t, spec in enumerate(layout.tables) for row in range(spec.rows)]
        self._table, row = np.array(pairs, dtype=np.int64).T
        self._first = np.searchsorted(self._table, np.arange(len(layout.tables)))
        self._ends = np.append(self._first[1:], len(self._table))
        sketch = ~dense[self._table]
        given = whole[self._table]
        self._multiplier = self._salts(sketch, given, kernels.PLAN_MULTIPLIER + row, 1)
        self._addend = self._salts(sketch, given, kernels.PLAN_ADDEND + row, 0)
        self._shift = np.where(sketch, given[:, kernels.PLAN_SHIFT], 0).astype(np.uint64)
        self._base = row * given[:, kernels.PLAN_WIDTH].astype(np.int64)
        self._places = self._lay_out(layout, labels)
        self.plan.flags.writeable = False

    @staticmethod
    def _salts(
        sketch: NDArray[np.bool_], plan: NDArray[np.uint64], words: Indices, dense: int
    ) -> NDArray[np.uint64]:
        """One word of the plan for each hash row; a dense table's key is its bucket."""
        found = plan[np.arange(len(plan)), words]
        return np.where(sketch, found, np.uint64(dense))

    def _lay_out(self, layout: Layout, labels: int) -> list[slice]:
        at, places = 0, list[slice]()
        for plan, table in zip(self.plan, layout.tables, strict=True):
            size = 8 if table.wide else 4
            plan[kernels.PLAN_OFFSET] = at // size
            for _ in range(table.rows):
                places.append(slice(at, at + size * labels))
                at += size * labels
            at = -(-at // _WORD) * _WORD
        block = np.zeros(at, dtype=np.uint8)
        self._view = block.data
        # As those of sealed tables: for cells that could be written, kernels are compiled anew.
        self.cells = block.view(np.int32), block.view(np.int64)
        for cells in self.cells:
            cells.flags.writeable = False
        return places

    def buckets(
        self, keys: NDArray[np.uint64], tables: Indices
    ) -> tuple[Indices, Indices, Indices, int]:
        """Hash rows of the tables that keys[table, row] are of, the table and buckets[., row] of
        each; and a table that lacks a code."""
        codes = self._codes[tables, None]
        lacking = ((codes > 0) & (keys >= codes)).any(axis=1)
        sizes = self._ends[tables] - self._first[tables]
        where = np.repeat(self._ends[tables] - np.cumsum(sizes), sizes) + np.arange(sizes.sum())
        own = keys[np.repeat(np.arange(len(tables)), sizes)]
        mixed = self._multiplier[where, None] * own + self._addend[where, None]
        found = (mixed >> self._shift[where, None]).astype(np.int64) + self._base[where, None]
        bad = int(tables[np.argmax(lacking)]) if lacking.any() else 0
        return where, self._table[where], found, bad

    def fill(self, where: Indices, cells: Sequence[bytes | memoryview]) -> None:
        """Put the cells of one row where the plan finds them: a bucket of each hash row."""
        view, places = self._view, self._places
        for row, data in zip(where.tolist(), cells, strict=True):
            view[places[row]] = data
