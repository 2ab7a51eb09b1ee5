"""What is withdrawn: gone from every table, hot row and file; its share returns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pyramidion import Categorical, Pyramid, Schema
from pyramidion.errors import SchemaError, StateError, StorageError
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.idempotency import Once
from tests.store import inspect
from tests.store.inspect import populating, sealed
from tests.store.stores import (
    DAY,
    SCHEMA,
    Stand,
    cells,
    failing_once,
    noise,
    observed,
    rows,
    same,
    states,
)

ALONE = Schema(time="t", label=SCHEMA.label, features=SCHEMA.features)
THREE = Schema(
    time="t", label=SCHEMA.label, features=[*SCHEMA.features, Categorical("c")], groups=[("a", "b")]
)


def twice(stand: Stand, store: Pyramid) -> Iterator[Pyramid]:
    """The store as it is, and opened again."""
    yield store
    yield stand.reopen()


def windows_of(store: Pyramid) -> dict[str, int]:
    return {table.name: table.windows for table in store.status().tables}


# --- what is withdrawn --------------------------------------------------------------------


def with_c(size: int, at: float, seed: int = 0) -> Any:
    batch = rows(size, at, seed)
    return batch.append_column("c", batch["a"])


def full(stand: Stand, **settings: Any) -> Pyramid:
    """A store of three features with two sealed windows, one populating, and hot rows."""
    store = stand.create(THREE, **settings)
    for seed in range(3):
        observed(store, with_c(30, stand.clock.now, seed), key=f"batch {seed}")
        stand.clock.pass_(10 * DAY if seed < 2 else DAY)
        store.advance()
    return store


def test_a_withdrawn_feature_is_gone_from_every_table(stand: Stand) -> None:
    store = full(stand)
    store.groups.withdraw("c", why="the law")
    for each in twice(stand, store):
        arenas = [sealed(each, 1), sealed(each, 2), populating(each), inspect.served(each)]
        for arena in arenas:
            assert set(cells(arena)) == {"", "a", "b", "a,b"}
        assert each.schema.feature_names == ("a", "b")
        assert "P(y=1|c)" not in each.snapshot().names


def test_withdrawing_a_feature_takes_its_groups_along(stand: Stand) -> None:
    store = full(stand)
    store.groups.withdraw("b", why="the law")
    assert store.schema.table_names == ("a", "c")
    assert set(cells(populating(store))) == {"", "a", "c"}


def test_tables_that_stay_are_left_as_they_were(stand: Stand) -> None:
    store = full(stand)
    arenas = [sealed(store, 1), populating(store), inspect.served(store)]
    before = [cells(arena) for arena in arenas]
    store.groups.withdraw("c", why="the law")
    store = stand.reopen()
    after = [sealed(store, 1), populating(store), inspect.served(store)]
    for old, arena in zip(before, after, strict=True):
        assert same(cells(arena), {name: old[name] for name in ("", "a", "b", "a,b")})


def test_the_column_is_gone_from_hot_rows_and_the_old_files_too(stand: Stand) -> None:
    store = full(stand)
    old = stand.files("hot") | stand.files("tables")
    store.groups.withdraw("c", why="the law")
    assert not old & (stand.files("hot") | stand.files("tables"))
    (first, *_) = [table for _, table, _ in inspect.hot(stand.reopen()).batches()]
    assert set(first.column_names) == {"t", "y", "a", "b"}
    assert first.num_rows == 30


def test_withdrawing_a_group_leaves_the_columns_of_hot_rows(stand: Stand) -> None:
    store = full(stand)
    store.groups.withdraw("a,b", why="not worth it")
    ((_, kept, _),) = inspect.hot(store).batches()
    assert set(kept.column_names) == {"t", "y", "a", "b", "c"}
    assert store.schema.groups == ()


def test_rows_go_on_being_counted_on_the_same_noise(stand: Stand) -> None:
    store = full(stand)
    hot = with_c(30, stand.clock.now - DAY, 2)
    before = noise(store, populating(store), [hot])
    store.groups.withdraw("c", why="the law")
    more = rows(10, stand.clock.now)
    assert observed(store, more).accepted == 10
    for each in twice(stand, store):
        after = noise(each, populating(each), [hot, more])
        assert same(after, {name: before[name] for name in after})


def test_idempotency_keys_work_after_a_withdrawal(stand: Stand) -> None:
    store = full(stand)
    store.groups.withdraw("c", why="the law")
    for each in twice(stand, store):
        again = with_c(30, stand.clock.now - DAY, 2)
        assert each.observe(again, key="batch 2").accepted == 30
        assert each.status().hot_rows == 30
    stand.clock.pass_(3 * DAY)
    each.advance()
    assert inspect.hot(each).seen([Once("batch 2")]) == {}


def test_its_share_returns_with_the_next_window(stand: Stand) -> None:
    store = full(stand)
    store.groups.withdraw("c", why="the law")
    stand.clock.pass_(10 * DAY)
    observed(store, rows(5, stand.clock.now))
    lines = {window.number: window.lines for window in store.ledger.report().windows}
    charged = {
        number: {line.purpose: line.amount for line in own if line.kind == "table"}
        for number, own in lines.items()
    }
    old, new = charged[3], charged[max(charged)]
    assert set(old) == {"", "a", "b", "c", "a,b"}
    assert set(new) == {"", "a", "b", "a,b"}
    assert sum(old.values()) == sum(new.values())
    assert new["a"] == old["a"] * 4 / 3
    assert new[""] == old[""]


def test_what_it_cost_stays_in_the_ledger(stand: Stand) -> None:
    store = full(stand)
    before = store.ledger.report()
    store.groups.withdraw("c", why="the law")
    assert store.ledger.report() == before


def test_a_record_says_what_was_withdrawn_and_why(stand: Stand) -> None:
    store = full(stand)
    store.groups.withdraw("c", why="article 17")
    record = store.status().deletions[-1]
    assert (record.what, record.why) == ("feature or group 'c'", "article 17")
    assert record.done is not None


def test_snapshots_that_hold_it_expire(stand: Stand) -> None:
    store = full(stand)
    old = store.snapshot()
    store.groups.withdraw("c", why="the law")
    with pytest.raises(StateError, match="'c' was withdrawn; take a new one"):
        old.featurize(with_c(1, 0.0))
    assert store.featurize(rows(1)).num_rows == 1


def test_rows_that_still_send_the_column_are_counted_without_it(stand: Stand) -> None:
    store = full(stand)
    store.groups.withdraw("c", why="the law")
    assert observed(store, with_c(5, stand.clock.now)).accepted == 5
    assert "c" not in list(inspect.hot(store).batches())[-1][1].column_names


def test_shares_may_name_a_table_that_was_withdrawn(stand: Stand) -> None:
    store = full(stand, shares={"c": 5, "a,b": 3})
    store.groups.withdraw("c", why="the law")
    store.groups.withdraw("a,b", why="not worth it")
    store = stand.reopen()
    stand.clock.pass_(10 * DAY)
    observed(store, rows(5, stand.clock.now))
    assert set(cells(populating(store))) == {"", "a", "b"}


def test_a_group_may_be_added_again(stand: Stand) -> None:
    store = full(stand)
    store.groups.withdraw("a,b", why="not worth it")
    store.groups.add(["a", "b"])
    stand.clock.pass_(10 * DAY)
    store.advance()
    observed(store, with_c(20, stand.clock.now))
    stand.clock.pass_(10 * DAY)
    store.advance()
    assert windows_of(store) == {"": 4, "a": 4, "b": 4, "c": 4, "a,b": 1}
    assert store.featurize(with_c(3, 0.0)).num_rows == 3


@pytest.mark.parametrize("name", ["nothing", "", "y", "t", "b,a"])
def test_what_is_no_table_cannot_be_withdrawn(stand: Stand, name: str) -> None:
    store = stand.create()
    with pytest.raises(SchemaError):
        store.groups.withdraw(name, why="a slip")
    assert store.status().deletions == ()


def test_the_only_feature_cannot_be_withdrawn(stand: Stand) -> None:
    store = stand.create(ALONE)
    store.groups.withdraw("a", why="the law")
    with pytest.raises(SchemaError, match="is the only one"):
        store.groups.withdraw("b", why="the law")


def test_a_withdrawal_that_could_not_be_finished_has_happened_all_the_same(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = full(stand)
    failing_once(monkeypatch, Catalogue, "truncate_log", StorageError("the log is in use"))
    with pytest.raises(StorageError, match="the log is in use"):
        store.groups.withdraw("c", why="the law")
    assert store.schema.feature_names == ("a", "b")
    assert observed(store, rows(10, stand.clock.now)).accepted == 10
    store.advance()
    assert store.status().deletions[-1].done is not None
    assert stand.key.read_text().count(":") == 1
    store = stand.reopen()
    assert store.status().hot_rows == 40
    assert states(store)[3] == ("populating", 40)


def test_a_withdrawal_that_breaks_off_before_it_is_durable_changes_nothing(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = full(stand)
    before = cells(populating(store))
    failing_once(monkeypatch, inspect.hot(store), "replace", StorageError("full"))
    with pytest.raises(StorageError, match="full"):
        store.groups.withdraw("c", why="the law")
    assert store.schema == THREE
    assert same(cells(populating(store)), before)
    assert observed(store, with_c(10, stand.clock.now)).accepted == 10
    store = stand.reopen()
    assert store.status().hot_rows == 40
    known = inspect.catalogue(store).all(
        "SELECT file FROM arenas WHERE current = 1 UNION SELECT file FROM steps"
    )
    assert stand.files("hot") | stand.files("tables") == {row["file"] for row in known}


def test_a_window_whose_sealing_failed_is_not_lost_by_a_withdrawal(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create(epsilon=float("inf"))
    store.observe(rows(30))
    stand.clock.pass_(10 * DAY)
    failing_once(monkeypatch, inspect.table_files(store), "write", StorageError("full"))
    with pytest.raises(StorageError, match="full"):
        store.advance()
    store.groups.withdraw("b", why="the law")
    store = stand.reopen()
    store.advance()
    assert states(store)[1] == ("sealed", 30)
    assert inspect.served(store).rows == 30
    assert set(cells(inspect.served(store))) == {"", "a"}
