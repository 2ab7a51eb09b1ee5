"""Private bin edges: read from a window that pays, used from the next one on, and replaced."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyramidion import Categorical, Continuous, Label, Pyramid, Schema, SchemaError
from pyramidion.counts.layout import read_from
from pyramidion.privacy.budget import budget_of
from tests.store import inspect
from tests.store.inspect import populating, sealed
from tests.store.stores import DAY, START, Stand, cells, exact, noise, observed

SCHEMA = Schema(
    time="t",
    label=Label("y", classes=[0, 1]),
    features=[Categorical("a"), Continuous("x", bins=4, bounds=(0, 1000))],
    groups=[("a", "x")],
)
NUMBER = Schema(time="t", label=Label("y", bins=4, bounds=(0, 1000)), features=[Categorical("a")])
MUCH: dict[str, Any] = {"epsilon": 40.0, "bins_share": 0.2}


def batch(size: int, day: float, seed: int = 0, scale: float = 20.0) -> pa.Table:
    """Rows whose numbers are mostly small."""
    random = np.random.default_rng(seed)
    x = np.minimum(random.exponential(scale, size), 999.0)
    y = random.integers(0, 2, size)
    return pa.table(
        {"t": np.full(size, START + day * DAY), "y": y, "a": (x * 3 % 7).astype(int), "x": x}
    )


def numbers(size: int, day: float, seed: int = 0) -> pa.Table:
    found = batch(size, day, seed)
    return pa.table({"t": found["t"], "y": found["x"], "a": found["a"]})


def at(stand: Stand, store: Pyramid, day: float) -> None:
    stand.clock.now = START + day * DAY
    store.advance()


def fed(stand: Stand, store: Pyramid, day: float, table: pa.Table) -> pa.Table:
    at(stand, store, day)
    observed(store, table)
    return table


def read_once(stand: Stand, make: Any = batch, schema: Schema = SCHEMA, **given: Any) -> Pyramid:
    """A store whose first window was read, and whose second one is open."""
    store = stand.create(schema, **MUCH | given)
    fed(stand, store, 8.0, make(2000, 8.0))
    at(stand, store, 9.5)
    return store


def tables(store: Pyramid) -> list[str]:
    return [table.name for table in store.status().tables]


# --- reading ------------------------------------------------------------------------------


def test_bins_are_even_until_they_were_read(stand: Stand) -> None:
    store = stand.create(SCHEMA, **MUCH)
    fed(stand, store, 8.0, batch(2000, 8.0))
    assert set(cells(populating(store))) == {"", "a", "x", "a,x"}


def test_the_next_window_has_tables_in_bins_of_equally_many_values(stand: Stand) -> None:
    store = read_once(stand)
    assert set(cells(populating(store, 2))) == {"", "a", "x@1", "a,x@1"}
    x = batch(2000, 8.0)["x"].to_numpy()
    read = inspect.door(store).encoder.schema.feature("x").cuts  # type: ignore[union-attr]
    shares = np.diff([0, *(np.mean(x < cut) for cut in read), 1])
    assert shares == pytest.approx(0.25, abs=0.05)


def test_the_window_that_was_read_pays_in_full_and_no_other_does(stand: Stand) -> None:
    store = read_once(stand)
    first, second = store.ledger.report().windows
    _, budget = budget_of(store.settings)
    assert first.used("bins") == budget * Fraction(1, 5)
    assert [line.why for line in first.lines if line.kind == "spend"] == ["bin edges"]
    assert {line.kind for line in second.lines} == {"budget", "table"}


def test_a_window_that_is_not_read_keeps_nothing_back(stand: Stand) -> None:
    store = read_once(stand)
    assert store.ledger.left(2, "bins") == 0
    assert store.ledger.spent(2) == store.ledger.report().windows[1].budget


def test_too_few_rows_are_not_read_and_the_next_window_keeps_back_again(stand: Stand) -> None:
    store = stand.create(SCHEMA, **MUCH)
    fed(stand, store, 8.0, batch(999, 8.0))
    at(stand, store, 9.5)
    assert set(cells(populating(store, 2))) == {"", "a", "x", "a,x"}
    assert store.ledger.left(1, "bins") == store.ledger.left(2, "bins") > 0


def test_without_a_share_bins_stay_even(stand: Stand) -> None:
    store = read_once(stand, bins_share=0.0)
    assert set(cells(populating(store, 2))) == {"", "a", "x", "a,x"}


def test_without_privacy_bins_are_read_too(stand: Stand) -> None:
    store = read_once(stand, epsilon=math.inf)
    assert "x@1" in cells(populating(store, 2))


def test_what_was_read_is_there_after_reopening(stand: Stand) -> None:
    store = read_once(stand)
    cuts = inspect.readings(store).cuts(1)
    again = stand.reopen()
    assert inspect.readings(again).cuts(1) == cuts
    assert set(cells(populating(again, 2))) == {"", "a", "x@1", "a,x@1"}
    assert inspect.door(again).encoder.shapes == inspect.door(store).encoder.shapes


def test_what_was_read_is_not_readable_in_the_catalogue(stand: Stand) -> None:
    store = read_once(stand)
    edges = inspect.readings(store).cuts(1).edges["x"]
    (row,) = inspect.catalogue(store).all("SELECT sealed FROM readings")
    assert not any(str(edge).encode() in row["sealed"] for edge in edges)


def test_hot_rows_that_cannot_be_read_stop_no_new_window(stand: Stand) -> None:
    store = stand.create(SCHEMA, **MUCH)
    fed(stand, store, 8.0, batch(2000, 8.0))
    (file,) = (stand.path / "hot").iterdir()
    file.write_bytes(bytes(file.stat().st_size))
    at(stand, store, 9.5)
    assert "x" in cells(populating(store, 2))
    assert store.ledger.left(1, "bins") > 0  # nothing was read, so nothing was charged
    assert store.ledger.left(2, "bins") > 0


# --- counting, serving, replacing -----------------------------------------------------------


def three_windows(stand: Stand, make: Any = batch, schema: Schema = SCHEMA, **given: Any) -> Any:
    """A store with three sealed windows: 2000 rows in even bins, 500 and 600 in those read."""
    store = stand.create(schema, **MUCH | given)
    batches = []
    for number, (day, size) in enumerate([(8.0, 2000), (18.0, 500), (28.0, 600)]):
        batches.append(fed(stand, store, day, make(size, day, number)))
        at(stand, store, day + 1.5)
        at(stand, store, day + 2.5)
        yield store, batches


def test_every_row_is_counted_in_the_bins_of_its_window(stand: Stand) -> None:
    for store, batches in three_windows(stand, epsilon=math.inf):
        number = len(batches)
        if number == 2:
            arena = sealed(store, 2)
            assert set(arena.layout.index) == {"", "a", "x@1", "a,x@1"}
            assert not any(found.any() for found in noise(store, arena, batches[-1:]).values())


def test_old_tables_serve_until_new_ones_count_half_as_many_rows(stand: Stand) -> None:
    told = []
    for store, batches in three_windows(stand, epsilon=math.inf):
        names, row = tables(store), {"a": 3, "x": 5.0}
        counted = sum(len(b) for b in batches)
        served = store.snapshot()
        assert served.featurize_one(row).shape == (4,)
        cuts = served.encoder.schema.feature("x").cuts  # type: ignore[union-attr]
        told.append((counted, "x" in names, "x@1" in names, cuts == (250.0, 500.0, 750.0)))
    assert told == [
        (2000, True, False, True),
        (2500, True, True, True),
        (3100, False, True, False),
    ]


def test_old_tables_are_erased_from_every_window_once_new_ones_serve(stand: Stand) -> None:
    *_, (store, _) = three_windows(stand)
    assert set(cells(sealed(store, 1))) == {"", "a"}
    assert set(cells(sealed(store, 2))) == {"", "a", "x@1", "a,x@1"}
    again = stand.reopen()
    assert set(tables(again)) == {"", "a", "x@1", "a,x@1"}


def test_tables_without_such_bins_are_left_as_they_were(stand: Stand) -> None:
    before: dict[str, Any] = {}
    for store, batches in three_windows(stand):
        if len(batches) == 1:
            before = cells(sealed(store, 1))
    after = cells(sealed(store, 1))
    assert all((after[name] == before[name]).all() for name in ("", "a"))


def test_training_rows_are_taken_off_in_the_bins_that_are_served(stand: Stand) -> None:
    hot = {"epsilon": math.inf, "hot_window": "40d", "hot_step": "1d"}
    for store, batches in three_windows(stand, **hot):
        X, y = store.training_set()
        assert X.shape == (sum(len(b) for b in batches), 4)
        assert len(y) == len(X)
        assert np.isfinite(X).all()


def test_edges_are_forgotten_with_the_window_they_were_read_from(stand: Stand) -> None:
    store = read_once(stand)
    fed(stand, store, 11.0, batch(100, 11.0, 1))
    at(stand, store, 49.0)
    assert "x@1" in tables(store)
    at(stand, store, 51.0)  # the first window is past its retention, the second is not
    assert inspect.readings(store).of("bins") == {}
    assert set(tables(store)) == {"", "a"}
    assert inspect.catalogue(store).all("SELECT * FROM readings") == []
    fed(stand, store, 52.0, batch(10, 52.0, 2))
    assert "x" in cells(populating(store))


def test_edges_are_read_again_before_their_window_is_forgotten(stand: Stand) -> None:
    store = stand.create(SCHEMA, **MUCH)
    reads = set()
    for number in range(9):
        day = 10.0 * number + 8
        fed(stand, store, day, batch(1200, day, number))
        at(stand, store, day + 1.5)
        reads |= set(inspect.readings(store).of("bins"))
        if number > 2:
            assert any(map(read_from, tables(store)))
    assert reads == {1, 3, 5, 7, 9}


# --- labels ---------------------------------------------------------------------------------


def test_the_bins_of_a_label_are_read_too_and_start_all_tables_anew(stand: Stand) -> None:
    store = read_once(stand, numbers, NUMBER)
    assert set(cells(populating(store, 2))) == {"@1", "a@1"}
    (label,) = inspect.door(store).encoder.schema.labels
    y = numbers(2000, 8.0)["y"].to_numpy()
    shares = np.diff([0, *(np.mean(y < edge) for edge in label.edges or ()), 1])
    assert shares == pytest.approx(0.25, abs=0.05)


def test_rows_are_counted_under_the_label_bins_of_their_window(stand: Stand) -> None:
    for store, batches in three_windows(stand, numbers, NUMBER, epsilon=math.inf):
        if len(batches) == 2:
            arena = sealed(store, 2)
            assert not any(found.any() for found in noise(store, arena, batches[-1:]).values())
            label = inspect.encoder(store, arena).schema.labels[0]
            y = batches[-1]["y"].to_numpy()
            bins = np.bincount(np.searchsorted(label.edges or (), y, side="right"), minlength=4)
            assert (cells(arena)["@1"] == bins).all()
            assert bins.min() > 60
    assert set(tables(store)) == {"@1", "a@1"}
    assert store.status().summarised_rows == 1100


def test_a_label_in_private_bins_is_predicted_as_a_number(stand: Stand) -> None:
    hot = {"hot_window": "40d", "hot_step": "1d"}
    for store, batches in three_windows(stand, numbers, NUMBER, **hot):
        X, y = store.training_set()
        assert len(X) == len(y) == sum(len(b) for b in batches)
        assert y[-1] == batches[-1]["y"][-1].as_py()
        assert any(name.startswith("E(y|a)") for name in store.snapshot().names)


def test_bins_that_move_cannot_be_merged_by_name(stand: Stand) -> None:
    store = read_once(stand, numbers, NUMBER)
    at(stand, store, 10.5)
    with pytest.raises(SchemaError, match="bins of label 'y' are read from rows and move"):
        store.training_set(merge={"low": ["<250", "250..500"]})


# --- exact twin -----------------------------------------------------------------------------


def test_noise_of_a_window_in_read_bins_is_as_that_of_any_window(stand: Stand) -> None:
    store = read_once(stand, epsilon=1.0)
    fed(stand, store, 11.0, batch(400, 11.0, 1))
    arena = populating(store, 2)
    counts = exact(store, arena, [batch(400, 11.0, 1)])
    assert counts["x@1"].sum() == 400
    assert inspect.birth(store, 2).layout.tables[2].variance > 0


def test_what_was_read_of_a_feature_is_withdrawn_with_it(stand: Stand) -> None:
    store = read_once(stand, weights_share=0.1)
    readings = inspect.readings(store)
    keys = {reading.key.id for reading in readings._kept.values()}
    assert readings.of("bins")[1].keys() == {"x"}
    assert readings.of("weights")[1].keys() == {"a", "x", "a,x"}
    store.groups.withdraw("x", why="a test")
    for each in (store, None):
        each = each or stand.reopen()
        readings = inspect.readings(each)
        assert readings.of("bins") == {}
        assert readings.of("weights")[1].keys() == {"a"}
        left = {row["id"] for row in inspect.catalogue(each).all("SELECT id FROM keys")}
        assert not keys & left
    assert set(cells(populating(each, 2))) == {"", "a"}


def test_a_damaged_window_does_not_keep_bins_beyond_their_time(stand: Stand) -> None:
    store = stand.create(SCHEMA, **MUCH)
    for number in range(3):
        day = 10.0 * number + 8
        fed(stand, store, day, batch(1200, day, number))
        at(stand, store, day + 1.5)
    at(stand, store, 31.0)
    third = inspect.table_files(store).windows()[-1]
    assert third["window"] == 3
    file = stand.path / "tables" / third["file"]
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    at(stand, store, 51.0)
    assert 1 not in inspect.readings(store).of("bins")
    states = {w.number: w.state for w in store.status().windows}
    assert states.get(1, "erased") == "erased"
    assert not any(read_from(name) == 1 for name in tables(store))


def test_a_damaged_window_keeps_old_bins_until_it_is_mended(stand: Stand) -> None:
    store = stand.create(SCHEMA, **MUCH)
    for number, size in enumerate((2000, 500, 600)):
        day = 10.0 * number + 8
        fed(stand, store, day, batch(size, day, number))
        at(stand, store, day + 1.5)
        if number == 1:
            (first,) = inspect.table_files(store).windows()
            file = stand.path / "tables" / first["file"]
            good = file.read_bytes()
            file.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    at(stand, store, 30.5)
    assert {"x", "x@1"} <= set(tables(store))
    file.write_bytes(good)
    at(stand, store, 31.0)
    assert set(tables(store)) == {"", "a", "x@1", "a,x@1"}
