"""Data files in: CSV, TSV, NDJSON, Parquet, Arrow, and standard input, batch by batch.

A file is read in blocks, so memory holds a block and not the file. Parquet and
Arrow say what type each column has. Text formats do not, and a type guessed from
some rows would decide how others are read. So each row is read by itself:

- In CSV and TSV every field is text; an empty one is null. The text "17" is the same
  value as the number 17 (`pyramidion.config.spelling`).
- In NDJSON a value says what it is, as it does over HTTP. A key that a row does not
  have is missing from that row.
- What is then not a number or a time where one is due is refused by the store,
  row by row (`pyramidion.rows.validation`).

A file that is damaged or cut short ends the reading with an error. Arrow's own
message may quote a value, so it is never passed on, not even as a context.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, BinaryIO

import pyarrow as pa

from pyramidion.config.checks import checked_whole
from pyramidion.errors import ObservationError, PyramidionError
from pyramidion.rows.sources import BINARY, UNREADABLE, Rejoined, Source, read_all
from pyramidion.rows.text_files import (
    BLOCK,
    Tables,
    Types,
    csv_fields,
    csv_tables,
    ndjson_fields,
    ndjson_tables,
)

ROWS = 65_536


class DataFile(Source):
    """One data file, or ``-`` for standard input, which can be read only once.

    The suffix tells the format, unless ``format`` does: csv, tsv, ndjson,
    parquet or arrow. Text formats may be compressed (``.csv.gz``). Parquet
    needs its end before its beginning, so from standard input it is held in
    memory whole.
    """

    @property
    def rows_hint(self) -> int | None:
        """How many rows, when the file's own index tells."""
        if self.once or self.format not in BINARY:
            return None
        try:
            if self.format == "parquet":
                from pyarrow import parquet

                return int(parquet.read_metadata(self.path).num_rows)
            from pyarrow import dataset

            return int(dataset.dataset(self.path, format="ipc").count_rows())
        except UNREADABLE:
            return None  # an Arrow stream has no index

    def fields(self) -> pa.Schema:
        """Names and types of the columns; of a text format, as its first block shows them."""
        fields = None
        with suppress(*UNREADABLE):  # its message may quote the file
            found = _FIELDS[self.format](self)
            fields = pa.schema(list(zip(found.names, found.types, strict=True)))  # names decoded
        if fields is None:
            raise self.unreadable()
        return fields

    def batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        types: Types | None = None,
        rows: int = ROWS,
    ) -> Iterator[pa.Table]:
        """Tables of at most ``rows`` rows in the file's order, with these columns alone.

        ``types`` are for streams that know values by their type: of CSV columns whose declared
        values are not text (`rows.observations.types_for`). A column of values of several types
        is `pyramidion.rows.containers.MIXED`.
        """
        checked_whole("rows of a batch", rows, 1, 1 << 31)
        read = _READERS[self.format](self, columns, dict(types or {}))
        return self._quietly(read, rows)

    def _quietly(self, tables: Tables, rows: int) -> Tables:
        """Pass tables on, in pieces; errors say where and what was expected, never a value."""
        done = 0
        with closing(tables):
            while True:
                table = failure = None
                try:
                    table = next(tables, None)
                except PyramidionError:
                    raise
                except UNREADABLE:
                    failure = self.unreadable(done)
                if failure is not None:
                    raise failure
                if table is None:
                    return
                done += table.num_rows
                for start in range(0, table.num_rows, rows):
                    yield table.slice(start, rows)


class TextFile(DataFile):
    """A CSV, TSV or NDJSON file whose bytes are here already, as a request brings them."""

    def __init__(self, data: bytes, *, format: str, name: str) -> None:  # noqa: A002
        self.name, self.format, self._called = name, format, format
        self.stdin, self.once, self.size = False, False, len(data)
        self._data = data

    @contextmanager
    def stream(self) -> Iterator[BinaryIO]:
        """The bytes from the beginning."""
        yield io.BytesIO(self._data)


# --- Parquet and Arrow ----------------------------------------------------------------


def _parquet_fields(file: Source) -> pa.Schema:
    from pyarrow import parquet

    with file.seekable() as source:
        return parquet.read_schema(source)


def _parquet(file: Source, columns: Sequence[str] | None, _: Types) -> Tables:
    from pyarrow import parquet

    with file.seekable() as source:
        reader = parquet.ParquetFile(source)
        chosen = file.chosen(reader.schema_arrow.names, columns)
        for batch in reader.iter_batches(batch_size=ROWS, columns=chosen):
            yield _plain_table(batch, chosen)


def _ipc_fields(file: Source) -> pa.Schema:
    with _ipc_source(file) as (source, is_file):
        return _ipc_reader(source, is_file).schema


def _ipc(file: Source, columns: Sequence[str] | None, _: Types) -> Tables:
    with _ipc_source(file) as (source, is_file):
        reader = _ipc_reader(source, is_file)
        chosen = file.chosen(reader.schema.names, columns)
        batches = _indexed(source, reader.schema, chosen) if is_file else iter(reader)
        for batch in batches:
            table = _plain_table(batch, chosen)
            _refuse_damaged(file, table)
            yield table


def _indexed(source: Any, schema: pa.Schema, chosen: list[str]) -> Iterator[pa.RecordBatch]:
    """The batches of an Arrow file, without the bytes of other columns."""
    options = pa.ipc.IpcReadOptions(included_fields=list(map(schema.get_field_index, chosen)))
    source.seek(0)
    reader = pa.ipc.open_file(source, options=options)
    return map(reader.get_batch, range(reader.num_record_batches))


@contextmanager
def _ipc_source(file: Source) -> Iterator[tuple[Any, bool]]:
    """The bytes, and whether they are a file, with an index, or a stream."""
    magic = b"ARROW1"
    with file.stream() as stream:
        head = read_all(stream, len(magic))
        if head != magic:
            yield io.BufferedReader(Rejoined(head, stream), BLOCK), False
        elif file.once:
            yield pa.BufferReader(head + stream.read()), True
        else:
            with pa.OSFile(str(file.path)) as source:
                yield source, True


def _ipc_reader(source: Any, is_file: bool) -> Any:
    return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source)


def _plain_table(batch: pa.RecordBatch, chosen: list[str]) -> pa.Table:
    return pa.Table.from_batches([batch]).select(chosen).replace_schema_metadata(None)


def _refuse_damaged(file: Source, table: pa.Table) -> None:
    """Arrow reads IPC without a look at its offsets; ours must not follow them out of memory."""
    from pyramidion.rows.validation import refuse_damaged

    sound = True
    try:
        for name in table.column_names:
            refuse_damaged(name, table.column(name))
    except ObservationError:
        sound = False
    if not sound:
        raise file.unreadable()


_FIELDS: dict[str, Callable[[Source], pa.Schema]] = {
    "csv": csv_fields,
    "tsv": csv_fields,
    "ndjson": ndjson_fields,
    "parquet": _parquet_fields,
    "arrow": _ipc_fields,
}
_READERS: dict[str, Callable[[Source, Sequence[str] | None, Types], Tables]] = {
    "csv": csv_tables,
    "tsv": csv_tables,
    "ndjson": ndjson_tables,
    "parquet": _parquet,
    "arrow": _ipc,
}
