"""Scores of groups: the kernel against exact fractions, and what the score is for."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyramidion import Categorical, Label, Schema, Settings
from pyramidion.counts.selection import Coded, grown, pairs_of, whole_prior
from pyramidion.counts.selection_kernels import UNIT, WEIGHT
from pyramidion.errors import PrivacyError, StateError
from pyramidion.rows.observations import Door, Observations
from tests.reference_selection import Row, gain, information, quality

PRIORS = ([512, 512], [100, 924], [341, 341, 342], [1, 23, 1000])


def coded(rows: list[Row], prior: list[int]) -> Coded:
    codes = np.array([values for values, _ in rows], dtype=np.uint32).T.copy()
    return Coded(codes, np.array([y for _, y in rows], dtype=np.int64), np.array(prior))


def exact(prior: list[int]) -> list[Fraction]:
    return [Fraction(part, WEIGHT) for part in prior]


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Row], list[int]]:
    prior = draw(st.sampled_from(PRIORS))
    values = st.tuples(*[st.integers(0, 3)] * 3)
    rows = draw(
        st.lists(st.tuples(values, st.integers(0, len(prior) - 1)), min_size=1, max_size=40)
    )
    return rows, prior


@settings(deadline=None)
@given(tables())
def test_scores_are_those_of_the_twin_up_to_the_rounding_of_each_key(given_: tuple) -> None:
    rows, prior = given_
    found, pairs = coded(rows, prior), [((0,), (1,)), ((0,), (2,)), ((0, 1), (2,))]
    scores = found.scores(pairs)
    for i, (one, other) in enumerate(pairs):
        keys = len(rows)
        true = quality(rows, [*one, *other], exact(prior))
        assert 0 <= true - Fraction(int(scores.quality[i]), UNIT) <= Fraction(keys, UNIT)
        true = gain(rows, one, other, exact(prior))
        assert abs(true - Fraction(int(scores.gain[i]), UNIT)) <= Fraction(3 * keys, UNIT)
        told = information(rows, [*one, *other]) - max(
            information(rows, one), information(rows, other)
        )
        assert scores.information[i] == pytest.approx(told, abs=1e-9)


@pytest.mark.parametrize("pairs", [0, 1, 2, 7, 66])
def test_two_threads_score_what_one_does(pairs: int) -> None:
    rng = np.random.default_rng(11)
    codes, y = rng.integers(0, 9, (12, 800)).astype(np.uint32), rng.integers(0, 2, 800)
    asked = pairs_of(range(12))[:pairs]
    one, two = (Coded(codes, y, np.array([300, 724])) for _ in range(2))
    two.threads = 5
    assert two.under([1, 1]).threads == 5
    told, same = one.scores(asked), two.scores(asked)
    assert np.array_equal(told.gain, same.gain)
    assert np.array_equal(told.information, same.information)
    assert np.array_equal(one.alone(range(12)), two.alone(range(12)))


def test_keys_that_occur_once_score_nothing_but_have_all_the_information() -> None:
    rows = [((i, i % 7, 0), i % 2) for i in range(60)]
    found = coded(rows, [512, 512])
    assert found.alone([0])[0] == 0
    assert information(rows, [0]) == pytest.approx(60 * np.log(2))


def test_two_features_that_add_up_gain_little_and_two_that_interact_much() -> None:
    rng = np.random.default_rng(1)
    a, b, c = rng.integers(0, 2, (3, 20_000))
    p = 0.5 + 0.1 * (2 * a - 1) + 0.1 * (2 * b - 1) + 0.1 * (2 * (a ^ c) - 1)
    y = (rng.random(20_000) < p).astype(np.int64)
    found = Coded(np.stack([a, b, c]).astype(np.uint32), y, np.array([512, 512]))
    scores = found.scores(pairs_of(range(3)))
    added, interacting, _ = scores.gain / UNIT
    assert interacting > 150  # 20,000 rows times 0.1 squared are 200
    assert abs(added) < 20
    assert scores.information[0] > 50  # which the paper's measure takes for a gain


@pytest.mark.slow
def test_many_labels_and_many_values_are_scored_as_the_twin_does() -> None:
    rng = np.random.default_rng(2)
    rows = [
        (tuple(map(int, rng.integers(0, [200, 3, 50]))), int(rng.integers(0, 300)))
        for _ in range(500)
    ]
    prior = whole_prior(np.ones(300))
    assert prior.sum() == WEIGHT
    scores = coded(rows, prior.tolist()).scores([((1,), (2,))])
    true = quality(rows, [1, 2], exact(prior.tolist()))
    assert scores.quality[0] / UNIT == pytest.approx(float(true), abs=1e-3)


def test_groups_grow_by_one_feature_and_each_set_is_there_once() -> None:
    found = grown([(0, 1), (0, 2)], range(4), [frozenset((0, 1, 3))])
    wholes = [frozenset((*one, *other)) for one, other in found]
    assert len(set(wholes)) == len(wholes)
    assert set(wholes) == {frozenset((0, 1, 2)), frozenset((0, 2, 3))}
    assert len(pairs_of(range(39))) == 741
    assert len(pairs_of(range(4), map(frozenset, combinations(range(3), 2)))) == 3


SCHEMA = Schema(
    features=[Categorical("a"), Categorical("b")], label=Label("y", classes=[0, 1]), weight="p"
)


def test_blanked_rows_are_left_out_and_move_no_other_row_to_another_block() -> None:
    door = Door(SCHEMA, Settings(epsilon=1.0, p_min=0.1), b"s")
    rows = pa.table({"a": list(range(30)), "b": [1] * 30, "y": [0, 1, 1] * 10, "p": [0.5] * 30})
    whole = door.observations(rows)
    blank = np.ones(30, dtype=bool)
    blank[[0, 7, 8]] = False
    one, other = (Coded.of([part], 2) for part in (whole, whole.counting(blank)))
    assert (len(one), len(other), one.came, other.came) == (30, 27, 30, 30)
    sizes = [[len(block) for block in found.blocks(3)] for found in (one, other)]
    assert sizes == [[10, 10, 10], [7, 10, 10]]


def test_of_many_batches_the_newest_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyramidion.counts.selection.MOST_CODES", 2 * 25)
    door = Door(SCHEMA, Settings(epsilon=1.0, p_min=0.1), b"s")
    batches = [
        door.observations(
            pa.table({"a": [i] * 10, "b": [1] * 10, "y": [i % 2] * 10, "p": [1.0] * 10})
        )
        for i in range(6)
    ]
    found = Coded.of(iter(batches), 2)
    assert (found.came, found.totals.tolist()) == (25, [10, 15])


PEOPLE = Schema(
    features=[Categorical(name) for name in "abc"], label=Label("y", classes=[0, 1]), unit="who"
)


def of_people(size: int, people: int = 300, seed: int = 0) -> Observations:
    """Rows of which a and b together tell the label, of some people who come at random."""
    rng = np.random.default_rng(seed)
    a, b, c = rng.integers(0, 4, (3, size))
    y = (rng.random(size) < 0.3 + 0.4 * ((a + b) % 2)).astype(int)
    who = rng.integers(0, people, size)
    door = Door(PEOPLE, Settings(epsilon=1.0), b"s")
    return door.observations(pa.table({"a": a, "b": b, "c": c, "y": y, "who": who}))


def test_a_pair_that_tells_gains_in_one_batch_of_people_what_it_gains_in_rows() -> None:
    rows = of_people(6_000)
    by_time, by_people = Coded.of([rows], 2), Coded.of([rows], 2, [6_000])
    pairs = pairs_of(range(3))
    told = [found.scores(pairs).gain / UNIT for found in (by_time, by_people)]
    assert told[0][0] == pytest.approx(told[1][0], rel=0.05)
    assert told[0][0] > 150
    assert np.abs(told[1][1:]).max() < 10


def test_rows_of_one_person_do_not_agree_whenever_they_come() -> None:
    """A pair that names people: the label is theirs, and no other person's."""
    rng = np.random.default_rng(3)
    who = rng.integers(0, 400, 8_000)
    y = (rng.random(8_000) < np.where(rng.random(400) < 0.5, 0.2, 0.8)[who]).astype(int)
    door = Door(PEOPLE, Settings(epsilon=1.0), b"s")
    table = {"a": who // 20, "b": who % 20, "c": who * 0, "y": y, "who": who}
    rows = door.observations(pa.table(table))
    pair = [((0,), (1,))]
    by_time, by_people = (Coded.of([rows], 2, came) for came in (None, [8_000]))
    assert by_time.scores(pair).gain[0] / UNIT > 500
    assert by_people.scores(pair).quality[0] == 0


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 299), st.integers(0, 1 << 30), st.booleans())
def test_rows_of_a_person_that_are_erased_or_blanked_move_no_other_row(
    person: int, seed: int, erased: bool
) -> None:
    batches = [of_people(200, 30, seed), of_people(100, 30, seed + 1)]
    gone = batches[0].units[person % 200]
    less = [
        rows.take(np.flatnonzero(rows.units != gone))
        if erased
        else rows.counting(rows.units != gone)
        for rows in batches
    ]
    whole, without = (Coded.of(iter(part), 2, [200, 100]) for part in (batches, less))
    assert (whole.came, without.came, whole.cut) == (300, 300, False)
    theirs = np.concatenate([rows.units for rows in batches]) == gone
    assert len(whole) - len(without) == theirs.sum()
    place = set(whole._places.tolist()) - set(without._places.tolist())
    assert len(place) <= 1  # the person's own, unless somebody shares it
    for number in (8, 3):
        sizes = [[len(block) for block in found.blocks(number)] for found in (whole, without)]
        assert sum(a != b for a, b in zip(*sizes, strict=True)) == 1


@pytest.mark.parametrize(
    ("came", "read", "cut"),
    [
        ([100, 60, 40], 100, False),  # the newest two fit and fill it
        ([100, 60, 51], 51, False),  # more than half of it
        ([100, 60, 49], 100, True),  # less than half: as much of the next one as fits
        ([100, 200], 100, True),
        ([100], 100, False),
    ],
)
def test_of_batches_of_people_the_newest_that_fit_are_read_and_as_many_rows_of_the_next(
    monkeypatch: pytest.MonkeyPatch, came: list[int], read: int, cut: bool
) -> None:
    monkeypatch.setattr("pyramidion.counts.selection.MOST_CODES", 3 * 100)
    found = Coded.of([of_people(size, seed=size) for size in came], 2, came)
    assert (len(found), found.came, found.cut) == (read, read, cut)
    assert found.under([0.2, 0.8]).cut is cut


def test_where_not_all_people_are_read_blanking_one_lets_in_as_many_rows_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pyramidion.counts.selection.MOST_CODES", 3 * 100)
    rows = of_people(400, 40)
    met = 0
    for gone in np.unique(rows.units):
        theirs = int((rows.units == gone).sum())
        less = rows.take(np.flatnonzero(rows.units != gone))
        one, other = (Coded.of([part], 2, [400]) for part in (rows, less))
        assert len(one) == len(other) == one.came == other.came == 100
        places = [Counter(found._places.tolist()) for found in (one, other)]
        moved = (places[0] - places[1]).total(), (places[1] - places[0]).total()
        assert moved[0] == moved[1] <= theirs
        met += moved[0]
    assert met >= 100  # each row that is read is somebody's
    spread = np.bincount(one._places * 8 // one.came, minlength=8)
    assert np.count_nonzero(spread) >= 4  # who is read is not who is in the first stretch


def test_rows_that_do_not_say_whose_they_are_are_refused() -> None:
    door = Door(SCHEMA, Settings(epsilon=1.0, p_min=0.1), b"s")
    rows = door.observations(pa.table({"a": [1], "b": [1], "y": [0], "p": [1.0]}))
    with pytest.raises(PrivacyError, match="whose they are"):
        Coded.of([rows], 2, [1])


def test_prior_parts_sum_to_their_weight() -> None:
    for prior in ([1.0], [0.2, 0.8], [0.001, 0.999], np.ones(4096) / 4096):
        assert whole_prior(list(prior)).sum() == WEIGHT
        assert whole_prior(list(prior)).min() >= 0


def test_rows_that_agree_because_they_come_together_gain_nothing() -> None:
    """Sessions of one taste each: two features that name the session tell of it alone."""
    rng = np.random.default_rng(7)
    sessions, length = 400, 50
    person = rng.integers(0, 12, (2, sessions))
    likes = 0.5 + 0.3 * rng.choice([-1, 1], sessions)
    a, b = np.repeat(person, length, axis=1)
    c, d = rng.integers(0, 12, (2, sessions * length))
    lasting = 0.08 * np.sign(np.sin(c * 12 + d))
    y = (rng.random(sessions * length) < np.repeat(likes, length) + lasting).astype(np.int64)
    found = Coded(np.stack([a, b, c, d]).astype(np.uint32), y, np.array([512, 512]))
    together, lasts = found.scores([((0,), (1,)), ((2,), (3,))]).gain / UNIT
    assert lasts > 60
    assert together < lasts / 2
    scattered = rng.permutation(sessions * length)  # then nothing says what came together
    mixed = Coded(found.codes[:, scattered].copy(), y[scattered], np.array([512, 512]))
    assert mixed.scores([((0,), (1,))]).gain[0] / UNIT > 4 * lasts


def test_rows_out_of_order_are_refused() -> None:
    with pytest.raises(StateError, match="in the order that they came"):
        Coded(
            np.zeros((1, 2), np.uint32), np.zeros(2, np.int64), np.array([512, 512]),
            np.array([1, 0]), 2,
        )  # fmt: skip
