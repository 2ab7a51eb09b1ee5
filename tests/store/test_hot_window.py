"""The hot window: slides in steps, by time and by rows, whatever the count windows do."""

from __future__ import annotations

import pytest

from pyramidion.storage.key_holders import FileHolder
from tests.store import inspect
from tests.store.inspect import populating
from tests.store.peopling import a_stand
from tests.store.stores import (
    DAY,
    HOUR,
    START,
    TIMELESS,
    Stand,
    noise,
    observed,
    rows,
    same,
    states,
)


def test_steps_leave_when_their_time_is_over(stand: Stand) -> None:
    store = stand.create()
    for _ in range(3):
        observed(store, rows(10, stand.clock.now))
        stand.clock.pass_(DAY)
    done = store.advance()
    assert (done.steps, done.rows_erased) == (1, 10)
    assert store.status().hot_rows == 20
    assert store.status().oldest_hot == (START + DAY) * 1e6


def test_the_file_of_a_step_that_left_is_gone(stand: Stand) -> None:
    store = stand.create()
    store.observe(rows(10))
    (file,) = stand.files("hot")
    stand.clock.pass_(2 * DAY)
    observed(store, rows(10, stand.clock.now))
    stand.clock.pass_(DAY)
    store.advance()
    assert file not in stand.files("hot")
    assert len(stand.files("hot")) == 1


def test_size_on_disk_does_not_follow_labels_and_keys() -> None:
    sizes = []
    for batch in (rows(20_000), rows(20_000, seed=1), rows(1).take([0] * 20_000)):
        with a_stand() as stand:
            store = stand.create()
            observed(store, batch)
            sealed = "SELECT length(sealed) FROM batches"
            files = [file.stat().st_size for file in (stand.path / "hot").iterdir()]
            sizes.append((files, inspect.catalogue(store).one(sealed)))
            stand.close()
    assert sizes[0] == sizes[1] == sizes[2]


def test_no_row_stays_longer_than_the_hot_window(stand: Stand) -> None:
    store = stand.create(hot_window="60h", hot_step="7h")
    arrived: list[float] = []
    for _ in range(60):
        observed(store, rows(1, stand.clock.now))
        arrived.append(stand.clock.now)
        stand.clock.pass_(5.7 * HOUR)
        store.advance()
        kept = store.status().hot_rows
        assert all(stand.clock.now - when < 60 * HOUR for when in arrived[-kept:])
        assert stand.clock.now - arrived[-kept] > 40 * HOUR or kept == len(arrived)


def test_late_rows_are_hot_from_their_arrival(stand: Stand) -> None:
    store = stand.create()
    store.observe(rows(5, 0.0))
    stand.clock.pass_(2.9 * DAY)
    store.advance()
    assert store.status().hot_rows == 5
    stand.clock.pass_(0.1 * DAY)
    store.advance()
    assert store.status().hot_rows == 0


def test_more_rows_than_are_to_be_kept_leave_oldest_first(stand: Stand) -> None:
    store = stand.create(TIMELESS, hot_window=None, hot_rows=100)
    for _ in range(30):
        observed(store, rows(10))
        store.advance()
        assert store.status().hot_rows <= 100
    assert store.status().hot_rows == 100
    assert states(store)[1] == ("populating", 300)


def test_a_step_ends_at_its_rows(stand: Stand) -> None:
    store = stand.create(hot_rows=1_000, hot_step_rows=30)
    for _ in range(7):
        observed(store, rows(10))
    assert [step.rows for step in inspect.hot(store).steps] == [30, 30, 10]
    assert len(stand.files("hot")) == 3


def test_each_step_has_a_key_of_its_own(stand: Stand) -> None:
    store = stand.create(hot_rows=1_000, hot_step_rows=10)
    for _ in range(4):
        observed(store, rows(10))
    steps = inspect.hot(store).steps
    assert len({step.key.key for step in steps} | {step.once.key for step in steps}) == 8


@pytest.mark.parametrize(("pause", "kept"), [(HOUR, 50), (2 * DAY, 10)])
def test_time_and_rows_both_bound_it(stand: Stand, pause: float, kept: int) -> None:
    store = stand.create(hot_rows=50, hot_window="2d")
    for _ in range(12):
        observed(store, rows(10, stand.clock.now))
        store.advance()
        stand.clock.pass_(pause)
    stand.clock.pass_(-pause)
    assert store.status().hot_rows == kept


def test_one_batch_larger_than_the_rows_to_be_kept_leaves_with_the_next(stand: Stand) -> None:
    store = stand.create(hot_window=None, hot_rows=100)
    observed(store, rows(500))
    observed(store, rows(10))
    store.advance()
    assert store.status().hot_rows == 10


def test_without_a_hot_window_retention_bounds_it(stand: Stand) -> None:
    store = stand.create(hot_window=None, hot_rows=1_000)
    store.observe(rows(10))
    stand.clock.pass_(49.9 * DAY)
    store.advance()
    assert store.status().hot_rows == 10
    stand.clock.pass_(0.1 * DAY)
    store.advance()
    assert store.status().hot_rows == 0


def test_it_may_be_longer_than_a_count_window(stand: Stand) -> None:
    store = stand.create(count_window="1d", hot_window="5d", hot_step="1d")
    for _ in range(8):
        observed(store, rows(10, stand.clock.now))
        stand.clock.pass_(DAY)
        store.advance()
    assert store.status().hot_rows == 40
    assert len(store.status().windows) == 8
    assert stand.reopen().status().hot_rows == 40


def test_rows_leave_only_after_a_checkpoint_that_has_them(stand: Stand) -> None:
    store = stand.create()
    batches = [rows(20, seed=1), rows(30, seed=2)]
    store.observe(batches[0])
    stand.clock.pass_(DAY)
    observed(store, batches[1])
    before = noise(store, populating(store), batches)
    old = stand.files("tables")
    stand.clock.pass_(2 * DAY)
    done = store.advance()
    assert (done.checkpoints, done.steps) == ([1], 1)
    assert not old & stand.files("tables")  # the noise alone must not be there any more
    store = stand.reopen()
    assert same(noise(store, populating(store), batches), before)


def test_no_key_of_a_table_without_a_row_that_left_is_kept(stand: Stand) -> None:
    store = stand.create(checkpoint_rows=10)
    for _ in range(3):
        observed(store, rows(20))
    catalogue = inspect.catalogue(store)
    assert catalogue.one("SELECT count(*) FROM arenas WHERE current = 0")
    stand.clock.pass_(3 * DAY)
    store.advance()
    assert not catalogue.one("SELECT count(*) FROM arenas WHERE current = 0")
    assert catalogue.one("SELECT count(*) FROM keys WHERE purpose = 'checkpoint'") == 1


def test_the_store_key_is_renewed_and_the_old_one_destroyed_with_every_erasure(
    stand: Stand,
) -> None:
    store = stand.create()
    held = FileHolder(stand.key)
    seen = [held.keys()]
    for _ in range(2):
        observed(store, rows(5, stand.clock.now))
        stand.clock.pass_(3 * DAY)
        store.advance()
        seen.append(held.keys())
    assert [len(keys) for keys in seen] == [1, 1, 1]
    assert len({name for keys in seen for name in keys}) == 3
    assert len({key for keys in seen for key in keys.values()}) == 3


def test_a_deletion_record_says_what_when_why_and_where(stand: Stand) -> None:
    store = stand.create()
    store.observe(rows(5))
    stand.clock.pass_(3 * DAY)
    store.advance()
    (record,) = store.status().deletions
    assert record.what == "hot step 1"
    assert record.why == "past its time"
    assert record.holder == f"file:{stand.key}"
    assert record.at == record.done == stand.clock.now * 1e6


def test_observing_alone_makes_old_rows_leave(stand: Stand) -> None:
    store = stand.create()
    for _ in range(6):
        observed(store, rows(10, stand.clock.now))
        stand.clock.pass_(DAY)
    assert store.status().hot_rows <= 40


def test_opening_makes_rows_leave_whose_time_was_over_meanwhile(stand: Stand) -> None:
    stand.create().observe(rows(10))
    stand.close()
    stand.clock.pass_(20 * DAY)
    store = stand.open()
    assert store.status().hot_rows == 0
    assert states(store) == {1: ("sealed", 10)}
