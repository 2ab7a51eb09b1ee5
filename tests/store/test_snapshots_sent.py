"""Snapshots that leave a store: when they end, and that they say what the store's own say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pyramidion import Pyramid
from pyramidion.counts.snapshot import Snapshot
from pyramidion.counts.snapshot_file import etag_of, snapshot_bytes, snapshot_from
from pyramidion.errors import StateError
from tests.store import test_bins as bins
from tests.store import test_weights as weights
from tests.store.stores import DAY, SECOND, START, TIMELESS, Stand, observed, rows

SIGNER = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


def sent(stand: Stand, store: Pyramid) -> Snapshot:
    now = int(stand.clock.now * SECOND)
    data = snapshot_bytes(store.snapshot(), stream="s", now=now, signer=SIGNER)
    return snapshot_from(data, stream="s", verifier=SIGNER.public_key(), clock=stand.clock)


def rolled(stand: Stand, store: Pyramid, windows: int = 1) -> Pyramid:
    for _ in range(windows):
        observed(store, rows(50, stand.clock.now, seed=int(stand.clock.now)))
        stand.clock.pass_(10 * DAY)
        store.advance()
    return store


def same(one: Snapshot, other: Snapshot, batch: Any) -> bool:
    return one.names == other.names and bool((one.array(batch) == other.array(batch)).all())


# --- when -----------------------------------------------------------------------------------


def test_a_snapshot_ends_when_its_first_window_retires(stand: Stand) -> None:
    store = rolled(stand, stand.create(), 3)
    assert store.snapshot().expires == int((START + 50 * DAY) * SECOND)
    stand.clock.now = START + 50 * DAY
    store.advance()
    assert store.snapshot().expires == int((START + 60 * DAY) * SECOND)
    assert store.status().guarantee is not None


def test_windows_by_rows_retire_by_their_first_row(stand: Stand) -> None:
    store = stand.create(TIMELESS, count_window=50)
    came = stand.clock.pass_(DAY)
    observed(store, rows(50).drop_columns(["t"]))
    stand.clock.pass_(DAY)
    store.advance()
    assert store.snapshot().expires == int((came + 50 * DAY) * SECOND)


def test_the_time_is_the_same_after_reopening(stand: Stand) -> None:
    before = rolled(stand, stand.create(), 2).snapshot().expires
    assert stand.reopen().snapshot().expires == before


def test_what_was_sent_ends_with_the_store_though_nobody_tells_it(stand: Stand) -> None:
    store = rolled(stand, stand.create(), 1)
    stand.clock.now = START + 50 * DAY - 60
    away = sent(stand, store)
    assert away.expires == int((START + 50 * DAY) * SECOND)
    away.featurize(rows(3))
    stand.close()
    stand.clock.pass_(60)
    with pytest.raises(StateError, match="has expired"):
        away.featurize(rows(3))


def test_what_was_sent_ends_after_a_day_so_that_withdrawals_reach_it(stand: Stand) -> None:
    store = rolled(stand, stand.create(), 1)
    away = sent(stand, store)
    store.groups.withdraw("a,b", why="not needed")
    assert "a,b" not in store.snapshot().tables
    stand.clock.pass_(DAY - 1)
    assert "a,b" in away.tables
    stand.clock.pass_(1)
    with pytest.raises(StateError, match="has expired"):
        away.featurize(rows(3))


# --- what -----------------------------------------------------------------------------------


def test_features_are_those_of_the_store(stand: Stand) -> None:
    store = rolled(stand, stand.create(passthrough=4), 3)
    away = sent(stand, store)
    assert any("=" in name for name in away.names)
    assert same(away, store.snapshot(), rows(40, seed=5))
    assert away.guarantee == store.snapshot().guarantee


def test_a_group_that_began_late_has_its_own_windows(stand: Stand) -> None:
    store = rolled(stand, stand.create(TIMELESS_LESS, passthrough=4), 2)
    store.groups.add(("b", "a"))
    rolled(stand, store, 2)
    assert "b,a" in store.snapshot().tables
    assert same(sent(stand, store), store.snapshot(), rows(40, seed=5))


TIMELESS_LESS = bins.Schema(label=TIMELESS.label, features=TIMELESS.features, time="t")


@pytest.mark.parametrize("more", [0, 3], ids=["even", "read"])
def test_bins_of_any_time_go_along(stand: Stand, more: int) -> None:
    store = bins.read_once(stand)
    bins.at(stand, store, 10.0)
    for day in (14.0, 24.0, 34.0)[:more]:
        bins.fed(stand, store, day, bins.batch(2000, day, seed=int(day)))
    bins.at(stand, store, 40.0)
    names = store.snapshot().tables
    assert ("x@1" in names) == bool(more)
    away, batch = sent(stand, store), bins.batch(200, 40.0, seed=9)
    assert same(away, store.snapshot(), batch)
    assert away.tables == names


def test_a_label_in_bins_that_were_read_goes_along(stand: Stand) -> None:
    store = bins.read_once(stand, bins.numbers, bins.NUMBER)
    for day in (14.0, 24.0):
        bins.fed(stand, store, day, bins.numbers(2000, day, seed=int(day)))
    bins.at(stand, store, 30.0)
    assert "@1" in store.snapshot().tables[0]
    away = sent(stand, store)
    assert same(away, store.snapshot(), bins.numbers(200, 30.0, seed=9))


def test_noise_that_was_shared_by_weights_goes_along(stand: Stand) -> None:
    store = weights.fed(stand, stand.create(weights.SCHEMA, **weights.MUCH), 3)
    away = sent(stand, store)
    ours = [table.variance for table in store.snapshot()._arena.layout.tables]
    assert [table.variance for table in away._arena.layout.tables] == ours
    assert same(away, store.snapshot(), weights.batch(30.0, 9, 100))


def test_the_etag_is_the_same_until_the_tables_change(stand: Stand) -> None:
    store = rolled(stand, stand.create(), 2)
    before = etag_of(store.snapshot(), stream="s")
    observed(store, rows(20, stand.clock.now))
    assert etag_of(store.snapshot(), stream="s") == before
    store = stand.reopen()
    assert etag_of(store.snapshot(), stream="s") == before
    rolled(stand, store)
    assert etag_of(store.snapshot(), stream="s") != before


def test_one_row_is_the_same_as_in_the_store(stand: Stand) -> None:
    store = rolled(stand, stand.create())
    away = sent(stand, store)
    for row in rows(20, seed=3).to_pylist():
        np.testing.assert_array_equal(away.featurize_one(row), store.snapshot().featurize_one(row))
