"""All count tables of one window in one block of memory.

    block   | prior | table 0            | table 1            | ...
            each table: cells[hash row, bucket, label], 32 or 64 bits, on its own cache lines

An arena is *populating* from birth and takes counts; once *sealed* it answers
and takes nothing. Noise enters at birth, before the first count.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyramidion.counts import kernels
from pyramidion.counts.layout import ALIGN, Layout, Table
from pyramidion.errors import FormatError, StateError
from pyramidion.observations import Observations

Fill = Callable[[int, NDArray[Any]], None]
"""Writes the noise of one table, given by its number, into its zeroed cells."""

MAGIC = b"PYRAMIDION ARENA"
VERSION = 1
CHUNK = 262_144  # rows whose keys are held at once, per thread: 2 MB
_FEW = 4_096  # rows not worth starting threads for
_SCRATCH = 1 << 21  # bytes of counts in the slots of one thread; many labels get fewer slots


class Arena:
    """The count tables of one window, or the sum of several.

    >>> from pyramidion.counts.layout import PRIOR
    >>> layout = Layout((Table(PRIOR, "dense", 1, 1, 100),), labels=2, secret=b"s")
    >>> arena = Arena.exact(layout)
    >>> arena.cells(0)
    Traceback (most recent call last):
    pyramidion.errors.StateError: count tables that are populating answer nothing; seal() first
    """

    def __init__(self, layout: Layout, max_rows: int) -> None:
        self.layout = layout
        self.max_rows = max_rows
        self.rows = 0
        self.sealed = False
        block = np.zeros(layout.nbytes + ALIGN, dtype=np.uint8)
        start = -block.ctypes.data % ALIGN
        self._block = block[start : start + layout.nbytes]

    @classmethod
    def noisy(cls, layout: Layout, max_rows: int, fill: Fill) -> Arena:
        """A new arena whose every cell carries noise before the first count."""
        arena = cls(layout, max_rows)
        for table in range(len(layout.tables)):
            fill(table, arena._flat(table))
        return arena

    @classmethod
    def exact(cls, layout: Layout, max_rows: int = 1 << 62) -> Arena:
        """A new arena without noise: for epsilon = inf, and for raw (P1) partial counts."""
        return cls(layout, max_rows)

    # --- cells ------------------------------------------------------------------

    def _flat(self, table: int) -> NDArray[Any]:
        row, spec = self.layout.plan[table], self.layout.tables[table]
        view = self._block.view(np.int64 if spec.wide else np.int32)
        start = int(row[kernels.PLAN_OFFSET])
        return view[start : start + spec.rows * spec.width * self.layout.labels]

    def cells(self, table: int) -> NDArray[Any]:
        """cells[hash row, bucket, label] of a sealed table, read-only."""
        self._must_be_sealed()
        spec = self.layout.tables[table]
        view = self._flat(table).reshape(spec.rows, spec.width, self.layout.labels)
        view.flags.writeable = False
        return view

    def views(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The sealed block as 32-bit and as 64-bit cells, for the kernels."""
        self._must_be_sealed()
        return self._block.view(np.int32), self._block.view(np.int64)

    def _must_be_sealed(self) -> None:
        if not self.sealed:
            raise StateError("count tables that are populating answer nothing; seal() first")

    def seal(self) -> None:
        """Take no more counts; answer from now on."""
        self.sealed = True
        self._block.flags.writeable = False

    # --- counts -----------------------------------------------------------------

    def add(self, observations: Observations, threads: int = 1) -> None:
        """Count observations, each once in every table."""
        if self.sealed:
            raise StateError("sealed count tables take no more counts; open a new window")
        if self.rows + len(observations) > self.max_rows:
            raise StateError(
                f"the window has room for {self.max_rows - self.rows} of {len(observations)} rows; "
                f"open a new window, or raise max_rows_per_window"
            )
        self._apply(observations, observations.weights, threads)
        self.rows += len(observations)

    def _apply(self, observations: Observations, weights: NDArray[np.int64], threads: int) -> None:
        def count(table: int) -> None:
            slots = self._slots(min(len(observations), CHUNK))
            for start in range(0, len(observations), CHUNK):
                stop = min(start + CHUNK, len(observations))
                self._count(table, observations, weights, start, stop, slots)

        tables = range(len(self.layout.tables))
        if threads == 1 or len(observations) < _FEW:
            for table in tables:
                count(table)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(count, sorted(tables, key=self._effort)))

    def _effort(self, table: int) -> int:
        """Sketches first: threads end together."""
        return self.layout.tables[table].kind == "dense"

    def _count(
        self,
        table: int,
        observations: Observations,
        weights: NDArray[np.int64],
        start: int,
        stop: int,
        slots: tuple[NDArray[Any], ...],
    ) -> None:
        plan, spec = self.layout.plan, self.layout.tables[table]
        cells = self._block.view(np.int64 if spec.wide else np.int32)
        if table == 0:
            keys = np.zeros(stop - start, dtype=np.uint64)
        else:
            keys = observations.keys(table - 1, start, stop)
        labels, of = observations.labels[start:stop], np.uint64(self.layout.labels)
        some = weights if weights.size == 1 else weights[start:stop]
        if spec.kind == "dense":
            kernels.add_dense(plan, table, cells, of, keys, labels, some)
        else:
            kernels.add_sketch(plan, table, cells, of, keys, labels, some, *slots)

    def _slots(self, rows: int) -> tuple[NDArray[Any], ...]:
        """An empty slot table for `kernels.add_sketch`, no larger than the rows need."""
        slots = kernels.SLOTS
        while slots > 16 and (slots > 4 * rows or slots * 8 * self.layout.labels > _SCRATCH):
            slots //= 2
        return (
            np.empty(slots, dtype=np.uint64),
            np.zeros(slots, dtype=np.uint8),
            np.zeros(slots * self.layout.labels, dtype=np.int64),
            np.empty(slots, dtype=np.uint32),
        )

    def minus(self, observations: Observations, threads: int = 1) -> Arena:
        """These sealed tables without the exact counts of some rows they hold.

        The result is as raw as those rows (P1): never store it.
        """
        self._must_be_sealed()
        rest = self.copy()
        rest.sealed = False
        rest._apply(observations, -observations.weights, threads)
        rest.rows = self.rows - len(observations)
        rest.seal()
        return rest

    def copy(self) -> Arena:
        """A sealed copy of sealed tables."""
        self._must_be_sealed()
        twin = Arena(self.layout, self.max_rows)
        twin._block[:] = self._block
        twin.rows, twin.sealed = self.rows, True
        return twin

    def __getstate__(self) -> dict[str, Any]:
        self._must_be_sealed()  # two states of a populating table subtract to exact counts
        return {"bytes": self.to_bytes(), "secret": self.layout.secret}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(Arena.from_bytes(state["bytes"], state["secret"]).__dict__)

    # --- merge --------------------------------------------------------------------

    @classmethod
    def total(cls, arenas: Iterable[Arena]) -> Arena:
        """The sum of sealed arenas: the complete tables."""
        return cls._sum(list(arenas), 1)

    def less(self, other: Arena) -> Arena:
        """These sealed tables less those of a window that leaves."""
        return Arena._sum([self, other], -1)

    @classmethod
    def _sum(cls, arenas: list[Arena], sign: int) -> Arena:
        if not arenas:
            raise StateError("there is no sealed window to sum; seal one first")
        first = arenas[0].layout
        for arena in arenas:
            arena._must_be_sealed()
            if not first.adds_to(arena.layout):
                raise StateError("count tables of different layouts cannot be summed")
        bounds = [sum(a.layout.tables[t].bound for a in arenas) for t in range(len(first.tables))]
        tables = tuple(
            Table(t.name, t.kind, t.rows, t.width, bound)
            for t, bound in zip(first.tables, bounds, strict=True)
        )
        total = cls(Layout(tables, first.labels, first.secret), sum(a.max_rows for a in arenas))
        for position, arena in enumerate(arenas):
            factor = 1 if position == 0 else sign
            for table in range(len(tables)):
                cells = total._flat(table)
                cells += factor * arena._flat(table)
            total.rows += factor * arena.rows
        total.seal()
        return total

    # --- bytes --------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Sealed tables as bytes: versioned, checksummed, uncompressed, of public size."""
        self._must_be_sealed()
        head = json.dumps(
            {
                "tables": [asdict(table) for table in self.layout.tables],
                "labels": self.layout.labels,
                "fingerprint": self.layout.fingerprint,
                "rows": self.rows,
                "max_rows": self.max_rows,
            }
        ).encode()
        start = MAGIC + VERSION.to_bytes(4, "little") + len(head).to_bytes(4, "little")
        body = b"".join((start, head, self._block.tobytes()))
        return body + blake2b(body, digest_size=32).digest()

    @classmethod
    def from_bytes(cls, data: bytes, secret: bytes) -> Arena:
        """Read back what `to_bytes` wrote under the same secret; refuses anything else."""
        head, block = _opened(data)
        try:
            tables = tuple(Table(**table) for table in head["tables"])
            layout = Layout(tables, int(head["labels"]), secret)
            arena = cls(layout, int(head["max_rows"]))
            arena.rows = int(head["rows"])
            fingerprint = head["fingerprint"]
        except (KeyError, TypeError, ValueError) as problem:
            raise FormatError("count tables with an unreadable head; restore them") from problem
        if layout.fingerprint != fingerprint:
            raise FormatError(
                "count tables of another secret; open them with the one they were written under"
            )
        if len(block) != layout.nbytes:
            raise FormatError("count tables of the wrong size; restore them from a backup")
        arena._block[:] = np.frombuffer(block, dtype=np.uint8)
        arena.seal()
        return arena


def _opened(data: bytes) -> tuple[dict[str, Any], memoryview]:
    view = memoryview(data)
    start = len(MAGIC) + 8
    if view[: len(MAGIC)] != MAGIC or len(view) < start + 32:
        raise FormatError("these bytes are not count tables; give what to_bytes() returned")
    version = int.from_bytes(view[len(MAGIC) : len(MAGIC) + 4], "little")
    if version > VERSION:
        raise FormatError(
            f"count tables of format {version}, this version reads up to {VERSION}; upgrade"
        )
    if blake2b(view[:-32], digest_size=32).digest() != bytes(view[-32:]):
        raise FormatError("count tables are damaged: the checksum differs; restore them")
    length = int.from_bytes(view[len(MAGIC) + 4 : start], "little")
    head: dict[str, Any] = json.loads(bytes(view[start : start + length]))
    return head, view[start + length : -32]
