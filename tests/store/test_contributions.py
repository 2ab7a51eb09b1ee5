"""The counter of people against naive twins: a dictionary, and blocks counted one by one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pyramidion import Categorical, Label, Schema, Settings
from pyramidion.errors import ObservationError, PrivacyError
from pyramidion.privacy.contributions import blocks_touched
from pyramidion.rows.observations import Door, Observations
from pyramidion.store.contributions import LEAST, People

SCHEMA = Schema(features=[Categorical("a")], label=Label("y", classes=[0, 1]), unit="who")
SETTINGS = Settings(epsilon=1.0, k=2, hot_window="3d", hot_step="1d")
DAY = 86_400 * 10**6
DOOR = Door(SCHEMA, SETTINGS, b"secret")
NOBODY = DOOR.observations([{"a": "x", "y": 0, "who": "w"}])


def of(*keys: int) -> Observations:
    """Rows of people by their keys."""
    return replace(NOBODY, length=len(keys), units=np.array(keys, dtype=np.uint64))


def counted(people: People, rows: Observations, now: int = 0) -> NDArray[np.bool_]:
    found = people.count(rows, now)
    assert found is not None
    return found


# --- rows ---------------------------------------------------------------------------------

KEYS = st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 1))
BATCHES = st.lists(st.tuples(st.lists(KEYS, max_size=40), st.booleans()), max_size=12)


@given(BATCHES)
def test_the_first_k_rows_of_each_person_count_unless_they_are_taken_back(
    batches: list[tuple[list[int], bool]],
) -> None:
    people, twin = People(SCHEMA, SETTINGS), Counter[int]()
    for keys, kept in batches:
        before, expected = Counter(twin), []
        for key in keys:
            expected.append(twin[key] < SETTINGS.k)
            twin[key] += expected[-1]
        found = counted(people, of(*keys))
        assert found.tolist() == expected
        if not kept:
            people.take_back(of(*keys), found)
            twin = before


def test_the_counter_grows_with_the_people_and_forgets_none() -> None:
    people = People(SCHEMA, SETTINGS)
    keys = np.random.default_rng(0).integers(0, 2**63, 20 * LEAST).tolist()
    for start in range(0, len(keys), LEAST):
        assert counted(people, of(*keys[start : start + LEAST])).all()
    assert len(people) == len(set(keys))
    assert counted(people, of(*keys)).all()
    assert not counted(people, of(*keys)).any()


def test_a_person_that_was_taken_back_does_not_hide_those_behind_it() -> None:
    people = People(SCHEMA, SETTINGS)
    first = list(range(400))
    found = counted(people, of(*first))
    assert not counted(people, of(*range(400, 500), *range(400, 500), *range(400, 500)))[200:].any()
    people.take_back(of(*first), found)
    assert not counted(people, of(*range(400, 500))).any()


def test_every_block_counts_anew() -> None:
    people = People(SCHEMA, SETTINGS)
    assert counted(people, of(7, 7, 7)).tolist() == [True, True, False]
    assert not counted(people, of(7), 3 * DAY - 1).any()
    assert counted(people, of(7, 7, 7), 3 * DAY).tolist() == [True, True, False]


def test_who_comes_after_a_later_time_was_seen_is_in_that_block() -> None:
    people = People(SCHEMA, SETTINGS)
    people.seen(4 * DAY)
    assert people.arrival(DAY) == 4 * DAY
    assert counted(people, of(7, 7), people.arrival(DAY)).all()
    assert not counted(people, of(7), people.arrival(5 * DAY)).any()


def test_once_a_block_is_seen_to_be_over_nothing_is_left_of_its_people() -> None:
    people = People(SCHEMA, SETTINGS)
    counted(people, of(7, 8))
    people.forget(3 * DAY - 1)
    assert len(people) == 2
    people.forget(30 * DAY)
    assert len(people) == 0
    assert people.arrival(0) == 3 * DAY
    assert not people._table[0].any()


def test_rows_that_do_not_say_whose_they_are_are_not_counted() -> None:
    with pytest.raises(PrivacyError, match="whose they are"):
        People(SCHEMA, SETTINGS).count(replace(NOBODY, units=None), 0)


# --- windows ------------------------------------------------------------------------------


def naive(window: int, skew: int, block: int) -> int:
    """The most blocks that any window touches, moment by moment."""
    return max(
        len({time // block for time in range(slot * window - skew, (slot + 1) * window)})
        for slot in range(block)
    )


@given(st.integers(1, 40), st.integers(0, 40), st.integers(1, 20))
@example(window=28, skew=0, block=7)
def test_a_window_touches_as_many_blocks_as_the_worst_one_does(
    window: int, skew: int, block: int
) -> None:
    assert blocks_touched(window, skew, block) == naive(window, skew, block)


@pytest.mark.parametrize("now", [-3_600_000_001, 10 * DAY, 30 * DAY])
def test_a_window_takes_no_row_at_a_time_that_its_noise_does_not_reckon_with(now: int) -> None:
    schema = Schema(features=SCHEMA.features, label=SCHEMA.label, unit="who", time="t")
    people = People(schema, SETTINGS)
    for good in (-3_600_000_000, 0, 10 * DAY - 1):
        people.refuse_outside(0, 10 * DAY, good)
    with pytest.raises(PrivacyError, match="more rows in it than its noise hides"):
        people.refuse_outside(0, 10 * DAY, now)


# --- who is who ---------------------------------------------------------------------------


def units(who: object) -> list[int]:
    size = len(who)  # type: ignore[arg-type]
    found = DOOR.observations({"a": ["x"] * size, "y": [0] * size, "who": who}).units
    assert found is not None
    return found.tolist()


def test_a_person_is_the_same_however_a_row_came() -> None:
    known = units(["7", "-12", "x"])
    assert units([7, -12]) == known[:2]
    assert units([np.int64(7), "-12", "x"]) == known
    assert units(pa.array([7, -12], pa.int16())) == known[:2]
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        assert units(pa.array(["7", "-12", "x"]).cast(kind)) == known
    assert units(pa.chunked_array([["7"], ["-12", "x"]])) == known


@pytest.mark.parametrize("who", [[None], [None, "x", 7], ["x", 1.5], ["x", True], [7, 2**70, "x"]])
def test_a_row_of_nobody_is_refused_by_itself(who: list[object]) -> None:
    rows = [{"a": "x", "y": 0, "who": person} for person in who]
    with pytest.raises(ObservationError, match="column 'who' "):
        DOOR.observations(rows)
    assert len(DOOR.observations(rows, "skip")) == sum(person in ("x", 7) for person in who)


@pytest.mark.parametrize("who", [[1.5, 2.0], [True, False], [b"x", b"y"]])
def test_what_is_neither_text_nor_whole_is_nobody(who: list[object]) -> None:
    with pytest.raises(ObservationError, match=r"text n?or (a )?whole number"):
        units(who)
