"""Private quantiles: sensitivity by brute force, the privacy ratio by exact masses, accuracy."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pyramidion.errors import PrivacyError, SchemaError
from pyramidion.privacy import quantiles
from pyramidion.privacy.quantiles import LEAST, MOST, candidates, count_quantile, cuts
from pyramidion.privacy.randomness import Randomness
from tests.privacy.test_exponential import masses

RANKS = [Fraction(1, 10), Fraction(1, 2), Fraction(2, 3)]


def per_key(keys: tuple[int, ...]) -> NDArray[np.int64]:
    return np.array(list(Counter(keys).values()), dtype=np.int64)


def streams(most: int) -> list[tuple[int, ...]]:
    """All streams of up to so many rows and four keys, up to order."""
    return [
        keys
        for rows in range(most + 1)
        for keys in itertools.combinations_with_replacement(range(4), rows)
    ]


def blanked(rows: tuple[int, ...], k: int) -> set[tuple[int, ...]]:
    """What is left when up to k rows are blanked."""
    return {
        kept
        for left in range(max(0, len(rows) - k), len(rows))
        for kept in itertools.combinations(rows, left)
    }


def count_utilities(keys: tuple[int, ...], rank: Fraction) -> list[Fraction]:
    found = quantiles._count_utilities(per_key(keys), rank)
    return [Fraction(u, rank.denominator) for u in found]


def cut_utilities(rows: tuple[int, ...], rank: Fraction) -> list[Fraction]:
    below = [sum(v < c for v in rows) for c in (0, 1, 2, 3, 4)]
    found = quantiles._cut_utilities(below, len(rows), rank)
    return [Fraction(u, rank.denominator) for u in found]


@pytest.mark.slow
@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("utilities", [count_utilities, cut_utilities])
@pytest.mark.parametrize("k", [1, 2])
def test_blanking_k_rows_changes_no_utility_by_more_than_k(
    rank: Fraction, utilities: object, k: int
) -> None:
    assert callable(utilities)
    largest = Fraction(0)
    for keys in streams(7):
        for other in blanked(keys, k):
            pairs = zip(utilities(keys, rank), utilities(other, rank), strict=True)
            largest = max(largest, *(abs(a - b) for a, b in pairs))
    assert k * (1 - min(RANKS)) - 1 < largest <= k


def test_utilities_of_counts_are_what_the_page_says() -> None:
    counts = [1, 1, 2, 5, 5, 5, 5, 40, 41, 20_000]
    grid = quantiles._COUNTS
    for rank in RANKS:
        for c, after, found in zip(
            grid,
            [*grid[1:], math.inf],
            quantiles._count_utilities(np.array(counts), rank),
            strict=True,
        ):
            before, within = (sum(x < end for x in counts) for end in (c, after))
            target = rank * len(counts)
            assert Fraction(found, rank.denominator) == -max(before - target, target - within, 0)


def test_the_cell_of_the_quantile_is_the_best_one_also_where_many_counts_are_equal() -> None:
    utilities = quantiles._count_utilities(np.full(50, 6), Fraction(1, 10))
    best = [c for c, u in zip(quantiles._COUNTS, utilities, strict=True) if u == max(utilities)]
    assert best == [6]


def spread(one: list[Decimal], other: list[Decimal]) -> Decimal:
    ratios = [a / b for a, b in zip(one, other, strict=True)]
    return max(*ratios, *(1 / ratio for ratio in ratios))


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("utilities", [count_utilities, cut_utilities])
def test_probabilities_of_neighbours_differ_by_at_most_e_to_the_epsilon(
    k: int, utilities: object
) -> None:
    assert callable(utilities)
    epsilon, worst = Fraction(3, 2), Decimal(0)
    for keys in streams(4):
        one = masses(utilities(keys, RANKS[1]), epsilon=epsilon, sensitivity=k)
        for other in blanked(keys, k):
            theirs = masses(utilities(other, RANKS[1]), epsilon=epsilon, sensitivity=k)
            worst = max(worst, spread(one, theirs))
    assert Decimal("0.3").exp() < worst <= Decimal("1.5").exp()


def asked(utilities: list[object]) -> object:
    """A stand-in for the mechanism that notes what it is asked."""

    def chosen(given: object, **told: object) -> int:
        utilities.append((given, told))
        return 0

    return chosen


def test_the_draw_of_a_count_divides_by_two_k(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[list[int], dict[str, object]]] = []
    monkeypatch.setattr(quantiles, "chosen", asked(calls))  # type: ignore[arg-type]
    count_quantile(np.array([1, 5, 9]), p=0.1, epsilon=Fraction(1, 7), k=4)
    ((utilities, told),) = calls
    assert told["epsilon"] == Fraction(1, 7)
    # utilities are in tenths, and so is the sensitivity
    assert told["sensitivity"] == 4 * 10
    assert utilities == quantiles._count_utilities(np.array([1, 5, 9]), Fraction(1, 10))


def test_the_base_of_a_count_is_public_and_one_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[list[int], dict[str, object]]] = []
    monkeypatch.setattr(quantiles, "chosen", asked(calls))  # type: ignore[arg-type]
    for counts in ([1, 5, 9], [7_000] * 30):
        count_quantile(np.array(counts), p=0.1, epsilon=Fraction(1, 7), k=4)
    bases = [told["base"] for _, told in calls]
    assert bases[0] == bases[1] == [10_000 // count for count in quantiles._COUNTS]
    assert min(quantiles._BASE) == 1


def test_where_keys_say_nothing_a_small_count_is_likelier_than_a_large_one() -> None:
    source = Randomness.insecure_from_seed(b"nothing to say")
    found = [
        count_quantile(np.array([5_000]), p=0.5, epsilon=Fraction(1, 1_000), k=1, randomness=source)
        for _ in range(200)
    ]
    assert 2 <= np.median(found) <= 8
    assert np.mean(np.array(found) > 100) < 0.1


def test_cuts_are_one_draw_each_that_divides_by_two_k(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[list[int], dict[str, object]]] = []
    monkeypatch.setattr(quantiles, "chosen", asked(calls))  # type: ignore[arg-type]
    cuts(np.arange(10.0), bins=4, bounds=(0, 10), epsilon=Fraction(1, 7), k=3)
    assert [told["epsilon"] for _, told in calls] == [Fraction(1, 7)] * 3
    assert [told["sensitivity"] for _, told in calls] == [3 * 4, 3 * 2, 3 * 4]
    assert all(max(utilities) == 0 for utilities, _ in calls[1:2])


@pytest.mark.parametrize("method", ["exponential", "smooth"])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_the_quantile_of_many_keys_is_found(method: quantiles.Method, p: float) -> None:
    rng = np.random.default_rng(1)
    counts = np.rint(np.exp(rng.normal(5, 1, 50_000))).astype(np.int64) + 1
    source = Randomness.insecure_from_seed(b"accuracy")
    found = [
        count_quantile(counts, p=p, epsilon=Fraction(1, 2), k=2, method=method, randomness=source)
        for _ in range(21)
    ]
    wrong = np.sort(np.abs(np.log(found / np.quantile(counts, p))))
    assert wrong[10] < 0.2
    assert wrong[-1] < 0.2 or method == "smooth"  # Cauchy noise has no variance


@given(
    st.lists(st.integers(1, 10**9), max_size=20),
    st.floats(0.01, 0.99),
    st.sampled_from(["exponential", "smooth"]),
)
def test_a_quantile_is_never_outside_its_bounds(
    counts: list[int], p: float, method: quantiles.Method
) -> None:
    found = count_quantile(
        np.array(counts, dtype=np.int64), p=p, epsilon=Fraction(1, 3), k=1, method=method
    )
    assert LEAST <= found <= MOST


@pytest.mark.parametrize("wrong", [{"p": 0.0}, {"p": 1.0}, {"k": 0}, {"epsilon": Fraction(0)}])
@pytest.mark.parametrize("method", ["exponential", "smooth"])
def test_a_quantile_that_cannot_be_private_is_refused(
    wrong: dict[str, float], method: quantiles.Method
) -> None:
    told = {"p": 0.1, "epsilon": Fraction(1), "k": 1} | wrong
    with pytest.raises(PrivacyError):
        count_quantile(np.ones(3, dtype=np.int64), method=method, **told)  # type: ignore[arg-type]


COLUMNS = {
    "even": (lambda rng: rng.uniform(0, 1, 100_000), (0.0, 1.0)),
    "heavy tail": (lambda rng: np.exp(rng.normal(3, 2, 100_000)), (0.0, 1e6)),
    "heavy tails": (lambda rng: rng.standard_cauchy(100_000), (-1e6, 1e6)),
    "near the upper bound": (lambda rng: 1 - rng.exponential(1e-4, 100_000), (0.0, 1.0)),
}


@pytest.mark.parametrize("column", COLUMNS)
def test_cuts_divide_a_column_into_bins_of_about_equal_size(column: str) -> None:
    make, bounds = COLUMNS[column]
    values = make(np.random.default_rng(2))
    source = Randomness.insecure_from_seed(b"cuts")
    found = cuts(values, bins=10, bounds=bounds, epsilon=Fraction(1, 20), k=1, randomness=source)
    sizes = np.histogram(values, [-np.inf, *found, np.inf])[0]
    assert sizes.min() > 6_000
    assert sizes.max() < 14_000


@pytest.mark.slow
@given(
    st.lists(st.floats(-1e9, 1e9), max_size=30),
    st.integers(2, 40),
    st.tuples(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300)).filter(
        lambda ends: ends[1] - ends[0] > 1e-3
    ),
)
@settings(max_examples=25)
def test_cuts_are_strictly_increasing_and_strictly_within_the_bounds(
    values: list[float], bins: int, bounds: tuple[float, float]
) -> None:
    if len(candidates(bounds)) < bins - 1:
        return
    found = cuts(np.array(values), bins=bins, bounds=bounds, epsilon=Fraction(1, 10), k=1)
    assert len(found) == bins - 1
    assert all(a < b for a, b in pairwise([bounds[0], *found, bounds[1]]))


@pytest.mark.parametrize("where", [0.0, 0.5, 1.0])
def test_cuts_are_distinct_also_where_all_values_are_the_same(where: float) -> None:
    source = Randomness.insecure_from_seed(b"same")
    found = cuts(
        np.full(10_000, where),
        bins=64,
        bounds=(0, 1),
        epsilon=Fraction(1),
        k=1,
        randomness=source,
    )
    assert len(set(found)) == 63


def test_candidates_depend_on_the_bounds_alone_and_are_close_to_them_and_to_zero() -> None:
    grid = candidates((-8.0, 1e6))
    assert np.all(np.diff(grid) > 0)
    assert -8 < grid[0] < -8 + 1e-5
    assert 1e6 - 1e-5 < grid[-1] < 1e6
    positive, negative = grid[grid > 0], grid[grid < 0]
    assert positive[0] < 1e-5
    assert negative[-1] > -1e-10
    assert 0 in grid
    inner = positive[(positive > 1e-3) & (positive < 1e6)]
    assert (inner[1:] / inner[:-1]).max() < 1.1


@pytest.mark.parametrize(
    "wrong",
    [
        {"bins": 1},
        {"bounds": (1.0, 1.0)},
        {"bounds": (2.0, 1.0)},
        {"bounds": (0.0, math.inf)},
        {"bounds": (0.0, math.nan)},
        {"bounds": (1.0, math.nextafter(1.0, 2.0)), "bins": 2},
    ],
)
def test_cuts_that_cannot_be_made_are_refused(wrong: dict[str, object]) -> None:
    told: dict[str, object] = {"bins": 4, "bounds": (0.0, 1.0), "epsilon": Fraction(1), "k": 1}
    with pytest.raises(SchemaError):
        cuts(np.arange(5.0), **(told | wrong))  # type: ignore[arg-type]


def test_cuts_without_a_budget_are_refused() -> None:
    with pytest.raises(PrivacyError):
        cuts(np.arange(5.0), bins=4, bounds=(0, 1), epsilon=Fraction(0), k=1)
