"""Ways in: the same rows as files of each format, as frames, and as dicts.

The stores of an audit take each batch by another way. Canaries are whole numbers; whichever way
they come, their keys must be those of the numbers, and no row may change how another is read.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyramidion.config.schema import Categorical, Label, Schema
from pyramidion.config.settings import Settings
from pyramidion.rows.containers import joined
from pyramidion.rows.files import DataFile
from pyramidion.rows.observations import Door

Rows = list[dict[str, Any]]
Way = Callable[[Rows, Path], Any]

DISTURBING = (0.5, None, True, "x", "2013-01-31", 2.0**60)
"""Values that would have a container give a column of whole numbers another type."""
LONG = 700_000_000_000_000_001  # which no double is
CASTING = ("pandas", "polars")
MOMENT = "2013-01-31T05:15:00"


def in_csv(rows: Rows, folder: Path) -> pa.Table:
    """As a CSV file."""
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return _read(folder / "rows.csv")


def in_lines(rows: Rows, folder: Path) -> pa.Table:
    """As an NDJSON file."""
    (folder / "rows.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return _read(folder / "rows.ndjson")


def in_parquet(rows: Rows, folder: Path) -> pa.Table:
    """As a Parquet file; raises where a column has no type that holds all of it."""
    from pyarrow import parquet

    parquet.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")
    return _read(folder / "rows.parquet")


def in_arrow(rows: Rows, folder: Path) -> pa.Table:
    """As an Arrow file, likewise."""
    table = pa.Table.from_pylist(rows)
    with pa.ipc.new_file(str(folder / "rows.arrow"), table.schema) as writer:
        writer.write_table(table)
    return _read(folder / "rows.arrow")


def in_pandas(rows: Rows, _: Path) -> Any:
    """As a frame, whose columns of numbers pandas may cast."""
    import pandas as pd

    return pd.DataFrame(rows)


def in_polars(rows: Rows, _: Path) -> Any:
    """As a frame, likewise; raises where a column has no type that holds all of it."""
    import polars as pl

    return pl.DataFrame(rows, infer_schema_length=None)


def _read(path: Path) -> pa.Table:
    return joined(list(DataFile(path).batches()))


def ways() -> dict[str, Way]:
    """All ways in, by name; frames if their library is installed."""
    made: dict[str, Way] = {
        "CSV": in_csv,
        "NDJSON": in_lines,
        "dicts": lambda rows, _: rows,
        "Parquet": in_parquet,
        "Arrow": in_arrow,
    }
    frames = {"pandas": in_pandas, "polars": in_polars}
    return made | {name: way for name, way in frames.items() if find_spec(name) is not None}


def undisturbed(folder: Path) -> Iterator[bool]:
    """For each way in and each disturbing row, whether all other rows are read as without it.

    A frame that casts whole numbers of 2^53 or more may have them refused, but never read
    as others.
    """
    label = Label("y", classes=[0, 1])
    schema = Schema(time="at", features=[Categorical("id")], label=label)
    door = Door(schema, Settings(epsilon=1.0), b"nobody's")
    plain = {"at": MOMENT, "id": LONG, "y": 1}
    rows: Rows = [plain | {"id": LONG + 2 * place, "y": place % 2} for place in range(50)]
    alone = _outcomes(door, rows)
    others = [plain | {"id": value} for value in DISTURBING]
    others += [plain | {"at": 17}, plain | {"y": "1"}, plain | {"y": 0.5}, plain | {"y": None}]
    for name, way in ways().items():
        for other in others:
            try:
                data = way([*rows, other], folder)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                continue  # no container of this kind holds such rows
            made = _outcomes(door, data)[: len(rows)]
            casts = name in CASTING
            yield all(a == b or (casts and a is None) for a, b in zip(made, alone, strict=True))


def _outcomes(door: Door, data: Any) -> list[tuple[int, ...] | None]:
    """Key, label and time of each row; None of one that is refused."""
    observed = door.observations(data, errors="skip")
    bad = {number for numbers in observed.problems.values() for number in numbers}
    columns = observed.keys(0, 0, len(observed)), observed.labels, observed.times
    lists = (column.tolist() for column in columns if column is not None)
    made = iter(list(zip(*lists, strict=True)))
    return [None if row in bad else next(made) for row in range(len(observed) + len(bad))]
