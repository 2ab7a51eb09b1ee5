"""Features out: ``featurize``."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pyramidion.cli.options import Commands, Parser, add_rows, add_store, opened
from pyramidion.cli.progress import Pace, bar, remark
from pyramidion.cli.text import several
from pyramidion.errors import SchemaError

if TYPE_CHECKING:
    import pyarrow as pa

    from pyramidion.guarantee import Guarantee

Write = Callable[["pa.Table"], None]


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    featurizing = commands.add_parser(
        "featurize",
        help="turn rows into features, from the complete tables",
        description="Turn rows into features, from the complete tables; what they promise is "
        "told on stderr. Rows need the features of the schema, and no label.",
    )
    featurizing.add_argument("file", metavar="FILE", help="a data file, or - for stdin")
    featurizing.add_argument(
        "--output",
        metavar="FILE",
        type=Path,
        help="write here, to a new file: Parquet, Arrow, Feather, NDJSON, CSV or TSV, as its "
        "suffix says (default: CSV to stdout)",
    )
    add_rows(featurizing)
    add_store(featurizing)
    featurizing.set_defaults(run=featurize)


def featurize(arguments: argparse.Namespace) -> None:
    """Turn rows into features."""
    from pyramidion.files import DataFile, types_for

    file, kind = DataFile(arguments.file, format=arguments.format), _kind(arguments)
    with opened(arguments) as pyramid:
        features = pyramid.schema.feature_names
        types = {name: t for name, t in types_for(pyramid.schema).items() if name in features}
        snapshot, pace, rows = pyramid.snapshot(), Pace(), 0
        promise, to_file = snapshot.guarantee, arguments.output is not None
        tables = (
            snapshot.featurize(batch, threads=os.cpu_count() or 1)
            for batch in file.batches(features, types=types)
        )
        first = list(islice(tables, 1))  # what is wrong with the file is said before writing
        with (
            _sink(arguments.output) as sink,
            _WRITERS[kind](sink, snapshot.names, promise) as write,
            bar(arguments, "featurize", file.rows_hint, shown=to_file) as progress,
        ):
            for table in chain(first, tables):
                write(table)
                rows += table.num_rows
                progress.update(table.num_rows)
    remark(arguments, pace.told(rows))
    remark(arguments, str(promise))
    if to_file:
        told = {"output": str(arguments.output), "rows": rows, "names": snapshot.names}
        if arguments.json:
            print(json.dumps(told | {"guarantee": promise.to_dict()}))
        else:
            columns = several(len(snapshot.names), "column")
            print(f"wrote {arguments.output}: {several(rows, 'row')}, {columns}")


def _kind(arguments: argparse.Namespace) -> str:
    """The format to write."""
    if arguments.output is None:
        return "json" if arguments.json else "csv"
    from pyramidion.sources import SUFFIXES

    kind = SUFFIXES.get(arguments.output.suffix.lower())
    if kind is None:
        raise SchemaError(
            f"--output {arguments.output} ends in no known format; use one of {', '.join(SUFFIXES)}"
        )
    return kind


@contextmanager
def _sink(path: Path | None) -> Iterator[BinaryIO]:
    """Standard output, or a new file that is removed again if it does not become whole."""
    if path is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        file = path.open("xb")
    except FileExistsError as error:
        raise SchemaError(f"{path} exists already; choose another --output") from error
    except OSError as error:
        reason = f"cannot write {path} ({error.strerror})"
        raise SchemaError(f"{reason}; choose another --output") from error
    try:
        with file:
            yield file
    except BaseException:
        path.unlink(missing_ok=True)
        raise


# --- formats --------------------------------------------------------------------------------


@contextmanager
def _csv(sink: BinaryIO, names: list[str], _: Guarantee, delimiter: str = ",") -> Iterator[Write]:
    from pyarrow import csv

    def write(table: pa.Table, head: bool = False) -> None:
        buffer = io.BytesIO()
        csv.write_csv(table, buffer, csv.WriteOptions(include_header=head, delimiter=delimiter))
        sink.write(buffer.getvalue())

    write(_fields(names).empty_table(), head=True)
    yield write


@contextmanager
def _tsv(sink: BinaryIO, names: list[str], promise: Guarantee) -> Iterator[Write]:
    with _csv(sink, names, promise, "\t") as write:
        yield write


@contextmanager
def _ndjson(sink: BinaryIO, _: list[str], __: Guarantee) -> Iterator[Write]:
    def write(table: pa.Table) -> None:
        sink.write("".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode())

    yield write


@contextmanager
def _json(sink: BinaryIO, names: list[str], promise: Guarantee) -> Iterator[Write]:
    """One document, written as the rows come."""
    sink.write(
        json.dumps({"names": names, "guarantee": promise.to_dict()})[:-1].encode() + b', "rows": ['
    )
    comma = ""

    def write(table: pa.Table) -> None:
        nonlocal comma
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        for row in rows:
            sink.write(f"{comma}{json.dumps(row)}".encode())
            comma = ", "

    yield write
    sink.write(b"]}\n")


@contextmanager
def _parquet(sink: BinaryIO, names: list[str], promise: Guarantee) -> Iterator[Write]:
    from pyarrow import parquet

    with parquet.ParquetWriter(sink, _fields(names, promise)) as writer:
        yield writer.write_table


@contextmanager
def _arrow(sink: BinaryIO, names: list[str], promise: Guarantee) -> Iterator[Write]:
    import pyarrow as pa

    with pa.ipc.new_file(sink, _fields(names, promise)) as writer:
        yield writer.write_table


def _fields(names: list[str], promise: Guarantee | None = None) -> pa.Schema:
    import pyarrow as pa

    told = None if promise is None else {"pyramidion.guarantee": str(promise)}
    return pa.schema([(name, pa.float32()) for name in names], told)


_WRITERS: dict[str, Callable[[BinaryIO, list[str], Guarantee], AbstractContextManager[Write]]] = {
    "csv": _csv,
    "tsv": _tsv,
    "ndjson": _ndjson,
    "json": _json,
    "parquet": _parquet,
    "arrow": _arrow,
}
