"""Accepted rows as bytes and back: what the hot window and the vault keep of a batch.

Arrow's stream format, with each column as it came: replayed, it gives the same
keys. Dictionaries are decoded first, since they may hold values of other rows. A
column of mixed Python values, which Arrow has no type for, is kept as kinds and
payloads (`pyramidion.hashing_values`).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.batches import ABSENT, Batch, Raw, plain, take
from pyramidion.encoding import attempt
from pyramidion.errors import FormatError
from pyramidion.hashing_kernels import MISSING
from pyramidion.hashing_values import canonical, restored
from pyramidion.judge import in_one_type

_MIXED = pa.struct([("kind", pa.uint8()), ("payload", pa.binary())])
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def table_of(batch: Batch) -> pa.Table:
    """The columns of a batch as an Arrow table."""
    return pa.table({name: _column(raw) for name, raw in batch.columns.items()})


def _column(raw: Raw) -> pa.Array | pa.ChunkedArray:
    if not isinstance(raw, list):
        return plain(raw)
    made = in_one_type(raw)
    return made if made is not None else pa.array([_value(value) for value in raw], _MIXED)


def _value(value: object) -> tuple[int, bytes]:
    found = (MISSING, b"") if value is ABSENT else attempt(canonical, value)
    if isinstance(found, tuple):
        return found
    return MISSING, b""  # the judge refuses such rows, or does not look at the column


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
    columns: dict[str, Raw] = {}
    for name in table.column_names:
        column = table.column(name)
        if column.type == _MIXED:
            kinds = column.combine_chunks()
            kinds = kinds.chunk(0) if isinstance(kinds, pa.ChunkedArray) else kinds
            pairs = zip(
                kinds.field("kind").to_pylist(), kinds.field("payload").to_pylist(), strict=True
            )
            columns[name] = [restored(kind, payload) for kind, payload in pairs]
        else:
            columns[name] = column
    return Batch(columns, table.num_rows)


def without(table: pa.Table, columns: Collection[str]) -> pa.Table:
    """A table less some columns."""
    return table.drop_columns([name for name in table.column_names if name in columns])


def some(table: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    """These rows of a table, in buffers of their own: no other row's value is in them."""
    columns = [take(column, rows) for column in table.columns]
    return pa.table(columns, names=table.column_names)
