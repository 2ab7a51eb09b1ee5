"""Exact counts on their way: packed without loss, joined once, never stored."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyramidion.counts.arena import Arena
from pyramidion.counts.partials import Partial, pack, unpack
from pyramidion.errors import PrivacyError, StateError
from pyramidion.learn.counting import Counting
from tests.store.stores import TIMELESS, cells, rows, same, tiny


@given(st.lists(st.integers(-(1 << 62), 1 << 62) | st.integers(-300, 300), max_size=50))
def test_cells_come_out_of_their_packing_as_they_went_in(numbers: list[int]) -> None:
    array = np.array(numbers, dtype=np.int64)
    assert unpack(pack(array)).tolist() == numbers


def partial(size: int, seed: int = 0) -> tuple[Counting, Partial]:
    counting = Counting(TIMELESS, tiny(sketch="count-median", epsilon=float("inf")))
    made = Partial(counting.birth.layout, 1_000)
    if size:
        made.add(counting.door.observations(rows(size, seed=seed)))
    return counting, made


def test_what_several_have_counted_joins_to_what_one_counts() -> None:
    counting, made = partial(30)
    other = Partial(counting.birth.layout, 1_000)
    other.add(counting.door.observations(rows(20, seed=1)))
    whole = counting.birth.arena()
    for part in (made, other):
        carried = Partial(counting.birth.layout, 1_000)
        for table, packed in part.packed():
            carried.fill(table, packed)
        carried.rows = part.rows
        whole.join(carried)
    alone = counting.birth.arena()
    for batch in (rows(30), rows(20, seed=1)):
        alone.add(counting.door.observations(batch))
    assert whole.rows == 50
    assert same(cells(whole), cells(alone))


def test_exact_counts_are_never_written_sealed_or_not() -> None:
    _, made = partial(3)
    with pytest.raises(PrivacyError, match="never stored"):
        made.checkpoint()
    made.seal()
    with pytest.raises(PrivacyError, match="never stored"):
        made.to_bytes()


def test_a_cell_that_counts_more_than_its_rows_joins_nothing() -> None:
    counting, made = partial(3)
    made.fill(0, pack(np.array([4, 0])))
    whole = counting.birth.arena()
    before = cells(whole)
    with pytest.raises(PrivacyError, match="more than its rows weigh"):
        whole.join(made)
    assert same(cells(whole), before)


def test_counts_join_tables_of_the_same_cells_with_room_for_their_rows() -> None:
    counting, made = partial(30)
    with pytest.raises(StateError, match="room for 20 of 30 rows"):
        Arena.exact(counting.birth.layout, 20).join(made)
    with pytest.raises(StateError, match="different layouts"):
        partial(0)[0].birth.arena().join(made)  # the same tables under another secret
    sealed = counting.birth.arena()
    sealed.seal()
    with pytest.raises(StateError, match="sealed"):
        sealed.join(made)
