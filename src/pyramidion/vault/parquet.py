"""Rows as an encrypted Parquet file, and back.

Parquet modular encryption (AES-GCM), one fresh key for a file's footer and columns, and the
store's and the file's name as the prefix of what every module's tag vouches for: a file, or
a page of one, cannot stand in for another. The prefix is not in the file.

Beside the columns of a batch a row has three that begin with an underscore: the number of
its batch, when it arrived (microseconds since 1970) and the window it was counted in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.errors import FormatError, SchemaError
from pyramidion.vault.envelope import Header

BATCH, ARRIVED, WINDOW = "_batch", "_arrived", "_window"
OWN = (BATCH, ARRIVED, WINDOW)
BLANK = 0
"""The window of a row that was erased: it holds nothing."""
GROUP = 50_000
"""Rows in a row group: writing one takes at most 2 ms a column, which observers can wait for."""
SOME = 1_000  # rows that tell how a column is best encoded
CLOSE = 256  # numbers that lie within this are close together
FEW = 4  # numbers repeat where at most one of so many differs from all others


def marked(
    table: pa.Table,
    batch: int,
    arrived: int | NDArray[np.int64],
    windows: Sequence[tuple[int, int]],
) -> pa.Table:
    """A batch with its number, and the arrival and the window of each row.

    ``windows``: window and number of rows, in the order the rows lie.
    """
    rows = table.num_rows
    numbers = np.repeat([w for w, _ in windows], [n for _, n in windows]).astype(np.int64)
    own = {
        BATCH: np.full(rows, batch, np.int64),
        ARRIVED: np.broadcast_to(np.asarray(arrived, np.int64), rows),
        WINDOW: numbers,
    }
    for name in OWN:
        table = table.append_column(name, pa.array(own[name]))
    return table


def unmarked(table: pa.Table) -> pa.Table:
    """A batch as it was observed."""
    return table.drop_columns([name for name in OWN if name in table.column_names])


def encrypted(
    table: pa.Table, key: bytes, *, store: str, name: str, group: int | None = None
) -> pa.Buffer:
    """A table as the bytes of an encrypted Parquet file, with so many rows in a row group."""
    sink = pa.BufferOutputStream()
    with encrypting(sink, table, key, store=store, name=name) as writer:
        writer.write_table(table, row_group_size=group)
    return sink.getvalue()


def encrypting(sink: Any, like: pa.Table, key: bytes, *, store: str, name: str) -> Any:
    """A writer of row groups into an encrypted Parquet file; closed, the file is whole.

    How each column is encoded is decided once, from rows that are ``like`` those to come.
    """
    import pyarrow.parquet as pq
    import pyarrow.parquet.encryption as pe

    properties = pe.create_encryption_properties(
        key, aad_prefix=_prefix(store, name), store_aad_prefix=False
    )
    names = like.schema.names
    found = {name: _encoding(like.column(name)) for name in names}
    packed = (REPEATING, NARROW)
    return pq.ParquetWriter(
        sink,
        like.schema,
        compression={name: "none" if found[name] in packed else "lz4" for name in names},
        use_dictionary=[name for name in names if found[name] == REPEATING],
        use_byte_stream_split=[name for name in names if found[name] == WIDE],
        column_encoding={n: "DELTA_BINARY_PACKED" for n in names if found[n] == NARROW},
        write_statistics=False,
        write_batch_size=32_768,
        encryption_properties=properties,
    )


REPEATING, NARROW, WIDE, PLAIN = "repeating", "narrow", "wide", "plain"
"""What the values of a column are like. Nanoseconds and bytes a value of Criteo's shape:

    narrow      8 and 0.4   whole numbers close together, as differences (a dictionary: 16, 0.3)
    repeating  13 and 1     few of the values differ: a dictionary
    wide       10 and 5     other numbers, their bytes apart, in lz4 (a dictionary: 27, 3.6)
    plain                   what is left, such as long texts, in lz4
"""


def _encoding(column: pa.ChunkedArray) -> str:
    """How a column is best written, by its first values; the others may be unlike them."""
    import pyarrow.compute as pc

    some, whole = column.slice(0, SOME), pa.types.is_integer(column.type)
    if whole:
        ends = pc.min_max(some).as_py()
        if ends["min"] is not None and ends["max"] - ends["min"] < CLOSE:
            return NARROW
    number = whole or pa.types.is_floating(column.type)
    try:
        differing = pc.count_distinct(some, mode="all").as_py()
    except pa.ArrowNotImplementedError:  # of types whose values Arrow does not tell apart
        return PLAIN
    if differing * (FEW if number else 2) <= len(some):
        return REPEATING
    return WIDE if number else PLAIN


def digest_of(data: Any) -> str:
    """What `Header.digest` holds."""
    return sha256(data).hexdigest()


def decrypted(
    data: Any, key: bytes, header: Header, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a file, these columns alone; a file that was changed is named and refused."""
    import pyarrow.parquet as pq
    import pyarrow.parquet.encryption as pe

    if digest_of(data) != header.digest:
        raise broken(header)
    strangers = [name for name in columns or () if name not in header.columns and name not in OWN]
    if strangers:
        raise SchemaError(
            f"vault file {header.name} has no column {strangers[0]!r}; ask for {header.columns}"
        )
    prefix = _prefix(header.store, header.name)
    properties = pe.create_decryption_properties(key, aad_prefix=prefix)
    failed = False
    try:
        with pq.ParquetFile(pa.BufferReader(data), decryption_properties=properties) as file:
            for batch in file.iter_batches(columns=None if columns is None else list(columns)):
                yield batch if columns is None else batch.select(list(columns))
    except (OSError, ValueError, pa.ArrowException):
        failed = True  # the message may quote the file
    if failed:
        raise broken(header)


def broken(header: Header) -> FormatError:
    """A file that is not what was sealed."""
    return FormatError(
        f"vault file {header.name} is damaged, cut off, or another file in its place; restore it "
        f"from a copy of the vault"
    )


def _prefix(store: str, name: str) -> bytes:
    return f"pyramidion vault {store} {name}".encode()
