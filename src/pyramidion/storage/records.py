"""Accepted rows as bytes and back: what the hot window and the vault keep of a batch.

Arrow's stream format, with each column as it came: replayed, it gives the same
keys. Dictionaries are decoded first, since they may hold values of other rows. A
column of mixed Python values, which Arrow has no type for, is kept as kinds and
payloads (`pyramidion.rows.containers.MIXED`).

**Length.** How well values compress, how long a text is and whether one is missing would show in
the length of a record. So records are not compressed, and are filled up to a length that follows
from the number of rows and the schema alone:

    4096 + 256 for each column + the rows times the bytes of a row

A value has 16 bytes: room for a number in any type, for a text of 11 bytes; or more, where a
declared value is longer. All values of a record share the room. A record that does not fit takes
twice as much, or four times: that its texts are this long then shows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.config.schema import Schema
from pyramidion.errors import FormatError
from pyramidion.rows.containers import Batch, Raw, arrow_of, columns_of, plain, take

Widths = Mapping[str, int]
"""Bytes that a record has room for in each row, of columns that need more than `VALUE`."""
VALUE = 16  # bytes of a value, and of the bit that says whether it is missing
PLACE = 5  # bytes of where a text ends, and of that bit
_FIXED, _COLUMN, _END = 4_096, 256, 8  # bytes of a record, of what is said of a column, of the end


def table_of(batch: Batch) -> pa.Table:
    """The columns of a batch as an Arrow table."""
    return pa.table({name: _column(raw) for name, raw in batch.columns.items()})


def _column(raw: Raw) -> pa.Array | pa.ChunkedArray:
    return arrow_of(raw) if isinstance(raw, list) else plain(raw)


def widths_of(schema: Schema) -> Widths:
    """The columns of which longer values are declared than one has room for; all others have that.

    >>> from pyramidion import Categorical, Label
    >>> late = Label("late", classes=["no", "a little", "very much so"])
    >>> carrier = Categorical("carrier", domain=["AA", "UA"])
    >>> widths_of(Schema(label=late, features=[carrier, Categorical("tailnum")], time="time"))
    {'late': 17}
    """
    declared = {label.name: label.classes for label in schema.labels}
    declared |= {each.name: getattr(each, "domain", None) for each in schema.features}
    widest = {name: _widest(values or ()) for name, values in declared.items()}
    return {name: width for name, width in widest.items() if width > VALUE}


def _widest(values: Collection[object]) -> int:
    """Bytes of the longest text among some values."""
    texts = (each.encode() if isinstance(each, str) else each for each in values)
    return max((PLACE + len(each) for each in texts if isinstance(each, bytes)), default=0)


def length_of(rows: int, columns: Collection[str], widths: Widths) -> int:
    """Bytes of a record of so many rows, whatever is in them.

    >>> length_of(1_000, ["late", "tailnum"], {"late": 17})
    37608
    """
    return _FIXED + sum(_COLUMN + rows * widths.get(name, VALUE) for name in columns)


def to_bytes(table: pa.Table, widths: Widths, rows: int | None = None, least: int = 0) -> bytearray:
    """A table as bytes, filled up as one of so many ``rows``, and to at ``least`` so many bytes."""
    batches = table.combine_chunks().to_batches()
    needed = table.schema.serialize().size + sum(map(pa.ipc.get_record_batch_size, batches)) + _END
    rows = table.num_rows if rows is None else rows
    size = length_of(rows, table.column_names, widths)
    while size < needed:
        size *= 2
    data = bytearray(max(size, least))
    with pa.ipc.new_stream(pa.FixedSizeBufferWriter(pa.py_buffer(data)), table.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return data


def from_bytes(data: bytes | bytearray) -> pa.Table:
    """What `to_bytes` was given."""
    try:
        return pa.ipc.open_stream(pa.py_buffer(data)).read_all()
    except pa.ArrowException:
        pass  # its message may quote a value
    raise FormatError("a batch of hot rows cannot be read; restore the store from a backup")


def batch_of(table: pa.Table) -> Batch:
    """A table as the door takes it, mixed columns as the values they were."""
    return Batch(*columns_of(table, table.column_names))


def without(table: pa.Table, columns: Collection[str]) -> pa.Table:
    """A table less some columns."""
    return table.drop_columns([name for name in table.column_names if name in columns])


def some(table: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    """These rows of a table, in buffers of their own: no other row's value is in them."""
    columns = [take(column, rows) for column in table.columns]
    return pa.table(columns, names=table.column_names)
