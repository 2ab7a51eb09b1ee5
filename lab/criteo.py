"""Criteo: who clicked on which advertisement, from the official files.

Read are the text of the Kaggle contest (``train.txt``) and of the terabyte logs (``day_0`` and
on), packed by gzip or not, and Parquet with the same columns: ``label``, ``I1`` to ``I13``,
``C1`` to ``C26``. Rows are read from the files each time, so the 45 million of Kaggle need no
more memory than a block; counting text rows goes through the files once.

There is no clock: rows come a second apart. Numbers are counted in four bins of equal size, as
in the paper: the three quartiles are those of the beginning of the past. They are read off the
data as it is, without noise. These files are public; for private rows, edges must be chosen
without looking.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lab.datasets import PAST, ROWS, DataSet
from lab.reading import Field, Groups, Lines, fingerprint, zero_or_one
from pyramidion.config.schema import Categorical, Continuous, Label, Schema
from pyramidion.errors import StorageError

NUMBERS = tuple(f"I{i}" for i in range(1, 14))
CATEGORIES = tuple(f"C{i}" for i in range(1, 27))
FIELDS = (
    zero_or_one("label"),
    *(Field(name, pa.int64(), required=False) for name in NUMBERS),
    *(Field(name, pa.string(), required=False) for name in CATEGORIES),
)
SHAPE = "label, I1 to I13, C1 to C26, a tab between"
LOOKED_AT = 1_000_000
"""Rows that quartiles are taken of, at most."""

LAYOUTS = (r"train\.txt(\.gz)?", r"day_\d+(\.gz)?", r"train\.parquet", r".*\.parquet")
"""Files of a folder, the first kind that is there."""


def load(path: str | Path) -> DataSet:
    """Make a data set of a file, or of the files of a folder in the order of their numbers."""
    files = _files(Path(path))
    parts = [_part(file, FIELDS) for file in files]
    rows = sum(part.rows for part in parts)

    def read(start: int, stop: int) -> Iterator[pa.RecordBatch]:
        for first, table in _tables(parts, start, stop):
            yield from _told(table, first).to_batches(max_chunksize=ROWS)

    title = f"Criteo ({rows:,} advertisements)"
    schema = _schema(parts, min(max(1, int(PAST * rows)), LOOKED_AT))
    return DataSet("criteo", title, schema, rows, read, fingerprint(files))


def _files(path: Path) -> list[Path]:
    wanted = "train.txt, day_0 and on (packed by gzip or not), or Parquet with the same columns"
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise StorageError(f"no file or folder at {path}; give one that holds {wanted}")
    names = sorted((file.name for file in path.iterdir() if file.is_file()), key=_by_number)
    for layout in LAYOUTS:
        found = [path / name for name in names if re.fullmatch(layout, name)]
        if found:
            return [file for file in found if not _unpacked_too(file, found)]
    raise StorageError(f"the folder {path} lacks files; give one that holds {wanted}")


def _by_number(name: str) -> list[tuple[int, str]]:
    """Sorts names by the numbers in them.

    >>> sorted(["day_10", "day_2.gz"], key=_by_number)
    ['day_2.gz', 'day_10']
    """
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def _unpacked_too(file: Path, found: Sequence[Path]) -> bool:
    return file.suffix == ".gz" and file.with_suffix("") in found


def _part(file: Path, fields: tuple[Field, ...]) -> Lines | Groups:
    if file.suffix == ".parquet":
        return Groups(file, fields)
    names = tuple(field.name for field in FIELDS)
    return Lines(file, fields, "\t", names, shape=SHAPE)


def _tables(
    parts: Sequence[Lines | Groups], start: int, stop: int
) -> Iterator[tuple[int, pa.Table]]:
    """Rows from one number to another through all files, with the number of each table's first."""
    begins = accumulate((part.rows for part in parts), initial=0)
    for begin, part in zip(begins, parts, strict=False):
        inside = max(0, start - begin), min(part.rows, stop - begin)
        if inside[0] < inside[1]:
            row = begin + inside[0]
            for table in part.read(*inside):
                yield row, table
                row += table.num_rows


def _told(table: pa.Table, first: int) -> pa.Table:
    """Rows as models see them."""
    time = pa.array(np.arange(first, first + table.num_rows))
    named = table.rename_columns(["click", *NUMBERS, *CATEGORIES]).combine_chunks()
    return named.add_column(0, "time", time)


def _schema(parts: Sequence[Lines | Groups], rows: int) -> Schema:
    columns = _numbers(parts, rows)
    return Schema(
        time="time",
        label=Label("click", classes=[0, 1]),
        features=[
            *(Continuous(name, edges=quartiles(columns[name])) for name in NUMBERS),
            *map(Categorical, CATEGORIES),
        ],
    )


def _numbers(parts: Sequence[Lines | Groups], rows: int) -> dict[str, NDArray[np.int64]]:
    """The numbers of the first rows that are not missing."""
    fields = tuple(field for field in FIELDS if field.name in NUMBERS)
    tables: list[pa.Table] = []
    for part in parts:
        tables += replace(part, fields=fields).read(0, rows)
        rows -= min(rows, part.rows)
    whole = pa.concat_tables(tables)
    return {name: whole[name].drop_null().to_numpy() for name in NUMBERS}


def quartiles(values: NDArray[np.int64]) -> list[float]:
    """Edges that cut whole numbers into four bins as even as can be.

    A quartile belongs to the bin it ends, so an edge is half above it; where many values are the
    same, edges fall together and bins are fewer. If all fall on the largest value, it is cut off.

    >>> quartiles(np.arange(8)), quartiles(np.array([0, 0, 0, 0, 0, 7]))
    ([1.5, 3.5, 5.5], [0.5])
    """
    if values.size == 0:
        return [0.5]
    cuts = np.quantile(values, [0.25, 0.5, 0.75], method="inverted_cdf")
    edges = [float(cut) + 0.5 for cut in np.unique(cuts) if cut < values.max()]
    return edges or [float(values.max()) - 0.5]
