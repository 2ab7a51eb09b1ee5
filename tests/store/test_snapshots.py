"""Snapshots of a store: immutable while it rolls on, and saying what they promise."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

from pyramidion.counts.arena import Arena
from pyramidion.errors import StateError
from tests.store.inspect import sealed, settled
from tests.store.stores import DAY, Stand, cells, exact, observed, rows


def rolled(stand: Stand, store, windows: int = 1):
    for _ in range(windows):
        observed(store, rows(50, stand.clock.now, seed=int(stand.clock.now)))
        stand.clock.pass_(10 * DAY)
        store.advance()
    return store


def test_before_a_window_is_sealed_there_is_nothing_to_featurize_with(stand: Stand) -> None:
    store = stand.create()
    for _ in range(2):
        with pytest.raises(StateError, match="no window is sealed"):
            store.snapshot()
        store.observe(rows(50))
    assert store.status().guarantee is None


def test_a_populating_window_is_in_no_snapshot(stand: Stand) -> None:
    store = rolled(stand, stand.create())
    before = store.snapshot().array(rows(20))
    observed(store, rows(500, stand.clock.now))
    assert store.snapshot()._arena.rows == 50
    assert (store.snapshot().array(rows(20)) == before).all()


def test_a_snapshot_stays_as_it_is_while_the_store_rolls_on(stand: Stand) -> None:
    store = rolled(stand, stand.create())
    old = store.snapshot()
    before, held = old.array(rows(20)).copy(), {k: v.copy() for k, v in cells(old._arena).items()}
    rolled(stand, store, 2)
    assert store.snapshot() is not old
    assert (old.array(rows(20)) == before).all()
    assert all((cells(old._arena)[name] == held[name]).all() for name in held)
    assert (store.snapshot().array(rows(20)) != before).any()
    assert (old.guarantee.windows, store.snapshot().guarantee.windows) == (1, 3)


def test_cells_of_a_snapshot_cannot_be_written(stand: Stand) -> None:
    store = rolled(stand, stand.create())
    with pytest.raises(ValueError, match="read-only"):
        store.snapshot()._arena.cells(1)[0] = 0


def test_nothing_changed_means_the_same_snapshot(stand: Stand) -> None:
    store = rolled(stand, stand.create())
    assert store.snapshot() is store.snapshot()


def test_features_are_the_same_after_reopening(stand: Stand) -> None:
    store = rolled(stand, stand.create(), 3)
    before = store.featurize(rows(30))
    assert stand.reopen().featurize(rows(30)).equals(before)


def test_features_are_those_of_the_sealed_windows(stand: Stand) -> None:
    store = rolled(stand, stand.create(epsilon=float("inf")), 2)
    complete = store.snapshot()._arena
    expected = Arena.total([sealed(store, 1), sealed(store, 2)])
    assert (cells(complete)["a"] == cells(expected)["a"]).all()
    start = stand.clock.now - 20 * DAY
    batches = [rows(50, seed=int(start + n * 10 * DAY)) for n in range(2)]
    assert (cells(complete)["a"] == exact(store, complete, batches)["a"]).all()


def test_the_promise_rides_on_every_output(stand: Stand) -> None:
    store = rolled(stand, stand.create(epsilon=0.7, delta=1e-7, k=2), 2)
    promise = store.snapshot().guarantee
    assert (promise.level, promise.epsilon, promise.delta, promise.k) == ("P2", 0.7, 1e-7, 2)
    assert promise.windows == 2
    assert store.status().guarantee == promise
    table = store.featurize(rows(3))
    assert str(promise).encode() in table.schema.metadata.values()


def test_a_long_pause_is_noticed_by_whoever_featurizes(stand: Stand) -> None:
    store = rolled(stand, stand.create())
    stand.clock.pass_(100 * DAY)
    with suppress(StateError):  # where the keeper is faster than who asks
        store.snapshot()
    settled(store)
    with pytest.raises(StateError, match="no window is sealed"):
        store.snapshot()


def test_one_row_gives_what_a_batch_gives(stand: Stand) -> None:
    store = rolled(stand, stand.create())
    batch = rows(5)
    one = np.array([store.snapshot().featurize_one(row) for row in batch.to_pylist()])
    assert (one == store.snapshot().array(batch)).all()
