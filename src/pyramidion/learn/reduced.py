"""Complete tables that a hot row does not meet its own label in.

Hot rows that are in sealed windows are in the complete tables, each with its own label. So
they are featurized with the **complete tables less the exact counts of hot rows**. Two other
ways are traps: leaving out each row alone tells its label by the one count that is missing,
and counts of an earlier window have other noise than those that are served.

All hot rows are off at once as long as they are at most a fifth of what the tables count.
Beyond that they are cut into blocks, one after the other in time, and each block is
featurized with all but itself: of a young store, whose hot rows are all that it has, nothing
but noise would be left otherwise (on Criteo at ε = 1 its loss was three times the prior's).

The reduced tables are as raw as the rows (P1): they live in memory, and expire when a row
that was taken off leaves the hot window.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyramidion.counts.guarantee import Guarantee
from pyramidion.counts.snapshot import Snapshot
from pyramidion.errors import StateError, StorageError
from pyramidion.rows.containers import Batch
from pyramidion.rows.observations import Observations

LARGEST = 5
"""A block is at most one part in so many of what the tables count."""

Wanted = Callable[[int], bool]
"""Which batches of hot rows, by their number."""


class HotBatch(NamedTuple):
    """A batch of hot rows, as the door gives them, and how many went to which window."""

    number: int
    observations: Observations
    batch: Batch
    parts: Sequence[tuple[int, int]]


class Counted(NamedTuple):
    """What is known of the hot rows when they are taken off."""

    rows: Mapping[int, int]
    """The rows of each batch, in the order they came."""
    tables: Mapping[int, Collection[str]]
    """The tables of each sealed window."""
    hidden: int
    """How many of the rows are in sealed windows."""


class Reduced:
    """A snapshot less the hot rows that it is to featurize, all at once or block by block."""

    def __init__(
        self,
        base: Snapshot,
        counted: Counted,
        read: Callable[[Wanted], Iterator[HotBatch]],
        *,
        threads: int = 1,
    ) -> None:
        self.base = base
        self.guarantee: Guarantee = base.guarantee.raw()
        self._counted = counted
        self._read = read
        self._threads = threads
        self._why = ""
        *starts, total = accumulate(counted.rows.values(), initial=0)
        self._starts = dict(zip(counted.rows, starts, strict=True))
        blocks = self._blocks(base.rows)
        self._borders = [total * block // blocks for block in range(blocks + 1)]
        self._made: weakref.WeakSet[Snapshot] = weakref.WeakSet()
        self._all = self._less(0) if blocks == 1 else None

    def _blocks(self, rows: int) -> int:
        return max(1, min(LARGEST, -(-self._counted.hidden * LARGEST // max(rows, 1))))

    @property
    def expired(self) -> bool:
        """Whether it answers no more."""
        return bool(self._why)

    def expire(self, why: str) -> None:
        """Drop all that is raw: rows of it must be forgotten."""
        self._why = why
        self._all = None
        for made in list(self._made):
            made.expire(why)

    def features(self) -> Iterator[tuple[HotBatch, NDArray[np.float32]]]:
        """The hot rows, batch by batch, and their features."""
        try:
            yield from self._features()
        except StorageError:
            if not self.expired:
                raise
            raise StateError("hot rows of this training set have left; take a new one") from None

    def _features(self) -> Iterator[tuple[HotBatch, NDArray[np.float32]]]:
        held: list[tuple[int, Snapshot]] = []  # one block's tables at a time
        for hot in self._read(lambda _: True):
            rows = hot.observations.under(self.base.encoder)
            start = self._starts.get(hot.number, self._borders[-1])
            parts = [
                np.asarray(self._of(block, held).array(_some(rows, low, high)))
                for block, low, high in self._pieces(start, len(rows))
            ]
            if parts:
                yield hot, parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _pieces(self, start: int, rows: int) -> Iterator[tuple[int, int, int]]:
        """Block, first and last row of each piece of a batch; what came later is in the last."""
        last = len(self._borders) - 2
        for block, (low, high) in enumerate(pairwise(self._borders)):
            stop = start + rows if block == last else min(high, start + rows)
            if max(low, start) < stop:
                yield block, max(low, start) - start, stop - start

    def _of(self, block: int, held: list[tuple[int, Snapshot]]) -> Snapshot:
        self._refuse_expired()
        if self._all is not None:
            return self._all
        if not held or held[0][0] != block:
            held.clear()
            held.append((block, self._less(block)))
        return held[0][1]

    def _less(self, block: int) -> Snapshot:
        """The snapshot less one block of hot rows."""
        made = self.base.without_all(
            self._rows(*self._borders[block : block + 2]), threads=self._threads
        )
        self._made.add(made)
        if self._why:  # while it was made
            made.expire(self._why)
        self._refuse_expired()
        return made

    def _refuse_expired(self) -> None:
        if self._why:
            raise StateError(f"this training set has expired: {self._why}; take a new one")

    def _rows(self, low: int, high: int) -> Iterator[tuple[Observations, Collection[str]]]:
        """The counted rows from one to another, with the tables that they are in."""
        sizes, tables = self._counted.rows, self._counted.tables

        def overlaps(number: int) -> bool:
            start = self._starts.get(number, high)
            return start < high and start + sizes[number] > low

        for hot in self._read(overlaps):
            first = at = self._starts[hot.number]
            for window, rows in hot.parts:
                some = np.arange(max(at, low), min(at + rows, high)) - first
                if window in tables and some.size:
                    yield hot.observations.take(some).under(self.base.encoder), tables[window]
                at += rows


def _some(rows: Observations, low: int, high: int) -> Observations:
    return rows if high - low == len(rows) else rows.take(np.arange(low, high))
