"""Retention: a window past its time leaves the tables, its key dies, its files go."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from pyramidion import Pyramid
from pyramidion.errors import StateError, StorageError
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.pins import FACTS
from tests.store import inspect
from tests.store.inspect import sealed
from tests.store.stores import (
    DAY,
    START,
    TIMELESS,
    Stand,
    cells,
    failing_once,
    noise,
    observed,
    rows,
    same,
    states,
)


def filled(stand: Stand, windows: int, **settings: Any) -> Pyramid:
    """A store with some sealed windows, the last one just sealed."""
    store = stand.create(**settings)
    for number in range(windows):
        observed(store, rows(20 + number, stand.clock.now, seed=number))
        stand.clock.pass_(10 * DAY)
        store.advance()
    return store


def test_a_window_leaves_when_its_retention_is_over(stand: Stand) -> None:
    store = filled(stand, 4)
    stand.clock.pass_(10 * DAY - 1)
    assert not store.advance().retired
    stand.clock.pass_(1)
    assert store.advance().retired == [1]
    assert states(store)[1] == ("erased", 20)


def test_complete_tables_are_the_sum_of_the_windows_that_are_left(stand: Stand) -> None:
    store = filled(stand, 5)
    assert states(store)[1][0] == "erased"
    parts = [cells(sealed(store, number)) for number in (2, 3, 4, 5)]
    complete = inspect.served(store)
    for name, found in cells(complete).items():
        assert (found == sum(part[name] for part in parts)).all()
    assert complete.rows == sum(20 + number for number in (1, 2, 3, 4))
    assert {table.windows for table in complete.layout.tables} == {4}
    assert same(cells(inspect.served(stand.reopen())), cells(complete))


def test_the_windows_that_are_left_keep_their_noise(stand: Stand) -> None:
    store = filled(stand, 4)
    before = noise(store, sealed(store, 2), [rows(21, seed=1)])
    stand.clock.pass_(10 * DAY)
    store.advance()
    assert same(noise(store, sealed(store, 2), [rows(21, seed=1)]), before)


def test_snapshots_that_hold_it_expire_and_a_new_one_serves(stand: Stand) -> None:
    store = filled(stand, 4)
    old = store.snapshot()
    old.featurize(rows(1))
    stand.clock.pass_(10 * DAY)
    store.advance()
    for verb in (old.featurize, lambda batch: old.featurize_one(batch.to_pylist()[0])):
        with pytest.raises(StateError, match="window 1 is past its retention; take a new one"):
            verb(rows(1))
    assert store.snapshot().guarantee.windows == 3
    store.featurize(rows(1))


def test_an_expired_snapshot_lets_go_of_its_tables(stand: Stand) -> None:
    store = filled(stand, 4)
    old = store.snapshot()
    tables = weakref.ref(old._arena)
    stand.clock.pass_(10 * DAY)
    store.advance()
    gc.collect()
    assert tables() is None
    assert old.guarantee.windows == 4


def test_its_files_and_keys_are_gone_and_a_record_stays(stand: Stand) -> None:
    store = filled(stand, 4)
    catalogue = inspect.catalogue(store)
    query = "SELECT file, key FROM arenas WHERE level = 0 AND number = 1"
    ((file, key),) = catalogue.all(query)
    stand.clock.pass_(10 * DAY)
    store.advance()
    assert catalogue.all(query) == []
    assert catalogue.all("SELECT 1 FROM keys WHERE id = ?", key) == []
    assert file not in stand.files("tables")
    record = store.status().deletions[-1]
    assert (record.what, record.why) == ("window 1", "past its time")
    assert record.done == stand.clock.now * 1e6


def test_several_windows_leave_at_once_after_a_long_pause(stand: Stand) -> None:
    store = filled(stand, 4)
    stand.close()
    stand.clock.pass_(35 * DAY)
    store = stand.open()
    found = states(store)
    assert [found[number][0] for number in (1, 2, 3, 4)] == ["erased", "erased", "erased", "sealed"]
    assert same(cells(inspect.served(store)), cells(sealed(store, 4)))


def test_when_all_have_left_nothing_is_served_until_a_new_one_is_sealed(stand: Stand) -> None:
    store = filled(stand, 3)
    old = store.snapshot()
    stand.clock.pass_(100 * DAY)
    store.advance()
    with pytest.raises(StateError, match="no window is sealed"):
        store.snapshot()
    with pytest.raises(StateError, match="expired"):
        old.featurize(rows(1))
    assert store.status().tables == ()
    assert store.status().guarantee is None
    assert not stand.files("tables")
    store = stand.reopen()
    with pytest.raises(StateError, match="no window is sealed"):
        store.featurize(rows(1))
    observed(store, rows(9, stand.clock.now))
    stand.clock.pass_(10 * DAY)
    store.advance()
    assert store.snapshot().guarantee.windows == 1
    assert store.status().summarised_rows == 9


def test_sealing_and_retiring_may_fall_on_the_same_day(stand: Stand) -> None:
    store = stand.create(count_window="10d", retention="11d")
    for _ in range(4):
        observed(store, rows(5, stand.clock.now))
        stand.clock.pass_(10 * DAY)
        store.advance()
    assert [state for state, _ in states(store).values()] == ["erased"] * 3 + ["sealed"]
    stand.clock.pass_(DAY)
    store.advance()
    assert inspect.served(store) is None


def test_a_window_that_was_sealed_after_its_retention_is_retired_at_once(stand: Stand) -> None:
    store = stand.create()
    store.observe(rows(5))
    stand.clock.pass_(60 * DAY)
    done = store.advance()
    assert (done.sealed, done.retired) == ([1], [1])
    assert inspect.served(store) is None


def test_windows_by_rows_are_kept_from_their_first_row(stand: Stand) -> None:
    store = stand.create(TIMELESS, count_window=10)
    observed(store, rows(10))
    stand.clock.pass_(49 * DAY)
    store.advance()
    assert states(store)[1] == ("sealed", 10)
    stand.clock.pass_(DAY)
    assert store.advance().retired == [1]


def test_a_window_by_rows_that_does_not_fill_up_is_not_kept_for_ever(stand: Stand) -> None:
    store = stand.create(TIMELESS, count_window=1_000)
    observed(store, rows(10))
    stand.clock.pass_(50 * DAY)
    store.advance()
    assert states(store)[1] == ("erased", 10)
    assert not stand.files("tables")
    observed(store, rows(7))
    assert states(store)[2] == ("populating", 7)


def test_the_ledger_remembers_windows_that_are_gone(stand: Stand) -> None:
    store = filled(stand, 5)
    assert {window.number for window in store.ledger.report().windows} >= {1, 2, 3, 4, 5}


def test_an_erasure_that_could_not_be_finished_is_finished_by_the_next_advance(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(stand, 3)
    stand.clock.pass_(4 * DAY)
    store.advance()  # no hot rows are left
    stand.clock.pass_(17 * DAY)
    failing_once(monkeypatch, Catalogue, "truncate_log", StorageError("the log is in use"))
    with pytest.raises(StorageError, match="the log is in use"):
        store.advance()
    assert stand.key.read_text().count(":") == 2
    assert store.status().due
    store.advance()
    assert stand.key.read_text().count(":") == 1
    assert store.status().deletions[-1].done is not None
    known = inspect.catalogue(store).all("SELECT file FROM arenas")
    assert stand.files("tables") == {row["file"] for row in known}
    assert states(store)[1][0] == "erased"


def test_nothing_is_kept_of_a_store_that_nobody_wrote_to_for_long(stand: Stand) -> None:
    store = filled(stand, 2)
    stand.close()
    stand.clock.now = START + 1_000 * DAY
    store = stand.open()
    assert not stand.files("hot")
    assert not stand.files("tables")
    purposes = {row[0] for row in inspect.catalogue(store).all("SELECT purpose FROM keys")}
    pins = (f"pin of {name}" for name in (*FACTS, "windows and ledger"))
    assert purposes == {"secret", "names", *pins}
