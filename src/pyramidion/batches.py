"""Whatever container rows come in, as columns by name.

Arrow tables and everything that speaks Arrow's PyCapsule interface (polars and
others) come in without a copy. pandas' NaN means missing, as pandas means it;
elsewhere a NaN is a NaN, and bad. Dicts, and pandas columns of mixed objects,
give plain lists, which are checked value by value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from pyramidion.errors import ObservationError
from pyramidion.hashing import run_of_each_row, type_name

ABSENT = object()
"""Stands in a list where a row had no such column."""

Raw: TypeAlias = "pa.Array | pa.ChunkedArray | list[object]"

ACCEPTED = (
    "a pyarrow Table or RecordBatch, a pandas or polars DataFrame, a dict, or a list of dicts"
)


@dataclass(frozen=True)
class Batch:
    """Columns that were already taken out of their container."""

    columns: dict[str, Raw]
    length: int


def columns_of(data: Any, names: Iterable[str]) -> tuple[dict[str, Raw], int]:
    """The named columns of a batch, and its number of rows."""
    if isinstance(data, Batch):
        return {name: _in_batch(data, name) for name in names}, data.length
    if isinstance(data, pa.RecordBatch | pa.Table):
        return {name: _named(data, name) for name in names}, data.num_rows
    if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
        return {name: _pandas(data, name) for name in names}, len(data)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        table = pa.table(data)
        return {name: _named(table, name) for name in names}, table.num_rows
    if isinstance(data, Mapping):
        data = [data]
    if isinstance(data, list | tuple) and all(isinstance(row, Mapping) for row in data):
        return {name: [row.get(name, ABSENT) for row in data] for name in names}, len(data)
    raise ObservationError(
        f"rows of type {type(data).__name__} are not understood; send {ACCEPTED}"
    )


def _in_batch(batch: Batch, name: str) -> Raw:
    if name not in batch.columns:
        raise missing_column(name)
    return batch.columns[name]


def missing_column(name: str) -> ObservationError:
    """The error for a column that a batch does not have."""
    return ObservationError(f"column {name!r} is missing; the schema needs it, add it to the batch")


def _named(table: Any, name: str) -> Raw:
    places = table.schema.get_all_field_indices(name)
    if not places:
        raise missing_column(name)
    if len(places) > 1:
        raise ObservationError(f"column {name!r} is there {len(places)} times; keep one")
    return table.column(places[0])


def _pandas(frame: Any, name: str) -> Raw:
    if name not in frame.columns:
        raise missing_column(name)
    series = frame[name]
    if series.ndim != 1:
        raise ObservationError(f"column {name!r} is there more than once; keep one")
    return pandas_column(series)


def pandas_column(series: Any) -> Raw:
    """A pandas Series or NumPy array; NaN, NaT and pd.NA are missing."""
    kinds: set[type] = set()
    if series.dtype == object:
        kinds = {type(value) for value in series if not _is_missing(value)}
    if len(kinds) > 1:
        return [None if _is_missing(value) else value for value in series]
    try:
        return pa.array(series, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return [None if _is_missing(value) else value for value in series]


def _is_missing(value: object) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(value != value)
