"""Files of public data sets in: found, checked, and read in bounded memory.

A text file is read in blocks that end where a line ends, so a file of any length needs the
memory of a block, and a flaw is told by its line. Where blocks begin is remembered once rows
have been counted: a later read goes to the block of its first row and leaves out what is before.
A Parquet file is read by its row groups.

What a file must hold is told by a list of `Field`. What does not fit ends the reading with an
error that names the file, the line and the rule. It never quotes the line, and Arrow's messages,
which do, are not passed on.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from lab.datasets import ROWS
from pyramidion.errors import ObservationError, StorageError

BLOCK = 1 << 24  # bytes: enough for two cores to share, little beside what models need
SINGLE = "\x1f"  # stands in for separators of two characters, which Arrow does not know
AGAIN = "mend it or fetch the file again"

_WORDS = {
    "int8": "a whole number",
    "int32": "a whole number",
    "int64": "a whole number",
    "float": "a number",
    "double": "a number",
    "string": "UTF-8 text",
    "timestamp[us, tz=UTC]": "a time with its zone, as 2019-11-24 00:00:34+00:00",
}


@dataclass(frozen=True)
class Field:
    """A field that is read: what it holds, and a rule for its values.

    ``holds`` says of each value whether it keeps the rule, and ``rule`` says the rule to people.
    """

    name: str
    kind: pa.DataType
    rule: str = ""
    holds: Callable[[pa.ChunkedArray], pa.ChunkedArray] | None = None
    required: bool = True


def among(values: Iterable[object]) -> Callable[[pa.ChunkedArray], pa.ChunkedArray]:
    """The rule that a value is one of these."""
    known = values if isinstance(values, pa.Array) else pa.array(values)
    return lambda column: pc.is_in(column.cast(known.type), value_set=known)


def zero_or_one(name: str) -> Field:
    """The field of a label that is 0 or 1."""
    return Field(name, pa.int64(), "0 or 1", among([0, 1]))


def find(path: str | Path, *layouts: Sequence[str]) -> list[Path]:
    """The files of the first layout that a folder has all of."""
    folder = Path(path)
    wanted = ", or ".join(" and ".join(layout) for layout in layouts)
    if not folder.is_dir():
        what = f"{folder} is a file" if folder.exists() else f"no folder at {folder}"
        raise StorageError(f"{what}; give the folder that holds {wanted}")
    for layout in layouts:
        files = [folder / name for name in layout]
        if all(file.is_file() for file in files):
            return files
    raise StorageError(f"the folder {folder} lacks files; give the folder that holds {wanted}")


def fingerprint(files: Iterable[Path], *about: object) -> str:
    """Names, sizes and times of files, and whatever else tells the data set apart, as 16 digits."""
    told = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr((told, about)).encode()).hexdigest()[:16]


class _Block(NamedTuple):
    row: int  # number of its first row, from 0
    rows: int
    at: int  # where it begins in the file, unpacked
    data: bytes


@dataclass(frozen=True)
class Lines:
    """A text file of one row to a line, packed by gzip or not.

    ``names`` are a line's fields in order; without them the first line tells. ``shape`` says to
    people what a line looks like.
    """

    file: Path
    fields: tuple[Field, ...]
    separator: str = ","
    names: tuple[str, ...] | None = None
    quoted: bool = False
    shape: str = "as many as its first line"

    @cached_property
    def rows(self) -> int:
        """How many rows there are: goes through the file once, without looking at fields."""
        return self._marks[-1][0]

    def read(self, start: int = 0, stop: int = sys.maxsize) -> Iterator[pa.Table]:
        """The rows from one number to another, a block at a time."""
        for block in self._blocks(*self._mark(start)):
            if block.row >= stop:
                return
            if block.row + block.rows > start:
                skipped = max(0, start - block.row)
                yield self._table(block).slice(skipped, stop - block.row - skipped)

    def _mark(self, start: int) -> tuple[int, int]:
        if start == 0:
            return 0, self._head[1]
        return max(mark for mark in self._marks if mark[0] <= start)

    @cached_property
    def _marks(self) -> list[tuple[int, int]]:
        """Number and place of each block's first row, then those of the end."""
        marks, ends = [], (0, 0)
        for block in self._blocks(0, self._head[1]):
            marks.append((block.row, block.at))
            ends = block.row + block.rows, block.at + len(block.data)
        return [*marks, ends]

    @cached_property
    def _head(self) -> tuple[tuple[str, ...], int]:
        """The names of all fields, and where the first row begins."""
        if self.names is not None:
            return self.names, 0
        with self._opened() as stream:
            line = stream.readline(BLOCK)
        if not line:
            raise _no_rows(self.file)
        names = _split(line.decode("utf-8-sig", "replace").rstrip("\r\n"), self.separator)
        refuse_missing(self.file, names, self.fields)
        return tuple(names), len(line)

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        try:
            opener: Callable[..., Any] = gzip.open if self.file.suffix == ".gz" else open
            with opener(self.file, "rb") as stream:
                yield stream
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise ObservationError(
                f"{self.file.name} is cut short or not packed by gzip; fetch the file again"
            ) from None
        except OSError as error:
            raise StorageError(
                f"{self.file} cannot be read; check that it is there and yours to read"
            ) from error

    def _blocks(self, row: int, at: int) -> Iterator[_Block]:
        rest = b""
        with self._opened() as stream:
            stream.seek(at)
            while chunk := stream.read(BLOCK):
                whole, newline, rest = (rest + chunk).rpartition(b"\n")
                if newline:
                    block = _Block(row, whole.count(b"\n") + 1, at, whole + newline)
                    yield block
                    row, at = row + block.rows, at + len(block.data)
                elif len(rest) >= BLOCK:
                    raise self._flaw(row, f"is longer than {BLOCK:,} bytes")
            if rest:
                yield _Block(row, 1, at, rest)
            elif row == 0:
                raise _no_rows(self.file)

    def _table(self, block: _Block) -> pa.Table:
        table = self._parsed(block.data, self.fields)
        if table is None or table.num_rows != block.rows:
            self._explain(block)
        flaw = first_flaw(table, self.fields)
        if flaw is not None:
            raise self._flaw(block.row + flaw[0], flaw[1])
        return table

    def _parsed(self, data: bytes, fields: Sequence[Field]) -> pa.Table | None:
        """The rows of some lines; None where they are not what they should be."""
        single = self.separator
        if len(single) > 1:
            data, single = data.replace(single.encode(), SINGLE.encode()), SINGLE
        kinds = {field.name: field.kind for field in fields}
        try:
            return pa.csv.read_csv(
                pa.BufferReader(data),
                pa.csv.ReadOptions(column_names=self._head[0]),
                pa.csv.ParseOptions(
                    delimiter=single,
                    quote_char='"' if self.quoted else False,
                    ignore_empty_lines=False,
                ),
                pa.csv.ConvertOptions(
                    column_types=kinds,
                    include_columns=list(kinds),
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid:
            return None

    def _explain(self, block: _Block) -> NoReturn:
        """Say what is wrong with the first line that cannot be read, found by halving."""
        lines = block.data.split(b"\n")
        odd = [row for row, line in enumerate(lines) if self.quoted and line.count(b'"') % 2]
        if odd:  # lines that a quote joins cannot be judged one by one
            raise self._flaw(block.row + odd[0], "has a quote that does not end")
        good, bad = 0, block.rows
        while bad - good > 1:
            middle = (good + bad) // 2
            table = self._parsed(b"\n".join(lines[good:middle]) + b"\n", self.fields)
            if table is not None and table.num_rows == middle - good:
                good = middle
            else:
                bad = middle
        raise self._flaw(block.row + good, self._wrong(lines[good]))

    def _wrong(self, line: bytes) -> str:
        found, expected = self._count(line), len(self._head[0])
        if found != expected:
            has = f"has {found} field{'s' if found > 1 else ''}"
            return f"{has}; expected {expected}: {self.shape}; the file may be truncated"
        for field in self.fields:
            if self._parsed(line + b"\n", [field]) is None:
                return f"has a {field.name} that is not {_WORDS[str(field.kind)]}"
        return "cannot be read"

    def _count(self, line: bytes) -> int:
        text = line.decode("latin-1").rstrip("\r")
        if self.quoted:
            return len(_split(text, self.separator))
        return len(text.split(self.separator))

    def _flaw(self, row: int, what: str) -> ObservationError:
        line = row + (1 if self.names is not None else 2)
        return ObservationError(f"line {line} of {self.file.name} {what}; {AGAIN}")


@dataclass(frozen=True)
class Groups:
    """A Parquet file, read by its row groups. Text that is empty and NaN are missing."""

    file: Path
    fields: tuple[Field, ...]

    @cached_property
    def rows(self) -> int:
        """How many rows there are."""
        with self._opened() as file:
            return int(file.metadata.num_rows)

    def read(self, start: int = 0, stop: int = sys.maxsize) -> Iterator[pa.Table]:
        """The rows from one number to another, some thousand at a time."""
        names = [field.name for field in self.fields]
        with self._opened() as file:
            sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
            firsts = list(accumulate(sizes, initial=0))
            wanted = [i for i, n in enumerate(sizes) if firsts[i] < stop and firsts[i] + n > start]
            row = firsts[wanted[0]] if wanted else 0
            for batch in file.iter_batches(ROWS, wanted, names):
                skipped = max(0, start - row)
                part = batch.slice(skipped, max(0, stop - row - skipped))
                if part.num_rows:
                    yield self._table(part, row + skipped)
                row += batch.num_rows

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        try:
            with pa.parquet.ParquetFile(self.file) as file:
                refuse_missing(self.file, file.schema_arrow.names, self.fields)
                if not file.metadata.num_rows:
                    raise _no_rows(self.file)
                yield file
        except pa.ArrowException:
            raise ObservationError(
                f"{self.file.name} is not a whole Parquet file; fetch the file again"
            ) from None
        except OSError as error:
            raise StorageError(
                f"{self.file} cannot be read; check that it is whole, and yours to read"
            ) from error

    def _table(self, batch: pa.RecordBatch, row: int) -> pa.Table:
        table = pa.table({field.name: self._cast(batch, field) for field in self.fields})
        flaw = first_flaw(table, self.fields)
        if flaw is not None:
            raise ObservationError(
                f"row {row + flaw[0] + 1} of {self.file.name} {flaw[1]}; {AGAIN}"
            )
        return table

    def _cast(self, batch: pa.RecordBatch, field: Field) -> pa.Array:
        column = batch[field.name]
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), None, column)
        try:
            column = column.cast(field.kind)
        except pa.ArrowException:
            raise ObservationError(
                f"column {field.name} of {self.file.name} has a value that is not "
                f"{_WORDS[str(field.kind)]}; {AGAIN}"
            ) from None
        return (
            pc.if_else(pc.equal(column, ""), None, column) if field.kind == pa.string() else column
        )


def _split(line: str, separator: str) -> list[str]:
    """The fields of a line, quoted or not; none where it is not text at all."""
    try:
        return next(csv.reader([line], delimiter=separator))
    except csv.Error:
        return []


def _no_rows(file: Path) -> ObservationError:
    return ObservationError(f"{file.name} has no rows; fetch the file again")


def refuse_missing(file: Path, names: Sequence[str], fields: Sequence[Field]) -> None:
    """Raise unless a file has each column that is to be read, once."""
    for field in fields:
        if names.count(field.name) != 1:
            has = "no" if field.name not in names else "more than one"
            raise ObservationError(
                f"{file.name} has {has} column {field.name}; give a file of the official layout"
            )


def first_flaw(table: pa.Table, fields: Sequence[Field]) -> tuple[int, str] | None:
    """The first row that breaks a rule, from 0, and what is wrong with it."""
    flaws = []
    for field in fields:
        column = table[field.name]
        if field.required and column.null_count:
            flaws.append((pc.index(pc.is_null(column), True).as_py(), f"has no {field.name}"))
        if field.holds is not None:
            kept = pc.or_kleene(pc.is_null(column), field.holds(column))
            flaws.append(
                (pc.index(kept, False).as_py(), f"has a {field.name} that is not {field.rule}")
            )
    return min((flaw for flaw in flaws if flaw[0] >= 0), default=None)
