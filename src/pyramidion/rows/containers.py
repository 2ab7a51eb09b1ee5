"""Whatever container rows come in, as columns by name.

Arrow tables and everything that speaks Arrow's PyCapsule interface (polars and
others) come in without a copy. pandas' NaN means missing, as pandas means it;
elsewhere a NaN is a NaN, and bad. Dicts, and columns of Python objects, give plain
lists, which are checked value by value: no value decides how another one is read.

Where a column of values of several types must be an Arrow column (files, records of
hot rows), each value is stored with its kind and payload (`MIXED`).

An error raised by Arrow or pandas may quote a value. None is passed on, not
even as the context of ours.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyramidion.errors import ObservationError
from pyramidion.rows.hashing import is_text, is_view, run_of_each_row
from pyramidion.rows.hashing_kernels import FRACTION
from pyramidion.rows.hashing_values import canonical, restored, unhashable

ABSENT = object()
"""Stands in a list where a row had no such column."""

NO_VALUE = object()
"""Stands in a list where a value was that no column can hold, such as a list."""

MIXED = pa.struct([("kind", pa.uint8()), ("payload", pa.binary())])
"""An Arrow column of values of several types: each as its kind and payload."""

Raw: TypeAlias = "pa.Array | pa.ChunkedArray | list[object]"

ACCEPTED = (
    "a pyarrow Table or RecordBatch, a pandas or polars DataFrame, a dict of columns, a dict, "
    "or a list of dicts"
)

_SMALL = 512  # rows of a chunk below which copying chunks together costs less than visiting each

_NOTHING = {type(None)}
_PLAIN = {str, int, float, bool, bytes}

# Kinds in a MIXED column beside those of hashed values, which do not tell True from 1.
_DATE, _UUID, _DECIMAL, _SHORT, _FLAG, _WHOLE, _UNREADABLE, _ABSENT = range(248, 256)


@dataclass(frozen=True)
class Batch:
    """Columns that were already taken out of their container."""

    columns: dict[str, Raw] = field(repr=False)
    length: int

    def only(self, rows: NDArray[np.int64]) -> Batch:
        """These rows alone, in this order."""
        return Batch({n: _some(column, rows) for n, column in self.columns.items()}, len(rows))


def columns_of(data: Any, names: Iterable[str]) -> tuple[dict[str, Raw], int]:
    """The named columns of a batch, and its number of rows."""
    if isinstance(data, Batch):
        return {name: _in_batch(data, name) for name in names}, data.length
    if type(data) is list and all(type(row) is dict for row in data):
        return {name: [row.get(name, ABSENT) for row in data] for name in names}, len(data)
    if isinstance(data, pa.RecordBatch | pa.Table):
        return {name: _named(data, name) for name in names}, data.num_rows
    if _comes_from("pandas", data) and hasattr(data, "columns"):
        return {name: _pandas(data, name) for name in names}, len(data)
    if _comes_from("polars", data) and hasattr(data, "get_column"):
        return {name: _polars(data, name) for name in names}, len(data)
    if is_columnar(data):
        return _columnar(data, names)
    if isinstance(data, Mapping):
        data = [data]
    if isinstance(data, list | tuple) and all(isinstance(row, Mapping) for row in data):
        rows = [as_dict(row) for row in data]
        return {name: [row.get(name, ABSENT) for row in rows] for name in names}, len(rows)
    table = _imported(pa.table, data)
    if table is None:
        raise _not_understood(data)
    return {name: _named(table, name) for name in names}, table.num_rows


def is_columnar(data: object) -> bool:
    """Whether a mapping holds columns and not one row: no value of a row is a sequence."""
    return (
        isinstance(data, Mapping)
        and bool(data)
        and all(isinstance(c, list | tuple | np.ndarray) or _is_column(c) for c in data.values())
    )


def _is_column(column: object) -> bool:
    arrow = isinstance(column, pa.Array | pa.ChunkedArray)
    return arrow or (hasattr(column, "dtype") and getattr(column, "ndim", 0) == 1)


def _columnar(data: Mapping[str, Any], names: Iterable[str]) -> tuple[dict[str, Raw], int]:
    if len({len(column) for column in data.values()}) > 1:
        raise ObservationError("columns have different lengths; give each as many values")
    taken: dict[str, Raw] = {}
    for name in names:
        if name not in data:
            raise missing_column(name)
        column = data[name]
        if isinstance(column, list | tuple):
            taken[name] = list(column)
        elif isinstance(column, pa.Array | pa.ChunkedArray):
            taken[name] = _readable(column)
        else:
            taken[name] = pandas_column(column)
    return taken, len(next(iter(data.values())))


def as_dict(row: Any) -> dict[str, object]:
    """A row as a plain dict, which adds no columns when it is asked for one."""
    if type(row) is dict:
        return row
    if not isinstance(row, Mapping):
        raise _not_understood(row)
    return dict(row)


def _not_understood(data: object) -> ObservationError:
    return ObservationError(
        f"rows of type {type(data).__name__} are not understood; send {ACCEPTED}"
    )


def _comes_from(package: str, data: object) -> bool:
    return any(base.__module__.partition(".")[0] == package for base in type(data).__mro__)


def _imported(make: Callable[[Any], Any], data: Any) -> Any:
    """What Arrow makes of an object that speaks its interface, or None."""
    if not (hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")):
        return None
    try:
        return make(data)
    except (pa.ArrowException, TypeError, ValueError):
        return None


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
    return _readable(table.column(places[0]))


def _polars(frame: Any, name: str) -> Raw:
    if name not in frame.columns:
        raise missing_column(name)
    series = frame.get_column(name)
    kind = str(series.dtype).partition("(")[0]
    if kind == "Object":  # Arrow would get their addresses
        return list(series)
    column = _imported(pa.chunked_array, series)
    if column is None:
        raise ObservationError(f"column {name!r} {unhashable(kind)}")
    return _readable(column)


def _pandas(frame: Any, name: str) -> Raw:
    if name not in frame.columns:
        raise missing_column(name)
    series = frame[name]
    if series.ndim != 1:
        raise ObservationError(f"column {name!r} is there more than once; keep one")
    return pandas_column(series)


def pandas_column(series: Any) -> Raw:
    """A pandas Series or NumPy array; NaN, NaT and pd.NA are missing."""
    if series.dtype == object:
        return _objects(series)
    try:
        column = _without_nan(_readable(pa.array(series, from_pandas=True)))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return _objects(series)  # Arrow has no such type; look at the values one by one
    if getattr(series.dtype, "kind", "") == "U":  # NumPy writes NaN so where another row is text
        return pc.if_else(pc.equal(column, "nan"), pa.scalar(None, column.type), column)
    return column


def _objects(series: Any) -> list[object]:
    """Python objects as they are, to be looked at one by one."""
    return [None if _is_missing(value) else value for value in series]


def _without_nan(column: Any) -> Any:
    """NaN as null: Arrow sees to it for NumPy's floats, not for pandas' own."""
    if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    return column


def _is_missing(value: object) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    if isinstance(value, Decimal):
        return value.is_nan()
    return isinstance(value, float | np.floating) and bool(value != value)


# --- values of several types -----------------------------------------------------------


def in_one_type(raw: list[object]) -> pa.Array | None:
    """An Arrow array of values that are all of one plain type, or None."""
    kinds = set(map(type, raw)) - _NOTHING
    if len(kinds) != 1 or not kinds <= _PLAIN:
        return None
    try:
        return pa.array(raw)
    except (pa.ArrowException, OverflowError, UnicodeError):
        return None  # one value does not fit


def arrow_of(raw: list[object]) -> pa.Array:
    """An Arrow column that `columns_of` reads back as these values."""
    made = in_one_type(raw)
    return made if made is not None else pa.array(list(map(_kept, raw)), MIXED)


def _kept(value: object) -> tuple[int, bytes]:
    if value is ABSENT:
        return _ABSENT, b""
    if isinstance(value, bool):
        return _FLAG, bytes([value])
    if isinstance(value, float):
        return FRACTION, np.float64(value).tobytes()
    if isinstance(value, np.float16 | np.float32):
        return _SHORT, value.dtype.char.encode() + value.tobytes()
    if isinstance(value, Decimal):
        return _DECIMAL, str(value).encode()
    if isinstance(value, UUID):
        return _UUID, value.bytes
    day = value.item() if isinstance(value, np.datetime64) else value
    if isinstance(day, dt.date) and not isinstance(day, dt.datetime):
        return _DATE, day.isoformat().encode()
    if type(value) is int and not -(1 << 63) <= value < 1 << 64:
        return _WHOLE, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    try:
        return canonical(value)
    except (TypeError, ValueError, ArithmeticError):
        return _UNREADABLE, b""


def _values(column: Any) -> list[object]:
    """The values of a MIXED column."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return [
        _value(kind, payload)
        for chunk in chunks
        for kind, payload in zip(*(part.to_pylist() for part in chunk.flatten()), strict=True)
    ]


def _value(kind: int | None, payload: bytes | None) -> object:
    if kind is None or payload is None:
        return None  # such as of a row that was blanked
    if kind == _UNREADABLE:
        return NO_VALUE
    if kind == _ABSENT:
        return ABSENT
    if kind == _FLAG:
        return payload != b"\0"
    if kind == _WHOLE:
        return int.from_bytes(payload, "little", signed=True)
    try:
        if kind == _SHORT:
            return np.frombuffer(payload, payload[:1].decode(), offset=1)[0]
        if kind == _UUID:
            return UUID(bytes=payload)
        if kind == _DATE:
            return dt.date.fromisoformat(payload.decode())
        return Decimal(payload.decode()) if kind == _DECIMAL else restored(kind, payload)
    except (TypeError, ValueError, ArithmeticError, IndexError):
        return NO_VALUE


def joined(tables: list[pa.Table]) -> pa.Table:
    """One table of all; a column whose type differs is of mixed values, each as it was."""
    names = tables[0].column_names
    if any(not table.schema.equals(tables[0].schema) for table in tables):
        columns = [_in_line([table.column(name) for table in tables]) for name in names]
        return pa.table(columns, names=names)
    return pa.concat_tables(tables)


def _in_line(columns: list[Any]) -> Any:
    """Columns one behind the other, in a type that changes no value of any."""
    columns = list(map(plain, columns))
    kinds = {column.type for column in columns} - {pa.null()}
    if all(map(is_text, kinds)):
        kinds = {pa.large_string()}
    elif all(map(pa.types.is_integer, kinds)) and pa.uint64() not in kinds:
        kinds = {pa.int64()}
    if len(kinds) == 1:
        (kind,) = kinds
        chunks = [column.cast(kind) for column in columns]
        return pa.chunked_array([chunk for column in chunks for chunk in column.chunks], kind)
    return arrow_of([value for column in columns for value in _objects_of(column)])


def _objects_of(column: Any) -> list[object]:
    """The values of an Arrow column as Python objects that tell their type."""
    if column.type == MIXED:
        return _values(column)
    if column.type in (pa.float16(), pa.float32()):
        given = np.asarray(column.is_valid())
        seen = column.to_numpy(zero_copy_only=False)
        short = seen.astype(column.type.to_pandas_dtype())
        return [value if is_given else None for value, is_given in zip(short, given, strict=True)]
    try:
        return list(column.to_pylist())
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return [NO_VALUE] * len(column)  # such as a time that Python does not have


# --- columns ------------------------------------------------------------------------


def _readable(column: Any) -> Any:
    """A column in a form that costs no more to read than its rows are many."""
    if column.type == MIXED:
        return _values(column)
    if getattr(column.type, "extension_name", None) == "arrow.json":
        column = _each_chunk(column, column.type.storage_type, lambda array: array.storage)
    if isinstance(column, pa.ChunkedArray) and len(column) < _SMALL * (column.num_chunks - 1):
        column = _joined(column)
    if pa.types.is_dictionary(column.type) and not is_view(column.type.value_type):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        if sum(len(chunk.dictionary) for chunk in chunks) > len(column):
            return plain(column)  # a few rows of a column that had many values
    return column


def _joined(column: pa.ChunkedArray) -> Any:
    try:
        return column.combine_chunks()
    except pa.ArrowException:
        return column  # more than 2 GB of text, or a type that Arrow cannot join


def _each_chunk(column: Any, kind: pa.DataType, change: Callable[[Any], Any]) -> Any:
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([change(chunk) for chunk in column.chunks], type=kind)
    return change(column)


def stored(column: Any) -> Any:
    """A column of UUIDs as the bytes that they are stored as."""
    return _each_chunk(column, column.type.storage_type, lambda array: array.storage)


def is_uuid(kind: pa.DataType) -> bool:
    """Whether a type is Arrow's own of UUIDs."""
    return getattr(kind, "extension_name", None) == "arrow.uuid"


def encoded(kind: pa.DataType) -> bool:
    """Whether a type holds each value once: dictionary- or run-end-encoded."""
    return bool(pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of a column's values, once `plain`."""
    if not encoded(kind):
        return kind
    inner = plain_type(kind.value_type)
    if not is_view(inner):
        return inner
    return pa.large_string() if is_text(inner) else pa.large_binary()


def plain(column: Any) -> Any:
    """Dictionary- and run-end-encoded columns, decoded. Arrow itself knows not all types."""
    if not encoded(column.type):
        return column
    return _each_chunk(column, plain_type(column.type), _decoded)


def _decoded(array: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        return _takeable(plain(array.dictionary)).take(array.indices)
    return _takeable(plain(array.values)).take(pa.array(run_of_each_row(array)))


def _takeable(column: Any) -> Any:
    """A column that Arrow can take rows of: no views, no runs."""
    if pa.types.is_run_end_encoded(column.type):
        return plain(column)
    if is_view(column.type):
        return column.cast(pa.large_string() if is_text(column.type) else pa.large_binary())
    return column


def _some(column: Raw, rows: NDArray[np.int64]) -> Raw:
    if isinstance(column, list):
        return [column[row] for row in rows]
    kept: Raw = take(column, rows)
    return kept


def take(column: Any, rows: Any) -> Any:
    """These rows of a column, in this order."""
    return _takeable(column).take(pa.array(rows))
