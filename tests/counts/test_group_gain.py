"""What sealed tables say of a group: against a naive twin, and by what it is not moved."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pyramidion.counts.arena import Arena
from pyramidion.counts.group_gain import SURE, Across, agreement, gain, gain_across, parts_of
from pyramidion.counts.layout import PRIOR, Layout, Table
from tests.reference_selection import agreement_across

WIDTH = {"a": 12, "b": 12, "a,b": 144}


def sealed(counts: dict[str, NDArray[Any]], variance: float = 0.0) -> Arena:
    """A sealed window of tables with known cells."""
    (_, labels), rows = counts[PRIOR].shape, int(counts[PRIOR].sum())
    tables = [
        Table(name, "dense", 1, len(cells), 10**6, variance if name else 0.0)
        for name, cells in counts.items()
    ]
    layout = Layout(tuple(tables), labels=labels, secret=b"s")
    known = list(counts.values())

    def fill(table: int, cells: NDArray[Any]) -> None:
        cells[:] = known[table].reshape(-1)

    return Arena.of_cells(layout, fill, rows=max(rows, 0), max_rows=10**6)


def counted(a: Any, b: Any, y: Any, variance: float = 0.0, seed: int = 0) -> Arena:
    """A window that counts rows of two features, with noise in every cell."""
    rng = np.random.default_rng(seed)
    found = {PRIOR: np.bincount(y, minlength=2)[None]}
    for name, key in (("a", a), ("b", b), ("a,b", a * 12 + b)):
        cells = np.bincount(key * 2 + y, minlength=2 * WIDTH[name]).reshape(-1, 2)
        found[name] = np.rint(cells + rng.normal(0, variance**0.5, cells.shape)).astype(int)
    return sealed(found, variance)


def judged(arenas: Sequence[Arena]) -> Any:
    names = ["a,b", "a", "b"]
    across = [Across() for _ in names]
    for arena in arenas:
        for name, each in zip(names, across, strict=True):
            each.add(arena, arena.layout.index[name])
    return gain_across(across[0], across[1:])


def pooled(arenas: Sequence[Arena]) -> Any:
    """By all pairs of rows, as one window is judged."""
    total = Arena.total(arenas)
    return gain(total, "a,b", dict.fromkeys(total.layout.index, total.rows))


cells = st.lists(
    st.lists(st.integers(-3, 20), min_size=3, max_size=3), min_size=4, max_size=4
)  # of four buckets with three labels


@settings(deadline=None)
@given(st.lists(cells, min_size=2, max_size=4))
def test_agreement_across_windows_is_that_of_the_twin(windows: list[list[list[int]]]) -> None:
    totals = [[max(sum(bucket[label] for bucket in w), 0) for label in range(3)] for w in windows]
    priors = [[Fraction(t + 1, sum(one) + 3) for t in one] for one in totals]
    sums = [np.array(window).sum(axis=1) for window in windows]
    assume((sum(sums) ** 2).sum() - sum((each**2).sum() for each in sums) > 1)
    across = Across()
    for window, total in zip(windows, totals, strict=True):
        across.add(sealed({PRIOR: np.array([total]), "a": np.array(window)}), 1)
    assert across.agreement().value == pytest.approx(float(agreement_across(windows, priors)))


@settings(deadline=None)
@given(st.permutations(range(4)))
def test_the_order_of_windows_does_not_matter(order: list[int]) -> None:
    rng = np.random.default_rng(4)
    arenas = [counted(*rng.integers(0, 12, (2, 500)), rng.integers(0, 2, 500)) for _ in order]
    one, other = judged(arenas), judged([arenas[i] for i in order])
    assert (one.value, one.error) == pytest.approx((other.value, other.error))


def sessions(seed: int, windows: int, lasting: float) -> list[Arena]:
    """Sessions of one taste each, in one window each; two features name them."""
    rng, arenas = np.random.default_rng(seed), []
    rate = 0.5 + lasting * rng.choice([-1, 1], (12, 12))
    for _ in range(windows):
        a, b = np.repeat(rng.integers(0, 12, (2, 60)), 50, axis=1)
        moods = np.repeat(0.25 * rng.choice([-1, 1], 60), 50)
        y = (rng.random(3000) < rate[a, b] + moods).astype(int)
        arenas.append(counted(a, b, y))
    return arenas


def test_a_group_whose_rows_agree_because_they_came_together_is_not_kept() -> None:
    off = []
    for seed in range(40):
        arenas = sessions(seed, windows=4, lasting=0.0)
        told, all_pairs = judged(arenas), pooled(arenas)
        assert all_pairs.value > 10 * SURE * all_pairs.error  # which took sessions for a gain
        off.append(told.value / told.error)
    assert 0.7 < np.std(off) < 1.3  # few sessions meet, so some are further off than a normal law
    assert sum(each > SURE for each in off) <= 1


def test_a_group_that_lasts_is_kept_also_where_rows_come_in_sessions() -> None:
    told = judged(sessions(2, windows=8, lasting=0.2))
    assert told.value > SURE * told.error
    assert told.value == pytest.approx(0.04, abs=0.02)  # a square of 0.2


def test_labels_that_become_more_frequent_favour_no_group() -> None:
    """Features that say nothing, while the label goes from rare to frequent."""
    rng = np.random.default_rng(3)
    arenas = [
        counted(*rng.integers(0, 12, (2, 20_000)), (rng.random(20_000) < rate).astype(int))
        for rate in (0.1, 0.3, 0.5, 0.7, 0.9)
    ]
    told = judged(arenas)
    assert abs(told.value) < SURE * told.error
    assert told.error < 1e-3
    one_prior = agreement(Arena.total(arenas), 1, 100_000)
    assert abs(one_prior.value) < 0.01  # the total hides it, and a part of the windows does not


@pytest.mark.parametrize("variance", [0.0, 400.0])
def test_the_error_is_that_of_windows_with_nothing_to_tell(variance: float) -> None:
    told = []
    for seed in range(300):
        rng = np.random.default_rng([seed, 9])
        arenas = [
            counted(
                *rng.integers(0, 12, (2, 400)), rng.integers(0, 2, 400), variance, seed * 10 + t
            )
            for t in range(3)
        ]
        told.append(judged(arenas))
    off = np.array([each.value / each.error for each in told])
    assert abs(off.mean()) < 4 / 300**0.5
    assert 0.6 < off.std() < 1.15
    assert np.abs(off).max() < 5


def test_a_group_is_judged_by_its_largest_part_and_what_that_lacks() -> None:
    names = [PRIOR, "a", "b", "c", "b,c", "a,b,c"]
    assert parts_of(names, "a,b,c") == ["a,b,c", "b,c", "a"]
    assert parts_of(names, "a,c") is None
    assert parts_of(["a,b@3", "a@3", "b"], "a,b") == ["a,b@3", "a@3", "b"]


def test_what_is_told_is_a_plain_number_that_json_takes() -> None:
    rng = np.random.default_rng(5)
    windows = [counted(*rng.integers(0, (12, 12, 2), (300, 3)).T, 4.0, seed) for seed in (1, 2)]
    for told in (judged(windows), pooled(windows)):
        assert type(told.value) is float
        assert type(told.error) is float
