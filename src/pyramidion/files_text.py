"""Text formats, CSV, TSV and NDJSON, as tables of one type per column."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from pyarrow import json as arrow_json

from pyramidion.checks import LARGEST
from pyramidion.errors import ObservationError
from pyramidion.sources import Rejoined, Source, read_all

BLOCK = 1 << 20  # bytes that are read at once; the first block tells the types

TIME = pa.timestamp("us")
"""Declares an event time: a text format may hold it as seconds or as ISO 8601."""

Tables = Generator[pa.Table, None, None]
Types = Mapping[str, pa.DataType]

_LONGEST = 64 << 20  # bytes of one line of NDJSON


# --- CSV and TSV ----------------------------------------------------------------------


def _csv_options(file: Source) -> tuple[Any, Any]:
    delimiter = "\t" if file.format == "tsv" else ","
    parse = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    return csv.ReadOptions(block_size=BLOCK), parse


def csv_fields(file: Source) -> pa.Schema:
    """Names and types as the first block shows them."""
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
        shown = _csv_first(head, options)
        chosen = file.chosen(shown.names, columns)
        kinds = {name: _csv_type(types.get(name), shown.field(name).type) for name in chosen}
        convert = csv.ConvertOptions(column_types=kinds, include_columns=chosen)
        source = io.BufferedReader(Rejoined(head, stream), BLOCK)
        times = {name: _Times(name) for name in chosen if types.get(name) == TIME}
        with closing(_csv_read(source, (*options, convert))) as tables:
            for table in _columns_told(file, tables, shown.names, kinds):
                yield _with_times(_without_empty(table), times)


def _csv_type(declared: pa.DataType | None, shown: pa.DataType) -> pa.DataType:
    if declared is None:
        return pa.string() if pa.types.is_null(shown) else shown
    return pa.string() if declared == TIME else declared


def _csv_read(source: BinaryIO, options: tuple[Any, ...]) -> Tables:
    with csv.open_csv(source, *options) as reader:
        for batch in reader:
            yield pa.Table.from_batches([batch])


def _columns_told(
    file: Source, tables: Iterator[pa.Table], names: list[str], kinds: Types
) -> Iterator[pa.Table]:
    """Pass tables on; when a value does not fit, say in which column."""
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
            raise file.misfit(misfit, kinds[misfit], done)
        if table is None:
            return
        done += table.num_rows
        yield table


def _without_empty(table: pa.Table) -> pa.Table:
    """Empty text as null; Arrow would make NA null as well, which may be a country."""
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_binary(field.type):
            empty = pc.equal(pc.binary_length(table.column(place)), 0)
            filled = pc.if_else(empty, pa.scalar(None, field.type), table.column(place))
            table = table.set_column(place, field.name, filled)
    return table


# --- times in text --------------------------------------------------------------------


def _with_times(table: pa.Table, times: Mapping[str, _Times]) -> pa.Table:
    for name, convert in times.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, convert(table.column(place)))
    return table


_MISSING = pa.array(csv.ConvertOptions().null_values)


class _Times:
    """Reads one column of times: seconds, ISO 8601, or text that the store will refuse.

    What the first rows are, all are. ISO 8601 is read by Arrow where it can, a
    hundred times faster, and otherwise as the store reads it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._read: Callable[[Any], Any] | None = None

    def __call__(self, column: Any) -> Any:
        missing = pc.is_in(column, _MISSING)
        column = pc.if_else(missing, pa.scalar(None, pa.string()), column)
        if self._read is None:
            self._read = self._first(column)
        return self._read(column)

    def _first(self, column: Any) -> Callable[[Any], Any]:
        """How to read the column: as seconds or ISO 8601, whichever more of its rows are."""
        present = len(column) - column.null_count
        found: Callable[[Any], Any] = self._instants if not present else lambda column: column
        most = 0
        for read in (self._seconds, self._instants):
            made = read(column)
            readable = len(made) - made.null_count
            if readable > most:
                found, most = read, readable
            if most == present:
                break
        return found

    def _seconds(self, column: Any) -> Any:
        try:
            return column.cast(pa.float64())
        except pa.ArrowInvalid:
            pass  # one is no number
        return pa.chunked_array([[_number(text) for text in column.to_pylist()]], pa.float64())

    def _instants(self, column: Any) -> Any:
        for kind in (TIME, pa.timestamp("us", "UTC")):
            try:
                return column.cast(kind).cast(TIME)
            except pa.ArrowInvalid:
                pass  # not all are of this kind
        from pyramidion.judge import Judge, times_of

        judge = Judge(len(column))
        micros = times_of(self._name, pc.utf8_trim_whitespace(column), judge)
        return pa.chunked_array([pa.array(micros, TIME, mask=judge.bad)])


def _number(text: str | None) -> float | None:
    try:
        return None if text is None or "_" in text else float(text)
    except ValueError:
        return None


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


def ndjson_fields(file: Source) -> pa.Schema:
    """Names and types as the first block shows them."""
    with file.stream() as stream:
        block = next(_json_blocks(stream), b"")
    options = arrow_json.ReadOptions(block_size=len(block) + 1)
    return arrow_json.read_json(io.BytesIO(block), options).schema


def ndjson_tables(file: Source, columns: Sequence[str] | None, types: Types) -> Tables:
    """An NDJSON file block by block."""
    with file.stream() as stream:
        done, kinds, times = 0, dict[str, pa.DataType](), dict[str, _Times]()
        for block in _json_blocks(stream):
            if not block.strip():
                continue
            if not kinds:
                shown = _shown(block)
                for name in file.chosen(list(shown), columns):
                    kinds[name] = _json_type(file, name, types.get(name), shown[name])
                    if kinds[name] == pa.string() and types.get(name) == TIME:
                        times[name] = _Times(name)
            table = _json_table(block, kinds)
            if table is None:
                raise _json_misfit(file, block, kinds, done)
            done += table.num_rows
            yield _with_times(table, times)


def _shown(block: bytes) -> dict[str, set[type]]:
    """The types of each key's values."""
    shown: dict[str, set[type]] = {}
    for line in block.decode("utf-8-sig", errors="replace").split("\n"):
        if not line.strip():
            continue
        row = json.loads(line)
        if not isinstance(row, dict):
            raise ValueError
        for name, value in row.items():
            kinds = shown.setdefault(name, set())
            if value is not None:
                kinds.add(_Large if type(value) is int and value > LARGEST // 2 else type(value))
    return shown


class _Large(int):
    """Stands for whole numbers that need all 64 bits."""


def _json_type(
    file: Source, name: str, declared: pa.DataType | None, kinds: set[type]
) -> pa.DataType:
    """What JSON's own types say; numbers are as wide as the schema wants them."""
    if not kinds:
        return pa.string() if declared is None or declared == TIME else declared
    if kinds == {str}:
        return pa.binary() if declared == pa.binary() else pa.string()
    if kinds == {bool}:
        return pa.bool_()
    if kinds <= {int, float, _Large}:
        if float in kinds or declared in (pa.float64(), TIME):
            return pa.float64()
        return pa.uint64() if _Large in kinds else pa.int64()
    raise file.misfit(name, "one of text, numbers, or true and false")


def _json_table(block: bytes, kinds: Types) -> pa.Table | None:
    try:
        return arrow_json.read_json(
            io.BytesIO(block),
            arrow_json.ReadOptions(block_size=len(block) + 1),
            arrow_json.ParseOptions(
                explicit_schema=pa.schema(kinds.items()), unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowInvalid:
        return None


def _json_misfit(file: Source, block: bytes, kinds: Types, done: int) -> ObservationError:
    """Which column of a block has changed its type, if that is what is wrong with it."""
    try:
        shown = _shown(block)
    except ValueError:
        return file.unreadable(done)
    for name, kind in kinds.items():
        fitting = {value for value, fits in _FITTING if str(kind) in fits}
        if not shown.get(name, set()) <= fitting:
            return file.misfit(name, kind, done)
    return file.unreadable(done)


_FITTING: tuple[tuple[type, tuple[str, ...]], ...] = (
    (bool, ("bool",)),
    (int, ("int64", "uint64", "double")),
    (_Large, ("uint64", "double")),
    (float, ("double",)),
    (str, ("string", "binary")),
)
