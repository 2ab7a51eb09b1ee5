"""Features in Spark: those of the snapshot itself, and for each row those of its past."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyramidion.errors import ExpiredError, ObservationError, SchemaError, StateError
from pyramidion.spark import count_into, featurize, training_set
from tests.spark.test_counting import frame, history
from tests.store.stores import DAY, START, TIMELESS, Stand, rows

NOW = START + 1


def start() -> float:
    """The stand's clock, on executors."""
    return NOW


def later() -> float:
    """When every window of the stand is past its retention."""
    return START + 60 * DAY


class Passing:
    """A clock that shows one time in the driver, and another one on executors."""

    def __init__(self, here: float, there: float) -> None:
        self.here, self.there = here, there

    def __call__(self) -> float:
        return self.here

    def __getstate__(self) -> dict[str, float]:
        return {"here": self.there, "there": self.there}


def ordered(table: pa.Table) -> pa.Table:
    return table.sort_by("n").drop_columns(["n"])


def test_features_are_those_of_the_snapshot_and_columns_may_be_kept(
    spark: Any, stand: Stand
) -> None:
    store = stand.create()
    table = history(200, days=20).append_column("n", pa.array(range(200)))
    count_into(frame(spark, table), store)
    snapshot = store.snapshot()
    made = featurize(frame(spark, table, 3), snapshot, keep=["n", "b"], clock=start)
    assert made.columns == ["n", "b", *snapshot.names]
    found = ordered(made.toArrow())
    assert found.drop_columns(["b"]).equals(
        snapshot.featurize(table).replace_schema_metadata(None).cast(found.schema.remove(0))
    )
    assert found["b"].equals(table["b"])


def test_an_expired_snapshot_refuses_at_once_and_on_executors(spark: Any, stand: Stand) -> None:
    store, df = stand.create(), frame(spark, history(60, days=9))
    count_into(df, store)
    snapshot = store.snapshot()
    with pytest.raises(ExpiredError, match="past its retention"):
        featurize(df, snapshot, clock=later)
    with pytest.raises(Exception, match="this snapshot has expired"):
        featurize(df, snapshot, clock=Passing(START, START + 60 * DAY)).toArrow()
    snapshot.expire("the test says so")
    with pytest.raises(ExpiredError, match="the test says so"):
        featurize(df, snapshot, clock=start)


def test_what_cannot_be_featurized_is_refused_before_a_job_begins(spark: Any, stand: Stand) -> None:
    store, df = stand.create(), frame(spark, history(60, days=9))
    count_into(df, store)
    with pytest.raises(ObservationError, match="column 'b' is missing"):
        featurize(df.drop("b"), store.snapshot(), clock=start)
    name = store.snapshot().names[0]
    with pytest.raises(SchemaError, match="rename it first"):
        featurize(df.withColumnRenamed("t", name), store.snapshot(), keep=[name], clock=start)


# --- each row from its past ------------------------------------------------------------------


def test_a_training_row_has_the_features_of_the_windows_that_ended_before_its_own(
    spark: Any, stand: Stand
) -> None:
    store = stand.create()
    table = history(300, days=30).append_column("n", pa.array(range(300)))
    done = count_into(frame(spark, table), store)
    made = training_set(frame(spark, table, 2), store, keep=["n"], clock=start)
    assert made.columns[:3] == ["t", "y", "n"]
    found = ordered(made.toArrow())
    assert found["t"].equals(table["t"])
    assert found["y"].equals(table["y"])
    micros = np.asarray(table["t"]) * 1e6
    length = done.windows[0].stop - done.windows[0].start
    seen = 0
    for start_of in sorted({w.start for w in done.windows} | {w.stop for w in done.windows}):
        mask = (micros >= start_of) & (micros < start_of + length)
        some = np.flatnonzero(mask)
        features = found.select(found.column_names[2:]).take(pa.array(some))
        if not any(w.stop <= start_of for w in done.windows):
            assert all(column.null_count == len(column) for column in features.columns)
        elif some.size:
            past = store.as_of(start_of / 1e6)
            assert past.rows == sum(w.rows for w in done.windows if w.stop <= start_of)
            expected = past.featurize(table.take(pa.array(some)))
            for name in expected.column_names:
                assert np.array_equal(features[name], expected[name])
            seen += 1
    assert seen >= 2


def test_without_times_or_a_past_there_is_no_training_set(spark: Any, stand: Stand) -> None:
    store, df = stand.create(), frame(spark, history(40, days=9))
    count_into(df, store)
    first = frame(spark, rows(5, START - 30 * DAY))
    with pytest.raises(StateError, match="before its own"):
        training_set(first, store, clock=start)
    stand.close()
    other = Stand(stand.folder / "other")
    try:
        with pytest.raises(StateError, match="names a time"):
            training_set(df, other.create(TIMELESS), clock=start)
    finally:
        other.close()


def test_tables_as_of_a_moment_grow_window_by_window_and_expire(spark: Any, stand: Stand) -> None:
    store = stand.create()
    done = count_into(frame(spark, history(100, days=20)), store)
    total = 0
    for window in done.windows:
        total += window.rows
        assert store.as_of(window.stop / 1e6).rows == total
    with pytest.raises(StateError, match="ask for a later moment"):
        store.as_of(START - 60 * DAY)
    kept = store.as_of(START)
    stand.clock.pass_(45 * DAY)
    store.advance()
    with pytest.raises(ExpiredError):
        kept.featurize(rows(2))
