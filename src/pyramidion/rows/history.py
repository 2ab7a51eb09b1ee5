"""Replays data files in the order of event time, as a stream would have brought them.

A first pass reads the event times alone. Files that are sorted, and follow each
other, are then streamed. Others take several passes: each reads the files
again, keeps the rows of one range of times, sorts them, and hands them on. Raw
rows are never written anywhere, so nothing is spilled to disk; memory holds
``most`` rows at a time and, while the ranges are sought, eight bytes for every
row of the replay. Standard input cannot be read twice and is held in memory
whole.

A row whose time is missing or bad has no place of its own. It follows the row
before it in its file (or leads the first good one), so that the store's own
door meets it, refuses or skips it, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.config.checks import checked_whole
from pyramidion.config.schema import Schema
from pyramidion.errors import ObservationError
from pyramidion.rows.containers import columns_of, joined, take
from pyramidion.rows.files import ROWS, DataFile
from pyramidion.rows.text_files import Types, declared
from pyramidion.rows.validation import Judge, times_of

Times = NDArray[np.int64]
Piece = tuple[pa.Table, Times | None]

_MOST = 1 << 31
UNTYPED = ("csv", "tsv")


def in_order(
    files: Sequence[DataFile], schema: Schema, *, chunk: int = 262_144, most: int = 4_000_000
) -> Replay:
    """Look through the files once, and make ready to replay them.

    ``chunk`` is the most rows handed on at once, ``most`` the rows that may be
    held in memory to sort them. A schema without a time keeps the files' order.
    """
    checked_whole("rows of a chunk", chunk, 1, _MOST)
    checked_whole("rows held to be sorted", most, 1, _MOST)
    return Replay(files, schema, chunk, most)


class Replay:
    """Rows of several files in non-decreasing event time; equal times in the files' order.

    ``first`` and ``last`` are the smallest and largest event time, in
    microseconds, and None when no row has one. ``fingerprint`` is made of the
    files' names, numbers of rows, first and last times, and of nothing else in the
    rows: it tells whether a replay may be resumed, and outlives them.
    """

    def __init__(self, files: Sequence[DataFile], schema: Schema, chunk: int, most: int) -> None:
        self._chunk = chunk
        self._most = most
        self._sources = [_Scanned(file, schema, place) for place, file in enumerate(files)]
        self.rows = sum(source.rows for source in self._sources)
        lows = [source.low for source in self._sources if source.low is not None]
        highs = [source.high for source in self._sources if source.high is not None]
        self.first: int | None = min(lows, default=None)
        self.last: int | None = max(highs, default=None)
        for source in self._sources:
            source.stand_in(self.first or 0)
        self.fingerprint = _fingerprint(self._sources)
        self._order = self._streamable() if schema.time is not None else self._sources
        self._found: list[tuple[int, int]] | None = None

    def chunks(self, *, skip: int = 0, types: Types | None = None) -> Iterator[Piece]:
        """Tables with their times, in order, without the first ``skip`` rows of that order.

        ``types`` are those of CSV columns whose declared values are not text, for a stream that
        knows values by their type.
        """
        checked_whole("rows to skip", skip, 0, 1 << 62)
        for source in self._sources:
            source.types = dict(types or {})
        pieces = self._sorted(skip) if self._order is None else _streamed(self._order, skip)
        return _in_chunks(pieces, self._chunk)

    def _streamable(self) -> list[_Scanned] | None:
        """The files in an order in which they can be streamed, if there is one."""
        full = [source for source in self._sources if source.rows]
        order = sorted(full, key=lambda source: (source.start, source.place))
        follow = all((a.end, a.place) < (b.start, b.place) for a, b in pairwise(order))
        return order if follow and all(source.sorted for source in order) else None

    # --- several passes ---------------------------------------------------------------

    def _sorted(self, skip: int) -> Iterator[Piece]:
        """One pass for each ``most`` rows of the order."""
        cuts = self._cuts()
        for number in range(skip // self._most, len(cuts)):
            low, high = cuts[number], cuts[number + 1] if number + 1 < len(cuts) else None
            first = number * self._most
            yield from self._pass(low, high, first, max(skip - first, 0))

    def _cuts(self) -> list[tuple[int, int]]:
        """Where each pass begins: a time, and how many rows of that very time came before."""
        if self._found is None:
            times = np.empty(self.rows, dtype=np.int64)
            filled = 0
            for source in self._sources:
                for part in source.times():
                    times[filled : filled + part.size] = part
                    filled += part.size
            times.sort()
            begins = range(0, self.rows, self._most)
            self._found = [
                (int(times[rank]), rank - int(np.searchsorted(times, times[rank])))
                for rank in begins
            ]
        return self._found

    def _pass(
        self, low: tuple[int, int], high: tuple[int, int] | None, first: int, skip: int
    ) -> Iterator[Piece]:
        """Collect the rows of one range of the order, and hand them on sorted."""
        begin, end = _Cut(low), None if high is None else _Cut(high)
        tables, times = [], []
        for source in self._sources:
            if source.end < low[0] or (high is not None and (source.start, 0) >= high):
                continue
            for table, when in source.pieces():
                inside = ~begin.before(when)
                if end is not None:
                    inside &= end.before(when)
                rows = np.flatnonzero(inside)
                if rows.size:
                    tables.append(table if rows.size == table.num_rows else _taken(table, rows))
                    times.append(when[rows])
        if sum(table.num_rows for table in tables) != min(self._most, self.rows - first):
            raise _changed("a file")
        merged, moments = _together(tables), np.concatenate(times)
        order = np.argsort(moments, kind="stable")[skip:]
        for start in range(0, order.size, self._chunk):
            part = order[start : start + self._chunk]
            yield _taken(merged, part), moments[part]


class _Cut:
    """A place in the order: before it are all earlier times, and some rows of its own."""

    def __init__(self, place: tuple[int, int]) -> None:
        self._time, self._left = place

    def before(self, times: Times) -> NDArray[np.bool_]:
        """Which of the next rows come before; called once for each, in the files' order."""
        before = times < self._time
        if self._left:
            equal = np.flatnonzero(times == self._time)[: self._left]
            before[equal] = True
            self._left -= equal.size
        return before


class _Scanned:
    """A file whose event times were looked through once."""

    def __init__(self, file: DataFile, schema: Schema, place: int) -> None:
        self.place = place
        self._file = file
        self._columns = list(schema.columns)
        self._time = schema.time
        self.types: Types = {}
        self._held: list[pa.Table] | None = None
        if file.once:
            self._held = list(self._batches(self._columns))
        self.rows = 0
        self.sorted = True
        self.low: int | None = None
        self.high: int | None = None
        self.start = self.end = 0  # as `low` and `high`, once bad rows have a time as well
        self._leading: int | None = None  # the time of bad rows before the first good one
        if self._time is None:
            self._count()
        else:
            self._scan()

    def _count(self) -> None:
        hint = None if self._held is not None else self._file.rows_hint
        cheap = self._columns[:1]
        self.rows = sum(t.num_rows for t in self._batches(cheap)) if hint is None else hint

    def _scan(self) -> None:
        last: int | None = None
        for times, bad in map(self._judge, self._batches([str(self._time)])):
            self.rows += times.size
            good = times[~bad] if bad.any() else times
            if not good.size:
                continue
            if last is None:
                self._leading = last = int(good[0])
            self.sorted &= last <= int(good[0]) and bool((good[1:] >= good[:-1]).all())
            last = int(good[-1])
            low, high = int(good.min()), int(good.max())
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)

    def stand_in(self, time: int) -> None:
        """Take this time for all rows, if none has a good one."""
        if self._leading is None:
            self._leading = time
        self.start = time if self.low is None else self.low
        self.end = time if self.high is None else self.high

    @property
    def identity(self) -> tuple[str, int, int | None, int | None]:
        """Name, number of rows, first and last time; the size would tell how long values are."""
        name = "-" if self._file.stdin else self._file.path.name
        return name, self.rows, self.low, self.high

    def times(self) -> Iterator[Times]:
        """The times of all rows, of bad ones too."""
        carry = self._leading or 0
        for table in self._checked([str(self._time)]):
            filled = _filled(*self._judge(table), carry)
            carry = int(filled[-1])
            yield filled

    def pieces(self) -> Iterator[tuple[pa.Table, Times]]:
        """All columns of all rows, with their times."""
        carry = self._leading or 0
        for table in self._checked(self._columns):
            times = _filled(*self._judge(table), carry)
            carry = int(times[-1])
            yield table, times

    def untimed(self) -> Iterator[Piece]:
        """All rows, for a schema without a time."""
        return ((table, None) for table in self._checked(self._columns))

    @property
    def timed(self) -> bool:
        """Whether the schema names an event time."""
        return self._time is not None

    def _checked(self, columns: list[str]) -> Iterator[pa.Table]:
        """As many rows as there were at the first look."""
        seen = 0
        for table in self._batches(columns):
            seen += table.num_rows
            if seen > self.rows:
                break
            yield table
        if seen != self.rows:
            raise _changed(self._file.name)

    def _judge(self, table: pa.Table) -> tuple[Times, NDArray[np.bool_]]:
        name = str(self._time)
        judge = Judge(table.num_rows)
        return times_of(name, columns_of(table, [name])[0][name], judge), judge.bad

    def _batches(self, columns: list[str]) -> Iterator[pa.Table]:
        if self._held is None:
            return self._file.batches(columns, types=self.types, rows=ROWS)
        types = self.types if self._file.format in UNTYPED else {}
        return (declared(table.select(columns), types) for table in self._held)


def _filled(times: Times, bad: NDArray[np.bool_], carry: int) -> Times:
    """Times in which a bad row has that of the row before it."""
    if not bad.any():
        return times
    last = np.maximum.accumulate(np.where(bad, -1, np.arange(times.size)))
    return np.where(last < 0, carry, times[last])


def _changed(name: str) -> ObservationError:
    return ObservationError(
        f"{name} changed while it was replayed; replay a copy that nobody writes to"
    )


def _fingerprint(sources: Iterable[_Scanned]) -> bytes:
    digest = blake2b(b"pyramidion replay 1", digest_size=32)
    for source in sources:
        digest.update(repr(source.identity).encode(errors="surrogatepass"))
    return digest.digest()


# --- tables -----------------------------------------------------------------------------


def _streamed(order: Iterable[_Scanned], skip: int) -> Iterator[Piece]:
    for source in order:
        if skip >= source.rows:
            skip -= source.rows
            continue
        for table, times in source.pieces() if source.timed else source.untimed():
            left_out = min(skip, table.num_rows)
            skip -= left_out
            if left_out < table.num_rows:
                yield table.slice(left_out), None if times is None else times[left_out:]


def _in_chunks(pieces: Iterable[Piece], chunk: int) -> Iterator[Piece]:
    """Pieces joined and cut to chunks, whatever types their columns have."""
    held: list[Piece] = []
    count = 0
    for table, times in pieces:
        start = 0
        while start < table.num_rows:
            stop = min(start + chunk - count, table.num_rows)
            part = table.slice(start, stop - start)
            held.append((part, None if times is None else times[start:stop]))
            count += stop - start
            start = stop
            if count == chunk:
                yield _joined(held)
                held, count = [], 0
    if held:
        yield _joined(held)


def _joined(held: list[Piece]) -> Piece:
    table = joined([table for table, _ in held])
    times = [times for _, times in held if times is not None]
    return table, np.concatenate(times) if times else None


def _taken(table: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    columns = [take(column, rows) for column in table.columns]
    return pa.table(columns, names=table.column_names)


def _together(tables: list[pa.Table]) -> pa.Table:
    return joined(tables).combine_chunks()
