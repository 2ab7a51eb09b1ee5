"""Reseeding after an intrusion: what was seen is frozen, every row is counted once, for nothing."""

from __future__ import annotations

import math
import shutil
import sqlite3
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.naive_bayes import BernoulliNB

from pyramidion import Pyramid
from pyramidion.errors import KeyHolderError, StorageError
from pyramidion.storage.key_holders import FileHolder
from pyramidion.storage.table_files import TableFiles
from pyramidion.store.reseed import Reseed
from tests.store import inspect
from tests.store.archive import Archive, keys_in, loot, watched
from tests.store.inspect import born, populating, sealed, settled
from tests.store.stores import (
    DAY,
    HOUR,
    START,
    TIMELESS,
    Stand,
    cells,
    exact,
    failing_once,
    noise,
    observed,
    rows,
    same,
    states,
)
from tests.waiting import PATIENCE

WHY = "somebody was in"


def prepared(stand: Stand, **settings: Any) -> Pyramid:
    """A store with rows in one window and the noise of the next one ready."""
    store = stand.create(**settings)
    stand.clock.pass_(9.9 * DAY)
    observed(store, rows(20, stand.clock.now))
    store.advance()
    assert states(store) == {1: ("populating", 20), 2: ("populating", 0)}
    return store


# --- what it does ---------------------------------------------------------------------------


def test_windows_with_rows_are_sealed_prepared_ones_dropped_and_one_is_opened(
    stand: Stand,
) -> None:
    store = prepared(stand)
    assert store.admin.reseed(why=WHY) == Reseed(sealed=(1,), dropped=(2,), opened=3)
    assert states(store) == {1: ("sealed", 20), 3: ("populating", 0)}
    assert stand.reopen().status().windows[1].number == 3


def test_every_row_is_in_exactly_one_table_set(stand: Stand) -> None:
    store = stand.create(epsilon=math.inf)
    batches = [rows(10, stand.clock.now, seed=seed) for seed in range(6)]
    for batch in batches[:2]:
        observed(store, batch)
    store.admin.reseed(why=WHY)
    for batch in batches[2:4]:
        observed(store, batch)
    store.admin.reseed(why=WHY)
    for batch in batches[4:]:
        observed(store, batch)
    stand.clock.pass_(10 * DAY)
    store.advance()
    assert [inspect.sealed(store, n).rows for n in (1, 2, 3)] == [20, 20, 20]
    complete = inspect.served(store)
    assert same(cells(complete), exact(store, complete, batches))


def test_the_new_window_ends_where_the_old_one_would_have(stand: Stand) -> None:
    store = stand.create()
    observed(store, rows(20))
    stand.clock.pass_(3 * HOUR)
    store.admin.reseed(why=WHY)
    old, new = store.status().windows
    assert (old.start, old.stop) == (new.start, new.stop)
    stand.clock.pass_(10 * DAY)
    assert store.advance().dropped == [2]


def test_rows_of_the_same_slot_go_to_the_new_window_and_are_not_late(stand: Stand) -> None:
    store = stand.create()
    observed(store, rows(20))
    store.admin.reseed(why=WHY)
    assert observed(store, rows(5)).late == 0
    assert states(store) == {1: ("sealed", 20), 2: ("populating", 5)}


def test_windows_by_rows_go_on_with_a_full_one(stand: Stand) -> None:
    store = stand.create(TIMELESS, count_window="30 rows", retention="50d")
    observed(store, rows(20))
    assert store.admin.reseed(why=WHY) == Reseed(sealed=(1,), dropped=(), opened=2)
    observed(store, rows(28, seed=1))
    store.advance()
    assert states(store)[2] == ("populating", 28)
    observed(store, rows(10, seed=2))
    store.advance()
    assert states(store) == {1: ("sealed", 20), 2: ("sealed", 30), 3: ("populating", 8)}
    store = stand.reopen()
    store.admin.reseed(why=WHY)
    assert states(store) == {
        1: ("sealed", 20),
        2: ("sealed", 30),
        3: ("sealed", 8),
        4: ("populating", 0),
    }


def test_a_store_that_nobody_came_to_opens_its_window_and_renews_its_key(stand: Stand) -> None:
    store = stand.create()
    before = set(FileHolder(stand.key).keys())
    assert store.admin.reseed(why=WHY) == Reseed(sealed=(), dropped=(), opened=1)
    assert not before & set(FileHolder(stand.key).keys())
    observed(store, rows(5))
    assert states(store) == {1: ("populating", 5)}


def test_again_is_harmless(stand: Stand) -> None:
    store = prepared(stand)
    for turn in range(3):
        assert store.admin.reseed(why=WHY).opened == 3 + turn
    observed(store, rows(5, stand.clock.now))
    assert {n: had for n, had in states(store).items() if had[1]} == {
        1: ("sealed", 20),
        5: ("populating", 5),
    }


def test_a_window_that_is_over_is_not_opened_again_by_who_was_slow(stand: Stand) -> None:
    store = stand.create()
    observed(store, rows(20))
    stand.clock.pass_(10 * DAY)
    done = store.admin.reseed(why=WHY)
    assert done == Reseed(sealed=(1,), dropped=(), opened=2)
    windows = inspect.parts(store).lifecycle.open_sets
    assert windows.passed == windows.slots.at(int(START * 1e6))


def test_what_is_sealed_is_served_and_old_snapshots_go_on(stand: Stand) -> None:
    store = stand.create()
    observed(store, rows(20))
    stand.clock.pass_(10 * DAY)
    store.advance()
    old = store.snapshot()
    observed(store, rows(20, stand.clock.now))
    store.admin.reseed(why=WHY)
    assert store.snapshot().rows == 40
    assert old.rows == 20
    assert not old.expired


def test_models_are_trained_again(stand: Stand, trainer: None) -> None:
    store = stand.create(epsilon=math.inf)
    observed(store, rows(200))
    store.admin.reseed(why=WHY)
    store.register("m", BernoulliNB())
    assert store.models["m"].fitted.rows == 200
    observed(store, rows(50, seed=1))
    store.admin.reseed(why=WHY)
    settled(store)
    assert store.models["m"].fitted.rows == 250


# --- what it costs ---------------------------------------------------------------------------


def test_the_old_window_pays_nothing_beyond_its_birth_and_the_new_one_its_own(
    stand: Stand,
) -> None:
    store = stand.create(selection_share=0.1)
    observed(store, rows(20))
    (before,) = store.ledger.report().windows
    store.admin.reseed(why=WHY)
    after, new = store.ledger.report().windows
    assert after == before
    assert new.number == 2
    assert [(line.kind, line.purpose, line.amount) for line in new.lines] == [
        (line.kind, line.purpose, line.amount) for line in before.lines
    ]
    assert store.ledger.report().epsilon <= store.settings.epsilon


def test_the_new_noise_is_independent_of_the_old(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create(buckets=4096)
    drawn = born(store, monkeypatch)
    for _ in range(3):
        observed(store, rows(5))
        store.admin.reseed(why=WHY)
    flat = [np.concatenate(list(cells(arena).values())) for arena in drawn]
    assert len(flat) == 4
    for one, other in pairwise(flat):
        assert abs(np.corrcoef(one, other)[0, 1]) < 5 / math.sqrt(one.size)


# --- what an intruder has ----------------------------------------------------------------------


def test_the_sealed_tables_are_the_state_the_intruder_saw_and_no_later_one_exists(
    stand: Stand,
) -> None:
    store = stand.create()
    observed(store, rows(20))
    seen = cells(populating(store))
    store.admin.reseed(why=WHY)
    observed(store, rows(20, seed=1))
    assert same(cells(sealed(store, 1)), seen)
    later = noise(store, populating(store), [rows(20, seed=1)])
    birth = noise(store, sealed(store, 1), [rows(20)])
    assert not any((later[name] == birth[name]).all() for name in later)


def test_no_key_that_survives_opens_a_populating_state_from_before(stand: Stand) -> None:
    archive = Archive(stand.path)
    with watched(archive):
        store = stand.create(checkpoint_rows=8)
        observed(store, rows(20))
        store.advance()
        control = loot(archive, FileHolder(stand.key).keys().values())
        store.admin.reseed(why=WHY)
    after = loot(archive, FileHolder(stand.key).keys().values())
    assert {(t.kind, *t.windows) for t in control.tables} == {("checkpoint", 1)}
    kinds = {(tables.kind, *tables.windows) for tables in after.tables}
    assert kinds == {("sealed", 1), ("complete", 1), ("checkpoint", 2)}
    stand.close()
    archive.close()


def test_nothing_written_later_opens_with_a_key_from_before(stand: Stand) -> None:
    store = stand.create()
    observed(store, rows(20), key="first")
    stolen = stand.folder / "stolen"
    shutil.copytree(stand.path, stolen)
    old = keys_in([stand.key.read_bytes()])
    store.admin.reseed(why=WHY)
    store = stand.reopen()  # the step stays closed, also then
    archive = Archive(stand.folder)
    with watched(archive):
        observed(store, rows(7, seed=1), key="second")
        inspect.checkpoint(store, *inspect.windows(store).values())
    found = loot(archive, old)
    assert set(found.batches) == {1}  # the copy that was stolen, and what it was of
    assert found.known == {1}
    assert {tuple(tables.windows) for tables in found.tables} == {(1,)}
    assert not found.links("second")
    stand.close()
    archive.close()


def test_a_backup_and_a_copy_from_before_do_not_open(stand: Stand) -> None:
    store = stand.create()
    observed(store, rows(20))
    store.admin.backup(stand.folder / "backup")
    store.admin.reseed(why=WHY)
    with pytest.raises(KeyHolderError, match="destroyed by an erasure"):
        Pyramid.restore(stand.folder / "backup", stand.folder / "restored", **stand.given)


def test_the_deletion_record_says_what_ended_and_why(stand: Stand) -> None:
    store = prepared(stand)
    store.admin.reseed(why=WHY)
    last = store.status().deletions[-1]
    what = "populating states of window 1, noise of window 2, the former store key"
    assert (last.what, last.why) == (what, WHY)
    assert last.done is not None


# --- while others are at work, and when something fails ------------------------------------------


def test_rows_that_come_meanwhile_are_counted_once(stand: Stand) -> None:
    store = stand.create(epsilon=math.inf, hot_window="20d")
    batches = [rows(10, stand.clock.now, seed=seed) for seed in range(60)]
    begun = threading.Event()

    def observe(mine: list[Any]) -> None:
        for batch in mine:
            store.observe(batch)
            begun.set()

    threads = [threading.Thread(target=observe, args=(batches[i::2],)) for i in range(2)]
    for thread in threads:
        thread.start()
    assert begun.wait(PATIENCE)
    done = [store.admin.reseed(why=WHY) for _ in range(5)]
    for thread in threads:
        thread.join()
    stand.clock.pass_(10 * DAY)
    store.advance()
    assert sum(window.rows for window in store.status().windows) == 600
    assert any(each.sealed for each in done)
    complete = inspect.served(store)
    assert same(cells(complete), exact(store, complete, batches))
    store = stand.reopen()
    assert same(cells(inspect.served(store)), cells(complete))


@pytest.mark.parametrize("write", [1, 2])
def test_one_that_fails_for_want_of_space_loses_nothing(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, write: int
) -> None:
    store = stand.create(epsilon=math.inf)
    observed(store, rows(20))
    with monkeypatch.context() as patch:
        real, left = TableFiles.write, [write]

        def full(*given: Any) -> Any:
            left[0] -= 1
            if not left[0]:
                raise StorageError("full")
            return real(*given)

        patch.setattr(TableFiles, "write", full)
        with pytest.raises(StorageError, match="full"):
            store.admin.reseed(why=WHY)
    assert len(stand.files("tables")) == 1
    assert store.admin.reseed(why=WHY) == Reseed(sealed=(1,), dropped=(), opened=2)
    assert same(cells(sealed(store, 1)), exact(store, sealed(store, 1), [rows(20)]))


def test_one_whose_old_store_key_cannot_be_destroyed_is_finished_later(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create()
    observed(store, rows(20))
    failing_once(monkeypatch, FileHolder, "drop", KeyHolderError("away"))
    with pytest.raises(KeyHolderError, match="away"):
        store.admin.reseed(why=WHY)
    assert store.admin.reseed(why=WHY) == Reseed(sealed=(), dropped=(), opened=2)
    assert store.snapshot().rows == 20
    assert len(FileHolder(stand.key).keys()) == 1
    assert all(record.done is not None for record in store.status().deletions)


def test_a_hot_step_that_is_closed_stays_so(stand: Stand) -> None:
    store = stand.create()
    observed(store, rows(20))
    store.admin.reseed(why=WHY)
    with sqlite3.connect(Path(stand.path) / "catalogue.db") as db:
        (slot,) = db.execute("SELECT slot FROM steps").fetchone()
    db.close()
    assert slot < -(1 << 60)
    store = stand.reopen()
    observed(store, rows(5, seed=1))
    assert [step.rows for step in inspect.hot(store).steps] == [20, 5]
    stand.clock.pass_(3 * DAY)
    assert store.advance().rows_erased == 25


def test_a_step_that_was_closed_stays_closed_when_a_feature_is_withdrawn(stand: Stand) -> None:
    store = stand.create()
    observed(store, rows(5, stand.clock.now))
    store.admin.reseed(why="a test")
    store.groups.withdraw("b", why="a test")
    observed(store, rows(5, stand.clock.now, seed=1))
    assert len(inspect.hot(store).steps) == 2
