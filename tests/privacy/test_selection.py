"""Choosing groups: what one row can change, by brute force, and that draws cost what they say."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, product

import numpy as np
import pytest

from pyramidion.counts.selection import STRETCHES, Coded, pairs_of
from pyramidion.counts.selection_kernels import UNIT
from pyramidion.errors import PrivacyError
from pyramidion.privacy import selection
from pyramidion.privacy.budget import Unit
from pyramidion.privacy.randomness import Randomness
from pyramidion.privacy.selection import (
    LEAKY,
    MOST_FEATURES,
    PRIOR_SHARE,
    Wanted,
    attention,
    drawn,
    noisy_totals,
    select,
    spread_of_gain,
    spread_of_quality,
)

Rows = tuple[tuple[int, int, int, int, int], ...]
"""Each row's three values, its label, and the stretch of time that it came in, in order of that."""

PRIORS = {2: ([512, 512], [64, 960]), 3: ([342, 341, 341], [10, 14, 1000])}
PAIRS = pairs_of(range(3))
SPREAD_OF_GAIN = spread_of_gain(np.array([512, 512]))


def utilities(rows: Rows, prior: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Q of each feature, pair and of all three; gains of the pairs and of the three."""
    table = np.array(rows, dtype=np.int64).reshape(-1, 5)
    codes, labels, stretches = table[:, :3].T.astype(np.uint32).copy(), table[:, 3], table[:, 4]
    coded = Coded(codes, labels, np.array(prior), stretches, STRETCHES)
    made = coded.scores([*PAIRS, ((0, 1), (2,))])
    return np.concatenate([coded.alone(range(3)), made.quality]), made.gain


def came(rows: list[tuple[int, ...]], stretches: list[int]) -> Rows:
    """Rows with the stretch that each came in, in order of that."""
    told = [(*row, stretch) for row, stretch in zip(rows, stretches, strict=True)]
    return tuple(sorted(told, key=lambda row: row[4]))  # type: ignore[arg-type]


def data_sets(classes: int) -> Iterator[Rows]:
    """All sets of three rows; and each row of two many times, with another one to be blanked.

    The latter also among many that say nothing, so that parts say less than 1/16 of a row. Each
    came at times of its own, or of two at one time or at many.
    """
    kinds = list(product(range(2), range(2), range(2), range(classes)))
    rng = np.random.default_rng(3)
    for three in combinations_with_replacement(kinds[: 4 * classes], 3):
        yield came(list(three), [0, 1, 2])
        yield came(list(three), [0, *rng.integers(0, 2, 2).tolist()])
    for chosen in combinations(kinds, 3):
        if rng.random() < 0.25:
            times = rng.integers(1, 60, 2)
            rows = [chosen[0]] * times[0] + [chosen[1]] * times[1] + [chosen[2]] * 2
            apart = [1] * times[0] + [2] * times[1] + [0, int(rng.integers(0, 3))]
            yield came(rows, apart)
            idle = [(2, 2, 2, y) for y in range(classes)] * 900
            spread_out = rng.integers(0, STRETCHES, len(idle) + len(rows) - 2).tolist()
            middle = came([*rows[:-2], *idle], spread_out)
            yield ((*chosen[2], 0), *middle, (*chosen[2], STRETCHES - 1))


def neighbours(rows: Rows, k: int) -> Iterator[Rows]:
    """All ways to blank k rows that differ."""
    seen = set()
    for gone in combinations(range(len(rows)), k) if len(rows) < 8 else _some(len(rows), k):
        left = tuple(row for i, row in enumerate(rows) if i not in gone)
        key = tuple(sorted(rows[i] for i in gone))
        if key not in seen:
            seen.add(key)
            yield left


def _some(size: int, k: int) -> list[tuple[int, ...]]:
    last = range(size - 1, size - 1 - k, -1)
    return [tuple(range(k)), tuple(last), (0, *last)[:k]]


def spread(change: np.ndarray) -> int:
    return int(change.max() - change.min())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("classes", "k"), [(2, 1), (2, 2), (3, 1), pytest.param(3, 2, marks=pytest.mark.campaign)]
)
def test_blanking_rows_changes_no_score_by_more_than_is_proved(classes: int, k: int) -> None:
    widest = 0.0
    for prior in PRIORS[classes]:
        pi, told = np.array(prior) / sum(prior), np.array(prior)
        most = k * spread_of_quality(told), k * spread_of_gain(told)
        for rows in data_sets(classes):
            here = utilities(rows, prior)
            for left in neighbours(rows, k):
                there = utilities(left, prior)
                quality, gain = (a - b for a, b in zip(here, there, strict=True))
                if k == 1:  # the interval itself, of the class that was blanked
                    (label,) = {r[3] for r in Counter(rows) - Counter(left)}
                    c = ((np.eye(classes)[label] - pi) ** 2).sum() / 2
                    assert quality.max() <= highest(c) * UNIT + 1.001
                    assert quality.min() >= -((1 - c / 2) ** 2) * UNIT - 1.001
                assert np.abs(quality).max() <= most[0]
                assert spread(quality) <= most[0]
                assert spread(gain) <= most[1]
                widest = max(widest, spread(quality) / most[0])
    assert widest > 0.6  # so half of it would not do


def test_a_row_that_one_group_agrees_with_and_another_not_needs_most_of_the_spread() -> None:
    """Of features 0 and 1 the pair agrees with it and the parts do not, of 2 and 3 the reverse."""
    few, many = 60, 600
    rows = [(0, 0, 0, 0, 1)]
    for a, b, number, y in ((0, 0, few, 1), (0, 1, many, 0), (1, 0, many, 0)):
        rows += [(a, b, 9, 9, y)] * number + [(9, 9, a, b, 1 - y)] * number
    idle = [(9, 9, 9, 9, y) for y in (0, 0, 0, 1, 1, 1, 1, 1)] * 2 * many  # parts say 1/64 of a row
    stretches = np.array([0] + [1] * (len(rows) - 1 + len(idle)) + [2] * len(idle))
    table = np.array(rows + idle + idle)

    def gains(first: int) -> np.ndarray:
        codes, labels = table[first:, :4].T.astype(np.uint32).copy(), table[first:, 4]
        found = Coded(codes, labels, np.array([512, 512]), stretches[first:], STRETCHES)
        return found.scores(pairs_of(range(4))).gain

    change = gains(0) - gains(1)
    assert 0.51 * SPREAD_OF_GAIN < spread(change) <= SPREAD_OF_GAIN  # half of it would not do


def highest(c: float) -> float:
    """By trying: docs/privacy.md has the formula."""
    share = np.linspace(0, 1, 10_001)
    return float((share * (1 + c) - share**2 * (1 - c)).max()) + 1e-9


def test_a_draw_loses_epsilon_at_most_and_an_eighth_of_its_square_in_zcdp() -> None:
    epsilon, most = 1.5, np.zeros(2)
    for rows in list(data_sets(2))[::3]:
        for left in neighbours(rows, 1):
            here, there = (utilities(r, [512, 512])[1] for r in (rows, left))
            p, q = (
                np.exp(epsilon * (u - u.max()) / SPREAD_OF_GAIN)
                / np.exp(epsilon * (u - u.max()) / SPREAD_OF_GAIN).sum()
                for u in (here, there)
            )
            loss = np.abs(np.log(p / q)).max()
            alphas = (1.01, 2, 9)
            divergence = max(np.log((p**a * q ** (1 - a)).sum()) / (a - 1) / a for a in alphas)
            most = np.maximum(most, (loss, divergence))
    assert most[0] <= epsilon
    assert most[1] <= epsilon**2 / 8


def test_draws_fit_the_mass_function_of_the_utilities_over_their_spread() -> None:
    utilities_ = np.array([0, 2 * UNIT, 4 * UNIT], dtype=np.int64)
    k, epsilon = 2, Fraction(3)
    source = Randomness.insecure_from_seed(b"groups")
    found = [drawn(utilities_, 1, SPREAD_OF_GAIN, epsilon, k, source)[0] for _ in range(6_000)]
    weights = np.exp(float(epsilon) * utilities_ / (k * SPREAD_OF_GAIN))
    assert np.bincount(found, minlength=3) / 6_000 == pytest.approx(
        weights / weights.sum(), abs=0.025
    )


def test_no_candidate_is_drawn_twice() -> None:
    found = drawn(np.arange(20) * UNIT, 25, SPREAD_OF_GAIN, Fraction(1), 1, Randomness())
    assert sorted(found) == list(range(20))


# --- what draws cost --------------------------------------------------------------------------


def noted(monkeypatch: pytest.MonkeyPatch) -> list[Fraction]:
    """The ε of each draw of the exponential mechanism that is made from here on."""
    spent: list[Fraction] = []

    def chosen(utilities: list[int], *, epsilon: Fraction, **_: object) -> int:
        spent.append(epsilon)
        return int(np.argmax(utilities))

    monkeypatch.setattr(selection, "chosen", chosen)
    return spent


def planted(features: int, rows: int, seed: int = 5) -> Coded:
    """Rows of which features 1 and 3 together tell the label."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 4, (features, rows))
    y = (rng.random(rows) < 0.3 + 0.4 * ((codes[1] + codes[3]) % 2)).astype(np.int64)
    return Coded(codes.astype(np.uint32), y, np.array([512, 512]))


@pytest.mark.parametrize("features", [6, MOST_FEATURES + 3])
@pytest.mark.parametrize("parts", [2, 3])
def test_all_draws_of_a_selection_cost_its_budget_at_most(
    monkeypatch: pytest.MonkeyPatch, features: int, parts: int
) -> None:
    spent, wanted = noted(monkeypatch), Wanted(number=5, parts=parts)
    budget = Fraction(1, 7)
    select(planted(features, 300), wanted, method="top-k", budget=budget, unit="rho", k=1)
    assert len(spent) == 5 + (MOST_FEATURES if features > MOST_FEATURES else 0)
    left = budget * (1 - PRIOR_SHARE)
    assert 0.999 * left <= sum(e**2 / 8 for e in spent) <= left
    spent.clear()
    select(planted(features, 300), wanted, method="top-k", budget=budget, unit="epsilon", k=1)
    assert sum(spent) == left


def test_what_is_planted_is_chosen_and_grown_from() -> None:
    coded = planted(8, 20_000)
    source = Randomness.insecure_from_seed(b"planted")
    asked = {"method": "top-k", "budget": Fraction(1), "unit": "epsilon", "k": 1}
    first, second = select(coded, Wanted(number=2, parts=3), **asked, randomness=source)  # type: ignore[arg-type]
    assert first == (1, 3)
    assert {1, 3} < set(second)
    there = frozenset({frozenset({1, 3})})
    found = select(coded, Wanted(number=3, excluded=there), **asked, randomness=source)  # type: ignore[arg-type]
    assert (1, 3) not in found


def test_exact_mutual_information_is_refused_where_there_is_privacy() -> None:
    asked = {"method": LEAKY, "budget": Fraction(1), "k": 1}
    coded = planted(5, 4_000)
    with pytest.raises(PrivacyError, match="leaks"):
        select(coded, Wanted(number=1), unit="epsilon", **asked)  # type: ignore[arg-type]
    assert select(coded, Wanted(number=1), unit="none", **asked) == [(1, 3)]  # type: ignore[arg-type]


@pytest.mark.parametrize(("unit", "deviation"), [("epsilon", 2**0.5 * 10), ("rho", 5**0.5)])
def test_the_totals_of_labels_carry_the_noise_that_their_part_pays_for(
    unit: Unit, deviation: float
) -> None:
    source, coded = Randomness.insecure_from_seed(b"totals"), planted(4, 5_000)
    budget, k = Fraction(1, 5) if unit == "epsilon" else Fraction(2, 5), 2
    found = [noisy_totals(coded, budget, unit, k, source) - 1 for _ in range(2_000)]
    assert np.std(found, axis=0) == pytest.approx(deviation, rel=0.1)
    assert np.mean(found, axis=0) == pytest.approx(coded.totals, abs=1.5)


# --- the center of attention ------------------------------------------------------------------

GRID = [0.0, 0.5, 1.0]


@pytest.mark.parametrize("beta", [0.1, 0.7])
def test_the_center_of_attention_moves_by_less_than_its_smooth_bound(beta: float) -> None:
    """All sets of five points on a line and many of six on a grid, each with all neighbours."""
    rng = np.random.default_rng(4)
    sets = [np.array(s)[:, None] for s in combinations_with_replacement(GRID, 5)]
    sets += [rng.choice(GRID, (6, 2)) for _ in range(150)]
    moved = 0
    for points in sets:
        diameter = float(points.shape[1])
        at, bound = attention(points, diameter, beta=beta)
        for i, other in product(range(len(points)), product(GRID, repeat=points.shape[1])):
            near = points.copy()
            near[i] = other
            there, near_bound = attention(near, diameter, beta=beta)
            move = np.abs(points[at] - near[there]).sum()
            assert move <= min(bound, near_bound) + 1e-12
            assert abs(math.log(bound / near_bound) if bound and near_bound else 0) <= beta + 1e-9
            assert (bound == 0) == (near_bound == 0)
            moved += move > 0
    assert moved > 100


def test_the_densities_of_neighbouring_centers_differ_by_at_most_e_to_the_epsilon() -> None:
    epsilon, dims = 0.9, 2
    rng = np.random.default_rng(6)
    outputs = rng.normal(0, 20, (4_000, dims))
    for _ in range(200):
        points = rng.choice(GRID, (5, dims))
        near = points.copy()
        near[rng.integers(5)] = rng.choice(GRID, dims)
        logs = []
        for z in (points, near):
            at, bound = attention(z, float(dims), beta=epsilon / (2 * dims))
            scale = 2 * bound / epsilon
            logs.append((-np.log(scale) - np.log1p(((outputs - z[at]) / scale) ** 2)).sum(axis=1))
        assert np.abs(logs[0] - logs[1]).max() <= epsilon * (1 + 1e-9)


def test_with_few_candidates_and_much_budget_the_center_finds_what_is_planted() -> None:
    source = Randomness.insecure_from_seed(b"center")
    found = select(
        planted(4, 120_000),
        Wanted(number=1),
        method="center",
        budget=Fraction(40),
        unit="epsilon",
        k=1,
        randomness=source,
    )
    assert found == [(1, 3)]
