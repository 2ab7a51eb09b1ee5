"""One row, one key: whatever way rows come, no row changes how another one is read.

A batch and the same batch with one row changed go through every way in. All that the store makes
of another row (keys, label, weight, time, unit, acceptance) must be the same; and whichever ways
accept a row must make the same of it. Some containers cast a value for another row's sake, which
may cost it digits: such a row may be refused, and nothing else.
"""

from __future__ import annotations

import contextlib
import csv
import datetime as dt
import io
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyarrow import feather, parquet

from pyramidion import CountFeaturizer
from pyramidion.config.schema import Categorical, Continuous, Label, Schema
from pyramidion.config.settings import Settings
from pyramidion.errors import ObservationError
from pyramidion.learn.frames import frame_of
from pyramidion.rows.containers import joined
from pyramidion.rows.files import DataFile, TextFile
from pyramidion.rows.observations import Door
from pyramidion.storage import records
from pyramidion.web.bodies import CSV, JSON, json_from
from pyramidion.web.client.rows import body_of
from pyramidion.web.limits import Limits
from pyramidion.web.service.row_bodies import Wanted, rows_from

Row = dict[str, Any]
SCHEMA = Schema(
    time="t",
    unit="u",
    weight="p",
    label=Label("y", classes=[0, 1]),
    features=[
        Categorical("c"),
        Categorical("d", domain=[1, "2", "x", True - 1, 0.5]),
        Continuous("n", edges=[0, 10]),
    ],
    groups=[("c", "d"), ("d", "n")],
)
COLUMNS = list(SCHEMA.columns)
DOOR = Door(SCHEMA, Settings(epsilon=1.0, p_min=0.1), b"a secret of the stream")
WANTED = Wanted(COLUMNS, {})

# --- values -----------------------------------------------------------------------------------

LONG = 700_000_000_000_000_001
plain = st.sampled_from(
    [
        *(None, "", "x", "y", "é", "7", "007", "7.0", "7.00", "+7", " 7", "true", "False", "0.5"),
        *("0.50", 7, -7, 0, 1, 2, True, False, 0.5, 7.0, -0.0, 1e-5, 0.1 + 0.2, "2013-01-31"),
        *(LONG, LONG + 2, str(LONG), 2.0**53, float(LONG), 2**63, 2**64 - 1, str(2**64)),
        float("nan"),
    ]
)
words = st.text(max_size=4).filter(str.isalpha)
categories = st.one_of(plain, st.integers(-(2**63), 2**64 - 1), words)
numbers = st.sampled_from(
    [None, 1, 12, -3, 0.25, 1e300, True, "1.5", " 12 ", "-3e0", "NA", "", "x"]
)
labels = st.sampled_from([0, 1, "0", "1", 1.0, True, "false", None, 2, "x"])
times = st.sampled_from(
    [17, 1.5, "17", "1.5", "2020-01-01", "2020-01-01T05:00", "2020-01-01 05:00:00+01:00", None, "x"]
)
weights = st.sampled_from([1, 0.5, "0.25", 1.0, None, 0, "x"])
units = st.sampled_from([7, "7", 7.0, "7.0", "ann", LONG, float(LONG), None, "", 0.5, True])
row = st.fixed_dictionaries(
    {"c": categories, "d": plain, "n": numbers, "y": labels, "t": times, "p": weights, "u": units}
)

# --- ways in ----------------------------------------------------------------------------------


def in_csv(rows: list[Row]) -> bytes:
    """As pandas writes it: nothing where a value is missing, floats by their shortest text."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for each in rows:
        writer.writerow(["" if _missing(each[name]) else each[name] for name in COLUMNS])
    return out.getvalue().encode()


def _missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def in_lines(rows: list[Row]) -> bytes:
    return "".join(json.dumps(each) + "\n" for each in rows).encode()


def columns(rows: list[Row]) -> dict[str, list[Any]]:
    return {name: [each[name] for each in rows] for name in COLUMNS}


def arrow(rows: list[Row]) -> pa.Table:
    return pa.table(columns(rows))


def text_file(data: bytes, kind: str) -> pa.Table:
    return joined(list(TextFile(data, format=kind, name="rows").batches(COLUMNS)))


def saved(rows: list[Row], write: Callable[[pa.Table, Any], None], suffix: str) -> pa.Table:
    out = io.BytesIO()
    write(arrow(rows), out)
    file = TextFile(out.getvalue(), format=suffix, name="rows")
    file.once = True  # so that it is read from memory
    return joined(list(DataFile.batches(file, COLUMNS)))


def posted(body: bytes, kind: str) -> Any:
    return rows_from(body, kind, Limits(), WANTED)[0]


def sent(rows: Any) -> Any:
    body = body_of(rows)
    return posted(body.content, body.kind)


def objects(values: list[Any]) -> Any:
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made


def stored(rows: list[Row]) -> Any:
    """As hot rows come back from disk: those that were accepted."""
    batch = DOOR.arrivals(rows, "skip")[1]
    return records.batch_of(records.from_bytes(records.to_bytes(records.table_of(batch), {})))


EXACT: dict[str, Callable[[list[Row]], Any]] = {
    "dicts": lambda rows: rows,
    "columns": columns,
    "objects in numpy": lambda rows: {n: objects(c) for n, c in columns(rows).items()},
    "objects in pandas": lambda rows: pd.DataFrame(columns(rows), dtype=object),
    "objects in polars": lambda rows: pl.DataFrame(
        {n: pl.Series(c, dtype=pl.Object) for n, c in columns(rows).items()}
    ),
    "frame of a featurizer": lambda rows: frame_of(pd.DataFrame(columns(rows), dtype=object)).batch(
        COLUMNS
    ),
    "csv": lambda rows: text_file(in_csv(rows), "csv"),
    "tsv": lambda rows: text_file(in_csv(rows).replace(b",", b"\t"), "tsv"),
    "ndjson": lambda rows: text_file(in_lines(rows), "ndjson"),
    "csv over HTTP": lambda rows: posted(in_csv(rows), CSV),
    "json over HTTP": lambda rows: posted(json.dumps(rows, allow_nan=False).encode(), JSON),
    "client": sent,
}
"""Ways in that read each value as it was given."""

CASTING: dict[str, Callable[[list[Row]], Any]] = {
    "pandas": pd.DataFrame,
    "polars": lambda rows: pl.DataFrame(columns(rows)),
    "numpy": lambda rows: {n: np.array(c) for n, c in columns(rows).items()},
    "arrow": arrow,
    "parquet": lambda rows: saved(rows, parquet.write_table, "parquet"),
    "feather": lambda rows: saved(rows, feather.write_feather, "arrow"),
    "arrow over HTTP": lambda rows: sent(arrow(rows)),
    "pandas by the client": lambda rows: sent(pd.DataFrame(rows)),
}
"""Ways in whose container may have cast a value, or refused to hold all of them."""

Outcome = tuple[Any, ...] | None


def outcomes(data: Any) -> list[Outcome]:
    """What the store makes of each row; None of one that it refuses."""
    found = DOOR.observations(data, errors="skip")
    bad = {number for rows in found.problems.values() for number in rows}
    each = (found.matrix(0, len(found)).T, found.labels, found.times, found.units)
    weights = np.broadcast_to(found.weights, len(found))
    lists = (column.tolist() for column in (*each, weights))
    made: Iterator[Outcome] = ((tuple(keys), *rest) for keys, *rest in zip(*lists, strict=True))
    return [None if row in bad else next(made) for row in range(len(found) + len(bad))]


def read(way: Callable[[list[Row]], Any], rows: list[Row]) -> list[Outcome] | None:
    """The same by some way; None where its container cannot hold these rows at all."""
    try:
        data = way(rows)
    except (pa.ArrowException, pl.exceptions.PolarsError, TypeError, ValueError, OverflowError):
        return None
    except ObservationError:
        return None
    return outcomes(data)


patient = settings(
    deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


@pytest.mark.slow
@patient
@given(st.lists(row, min_size=1, max_size=5), row, st.data())
def test_one_row_does_not_change_how_another_is_read(
    rows: list[Row], other: Row, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(rows) - 1))
    changed = [*rows[:place], other, *rows[place + 1 :]]
    for name, way in (EXACT | CASTING).items():
        before, after = read(way, rows), read(way, changed)
        if before is None or after is None:
            assert name not in EXACT or name.endswith("HTTP") or name == "client", name
            continue
        for number, (one, two) in enumerate(zip(before, after, strict=True)):
            refused = name in CASTING and None in (one, two)
            assert number == place or one == two or refused, name


@patient
@given(st.lists(row, min_size=1, max_size=5))
def test_all_ways_in_make_the_same_of_a_row_or_refuse_it(rows: list[Row]) -> None:
    found = {name: read(way, rows) for name, way in (EXACT | CASTING).items()}
    given_up = {name for name, each in found.items() if each is None}
    assert given_up.isdisjoint(EXACT.keys() - {"json over HTTP", "client"})
    for number in range(len(rows)):
        made = {name: each[number] for name, each in found.items() if each is not None}
        accepted = {name: each for name, each in made.items() if each is not None}
        assert len(set(accepted.values())) <= 1, accepted


@patient
@given(st.lists(row, min_size=1, max_size=5))
def test_hot_rows_are_read_again_as_they_were(rows: list[Row]) -> None:
    assert outcomes(stored(rows)) == [each for each in outcomes(rows) if each is not None]


@patient
@given(row)
def test_one_row_alone_has_the_keys_that_it_has_in_a_batch(row: Row) -> None:
    features = {name: row[name] for name in SCHEMA.feature_names}
    encoder = DOOR.encoder

    def told(make: Callable[[], Any]) -> Any:
        try:
            return make().tolist()
        except ObservationError as error:
            return sorted(error.problems)

    wanted = told(lambda: DOOR.rows([features]).matrix(0, 1))
    assert told(lambda: encoder.one(features)) == wanted
    with contextlib.suppress(ValueError):  # JSON has no NaN
        body = json.dumps(features, allow_nan=False).encode()
        assert told(lambda: encoder.one(json_from(body, JSON))) == wanted
    with contextlib.suppress(pa.ArrowException, OverflowError):
        batch = pa.RecordBatch.from_pylist([features])
        narrow = encoder.one_arrow(batch)
        assert narrow is None or narrow.tolist() == wanted


@pytest.mark.parametrize("way", [*EXACT, *CASTING])
def test_numbers_and_their_text_are_one_value(way: str) -> None:
    """The same rows as CSV and as Parquet, as JSON numbers and as JSON text."""
    base = {"c": 7, "d": 2, "n": 12, "y": 1, "t": 17, "p": 1, "u": 7}
    text = {name: str(value) for name, value in base.items()}
    make = (EXACT | CASTING)[way]
    assert outcomes(make([base])) == outcomes(make([text])) != [None]


def test_dates_are_one_value_in_every_container() -> None:
    rows = [{**dict.fromkeys(COLUMNS, 1), "c": dt.date(2013, 1, 31), "t": dt.date(2013, 1, 31)}]
    wanted = outcomes(rows)
    assert wanted != [None]
    for name in ("csv", "pandas", "polars", "arrow", "parquet", "feather"):
        assert outcomes((EXACT | CASTING)[name](rows)) == wanted, name


@pytest.mark.filterwarnings("ignore:column 'c' holds")
@settings(patient, max_examples=20)
@given(st.lists(plain, min_size=2, max_size=6))
def test_the_size_of_a_fitted_object_does_not_follow_from_values(values: list[Any]) -> None:
    assume(not any(isinstance(v, float) and abs(v) >= 2**53 for v in values))
    y = np.array([0, 1] * len(values))[: len(values)]
    X = pd.DataFrame({"c": values})
    assume(X["c"].dtype != float or not (X["c"].abs() >= 2**53).any())
    known = {"epsilon": 1.0, "classes": [0, 1], "buckets": 64}
    layout = CountFeaturizer(**known).fit(X, y).snapshot_._arena.layout
    other = CountFeaturizer(**known).fit(pd.DataFrame({"c": ["x"] * len(y)}), y).snapshot_
    assert layout.nbytes == other._arena.layout.nbytes
