"""All count tables of one window in one block of memory.

    block   | prior | table 0            | table 1            | ...
            each table: cells[hash row, bucket, label], 32 or 64 bits, on its own cache lines

An arena is *populating* from birth and takes counts; once *sealed* it answers
and takes nothing. Noise enters at birth, before the first count.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from hashlib import blake2b
from threading import Event, current_thread, main_thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyramidion.counts import kernels
from pyramidion.counts.layout import ALIGN, Layout, Table
from pyramidion.errors import FormatError, PrivacyError, StateError
from pyramidion.rows.observations import Observations

Fill = Callable[[int, NDArray[Any]], None]
"""Writes the noise of one table, given by its number, into its zeroed cells."""

MAGIC = b"PYRAMIDION ARENA"
VERSION = 1
CHUNK = 262_144  # rows whose keys are held at once, per thread: 2 MB
NOT_IN_THESE = "a window that is not in these tables cannot be taken off them"
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
        self.raw = False
        """Whether exact counts were taken off: as raw as their rows, never stored."""
        self._broken = False
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

    @classmethod
    def of_cells(cls, layout: Layout, fill: Fill, *, rows: int, max_rows: int) -> Arena:
        """A sealed arena whose cells are known already, noise and counts: those of another one."""
        arena = cls.noisy(layout, max_rows, fill)
        arena.rows = rows
        arena.seal()
        return arena

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
        self._whole()
        self.sealed = True
        base = self._block.base
        if isinstance(base, np.ndarray):
            base.flags.writeable = False  # or a view of it could be made writeable again
        self._block.flags.writeable = False

    # --- counts -----------------------------------------------------------------

    def add(
        self, observations: Observations, threads: int = 1, names: Collection[str] | None = None
    ) -> None:
        """Count observations, each once in every table, or in those that are named.

        ``threads`` share the tables among them; two calls at once would lose counts.
        """
        self._must_be_populating()
        self._must_fit(observations)
        if self.rows + len(observations) > self.max_rows:
            raise StateError(
                f"the window has room for {self.max_rows - self.rows} of {len(observations)} rows; "
                f"open a new window, or raise max_rows_per_window"
            )
        self._whole()
        self._apply(observations, +observations.weights, len(observations), threads, names)

    def take_back(
        self, observations: Observations, threads: int = 1, names: Collection[str] | None = None
    ) -> None:
        """Undo `add` of observations that were never acknowledged."""
        self._must_be_populating()
        self._must_fit(observations)
        self._whole()
        self._apply(observations, -observations.weights, -len(observations), threads, names)

    def join(self, counts: Arena) -> None:
        """Count rows that were counted elsewhere, from zero, in tables of the same cells.

        Their cells are bounded by their rows, as all that is counted here is: more could pass
        the cells' width, and the noise would not hide it.
        """
        self._must_be_populating()
        self._whole()
        counts._whole()
        same = list(counts.layout.index) == list(self.layout.index)
        if not (same and self.layout.adds_to(counts.layout)):
            raise StateError("count tables of different layouts cannot be summed")
        if self.rows + counts.rows > self.max_rows:
            raise StateError(
                f"the window has room for {self.max_rows - self.rows} of {counts.rows} rows; "
                f"open a new window, or raise max_rows_per_window"
            )
        most = counts.rows * self.layout.weight
        for table in range(len(self.layout.tables)):
            cells = counts._flat(table)
            if max(int(cells.max(initial=0)), -int(cells.min(initial=0))) > most:
                raise PrivacyError("a cell counts more than its rows weigh; this is a bug")
        self._broken = True
        for table in range(len(self.layout.tables)):
            flat = self._flat(table)
            np.add(flat, counts._flat(table), out=flat, casting="same_kind")
        self.rows += counts.rows
        self._broken = False

    def _must_be_populating(self) -> None:
        if self.sealed:
            raise StateError("sealed count tables take no more counts; open a new window")

    def _whole(self) -> None:
        if self._broken:
            raise StateError(
                "counting was broken off and could not be undone, so some tables hold a batch that "
                "others do not; count this window's rows again into a new one"
            )

    def _must_fit(self, observations: Observations) -> None:
        """Kernels check no index and no weight, so other rows must never reach them."""
        weights = observations.weights
        if weights.min(initial=1) < 0 or weights.max(initial=1) > self.layout.weight:
            raise PrivacyError(
                "observations weigh more than the noise of these tables hides; make them with the "
                "door that these tables were made for"
            )
        encoder = observations.encoder
        theirs = [(shape.name, shape.codes) for shape in encoder.shapes]
        ours = [(t.name, t.width if t.kind == "dense" else None) for t in self.layout.tables[1:]]
        if theirs != ours or encoder.schema.cardinality != self.layout.labels:
            raise StateError(
                "observations of another schema cannot be counted here; make them with the door "
                "that these tables were made for"
            )

    def _apply(
        self,
        observations: Observations,
        weights: NDArray[np.int64],
        rows: int,
        threads: int,
        names: Collection[str] | None = None,
    ) -> None:
        """Count in every table, or in none: what was counted is taken out where one fails.

        Workers do it, also a single one: Ctrl-C stops the main thread alone, so what a worker
        has counted and what it says it has are the same. None begins before all are known
        here: Ctrl-C while a worker is started leaves one that its pool has not heard of. A thread
        that Ctrl-C does not stop counts a few rows itself: to start a worker takes longer.
        """
        done: list[tuple[int, int, int]] = []
        gate, stopped = Event(), Event()

        def count_all(some: Sequence[int]) -> None:
            gate.wait()
            for table in some:
                count(table)

        def count(table: int) -> None:
            slots = self._slots(min(len(observations), CHUNK))
            for start in range(0, len(observations), CHUNK):
                if stopped.is_set():
                    return
                stop = min(start + CHUNK, len(observations))
                self._count(table, observations, weights, start, stop, slots)
                done.append((table, start, stop))

        index = self.layout.index
        wanted = [index[name] for name in index if names is None or name in names]
        tables = sorted(wanted, key=self._effort)
        before, counting = self.rows, list[Future[None]]()
        alone = threads == 1 or len(observations) < _FEW  # handing tables over takes longer then
        pool = ThreadPoolExecutor(1 if alone else threads)
        try:
            if alone and current_thread() is not main_thread():
                self._broken = True
                gate.set()
                count_all(tables)
            else:
                shares = [tables] if alone else [[table] for table in tables]
                counting = [pool.submit(count_all, some) for some in shares]
                self._broken = True
                gate.set()
                for counted in counting:
                    counted.result()
            self.rows = before + rows
            self._broken = False
        except BaseException:
            stopped.set()
            gate.set()
            wait(counting)
            for table, start, stop in done:
                slots = self._slots(stop - start)
                self._count(table, observations, -weights, start, stop, slots)
            self.rows = before
            self._broken = False
            raise
        finally:
            pool.shutdown(cancel_futures=True)

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
        return self.without([(observations, self.layout.index)], threads)

    def without(
        self, batches: Iterable[tuple[Observations, Collection[str]]], threads: int = 1
    ) -> Arena:
        """These sealed tables without the exact counts of batches, each in the tables named.

        Rows of a window that lacked a table were never counted there. As raw as the rows
        (P1): never store it.
        """
        rest = self._twin()
        rest.raw = True
        for observations, names in batches:
            self._must_fit(observations)
            if len(observations) > rest.rows:
                raise StateError("more rows than these tables hold cannot be taken off them")
            rest._apply(observations, -observations.weights, -len(observations), threads, names)
        rest.seal()
        return rest

    def copy(self) -> Arena:
        """A sealed copy of sealed tables."""
        twin = self._twin()
        twin.seal()
        return twin

    def _twin(self) -> Arena:
        self._must_be_sealed()
        twin = Arena(self.layout, self.max_rows)
        twin._block[:] = self._block
        twin.rows, twin.raw = self.rows, self.raw
        return twin

    def __getstate__(self) -> dict[str, Any]:
        self._must_be_sealed()  # two states of a populating table subtract to exact counts
        return {"bytes": self.to_bytes(), "secret": self.layout.secret}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(Arena.from_bytes(state["bytes"], state["secret"]).__dict__)

    # --- merge --------------------------------------------------------------------

    @classmethod
    def total(cls, arenas: Iterable[Arena]) -> Arena:
        """The sum of sealed arenas: the complete tables.

        A table is summed over the arenas that have it: it may have begun late.
        """
        found = list(arenas)
        if not found:
            raise StateError("there is no sealed window to sum; seal one first")
        return found[0]._sum(found[1:], 1)

    def arranged(self, names: Iterable[str], rows: int) -> Arena:
        """Sealed tables in another order, known to be of so many rows."""
        order = [name for name in names if name in self.layout.index]
        tables = tuple(self.layout.tables[self.layout.index[name]] for name in order)
        found = Arena(replace(self.layout, tables=tables), self.max_rows)
        found.rows, found.raw = rows, self.raw
        for number, name in enumerate(order):
            found._flat(number)[:] = self._flat(self.layout.index[name])
        found.seal()
        return found

    def less(self, other: Arena) -> Arena:
        """These sealed tables less those of a window in them, which leaves.

        The bounds shrink as they grew, so cells do not widen as windows come and go.
        A table that has no window left is gone.
        """
        return self._sum([other], -1)

    def only(self, names: Collection[str]) -> Arena:
        """These tables alone, in the same state: the others are left out."""
        self._whole()
        kept = tuple(table for table in self.layout.tables if table.name in names)
        rest = Arena(replace(self.layout, tables=kept), self.max_rows)
        rest.rows, rest.raw = self.rows, self.raw
        for number, table in enumerate(kept):
            rest._flat(number)[:] = self._flat(self.layout.index[table.name])
        if self.sealed:
            rest.seal()
        return rest

    def _sum(self, others: list[Arena], sign: int) -> Arena:
        arenas = [self, *others]
        for arena in arenas:
            arena._must_be_sealed()
            if not self.layout.adds_to(arena.layout):
                raise StateError("count tables of different layouts cannot be summed")
        factors = [1, *(sign for _ in others)]
        signed = list(zip(factors, arenas, strict=True))
        names = dict.fromkeys(name for arena in arenas for name in arena.layout.index)
        specs = [spec for name in names if (spec := _joined(name, signed)) is not None]
        rows = sum(f * a.rows for f, a in signed)
        if rows < 0:
            raise StateError(NOT_IN_THESE)
        if not specs:
            raise StateError("no window would be left in these tables; drop them instead")
        layout = replace(self.layout, tables=tuple(specs))
        total = Arena(layout, sum(f * a.max_rows for f, a in signed))
        total.rows, total.raw = rows, any(arena.raw for arena in arenas)
        for table, spec in enumerate(specs):
            total._fill(table, spec, [(f, a) for f, a in signed if spec.name in a.layout.index])
        total.seal()
        return total

    def _fill(self, table: int, spec: Table, signed: list[tuple[int, Arena]]) -> None:
        flats = [arena._flat(arena.layout.index[spec.name]) for _, arena in signed]
        cells = _summed(flats, [factor for factor, _ in signed])
        if int(np.abs(cells).max()) > spec.bound:
            raise StateError(NOT_IN_THESE)
        self._flat(table)[:] = cells

    # --- bytes --------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Sealed tables as bytes: versioned, checksummed, uncompressed, of public size."""
        return b"".join(self.to_parts())

    def to_parts(self) -> list[bytes | memoryview]:
        """The same bytes in parts, the cells not copied."""
        self._must_be_sealed()
        return self._parts()

    def checkpoint(self) -> list[bytes | memoryview]:
        """Populating tables as parts, for their owner's disk alone, under a key of their own.

        Two of them subtract to exact counts: the key of the older one must be
        destroyed before a row between the two leaves the hot window.
        """
        self._must_be_populating()
        self._whole()
        return self._parts()

    def _parts(self) -> list[bytes | memoryview]:
        if self.raw:
            raise PrivacyError(
                "these tables had exact counts taken off and are as raw as those rows (P1); they "
                "are never stored, make them again when they are needed"
            )
        head = json.dumps(
            {
                "tables": self.layout.told,
                "labels": self.layout.labels,
                "weight": self.layout.weight,
                "fingerprint": self.layout.fingerprint,
                "rows": self.rows,
                "max_rows": self.max_rows,
                "sealed": self.sealed,
            }
        ).encode()
        start = MAGIC + VERSION.to_bytes(4, "little") + len(head).to_bytes(4, "little")
        parts: list[bytes | memoryview] = [start, head, self._block.data]
        return [*parts, _checksum(*parts)]

    @classmethod
    def from_bytes(
        cls, data: bytes | bytearray, secret: bytes, *, like: Layout | None = None
    ) -> Arena:
        """Read back what `to_bytes` or `checkpoint` wrote under the same secret, nothing else.

        Windows of a stream are mostly laid out as the one before; ``like`` spares to plan it anew.
        """
        head, block = _opened(data)
        try:
            layout = _layout(head, secret, like)
            known = layout.fingerprint == head["fingerprint"]
            rows, max_rows = int(head["rows"]), int(head["max_rows"])
            sealed = bool(head["sealed"])
        except (LookupError, TypeError, ValueError, OverflowError) as problem:
            raise FormatError("count tables with an unreadable head; restore them") from problem
        if not known:
            raise FormatError(
                "count tables of another secret; open them with the one they were written under"
            )
        if len(block) != layout.nbytes:
            raise FormatError("count tables of the wrong size; restore them from a backup")
        arena = cls(layout, max_rows)
        arena.rows = rows
        arena._block[:] = np.frombuffer(block, dtype=np.uint8)
        if sealed:
            arena.seal()
        return arena


def _layout(head: dict[str, Any], secret: bytes, like: Layout | None) -> Layout:
    """The layout that a head tells; where that is one that is known already, this one."""
    labels, weight = int(head["labels"]), int(head["weight"])
    asked = labels, secret, weight, head["tables"]
    if like is not None and asked == (like.labels, like.secret, like.weight, like.told):
        return like
    return Layout(tuple(Table(**table) for table in head["tables"]), labels, secret, weight)


def _joined(name: str, signed: list[tuple[int, Arena]]) -> Table | None:
    """What is known of the sum of a table over the arenas that have it; None: nothing is left."""
    found = [
        (f, a.layout.tables[a.layout.index[name]]) for f, a in signed if name in a.layout.index
    ]
    windows = sum(f * table.windows for f, table in found)
    bound = sum(f * table.bound for f, table in found)
    if windows < 0 or bound < 0 or found[0][0] < 0:
        raise StateError(NOT_IN_THESE)
    variance = max(0.0, sum(f * table.variance for f, table in found))
    return (
        replace(found[0][1], bound=bound, variance=variance, windows=windows) if windows else None
    )


def _summed(flats: list[NDArray[Any]], factors: list[int]) -> NDArray[Any]:
    """Cells of several arenas added up or taken off, in 64 bits."""
    total = flats[0].astype(np.int64)
    for flat, factor in zip(flats[1:], factors[1:], strict=True):
        if factor > 0:
            total += flat
        else:
            total -= flat
    return total


def _checksum(*parts: bytes | memoryview) -> bytes:
    digest = blake2b(digest_size=32)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _opened(data: bytes | bytearray) -> tuple[dict[str, Any], memoryview]:
    view = memoryview(data).cast("B")
    start = len(MAGIC) + 8
    if view[: len(MAGIC)] != MAGIC or len(view) < start + 32:
        raise FormatError("these bytes are not count tables; give what to_bytes() returned")
    version = int.from_bytes(view[len(MAGIC) : len(MAGIC) + 4], "little")
    if version > VERSION:
        raise FormatError(
            f"count tables of format {version}, this version reads up to {VERSION}; upgrade"
        )
    if _checksum(view[:-32]) != bytes(view[-32:]):
        raise FormatError("count tables are damaged: the checksum differs; restore them")
    length = int.from_bytes(view[len(MAGIC) + 4 : start], "little")
    try:
        head: dict[str, Any] = json.loads(bytes(view[start : start + length]))
    except (ValueError, RecursionError) as problem:
        raise FormatError("count tables with an unreadable head; restore them") from problem
    return head, view[start + length : -32]
