"""Accepted rows as bytes and back: what the hot window and the vault keep of a batch.

Arrow's stream format, with each column as it came: replayed, it gives the same
keys. Dictionaries are decoded first, since they may hold values of other rows. A
column of mixed Python values, which Arrow has no type for, is kept as kinds and
payloads (`pyramidion.batches.MIXED`).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.batches import Batch, Raw, arrow_of, columns_of, plain, take
from pyramidion.errors import FormatError

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def table_of(batch: Batch) -> pa.Table:
    """The columns of a batch as an Arrow table."""
    return pa.table({name: _column(raw) for name, raw in batch.columns.items()})


def _column(raw: Raw) -> pa.Array | pa.ChunkedArray:
    return arrow_of(raw) if isinstance(raw, list) else plain(raw)


def to_bytes(table: pa.Table, least: int = 0) -> bytes:
    """A table as bytes, compressed and filled up, to at least so many."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
        writer.write_table(table)
    size = sink.tell()
    sink.write(bytes(max(filled(size), least) - size))
    return bytes(sink.getvalue())


def filled(size: int) -> int:
    """A size rounded up by at most a sixteenth, or to 4 KB: how long values are shows less.

    >>> filled(100), filled(70_000)
    (4096, 73728)
    """
    grain = max(4096, 1 << max(0, size.bit_length() - 5))
    return -(-size // grain) * grain


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
