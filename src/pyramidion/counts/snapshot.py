"""Complete tables that featurize: all that a client needs.

A snapshot is immutable. It holds the sum of sealed windows, how keys are made,
how counts become probabilities, and the guarantee it carries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.counts.arena import Arena
from pyramidion.counts.columns import Columns
from pyramidion.counts.deadline import Deadline
from pyramidion.counts.estimates import Estimates, Studied
from pyramidion.counts.guarantee import Guarantee
from pyramidion.counts.layout import PRIOR
from pyramidion.counts.remote import Fetch, RemoteEstimates
from pyramidion.counts.values import values_of
from pyramidion.errors import ExpiredError, ObservationError, StateError
from pyramidion.rows.encoding import Encoder
from pyramidion.rows.hashing import Keys
from pyramidion.rows.observations import Door, Observations, Rows

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

CHUNK = 131_072  # rows of one table featurized at once by one thread: their keys are 1 MB
_FEW = 4_096  # rows not worth starting threads for


class Features(np.ndarray[Any, np.dtype[np.float32]]):
    """A matrix of features that says what it promises: ``features.guarantee``."""

    guarantee: Guarantee | None = None

    @classmethod
    def of(cls, array: NDArray[Any], guarantee: Guarantee) -> Features:
        """The array, with its guarantee; no copy."""
        features = array.view(cls)
        features.guarantee = guarantee
        return features

    def __array_finalize__(self, other: Any) -> None:
        """Views promise what they view; results of arithmetic or masks promise nothing."""
        if type(other) is np.ndarray:
            return  # the usual way here, and one row has little time
        guarantee = getattr(other, "guarantee", None)
        if guarantee is not None and np.may_share_memory(self, other):
            self.guarantee = guarantee

    def __reduce__(self) -> Any:
        reduced: Any = super().__reduce__()
        make, given, state = reduced
        return make, given, (state, self.guarantee)

    def __setstate__(self, state: Any) -> None:
        array, self.guarantee = state
        super().__setstate__(array)


class Snapshot:
    """Immutable complete tables of a stream.

    A snapshot that holds a window past its retention is *expired*: it drops its
    tables and answers no more. A store tells its own; one that left the store has a
    ``deadline`` and tells itself, by a clock that never goes back.

    What was ``studied`` of the same tables need not be studied again. With a ``fetch`` the cells
    are elsewhere, and those of each row are read for it.
    """

    def __init__(
        self,
        door: Door,
        arena: Arena,
        guarantee: Guarantee,
        *,
        source: Arena | None = None,
        made: int = 0,
        expires: int | None = None,
        deadline: Deadline | None = None,
        studied: Studied | None = None,
        fetch: Fetch | None = None,
    ) -> None:
        self._door = door
        self._arena = arena
        self._source = arena if source is None else source
        self._columns = Columns(door.schema, door.settings, door.encoder.shapes)
        self._width = len(self._columns.names)
        self.guarantee = guarantee
        given = door.schema, door.settings, arena, self._columns
        self.estimates: Estimates
        if fetch is None or studied is None:
            self.estimates = Estimates(*given, studied=studied)
        else:
            self.estimates = RemoteEstimates(*given, studied=studied, fetch=fetch)
        self.made = made
        """When the service signed this copy, in microseconds since 1970; 0: not a signed copy."""
        self.expires = expires
        """When it ends, in microseconds since 1970: a window in it retires then. None: never."""
        self._deadline = deadline
        self._expired = ""

    def expire(self, why: str) -> None:
        """Drop the tables: what they hold must be forgotten. Nothing is answered from now on."""
        self._expired = why
        vars(self).pop("_arena", None)
        vars(self).pop("_source", None)
        vars(self).pop("estimates", None)

    @property
    def expired(self) -> bool:
        """Whether it answers no more."""
        return bool(self._expired) or (self._deadline is not None and self._deadline.passed())

    def _fresh(self) -> Estimates:
        """What answers. Who has begun is done with it, should the snapshot expire meanwhile."""
        if self._deadline is not None and self._deadline.passed():
            self.expire("its time is over")
        estimates: Estimates | None = self.__dict__.get("estimates")
        if self._expired or estimates is None:
            raise ExpiredError(f"this snapshot has expired: {self._expired}; take a new one")
        return estimates

    def holds(self, arena: Arena | None) -> bool:
        """Whether its tables are these, or some of these."""
        return arena is not None and vars(self).get("_source") is arena

    @property
    def rows(self) -> int:
        """How many observations the tables count."""
        self._fresh()
        return self._arena.rows

    @property
    def tables(self) -> list[str]:
        """The names of the tables, the prior's first."""
        self._fresh()
        return list(self._arena.layout.index)

    def typical_counts(self) -> dict[str, float]:
        """How large the counts of each table are, as its noisy cells tell it."""
        self._fresh()
        return typical_counts(self._arena)

    @property
    def encoder(self) -> Encoder:
        """Makes the keys of these tables."""
        return self._door.encoder

    @property
    def names(self) -> list[str]:
        """The names of the feature columns, in order."""
        return list(self._columns.names)

    @property
    def parts(self) -> list[tuple[str, ...]]:
        """The features of the count table that each column comes from."""
        return list(self._columns.parts)

    def featurize(self, rows: Any, *, threads: int = 1) -> pa.Table:
        """Features of a batch as Arrow columns of 32-bit floats."""
        columns = np.asarray(self.array(rows, threads=threads)).T
        table = pa.table([pa.array(column) for column in columns], names=self.names)
        return table.replace_schema_metadata({"pyramidion.guarantee": str(self.guarantee)})

    def featurize_one(self, row: Mapping[str, object] | pa.RecordBatch) -> NDArray[np.float32]:
        """Features of one row, given as a dict or as a record batch of one row."""
        estimates = self._fresh()
        if isinstance(row, pa.RecordBatch):
            if row.num_rows != 1:
                raise ObservationError("featurize_one takes one row; use featurize for a batch")
            keys = self._door.encoder.one_arrow(row)
            if keys is None:  # types that only the wide door knows, or a bad value
                keys = self._door.rows(row).matrix(0, 1)
        else:
            keys = self._door.encoder.one(row)
        return self._one(estimates, keys)

    def _one(self, estimates: Estimates, keys: Keys) -> NDArray[np.float32]:
        out = np.empty(self._width, dtype=np.float32)
        estimates.one(keys, out)
        return Features.of(out, self.guarantee)

    def featurize_keys(self, keys: Keys) -> NDArray[np.float32]:
        """Features of rows given by the keys of their tables: keys[table, row]."""
        estimates = self._fresh()
        tables = len(self._door.encoder.shapes)
        if keys.dtype != np.uint64 or keys.ndim != 2 or len(keys) != tables:
            raise StateError(
                f"keys are {tables} rows of unsigned 64-bit integers, one for each table; make "
                f"them with the snapshot's door"
            )
        out = np.empty((len(self._columns.names), keys.shape[1]), dtype=np.float32)
        self._write(estimates, keys, out)
        return Features.of(out.T, self.guarantee)

    def _write(self, estimates: Estimates, keys: Keys, out: NDArray[np.float32]) -> None:
        estimates.features(keys, out)
        for table, _, _ in self._columns.raw:
            self._columns.pass_through(table, keys[table], out)

    def array(self, rows: Any, *, threads: int = 1) -> NDArray[np.float32]:
        """Features of a batch as a matrix of 32-bit floats, one column after the other."""
        estimates = self._fresh()
        checked = rows if isinstance(rows, Rows) else self._door.rows(rows)
        if checked.shapes != self._door.encoder.shapes:
            raise StateError("rows checked for another schema; give this snapshot's own")
        out = np.empty((len(self._columns.names), len(checked)), dtype=np.float32)
        every = list(range(len(checked.shapes)))

        def write(tables: Sequence[int], shown: int) -> None:
            for start in range(0, len(checked), CHUNK):
                stop = min(start + CHUNK, len(checked))
                keys = np.stack([checked.keys(table, start, stop) for table in tables])
                estimates.features(keys, out, tables, start, shown=shown)
                for table, own in zip(tables[shown:], keys[shown:], strict=True):
                    self._columns.pass_through(table, own, out[:, start:stop])

        work = [(family, len(family) - 1) for family in map(self._columns.family, every)]
        if estimates.together:
            work = [(every, 0)]
        if threads == 1 or len(checked) < _FEW:
            for some in work:
                write(*some)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(write, *zip(*work, strict=True)))
        return Features.of(out.T, self.guarantee)

    def values(self, rows: Any, features: Collection[str] | None = None) -> csr_matrix:
        """The values of a batch, to be learned beside `array`: a column for each, sparse.

        The columns are those of ``training_set(values=True).values``. Where it was made of some
        features, give its ``valued``.
        """
        self._fresh()
        return values_of(rows if isinstance(rows, Rows) else self._door.rows(rows), features)

    def without(self, observations: Observations, *, threads: int = 1) -> Snapshot:
        """This snapshot less the exact counts of some observations it holds.

        As raw as those observations (P1): for training in memory, never stored.
        """
        self._fresh()
        return self.without_all([(observations, self._arena.layout.index)], threads=threads)

    def without_all(
        self, batches: Iterable[tuple[Observations, Collection[str]]], *, threads: int = 1
    ) -> Snapshot:
        """This snapshot less the exact counts of batches, each in the tables named (P1)."""
        estimates = self._fresh()
        raw = copy(self)
        raw._arena = raw._source = self._arena.without(batches, threads)
        raw.estimates = estimates.on(raw._arena)
        raw.guarantee = self.guarantee.raw()
        return raw


def typical_counts(arena: Arena) -> dict[str, float]:
    """By table, the count in the cell that an observation falls into, on average; 0 at least.

    A cell is read for the rows that fall into it, so what matters is the cell that an observation
    falls into: with counts n and N rows, the mean of n over rows is Σ n² / N. Of noisy cells c,
    whose noise has variance σ², the sum of c² - σ² has the same mean as Σ n²; in a signed sketch
    too, where it is the known estimate of a second moment. N is the prior's noisy total. So only
    sealed tables are read, and nothing is spent (P2).
    """
    index = arena.layout.index
    rows = max(float(arena.cells(index[PRIOR]).sum()), 1.0)
    found = {}
    for name, number in index.items():
        table, cells = arena.layout.tables[number], arena.cells(number)
        squares = sum(float(np.square(row, dtype=np.float64).sum()) for row in cells) / table.rows
        noise = table.variance * cells[0].size
        found[name] = max(squares - noise, 0.0) / rows
    return found
