"""Arrivals that come together: judged as one where that is the same as one by one.

    arrivals   [{a}] [{b}, {c}]  table  [{d}]  table  table
    bundles    |    one       |  one    one    |   one    |

Rows are judged by themselves alone, so a batch of many arrivals gives each what it would have
got by itself, for little more than one costs. One of which a row is bad is judged again by
itself: what is said to its sender depends on nobody else's rows. Bundles keep the order in
which arrivals came.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.config.checks import encodable
from pyramidion.errors import ObservationError, PyramidionError
from pyramidion.rows.containers import ABSENT, Batch, Raw, as_dict, columns_of, is_columnar
from pyramidion.rows.observations import Door, Errors, Observations, checked_errors
from pyramidion.rows.validation import refuse_damaged
from pyramidion.storage import records
from pyramidion.storage.idempotency import Once

MOST_KEY = 1_000  # letters of an idempotency key
MERGED = 10_000  # rows of a bundle, unless one arrival has more: beyond, merging saves nothing


@dataclass(frozen=True)
class Arrival:
    """A batch to be observed together with others, under a key and with a refusal of its own.

    The first three are those that `Pyramid.observe` takes. ``sender`` says whose the key is: the
    same key of another sender is another key. ``content`` is a hash of what was sent, where the
    bytes are known; without it the rows are hashed.
    """

    batch: Any = field(repr=False)
    key: str | None = None
    errors: Errors = "refuse"
    sender: str = ""
    content: bytes | None = None


@dataclass(frozen=True)
class Waiting:
    """An arrival by its place among those that came together; its rows can be read again."""

    place: int
    once: Once | None
    errors: Errors
    data: list[Any] | pa.Table | Batch = field(repr=False)

    @property
    def rows(self) -> int:
        """How many rows came."""
        return self.data.length if isinstance(self.data, Batch) else len(self.data)


class Member(NamedTuple):
    """What an arrival has in a bundle."""

    place: int
    once: Once | None
    rows: int
    refused: int


class Refusal(NamedTuple):
    """Why an arrival is not accepted."""

    place: int
    problem: PyramidionError


@dataclass(frozen=True)
class Bundle:
    """Checked rows of one arrival or more, one behind the other; they become one batch."""

    members: Sequence[Member]
    found: Observations
    batch: Batch
    """The columns as they came."""

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where the rows of each member begin."""
        return np.cumsum([0, *(member.rows for member in self.members)])[:-1]

    def only(self, members: Sequence[Member]) -> Bundle:
        """The same with some of its members alone."""
        if len(members) == len(self.members):
            return self
        kept = {member.place for member in members}
        each = np.array([member.place in kept for member in self.members], dtype=np.bool_)
        rows = np.flatnonzero(np.repeat(each, [member.rows for member in self.members]))
        return Bundle(members, self.found.take(rows), self.batch.only(rows))


def waiting(arrival: Arrival, place: int, columns: Collection[str]) -> Waiting:
    """An arrival made ready to be judged; raises where no row of it can be read.

    What can be read only once, such as a stream, is read here.
    """
    _refuse_unusable(arrival.key)
    data, errors = arrival.batch, checked_errors(arrival.errors)
    if type(data) is list and all(type(row) is dict for row in data):  # nearly all that come small
        return Waiting(place, _once(arrival, data), errors, list(data))
    if isinstance(data, Mapping) and not is_columnar(data):
        data = [data]
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    rows = isinstance(data, list | tuple) and all(isinstance(row, Mapping) for row in data)
    if not rows and not isinstance(data, pa.Table):
        data = Batch(*columns_of(data, columns))
    data = list(data) if rows else data
    return Waiting(place, _once(arrival, data), errors, data)


def _once(arrival: Arrival, data: list[Any] | pa.Table | Batch) -> Once | None:
    if arrival.key is None:
        return None
    content = _hashed(data) if arrival.content is None else arrival.content
    return Once(arrival.key, arrival.sender, content)


def _hashed(data: list[Any] | pa.Table | Batch) -> bytes:
    """A hash of all columns: the same for the same values, however they are chunked.

    Also of columns that the schema does not have: it may have had them when these rows came first.
    """
    made = blake2b()
    for name, raw in sorted(_columns(data), key=lambda column: str(column[0])):
        refuse_damaged(str(name), raw)
        with suppress(pa.ArrowException):  # of a type that no column of a schema has
            # Copied: the last byte of a slice may have bits of its neighbours.
            column = records.some(records.table_of(Batch({"": raw}, len(raw))), np.arange(len(raw)))
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, column.schema) as writer:
                writer.write_table(column.combine_chunks())
            made.update(repr(name).encode(errors="surrogatepass") + sink.getvalue())
    return made.digest()


def _columns(data: list[Any] | pa.Table | Batch) -> Iterator[tuple[Any, Raw]]:
    if isinstance(data, Batch):
        yield from data.columns.items()
    elif isinstance(data, pa.Table):
        yield from zip(data.column_names, data.columns, strict=True)
    else:
        rows = list(map(as_dict, data))
        for name in dict.fromkeys(name for row in rows for name in row):
            yield name, [row.get(name, ABSENT) for row in rows]


def _refuse_unusable(key: str | None) -> None:
    if key is None:
        return
    if not isinstance(key, str) or not key or len(key) > MOST_KEY:
        raise ObservationError(
            f"an idempotency key must be text of 1 to {MOST_KEY} letters; send one such as a UUID"
        )
    if not encodable(key):
        raise ObservationError("an idempotency key must be valid Unicode; send one such as a UUID")


def bundled(
    group: Sequence[Waiting], door: Door, latest: int, most: int | None
) -> Iterator[Bundle | Refusal]:
    """Judge arrivals; none of several in a bundle of more than ``most`` rows.

    A row with an event time after ``latest`` is bad.
    """
    for run in _runs(group, min(most or MERGED, MERGED)):
        yield from _judged(run, door, latest)


def _runs(group: Sequence[Waiting], most: int) -> Iterator[Sequence[Waiting]]:
    """Neighbours whose rows can lie in one batch."""
    run: list[Waiting] = []
    rows = 0
    for each in group:
        if run and (rows + each.rows > most or not _alike(run[-1], each)):
            yield run
            run, rows = [], 0
        run.append(each)
        rows += each.rows
    if run:
        yield run


def _alike(one: Waiting, other: Waiting) -> bool:
    if isinstance(one.data, pa.Table) and isinstance(other.data, pa.Table):
        return bool(one.data.schema.equals(other.data.schema))
    return isinstance(one.data, list) and isinstance(other.data, list)


def _judged(run: Sequence[Waiting], door: Door, latest: int) -> list[Bundle | Refusal]:
    if len(run) == 1:
        return [_alone(run[0], door, latest)]
    try:
        merged = _merged(run, door)
        found, batch = door.arrivals(merged, "skip", latest=latest)
    except ObservationError:  # of one of them; which one, the halves tell
        return _in_halves(run, door, latest)
    bad = _bad_rows(found, merged.length)
    members: list[Member] = []
    kept: list[Member] = []
    refusals: list[Bundle | Refusal] = []
    ends = np.cumsum([0, *(each.rows for each in run)]).tolist()
    for each, (start, stop) in zip(run, pairwise(ends), strict=True):
        refused = int(bad[start:stop].sum())
        members.append(Member(each.place, each.once, each.rows - refused, refused))
        if refused and each.errors == "refuse":
            refusals.append(_alone(each, door, latest))
        else:
            kept.append(members[-1])
    return [Bundle(members, found, batch).only(kept), *refusals]


def _in_halves(run: Sequence[Waiting], door: Door, latest: int) -> list[Bundle | Refusal]:
    half = len(run) // 2
    return [*_judged(run[:half], door, latest), *_judged(run[half:], door, latest)]


def _alone(each: Waiting, door: Door, latest: int) -> Bundle | Refusal:
    try:
        found, batch = door.arrivals(each.data, each.errors, latest=latest)
    except PyramidionError as problem:
        return Refusal(each.place, told(problem))
    return Bundle([Member(each.place, each.once, len(found), found.refused)], found, batch)


def told(problem: PyramidionError) -> PyramidionError:
    """An error to be handed on: without the frames it came through, which hold rows."""
    return copy(problem)


def _merged(run: Sequence[Waiting], door: Door) -> Batch:
    columns, all_data = door.schema.columns, [each.data for each in run]
    rows = [row for data in all_data if isinstance(data, list) for row in data]
    if isinstance(all_data[0], list):
        return Batch(*columns_of(rows, columns))
    table = pa.concat_tables(all_data)
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name in columns:  # before chunks are joined: that trusts what they say of themselves
            refuse_damaged(name, column)
    return Batch(*columns_of(table, columns))


def _bad_rows(found: Observations, rows: int) -> NDArray[np.bool_]:
    bad = np.zeros(rows, dtype=np.bool_)
    for each in found.problems.values():
        bad[each] = True
    return bad
