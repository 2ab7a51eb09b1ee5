"""Complete tables that featurize: all that a client needs.

A snapshot is immutable. It holds the sum of sealed windows, how keys are made,
how counts become probabilities, and the guarantee it carries.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.counts.arena import Arena
from pyramidion.counts.columns import Columns
from pyramidion.counts.estimates import Estimates
from pyramidion.guarantee import Guarantee
from pyramidion.hashing import Keys
from pyramidion.observations import Door, Rows

CHUNK = 16_384  # rows featurized at once by one thread: their keys are 5 MB for 39 tables


class Snapshot:
    """Immutable complete tables of a stream.

    ``variances`` are those of the noise in one cell of each table, summed over
    the windows in it, the prior's first.
    """

    def __init__(
        self, door: Door, arena: Arena, variances: tuple[float, ...], guarantee: Guarantee
    ) -> None:
        self._door = door
        self._arena = arena
        self._variances = variances
        self._columns = Columns(door.schema, door.settings, door.encoder.shapes)
        self.guarantee = guarantee
        self.estimates = Estimates(
            door.schema, door.settings, arena, variances, self._columns.template
        )

    @property
    def names(self) -> list[str]:
        """The names of the feature columns, in order."""
        return list(self._columns.names)

    def featurize(self, rows: Any, *, threads: int = 1) -> pa.Table:
        """Features of a batch as Arrow columns of 32-bit floats."""
        columns = self.array(rows, threads=threads).T
        return pa.table([pa.array(column) for column in columns], names=self.names)

    def featurize_one(self, row: Mapping[str, object] | pa.RecordBatch) -> NDArray[np.float32]:
        """Features of one row, given as a dict or as a record batch of one row."""
        if isinstance(row, pa.RecordBatch):
            if row.num_rows == 1:
                keys = self._door.encoder.one_arrow(row)
                if keys is not None:
                    return self.featurize_keys(keys)[0]
            return self.array(row)[0]
        return self.featurize_keys(self._door.encoder.one(row))[0]

    def featurize_keys(self, keys: Keys) -> NDArray[np.float32]:
        """Features of rows given by the keys of their tables: keys[table, row]."""
        out = np.empty((len(self._columns.names), keys.shape[1]), dtype=np.float32)
        self._write(keys, out)
        return out.T

    def _write(self, keys: Keys, out: NDArray[np.float32]) -> None:
        self.estimates.features(keys, out)
        self._columns.pass_through(keys, out)

    def array(self, rows: Any, *, threads: int = 1) -> NDArray[np.float32]:
        """Features of a batch as a matrix of 32-bit floats, one column after the other."""
        checked = rows if isinstance(rows, Rows) else self._door.rows(rows)
        out = np.empty((len(self._columns.names), len(checked)), dtype=np.float32)

        def write(start: int) -> None:
            stop = min(start + CHUNK, len(checked))
            self._write(checked.matrix(start, stop), out[:, start:stop])

        starts = range(0, len(checked), CHUNK)
        if threads == 1 or len(starts) == 1:
            for start in starts:
                write(start)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(write, starts))
        return out.T

    def without(self, rows: Any, *, threads: int = 1) -> Snapshot:
        """This snapshot less the exact counts of some observations it holds.

        As raw as those observations (P1): for training in memory, never stored.
        """
        g = self.guarantee
        raw = Guarantee(level="P1", epsilon=g.epsilon, delta=g.delta, k=g.k, windows=g.windows)
        arena = self._arena.minus(rows, threads)
        return Snapshot(self._door, arena, self._variances, raw)
