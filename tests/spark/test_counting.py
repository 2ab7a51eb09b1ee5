"""Counting in Spark: cell by cell what the embedded store counts of the same rows."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyramidion import Categorical, Continuous, Label, Schema
from pyramidion.counts.arena import Arena
from pyramidion.counts.windows import Slots
from pyramidion.errors import ObservationError, PrivacyError, StateError
from pyramidion.spark import ParquetFiles, count, count_into, partials
from tests.campaign import examples
from tests.store import inspect
from tests.store.inspect import sealed
from tests.store.stores import DAY, SCHEMA, START, TIMELESS, Stand, cells, noise, rows, same, tiny

OFF = {"epsilon": math.inf}
WINDOWS = START - 30 * DAY  # three windows of ten days


def history(size: int = 400, days: float = 30, seed: int = 0) -> pa.Table:
    """Rows of the last days before the stand's clock, in no order."""
    random = np.random.default_rng(seed)
    return rows(size, START - days * DAY + random.random(size) * days * DAY, seed)


def frame(spark: Any, table: pa.Table, parts: int | None = None) -> Any:
    made = spark.createDataFrame(table)
    return made if parts is None else made.repartition(parts)


def by_hand(table: pa.Table, found: Any, schema: Schema, **knobs: Any) -> dict[int, Any]:
    """What one process counts of each window, under the same secret."""
    door, slots = found._door, Slots.of_windows(tiny(**knobs))
    observed = door.observations(table, "skip")
    assert slots is not None
    at = slots.all_at(observed.times)
    counted = {}
    for slot in np.unique(at).tolist():
        arena = Arena.exact(found.windows[0].arena.layout)
        arena.add(observed.take(np.flatnonzero(at == slot)))
        counted[slots.start(slot)] = cells(arena)
    return counted


# --- windows in memory ----------------------------------------------------------------------


def test_windows_are_cell_by_cell_those_of_one_process(spark: Any) -> None:
    table = history()
    found = count(frame(spark, table), SCHEMA, tiny(**OFF))
    expected = by_hand(table, found, SCHEMA, **OFF)
    assert [window.start for window in found.windows] == sorted(expected)
    assert len(expected) >= 3
    for window in found.windows:
        assert same(cells(window.arena), expected[window.start])
    assert sum(window.rows for window in found.windows) == 400


def test_parquet_files_that_executors_read_themselves_give_the_same_cells(
    spark: Any, tmp_path: Path
) -> None:
    table = history().append_column("other", pa.array(range(400)))
    for n in range(3):
        part = table.slice(n * 150, 150)
        pq.write_table(part, tmp_path / f"{n}.parquet", row_group_size=40)
    found = count(ParquetFiles(spark, tmp_path, rows=90), SCHEMA, tiny(**OFF))
    expected = by_hand(table, found, SCHEMA, **OFF)
    assert [window.start for window in found.windows] == sorted(expected)
    assert all(same(cells(w.arena), expected[w.start]) for w in found.windows)
    pq.write_table(table.drop_columns(["a"]), tmp_path / "none")
    with pytest.raises(ObservationError, match="column 'a' is missing"):
        count(ParquetFiles(spark, tmp_path / "none"), SCHEMA, tiny())
    with pytest.raises(ObservationError, match="cannot be read as Parquet"):
        ParquetFiles(spark, tmp_path / "nowhere")


SIGNED = Schema(
    time="t",
    label=Label("y", edges=[0.5, 1.5]),
    features=[Categorical("a"), Categorical("b"), Continuous("x", edges=[0.2, 0.6])],
    groups=[("a", "x")],
    weight="p",
)
VALUES = st.one_of(st.none(), st.text(max_size=3))
ROW = st.tuples(
    st.integers(0, 40),
    st.sampled_from([0.0, 1.0, 2.0]),
    VALUES,
    VALUES,
    st.one_of(st.none(), st.floats(-1, 1)),
    st.sampled_from([1.0, 0.5, 0.3, 0.01, 0.0]),
)


@settings(max_examples=examples(4, 20))
@given(st.lists(ROW, min_size=1, max_size=30), st.integers(1, 3), st.sampled_from([1, 1 << 30]))
def test_any_rows_in_any_parts_give_the_cells_of_one_process(
    spark: Any, given_rows: list[Any], parts: int, held: int
) -> None:
    """With signs, weights, missing values and bad rows, and tables handed on at every turn."""
    columns = list(zip(*given_rows, strict=True))
    kinds = [pa.float64(), pa.float64(), pa.string(), pa.string(), pa.float64(), pa.float64()]
    table = pa.table(
        [pa.array(c, k) for c, k in zip(columns, kinds, strict=True)],
        names=["t", "y", "a", "b", "x", "p"],
    )
    table = table.set_column(0, "t", pa.array(START - np.array(columns[0]) * DAY))
    knobs = {**OFF, "sketch": "count-median", "p_min": 0.1, "weight_unit": 4}
    bad = sum(row[-1] == 0.0 for row in given_rows)
    before, partials.HELD = partials.HELD, held
    try:
        if bad == len(given_rows):
            with pytest.raises(ObservationError, match="no row to count"):
                count(frame(spark, table, parts), SIGNED, tiny(**knobs), errors="skip")
            return
        found = count(frame(spark, table, parts), SIGNED, tiny(**knobs), errors="skip")
    finally:
        partials.HELD = before
    assert found.refused == bad
    expected = by_hand(table, found, SIGNED, **knobs)
    assert {w.start: w.rows for w in found.windows}.keys() == expected.keys()
    assert all(same(cells(w.arena), expected[w.start]) for w in found.windows)


def test_a_schema_without_a_time_makes_one_window(spark: Any) -> None:
    table = history().drop_columns(["t"])
    found = count(frame(spark, table), TIMELESS, tiny(**OFF))
    (window,) = found.windows
    assert (window.rows, window.start) == (400, None)
    assert found.snapshot().rows == 400


def test_each_window_has_noise_of_its_own(spark: Any) -> None:
    table = history(60, days=20)
    found = count(frame(spark, table), SCHEMA, tiny(epsilon=1.0))
    exact = by_hand(table, found, SCHEMA)
    residues = [
        np.concatenate([cells(w.arena)[n] - exact[w.start][n] for n in exact[w.start]])
        for w in found.windows
    ]
    assert all(np.abs(residue).mean() > 1 for residue in residues)
    assert abs(np.corrcoef(residues[0], residues[1])[0, 1]) < 0.5
    assert found.guarantee.epsilon == 1.0


# --- windows of a store ------------------------------------------------------------------------


def test_a_history_becomes_sealed_windows_of_a_store(spark: Any, stand: Stand) -> None:
    store, table = stand.create(**OFF), history(days=25)
    done = count_into(frame(spark, table), store)
    times = np.asarray(table["t"])
    assert done.rows == store.snapshot().rows == 400
    assert [w.start for w in done.windows] == sorted(w.start for w in done.windows)
    for window in done.windows:
        mask = (times * 1e6 >= window.start) & (times * 1e6 < window.stop)
        assert same(
            noise(store, sealed(store, window.window), [table.filter(pa.array(mask))]),
            {n: c * 0 for n, c in cells(sealed(store, window.window)).items()},
        )
    store = stand.reopen()
    assert store.snapshot().rows == 400
    assert store.admin.verify() == []


def test_a_store_filled_by_spark_featurizes_as_one_that_replayed(
    spark: Any, stand: Stand, tmp_path: Path
) -> None:
    """The secret differs, so do the buckets; with one value to a bucket the features do not."""
    table = history(300, days=20)
    schema = Schema(
        time="t",
        label=Label("y", classes=[0, 1]),
        features=[Categorical("b", domain=["x", "y"])],
    )
    bulk = stand.create(schema, **OFF)
    count_into(frame(spark, table), bulk)
    other = Stand(tmp_path)
    other.clock.now = START - 20 * DAY
    replayed = other.create(schema, **OFF)
    order = np.argsort(np.asarray(table["t"]), kind="stable")
    for piece in np.array_split(order, 40):
        batch = table.take(pa.array(piece))
        other.clock.now = float(np.asarray(batch["t"]).max())
        replayed.observe(batch)
    other.clock.now = START
    replayed.advance()
    assert bulk.featurize(table).equals(replayed.featurize(table))
    other.close()


def test_the_charge_is_durable_before_the_noise_is_drawn(
    spark: Any, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyramidion.privacy.table_noise import TableDesign

    store, born = stand.create(), list[int]()
    real = TableDesign.arena

    def arena(self: TableDesign, *given: Any) -> Arena:
        window = inspect.table_sets(store).next_window() - 1
        paid = sum(
            line.amount for line in inspect.catalogue(store).lines(window) if line.kind == "table"
        )
        assert paid > 0
        born.append(window)
        return real(self, *given)

    monkeypatch.setattr(TableDesign, "arena", arena)
    done = count_into(frame(spark, history(60, days=20)), store)
    assert born == [window.window for window in done.windows]
    report = {window.number: window for window in store.ledger.report().windows}
    for window in done.windows:
        assert report[window.window].epsilon <= 1.0


def test_a_windows_whole_budget_goes_to_its_tables_but_for_a_rebuild(
    spark: Any, stand: Stand
) -> None:
    store = stand.create(weights_share=0.1, rebuild_share=0.2)
    done = count_into(frame(spark, history(60, days=9)), store)
    lines = inspect.catalogue(store).lines(done.windows[0].window)
    budget = sum(line.amount for line in lines if line.kind == "budget")
    assert sum(ln.amount for ln in lines if ln.kind == "table") == budget * 4 / 5
    assert {line.purpose for line in lines if line.kind == "reserve"} == {"rebuild"}


def test_windows_counted_in_bulk_stand_beside_the_nodes_of_a_tree(spark: Any, stand: Stand) -> None:
    store = stand.create(windows="tree", tree_radix=2, tree_depth=2, **OFF)
    store.observe(rows(20))
    count_into(frame(spark, history(100, days=20)), store)
    stand.clock.pass_(10 * DAY)
    store.advance()
    assert store.snapshot().rows == 120
    assert store.admin.verify() == []


# --- each row once -----------------------------------------------------------------------------


def test_the_same_history_is_refused_without_its_key_and_counted_once_with_it(
    spark: Any, stand: Stand
) -> None:
    store, df = stand.create(), frame(spark, history(80, days=20)).cache()
    first = count_into(df, store, key="2024")
    before = [cells(sealed(store, w.window)) for w in first.windows]
    again = count_into(df, store, key="2024")
    assert (again.rows, again.before) == (0, 80)
    with pytest.raises(StateError, match=r"has a window from .* already"):
        count_into(df, store)
    with pytest.raises(StateError, match="give the same rows"):
        count_into(df.limit(79), store, key="2024")
    assert store.snapshot().rows == 80
    after = [cells(sealed(store, w.window)) for w in first.windows]
    assert all(same(a, b) for a, b in zip(before, after, strict=True))
    df.unpersist()


def test_rows_that_are_no_history_are_refused_before_anything_is_charged(
    spark: Any, stand: Stand
) -> None:
    store = stand.create()
    for when, why in ((START - 100 * DAY, "past its retention"), (START + 60, "is not over")):
        with pytest.raises(StateError, match=why):
            count_into(frame(spark, rows(5, when)), store)
    assert store.ledger.report().windows == ()


def test_bad_rows_refuse_all_or_are_left_out_and_told(spark: Any, stand: Stand) -> None:
    table = history(50, days=9).append_column("z", pa.array(range(50)))
    labels = pa.array([7 if z < 3 else 0 for z in range(50)])
    table = table.set_column(table.schema.get_field_index("y"), "y", labels)
    store = stand.create(**OFF)
    with pytest.raises(ObservationError, match=r"3 rows cannot be counted \(3 times: column 'y' "):
        count_into(frame(spark, table), store)
    assert store.ledger.report().windows == ()
    done = count_into(frame(spark, table), store, errors="skip")
    assert (done.rows, done.refused, sum(done.problems.values())) == (47, 3, 3)


# --- what is asked ------------------------------------------------------------------------------


def test_people_cannot_be_limited_in_bulk(spark: Any) -> None:
    schema = Schema(time="t", label=SCHEMA.label, features=SCHEMA.features, unit="b")
    with pytest.raises(PrivacyError, match="never are; replay"):
        count(frame(spark, rows(3)), schema, tiny())


def test_a_type_that_cannot_be_counted_is_refused_without_a_job(spark: Any) -> None:
    table = rows(3).set_column(2, "a", pa.array([[1], [2], [3]]))
    with pytest.raises(ObservationError, match="column 'a'"):
        count(spark.createDataFrame(table), SCHEMA, tiny())
    with pytest.raises(ObservationError, match="column 'a' is missing"):
        count(spark.createDataFrame(rows(3).drop_columns(["a"])), SCHEMA, tiny())


def test_no_shuffle_file_is_left_behind(spark: Any, stand: Stand, local_dir: Path) -> None:
    """Neither where all went well, nor where the rows were refused."""

    def files() -> set[Path]:
        return {file for file in local_dir.rglob("shuffle_*") if file.is_file()}

    df = spark.createDataFrame(history(60, days=9))
    before, during = files(), set[Path]()
    real = partials.facts_of

    def facts(told: Any) -> Any:
        during.update(files() - before)
        return real(told)

    from pyramidion.spark import shuffle

    shuffle.facts_of, kept = facts, shuffle.facts_of
    try:
        count_into(df, stand.create())
        with pytest.raises(ObservationError):
            count(df.selectExpr("t", "9 AS y", "a", "b"), SCHEMA, tiny())
    finally:
        shuffle.facts_of = kept
    assert during
    assert files() <= before  # those of other tests are Spark's to remove, when it sees fit


def test_second_attempt_of_a_task_changes_no_cell(spark: Any, tmp_path: Path) -> None:
    table = history(60, days=9)
    failed = tmp_path / "failed"

    def rows_of(batches: Any) -> Any:
        """All rows of both tasks; one of them then fails, and is run again."""
        for batch in batches:
            for number in batch["id"].to_pylist():
                yield from table.slice(30 * number, 30).to_batches()
                if number == 1 and not failed.exists():
                    failed.touch()
                    raise RuntimeError("the first attempt")

    df = spark.range(0, 2, 1, 2).mapInArrow(rows_of, "t double, y long, a string, b string")
    found = count(df, SCHEMA, tiny(**OFF))
    assert failed.exists()
    expected = by_hand(table, found, SCHEMA, **OFF)
    assert {window.start for window in found.windows} == set(expected)
    for window in found.windows:
        assert same(cells(window.arena), expected[window.start])


def test_a_task_that_fails_leaves_no_shuffle_file_of_those_that_did_not(
    spark: Any, local_dir: Path
) -> None:
    """With adaptive planning on, as it is by default; and on again afterwards."""
    table, before = history(60, days=9), set(local_dir.rglob("shuffle_*.data"))

    def rows_of(batches: Any) -> Any:
        for batch in batches:
            yield from table.to_batches()
            if 1 in batch["id"].to_pylist():
                for _ in range(3_000):
                    if set(local_dir.rglob("shuffle_*.data")) - before:
                        raise RuntimeError("another task has written")
                    time.sleep(0.1)

    df = spark.range(0, 2, 1, 2).mapInArrow(rows_of, "t double, y long, a string, b string")
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    with pytest.raises(Exception, match="another task has written"):
        count(df, SCHEMA, tiny())
    assert set(local_dir.rglob("shuffle_*.data")) <= before
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"


def test_shuffle_files_hold_no_key_as_it_is_counted(
    spark: Any, local_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies on the disk meanwhile is encrypted: no zstd frame of packed cells is seen."""
    from pyramidion.spark import shuffle

    seen: list[bytes] = []
    real = shuffle.Shuffle.of

    def of(self: Any, slot: int) -> Any:
        seen.extend(f.read_bytes() for f in local_dir.rglob("shuffle_*.data"))
        return real(self, slot)

    monkeypatch.setattr(shuffle.Shuffle, "of", of)
    count(frame(spark, history(60, days=9)), SCHEMA, tiny())
    assert seen
    assert any(len(data) > 100 for data in seen)
    assert not any(b"\x28\xb5\x2f\xfd" in data for data in seen)
