"""Weights: read from a window that pays, combined over windows, and forgotten with them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyramidion import Categorical, Label, Pyramid, Schema
from pyramidion.privacy.budget import budget_of
from tests.store import inspect
from tests.store.stores import DAY, START, Stand, observed

SCHEMA = Schema(
    time="t",
    label=Label("y", classes=[0, 1]),
    features=[Categorical("rare"), Categorical("common")],
)
MUCH: dict[str, Any] = {"epsilon": 40.0, "weights_share": 0.25, "weights": "least-error"}


def batch(day: float, seed: int = 0, size: int = 4000) -> pa.Table:
    """Rows of which a rare value has about two, and a common one 40."""
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "t": np.full(size, START + day * DAY),
            "y": random.integers(0, 2, size),
            "rare": random.integers(0, size // 2, size),
            "common": random.integers(0, 100, size),
        }
    )


def at(stand: Stand, store: Pyramid, day: float) -> None:
    stand.clock.now = START + day * DAY
    store.advance()


def fed(stand: Stand, store: Pyramid, windows: int, first: int = 0) -> Pyramid:
    """Rows in the last days of windows; the next one is open at the end."""
    for number in range(first, first + windows):
        at(stand, store, 10.0 * number + 8)
        observed(store, batch(10.0 * number + 8, number))
        at(stand, store, 10.0 * number + 9.5)
    return store


def shares(store: Pyramid, window: int) -> dict[str, Fraction]:
    (report,) = (w for w in store.ledger.report().windows if w.number == window)
    tables = {line.purpose: line.amount for line in report.lines if line.kind == "table"}
    return {name: amount / report.budget for name, amount in tables.items()}


def test_tables_share_equally_until_something_was_read(stand: Stand) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH), 1)
    first = shares(store, 1)
    assert first["rare"] == first["common"] == (1 - Fraction(2, 100) - Fraction(1, 4)) / 2


def test_a_table_of_rare_values_has_more_from_the_next_window_on(stand: Stand) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH), 1)
    second = shares(store, 2)
    assert second["rare"] > 5 * second["common"] > 0
    assert sum(second.values()) == 1  # nothing is kept back where nothing is read


def test_the_window_that_was_read_pays_in_full(stand: Stand) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH), 1)
    first, second = store.ledger.report().windows
    assert first.used("weights") == budget_of(store.settings)[1] / 4
    why = [line.why for line in first.lines if line.kind == "spend"]
    assert why == ["quantiles of counts per key"]
    assert {line.kind for line in second.lines} == {"budget", "table"}


def test_half_gives_a_rare_table_more_and_no_table_less_than_half_of_an_equal_share(
    stand: Stand,
) -> None:
    more = [Categorical(f"common{i}") for i in range(3)]
    wider = Schema(time="t", label=SCHEMA.label, features=[*SCHEMA.features, *more])
    store = stand.create(wider, **MUCH | {"weights": "half"})
    at(stand, store, 8)
    rows = batch(8)
    for feature in more:
        rows = rows.append_column(feature.name, rows["common"])
    observed(store, rows)
    at(stand, store, 9.5)
    second = shares(store, 2)
    equal = (1 - second[""]) / 5
    assert second["rare"] > 2 * equal
    assert all(equal / 2 <= second[name] < equal for name in ("common", "common0"))


def test_half_of_two_tables_moves_nothing_as_one_cannot_gain_what_the_other_loses(
    stand: Stand,
) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH | {"weights": "half"}), 1)
    second = shares(store, 2)
    assert second["rare"] == second["common"]


@pytest.mark.parametrize(
    "given", [{"weights": "equal"}, {"weights_share": 0.0}, {"shares": {"rare": 2.0}}]
)
def test_nothing_is_read_where_nothing_is_wanted(stand: Stand, given: dict[str, Any]) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH | given), 1)
    assert inspect.readings(store).of("weights") == {}
    assert store.ledger.left(1, "weights") == 0


def test_the_smooth_quantile_is_read_and_charged_alike(stand: Stand) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH | {"quantiles": "smooth"}), 1)
    assert inspect.readings(store).of("weights")[1].keys() == {"rare", "common"}
    assert store.ledger.report().windows[0].used("weights") > 0
    assert store.ledger.left(1, "weights") == 0


def test_weights_are_read_from_one_window_in_so_many(stand: Stand) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH | {"weights_every": 2}), 5)
    assert list(inspect.readings(store).of("weights")) == [1, 3, 5]
    kept = {w.number for w in store.ledger.report().windows if w.used("weights")}
    assert kept == {1, 3, 5}


def test_readings_of_several_windows_are_combined_by_their_median(stand: Stand) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH | {"weights_every": 1}), 3)
    readings, wild = inspect.readings(store), {"rare": [10_000.0], "common": [1.0]}
    before = inspect.birth(store, 9).shares
    with inspect.catalogue(store).transaction():
        readings.learned(readings.add(4, "weights", wild))
    assert len(readings.of("weights")) == 4
    after = inspect.birth(store, 9).shares
    assert after["rare"] == pytest.approx(float(before["rare"]), rel=0.5)
    assert after["rare"] > after["common"]


def test_what_was_read_is_there_after_reopening(stand: Stand) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH), 1)
    known = inspect.readings(store).of("weights")
    again = stand.reopen()
    assert inspect.readings(again).of("weights") == known
    assert inspect.birth(again, 3).shares == inspect.birth(store, 3).shares


def test_what_was_read_is_forgotten_with_its_window(stand: Stand) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH), 2)
    at(stand, store, 49.0)
    assert list(inspect.readings(store).of("weights")) == [1]
    at(stand, store, 51.0)
    assert inspect.readings(store).of("weights") == {}
    assert inspect.catalogue(store).all("SELECT * FROM readings") == []
    after = inspect.birth(store, 9).shares
    assert after["rare"] == after["common"]


def test_a_group_that_is_new_has_a_usual_share(stand: Stand) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH), 1)
    store.groups.add(("rare", "common"))
    fed(stand, store, 1, first=1)
    third = shares(store, 3)
    assert third["rare"] > third["rare,common"] > third["common"]


def test_a_window_that_was_forgotten_is_not_read_though_its_rows_are_hot(stand: Stand) -> None:
    given = {"count_window": "10_000 rows", "retention": "10d", "hot_window": "7d"}
    store = stand.create(SCHEMA, **MUCH | given)
    for day in (0.0, 5.0, 9.5):
        at(stand, store, day)
        observed(store, batch(day, size=1500))
    at(stand, store, 10.5)
    assert [w.state for w in store.status().windows] == ["erased"]
    assert store.status().hot_rows == 3000
    observed(store, batch(10.5, size=1500))
    assert inspect.readings(store).of("weights") == {}
    assert store.ledger.report().windows[0].used("weights") == 0


def test_how_a_forgotten_window_shared_its_budget_is_forgotten_with_it(stand: Stand) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH), 2)
    before = {w.number: w.spent for w in store.ledger.report().windows}
    assert shares(store, 2).keys() == {"", "rare", "common"}
    at(stand, store, 61.0)
    second = next(w for w in store.ledger.report().windows if w.number == 2)
    assert second.spent == before[2]
    assert [line.purpose for line in second.lines if line.kind == "table"] == ["all tables"]
