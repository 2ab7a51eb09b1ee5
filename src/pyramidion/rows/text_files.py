"""Text formats, CSV, TSV and NDJSON: every row is read by itself.

A CSV column is text and an NDJSON value has the type that its own line gives it: no row
decides how another one is read. For streams that know values by their type, declared
numbers and booleans are read from CSV as such, value by value.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from pyramidion.rows.containers import ABSENT, arrow_of
from pyramidion.rows.encoding import BLANKS, NO_NUMBER
from pyramidion.rows.sources import Rejoined, Source, read_all

BLOCK = 1 << 20  # bytes that are read at once

Tables = Generator[pa.Table, None, None]
Types = Mapping[str, pa.DataType]

_LONGEST = 64 << 20  # bytes of one line of NDJSON
_decode = msgspec.json.Decoder().decode


# --- CSV and TSV ----------------------------------------------------------------------


def _csv_options(file: Source) -> tuple[Any, Any]:
    delimiter = "\t" if file.format == "tsv" else ","
    parse = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    return csv.ReadOptions(block_size=BLOCK), parse


def csv_fields(file: Source) -> pa.Schema:
    """Names and types as the first block shows them, for a draft."""
    with file.stream() as stream:
        return _csv_first(read_all(stream, BLOCK + 1), _csv_options(file))


def _csv_first(head: bytes, options: tuple[Any, ...]) -> pa.Schema:
    """What the first block shows, from memory.

    Arrow reads ahead on threads of its own. One that still holds a Python file while the
    interpreter ends brings the process down; a buffer needs no interpreter.
    """
    with csv.open_csv(pa.BufferReader(head), *options) as reader:
        return reader.schema


def csv_tables(file: Source, columns: Sequence[str] | None, types: Types) -> Tables:
    """A CSV or TSV file block by block."""
    options = _csv_options(file)
    with file.stream() as stream:
        head = read_all(stream, BLOCK + 1)
        if head and b"\n" not in head:
            head += b"\n"  # a header alone; Arrow asks for the end of the line
        names = _csv_first(head, options).names
        chosen = file.chosen(names, columns)
        text = dict.fromkeys(chosen, pa.string())
        convert = csv.ConvertOptions(column_types=text, include_columns=chosen)
        source = io.BufferedReader(Rejoined(head, stream), BLOCK)
        with closing(_csv_read(source, (*options, convert))) as tables:
            for table in _columns_told(file, tables, names):
                yield declared(_without_empty(table), types)


def _csv_read(source: BinaryIO, options: tuple[Any, ...]) -> Tables:
    with csv.open_csv(source, *options) as reader:
        for batch in reader:
            yield pa.Table.from_batches([batch])


def _columns_told(file: Source, tables: Iterator[pa.Table], names: list[str]) -> Iterator[pa.Table]:
    """Pass tables on; when a value is not even text, say in which column."""
    done = 0
    while True:
        table = misfit = None
        try:
            table = next(tables, None)
        except pa.ArrowInvalid as error:
            found = re.match(r"In CSV column #(\d+): ", str(error))  # before any value
            if found is None:
                raise
            misfit = names[int(found[1])]
        if misfit is not None:
            raise file.not_text(misfit, done)
        if table is None:
            return
        done += table.num_rows
        yield table


def _without_empty(table: pa.Table) -> pa.Table:
    """Empty text as null; Arrow would make NA null as well, which may be a country."""
    for place, field in enumerate(table.schema):
        empty = pc.equal(pc.binary_length(table.column(place)), 0)
        filled = pc.if_else(empty, pa.scalar(None, field.type), table.column(place))
        table = table.set_column(place, field.name, filled)
    return table


def declared(table: pa.Table, types: Types) -> pa.Table:
    """Text as values of the types that a schema declares, where these are not text."""
    for name, kind in types.items():
        if name in table.column_names:
            place = table.schema.get_field_index(name)
            table = table.set_column(place, name, _as_declared(table.column(place), kind))
    return table


def _as_declared(column: Any, kind: pa.DataType) -> Any:
    """Each text as the value of a type that it spells, and else as it is."""
    try:
        cast = column.cast(kind)
        if not (pa.types.is_floating(kind) and pc.any(pc.is_nan(cast)).as_py()):
            return cast
    except pa.ArrowException:
        pass  # one does not fit
    known = {text: _one_declared(text, kind) for text in column.unique().to_pylist()}
    return arrow_of([known[text] for text in column.to_pylist()])


def _one_declared(text: str | None, kind: pa.DataType) -> object:
    if text is None or text.strip(BLANKS) in NO_NUMBER:
        return None
    try:
        return pa.scalar(text.strip(BLANKS)).cast(kind).as_py()
    except pa.ArrowException:
        return text


# --- NDJSON ---------------------------------------------------------------------------


def _json_blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Blocks of whole lines."""
    rest = b""
    while part := read_all(stream, BLOCK):
        rest += part
        end = rest.rfind(b"\n") + 1
        if end:
            yield rest[:end]
            rest = rest[end:]
        elif len(rest) > _LONGEST:
            raise ValueError
    if rest:
        yield rest


def _json_rows(block: bytes) -> list[dict[str, Any]]:
    rows = [_json_row(line) for line in block.split(b"\n") if line.strip()]
    if not all(type(row) is dict for row in rows):
        raise ValueError
    return rows


def _json_row(line: bytes) -> Any:
    """The value of a line; numbers that JSON has no words for are left to Python's parser."""
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(line)  # NaN, and numbers beyond doubles: their row is refused


def ndjson_fields(file: Source) -> pa.Schema:
    """Names and types as the first block shows them, for a draft."""
    with file.stream() as stream:
        block = next(_without_mark(_json_blocks(stream)), None)
    if block is None:
        raise ValueError
    rows = _json_rows(block)
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.schema([(n, _shown([row[n] for row in rows if n in row])) for n in names])


def _shown(values: list[Any]) -> pa.DataType:
    kinds = set(map(type, values)) - {type(None)}
    if not kinds or kinds & {list, dict}:
        return pa.list_(pa.null()) if kinds else pa.string()
    if kinds == {str}:
        try:
            return pa.array(values, pa.string()).cast(pa.timestamp("us")).type
        except pa.ArrowException:
            return pa.string()
    return next((kind for kind, fitting in _FITTING if kinds <= fitting), pa.string())


_FITTING: tuple[tuple[pa.DataType, set[type]], ...] = (
    (pa.bool_(), {bool}),
    (pa.int64(), {int}),
    (pa.float64(), {int, float}),
)


def _without_mark(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Blocks without the mark that some editors put before UTF-8."""
    for number, block in enumerate(blocks):
        yield block.removeprefix(b"\xef\xbb\xbf") if number == 0 else block


def ndjson_tables(file: Source, columns: Sequence[str] | None, _: Types) -> Tables:
    """An NDJSON file block by block; without ``columns``, those of each block."""
    with file.stream() as stream:
        for block in _without_mark(_json_blocks(stream)):
            rows = _json_rows(block)
            if not rows:
                continue
            names = columns if columns is not None else {name: 0 for row in rows for name in row}
            yield pa.table({name: _json_column(rows, name) for name in dict.fromkeys(names)})


def _json_column(rows: list[dict[str, Any]], name: str) -> pa.Array:
    return arrow_of([row.get(name, ABSENT) for row in rows])
