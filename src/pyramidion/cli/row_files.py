"""Writes rows to a file or to standard output, batch by batch, with their guarantee."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pyramidion.errors import SchemaError

if TYPE_CHECKING:
    import pyarrow as pa

    from pyramidion.counts.guarantee import Guarantee

Write = Callable[["pa.Table"], None]


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add ``--output``."""
    parser.add_argument(
        "--output",
        metavar="FILE",
        type=Path,
        help="write here, to a new file: Parquet, Arrow, Feather, NDJSON, CSV or TSV, as its "
        "suffix says (default: CSV to stdout)",
    )


def kind_of(arguments: argparse.Namespace) -> str:
    """The format to write."""
    if arguments.output is None:
        return "json" if arguments.json else "csv"
    from pyramidion.rows.sources import SUFFIXES

    kind = SUFFIXES.get(arguments.output.suffix.lower())
    if kind is None:
        raise SchemaError(
            f"--output {arguments.output} ends in no known format; use one of {', '.join(SUFFIXES)}"
        )
    return kind


@contextmanager
def writing(path: Path | None, kind: str, fields: pa.Schema, promise: Guarantee) -> Iterator[Write]:
    """Write tables of these fields; formats that can carry it say what they promise."""
    told = fields.with_metadata({"pyramidion.guarantee": str(promise)})
    with _sink(path) as sink, _WRITERS[kind](sink, told, promise) as write:
        yield write


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
def _csv(sink: BinaryIO, fields: pa.Schema, _: Guarantee, delimiter: str = ",") -> Iterator[Write]:
    from pyarrow import csv

    def write(table: pa.Table, head: bool = False) -> None:
        buffer = io.BytesIO()
        csv.write_csv(table, buffer, csv.WriteOptions(include_header=head, delimiter=delimiter))
        sink.write(buffer.getvalue())

    write(fields.empty_table(), head=True)
    yield write


@contextmanager
def _ndjson(sink: BinaryIO, _: pa.Schema, __: Guarantee) -> Iterator[Write]:
    def write(table: pa.Table) -> None:
        sink.write("".join(_dumped(row) + "\n" for row in table.to_pylist()).encode())

    yield write


@contextmanager
def _json(sink: BinaryIO, fields: pa.Schema, promise: Guarantee) -> Iterator[Write]:
    """One document, written as the rows come."""
    head = _dumped({"names": fields.names, "guarantee": promise.to_dict()})[:-1]
    sink.write(head.encode() + b', "rows": [')
    comma = ""

    def write(table: pa.Table) -> None:
        nonlocal comma
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        for row in rows:
            sink.write(f"{comma}{_dumped(row)}".encode())
            comma = ", "

    yield write
    sink.write(b"]}\n")


def _dumped(value: object) -> str:
    """As JSON, which has no bytes: a class that is some is told in hexadecimal digits."""
    return json.dumps(value, default=bytes.hex)


@contextmanager
def _parquet(sink: BinaryIO, fields: pa.Schema, _: Guarantee) -> Iterator[Write]:
    from pyarrow import parquet

    with parquet.ParquetWriter(sink, fields) as writer:
        yield writer.write_table


@contextmanager
def _arrow(sink: BinaryIO, fields: pa.Schema, _: Guarantee) -> Iterator[Write]:
    import pyarrow as pa

    with pa.ipc.new_file(sink, fields) as writer:
        yield writer.write_table


_WRITERS: dict[str, Callable[[BinaryIO, pa.Schema, Guarantee], AbstractContextManager[Write]]] = {
    "csv": _csv,
    "tsv": partial(_csv, delimiter="\t"),
    "ndjson": _ndjson,
    "json": _json,
    "parquet": _parquet,
    "arrow": _arrow,
}
