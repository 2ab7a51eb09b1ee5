"""Batches that their sender numbers: each is counted once, also when its rows have long left."""

from __future__ import annotations

import math

import pytest

from pyramidion.errors import SchemaError, StateError
from pyramidion.storage.hot import Receipt
from tests.store import inspect
from tests.store.inspect import populating, settled
from tests.store.stores import DAY, Stand, cells, exact, observed, rows, same


def test_a_turn_again_is_not_counted_again_when_its_rows_have_left_the_hot_window(
    stand: Stand,
) -> None:
    store = stand.create(epsilon=math.inf, count_window="30d")
    first, second = rows(20), rows(30, seed=1)
    assert store.observe_turn(first, "query", 0).accepted == 20
    assert store.observe_turn(second, "query", 1).accepted == 30
    assert store.observe_turn(second, "query", 1).accepted == 30  # its receipt, while it is hot
    settled(store)
    stand.clock.pass_(6 * DAY)
    store.advance()
    assert store.status().hot_rows == 0
    store = stand.reopen()
    assert store.observe_turn(second, "query", 1) == Receipt(0, 0, 0)
    arena = populating(store)
    assert same(cells(arena), exact(store, arena, [first, second]))


def test_a_turn_before_the_last_one_is_refused(stand: Stand) -> None:
    store = stand.create()
    for turn in (0, 3):  # batches without a row are never sent
        store.observe_turn(rows(5, seed=turn), "query", turn)
    for turn in (0, 1, 2):
        with pytest.raises(StateError, match=f"batch {turn} of this sequence came after batch 3"):
            store.observe_turn(rows(5), "query", turn)
    assert store.status().hot_rows == 10


def test_sequences_have_turns_of_their_own(stand: Stand) -> None:
    store = stand.create()
    for sequence in ("one", "other"):
        store.observe_turn(rows(5), sequence, 0)
    assert store.status().hot_rows == 10


def test_a_turn_that_was_refused_can_be_sent_again(stand: Stand) -> None:
    store, good = stand.create(), rows(5)
    bad = good.set_column(1, "y", good["a"])
    with pytest.raises(Exception, match="cannot be counted"):
        store.observe_turn(bad, "query", 0)
    assert store.observe_turn(good, "query", 0).accepted == 5
    with pytest.raises(SchemaError, match="turn of a batch"):
        store.observe_turn(good, "query", -1)


def test_how_far_a_sequence_has_come_tells_nothing_but_a_number(stand: Stand) -> None:
    store = stand.create()
    store.observe_turn(rows(5), "a name of its own", 7)
    observed(store, rows(5, seed=1))
    ((key, turns),) = inspect.catalogue(store).all("SELECT input, rows FROM imports")
    assert (len(key), turns) == (16, 8)
    stand.close()
    assert b"a name of its own" not in (stand.path / "catalogue.db").read_bytes()
