"""Groups that begin late: each table has its own windows and its own noise."""

from __future__ import annotations

import numpy as np
import pytest

from pyramidion import Pyramid, Schema
from pyramidion.counts.arena import Arena
from pyramidion.counts.estimates import Estimates
from pyramidion.counts.snapshot import Snapshot
from pyramidion.errors import SchemaError
from pyramidion.rows.observations import Door
from pyramidion.store.snapshots import snapshot
from tests.store import inspect
from tests.store.inspect import populating, sealed
from tests.store.stores import DAY, HOUR, SCHEMA, Stand, cells, exact, observed, rows, same

ALONE = Schema(time="t", label=SCHEMA.label, features=SCHEMA.features)


def rolled(stand: Stand, store: Pyramid, windows: int = 1, size: int = 40) -> Pyramid:
    """Fill and seal some windows."""
    for _ in range(windows):
        observed(store, rows(size, stand.clock.now, seed=int(stand.clock.now)))
        stand.clock.pass_(10 * DAY)
        store.advance()
    return store


def windows_of(store: Pyramid) -> dict[str, int]:
    return {table.name: table.windows for table in store.status().tables}


# --- groups that begin late -------------------------------------------------------------


def test_a_group_begins_with_the_next_window_that_is_not_open(stand: Stand) -> None:
    store = stand.create(ALONE)
    observed(store, rows(5))
    store.groups.add(["a", "b"])
    observed(store, rows(5))
    assert "a,b" not in cells(populating(store))
    stand.clock.pass_(10 * DAY)
    observed(store, rows(5, stand.clock.now))
    store.advance()
    assert "a,b" not in cells(sealed(store, 1))
    assert "a,b" in cells(populating(store))


def test_a_group_added_while_the_next_window_is_prepared_begins_after_it(stand: Stand) -> None:
    store = stand.create(ALONE)
    stand.clock.pass_(9.5 * DAY)
    observed(store, rows(5, stand.clock.now))
    assert set(inspect.windows(store)) == {1, 2}
    store.groups.add(["a", "b"])
    stand.clock.pass_(0.5 * DAY)
    rolled(stand, store, 2)
    assert "a,b" not in cells(sealed(store, 2))
    assert "a,b" in cells(sealed(store, 3))


def test_a_group_has_windows_and_noise_of_its_own(stand: Stand) -> None:
    store = rolled(stand, stand.create(ALONE), 2)
    store.groups.add(["a", "b"])
    rolled(stand, store, 2)
    assert windows_of(store) == {"": 4, "a": 4, "b": 4, "a,b": 2}
    one = {table.name: table.variance for table in sealed(store, 4).layout.tables}
    deviations = {table.name: table.deviation for table in store.status().tables}
    assert deviations["a,b"] == pytest.approx((2 * one["a,b"]) ** 0.5)
    before = {table.name: table.variance for table in sealed(store, 1).layout.tables}
    assert deviations["a"] == pytest.approx((2 * before["a"] + 2 * one["a"]) ** 0.5)
    assert one["a"] > before["a"]  # three tables share what two had
    assert store.snapshot().guarantee.windows == 4


def test_estimates_of_a_late_group_know_its_own_windows_alone(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = rolled(stand, stand.create(ALONE), 2)
    store.groups.add(["a", "b"])
    rolled(stand, store, 2)
    # The prior is over all windows; the same one for both, so that only the table differs.
    monkeypatch.setattr(Estimates, "_prior", lambda _: np.array([0.5, 0.5]))
    whole = snapshot(inspect.parts(store).lifecycle)
    parts = Arena.total([sealed(store, 3), sealed(store, 4)])
    door = Door(store.schema.only(parts.layout.index), store.settings, inspect.secret(store))
    alone = Snapshot(door, parts, whole.guarantee)
    table = parts.layout.index["a,b"]
    assert whole._arena.layout.index["a,b"] == table
    for name in ("deviations", "shift", "_scatter"):
        found, expected = getattr(whole.estimates, name), getattr(alone.estimates, name)
        assert (found[table] == expected[table]).all()
    assert (whole.estimates.spread[1] != alone.estimates.spread[1]).any()  # parts have all windows
    keys = whole._door.rows(rows(30)).keys(table - 1, 0, 30)
    counts, expected = (each.estimates.counts(table, keys) for each in (whole, alone))
    assert (counts == expected).all()


def test_a_late_group_is_counted_exactly_in_its_windows(stand: Stand) -> None:
    store = rolled(stand, stand.create(ALONE, epsilon=float("inf")))
    store.groups.add(["a", "b"])
    batch = rows(50, stand.clock.now)
    store = stand.reopen()
    observed(store, batch)
    store = stand.reopen()
    assert store.schema.groups == (("a", "b"),)
    assert same(cells(populating(store)), exact(store, populating(store), [batch]))
    stand.clock.pass_(10 * DAY)
    store.advance()
    assert (cells(inspect.served(store))["a,b"] == cells(sealed(store, 2))["a,b"]).all()


def test_a_batch_may_span_a_window_with_the_group_and_one_without(stand: Stand) -> None:
    store = stand.create(ALONE, epsilon=float("inf"))
    now = stand.clock.pass_(8 * DAY)
    observed(store, rows(5, now))
    store.groups.add(["a", "b"])
    now = stand.clock.pass_(2 * DAY - HOUR / 2)
    batch = rows(20, np.repeat([now, now + HOUR], 10))
    observed(store, batch)
    store = stand.reopen()
    second = populating(store, 2)
    assert same(cells(second), exact(store, second, [batch.slice(10)]))
    assert "a,b" not in cells(populating(store, 1))


def test_a_group_whose_only_windows_retire_is_gone_until_the_next(stand: Stand) -> None:
    store = stand.create()
    rolled(stand, store)
    store.groups.withdraw("a,b", why="not worth it")
    rolled(stand, store, 2)
    assert windows_of(store) == {"": 3, "a": 3, "b": 3}
    store.featurize(rows(3))


@pytest.mark.parametrize("group", [["a", "a"], ["a"], ["a", "nothing"], ["b", "a"]])
def test_a_group_that_is_none_is_refused_and_changes_nothing(
    stand: Stand, group: list[str]
) -> None:
    store = stand.create()
    with pytest.raises(SchemaError):
        store.groups.add(group)
    assert stand.reopen().schema == SCHEMA


def test_old_snapshots_go_on_without_the_new_group(stand: Stand) -> None:
    store = rolled(stand, stand.create(ALONE))
    old = store.snapshot()
    before = old.array(rows(5))
    store.groups.add(["a", "b"])
    rolled(stand, store)
    assert (old.array(rows(5)) == before).all()
    assert "P(y=1|a*b)" not in old.names
    assert "P(y=1|a*b)" in store.snapshot().names
