"""Parquet files that executors read themselves, with Arrow: the quickest way to count them.

Spark hands a DataFrame's rows to Python one value at a time, which takes longer than reading,
judging and counting them. Files that executors can open by the same path (on a disk that all
share, or in an object store that Arrow knows) need not go that way: a task is told which parts of
which files are its own, and reads these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from pyramidion.errors import ObservationError

ROWS = 1_000_000
"""Of one task, or as many as one row group has."""
BATCH = 32_768
BUFFER = 256 << 10  # bytes of each column that are read at once
UNIT = {"coerce_int96_timestamp_unit": "us"}
"""Of the times that Spark writes by default: nanoseconds would overflow past the year 2262."""

Batches = Iterator[pa.RecordBatch]


class ParquetFiles:
    """Files, or folders of them, that are counted as a DataFrame of theirs would be.

    ``rows`` is how many a task should have; row groups are not divided.
    """

    def __init__(self, spark: Any, *paths: str | Path, rows: int = ROWS) -> None:
        self.sparkSession = spark  # as a DataFrame calls it
        self._rows = rows
        self._dataset = _dataset([str(path) for path in paths])
        self._sent: list[Any] = []
        self.columns: list[str] = self._dataset.schema.names

    def select(self, names: list[str]) -> ParquetFiles:
        """The same files, of which some columns are read."""
        some = object.__new__(ParquetFiles)
        vars(some).update(vars(self), columns=names, _sent=[])
        return some

    def empty(self) -> pa.Table:
        """No row of them, in the types that executors see."""
        return self._dataset.schema.empty_table().select(self.columns)

    def footers(self) -> Iterator[tuple[pa.Schema, pq.ParquetSchema]]:
        """Of each file the columns as Arrow sees them, and as they lie there."""
        for fragment in self._dataset.get_fragments():
            yield fragment.physical_schema, fragment.metadata.schema

    def mapInArrow(self, task: Callable[[Batches], Batches], form: str) -> Any:  # noqa: N802
        """What a task makes of the rows of its files, as a DataFrame's method of this name does."""
        shares, columns = self._shares(), self.columns
        sent = self.sparkSession.sparkContext.broadcast(shares)
        self._sent.append(sent)

        def run(numbers: Batches) -> Batches:
            return task(_read(sent.value, numbers, columns))

        many = len(shares)
        return self.sparkSession.range(0, many, 1, many).mapInArrow(run, form)

    def forget(self) -> None:
        """Take back what executors were told: nothing that was mapped is asked for any more."""
        while self._sent:
            self._sent.pop().destroy(blocking=True)

    def _shares(self) -> list[list[Any]]:
        """Row groups in the order of the files, so many for each task."""
        shares: list[list[Any]] = [[]]
        rows = 0
        for fragment in self._dataset.get_fragments():
            for group in fragment.split_by_row_group():
                (more,) = (each.num_rows for each in group.row_groups)
                if rows and rows + more > self._rows:
                    shares.append([])
                    rows = 0
                shares[-1].append(group)
                rows += more
        return shares


def _dataset(paths: list[str]) -> Any:
    source = paths[0] if len(paths) == 1 else paths
    try:
        return ds.dataset(source, format=ds.ParquetFileFormat(**UNIT))
    except (OSError, pa.ArrowException) as problem:
        raise ObservationError(
            "these files cannot be read as Parquet; give paths of Parquet files, or one folder"
        ) from problem


def _read(shares: list[list[Any]], numbers: Batches, columns: list[str]) -> Batches:
    for number in (number for batch in numbers for number in batch["id"].to_pylist()):
        for group in shares[number]:
            yield from _batches(group, columns)


def _batches(group: Any, columns: list[str]) -> Batches:
    """The rows of a row group, some at a time: Arrow's own scanner would decode all at once."""
    numbers = [each.id for each in group.row_groups]
    with group.filesystem.open_input_file(group.path) as file:
        given = {"batch_size": BATCH, "columns": columns, "use_threads": False}
        opened = pq.ParquetFile(file, buffer_size=BUFFER, **UNIT)
        yield from opened.iter_batches(row_groups=numbers, **given)
