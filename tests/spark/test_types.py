"""Columns of Spark's own types: times with and without a zone, dates and decimals."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pyramidion import Categorical, Label, Schema
from pyramidion.spark import count, count_into, featurize, training_set
from tests.spark.test_counting import by_hand
from tests.store.stores import DAY, START, Stand, cells, same, tiny

ROWS = 120
FORM = "t timestamp, y long, day date, price decimal(10,2)"
TYPED = Schema(
    time="t",
    label=Label("y", classes=[0, 1]),
    features=[Categorical("day"), Categorical("price")],
)


def now() -> float:
    """The stand's clock, on executors."""
    return START + 1


def typed() -> pa.Table:
    """Rows of the last thirty days, in types that Parquet and Spark both have."""
    random = np.random.default_rng(5)
    micros = ((START - 30 * DAY + random.random(ROWS) * 30 * DAY) * 1e6).astype(np.int64)
    prices = [Decimal(int(n)) for n in random.integers(-30, 30, ROWS)]
    return pa.table(
        {
            "t": pa.array(micros).cast(pa.timestamp("us", "UTC")),
            "y": random.integers(0, 2, ROWS),
            "day": pa.array(micros).cast(pa.timestamp("us")).cast(pa.date32(), safe=False),
            "price": pa.array(prices, pa.decimal128(10, 2)),
        }
    )


def framed(spark: Any, table: pa.Table) -> Any:
    """By way of Python's values, so that no file decides what Spark sees."""
    return spark.createDataFrame(table.to_pylist(), FORM)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_times_dates_and_decimals_are_counted_as_one_process_does(spark: Any, zone: str) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    table = typed()
    df = framed(spark, table)
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        found = count(df, TYPED, tiny(epsilon=math.inf))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    expected = by_hand(table, found, TYPED, epsilon=math.inf)
    assert sum(window.rows for window in found.windows) == ROWS
    assert all(same(cells(w.arena), expected[w.start]) for w in found.windows)


def test_numbers_and_their_text_are_one_value(spark: Any, stand: Stand) -> None:
    schema = Schema(
        time="t",
        label=Label("y", classes=[0, 1]),
        features=[Categorical("id"), Categorical("known", domain=[1, 2]), Categorical("flag")],
    )
    store = stand.create(schema)
    random = np.random.default_rng(6)
    columns = {
        "t": (int(START) - 5 * int(DAY) + random.integers(0, int(DAY), ROWS)).tolist(),
        "y": random.integers(0, 2, ROWS).tolist(),
        "id": (700_000_000_000_000_000 + random.integers(0, 5, ROWS)).tolist(),
        "known": random.integers(1, 4, ROWS).tolist(),
        "flag": random.integers(0, 2, ROWS).astype(bool).tolist(),
    }
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    numbers = spark.createDataFrame(rows, "t long, y long, id long, known long, flag boolean")
    text = numbers.select(*(numbers[name].cast("string") for name in columns))
    assert count_into(text, store).rows == ROWS
    snapshot = store.snapshot()
    found = [featurize(df, snapshot, clock=now).toArrow() for df in (numbers, text)]
    assert found[0].equals(found[1])
    assert found[0].equals(snapshot.featurize(rows).replace_schema_metadata(None))


@pytest.mark.parametrize("kind", ["date", "timestamp_ntz", "decimal(20,6)"])
def test_event_times_may_be_of_any_type_of_time(spark: Any, kind: str) -> None:
    table, day = typed(), dt.date(1970, 1, 1)
    seconds = pc.divide(table["t"].cast(pa.int64()).cast(pa.float64()), 1e6)
    df = framed(spark, table).withColumn("t", _cast(kind))
    found = count(df, TYPED, tiny(epsilon=math.inf))
    expected = table
    if kind == "date":
        days = np.floor(np.asarray(seconds) / DAY).astype(int)
        times = pa.array([day + dt.timedelta(days=int(d)) for d in days])
        expected = table.set_column(0, "t", times)
    hand = by_hand(expected, found, TYPED, epsilon=math.inf)
    assert [window.start for window in found.windows] == sorted(hand)
    assert all(same(cells(w.arena), hand[w.start]) for w in found.windows)


def _cast(kind: str) -> Any:
    from pyspark.sql.functions import col

    return col("t").cast(kind)


def test_a_store_is_filled_and_rows_featurized_by_times_dates_and_decimals(
    spark: Any, stand: Stand
) -> None:
    store, table = stand.create(TYPED), typed()
    df = framed(spark, table)
    assert count_into(df, store).rows == ROWS
    snapshot = store.snapshot()
    features = featurize(df, snapshot, keep=["t"], clock=now).toArrow().sort_by("t")
    expected = snapshot.featurize(table.sort_by("t"))
    assert all(features[name].equals(expected[name]) for name in expected.column_names)
    training = training_set(df, store, clock=now).toArrow()
    assert training.num_rows == ROWS
    assert training["t"].cast(pa.timestamp("us", "UTC")).sort().equals(table["t"].sort())


def test_the_types_of_a_stream_are_judged_without_reading_it(spark: Any, stand: Stand) -> None:
    store, df = stand.create(TYPED), framed(spark, typed())
    count_into(df, store)
    arriving = stand.folder / "arriving"
    arriving.mkdir()
    source = spark.readStream.schema(FORM).parquet(str(arriving))
    assert featurize(source, store.snapshot(), clock=now).isStreaming
