"""Rows as an encrypted Parquet file, and back.

Parquet modular encryption (AES-GCM), one fresh key for a file's footer and columns, and the
store's and the file's name as the prefix of what every module's tag vouches for: a file, or
a page of one, cannot stand in for another. The prefix is not in the file.

Beside the columns of a batch a row has three that begin with an underscore: the number of
its batch, when that arrived (microseconds since 1970) and the window it was counted in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa

from pyramidion.errors import FormatError, SchemaError
from pyramidion.vault.envelope import Header

BATCH, ARRIVED, WINDOW = "_batch", "_arrived", "_window"
OWN = (BATCH, ARRIVED, WINDOW)
BLANK = 0
"""The window of a row that was erased: it holds nothing."""
SOME = 1_000  # rows that tell whether the values of a column repeat


def marked(
    table: pa.Table, batch: int, arrived: int, windows: Sequence[tuple[int, int]]
) -> pa.Table:
    """A batch with its number, its arrival and the window of each row.

    ``windows``: window and number of rows, in the order the rows lie.
    """
    rows = table.num_rows
    numbers = np.repeat([w for w, _ in windows], [n for _, n in windows]).astype(np.int64)
    own = {
        BATCH: np.full(rows, batch, np.int64),
        ARRIVED: np.full(rows, arrived, np.int64),
        WINDOW: numbers,
    }
    for name in OWN:
        table = table.append_column(name, pa.array(own[name]))
    return table


def unmarked(table: pa.Table) -> pa.Table:
    """A batch as it was observed."""
    return table.drop_columns([name for name in OWN if name in table.column_names])


def encrypted(table: pa.Table, key: bytes, *, store: str, name: str) -> pa.Buffer:
    """A table as the bytes of an encrypted Parquet file."""
    sink = pa.BufferOutputStream()
    with encrypting(sink, table, key, store=store, name=name) as writer:
        writer.write_table(table)
    return sink.getvalue()


def encrypting(sink: Any, like: pa.Table, key: bytes, *, store: str, name: str) -> Any:
    """A writer of row groups into an encrypted Parquet file; closed, the file is whole.

    Columns whose values repeat, in rows that are ``like`` those to come, have dictionaries: a
    quarter faster than lz4, and half as long. Where values differ they would be four times
    slower.
    """
    import pyarrow.parquet as pq
    import pyarrow.parquet.encryption as pe

    properties = pe.create_encryption_properties(
        key, aad_prefix=_prefix(store, name), store_aad_prefix=False
    )
    repeating = [name for name in like.schema.names if _repeats(like.column(name))]
    return pq.ParquetWriter(
        sink,
        like.schema,
        compression={name: "none" if name in repeating else "lz4" for name in like.schema.names},
        use_dictionary=repeating,
        write_statistics=False,
        write_batch_size=32_768,
        encryption_properties=properties,
    )


def _repeats(column: pa.ChunkedArray) -> bool:
    """Whether few of the first values differ."""
    import pyarrow.compute as pc

    if pa.types.is_nested(column.type):
        return False
    some = column.slice(0, SOME)
    return bool(pc.count_distinct(some, mode="all").as_py() * 2 <= len(some))


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
