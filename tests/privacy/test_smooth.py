"""The paper's quantile: the J-List against its definition, and smooth under blanking."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyramidion.privacy.randomness import Randomness
from pyramidion.privacy.smooth import smooth_quantile, smooth_sensitivity

BOUNDS = (1, 12)


def at(ordered: list[int], place: int) -> int:
    """x of a place, counted from 1: the bounds before and behind."""
    if place < 1:
        return BOUNDS[0]
    return BOUNDS[1] if place > len(ordered) else ordered[place - 1]


def naive(ordered: list[int], m: int, beta: float) -> float:
    """S by its definition."""
    return max(
        math.exp(-beta * t)
        * max(at(ordered, m + i) - at(ordered, m + i - t - 1) for i in range(t + 2))
        for t in range(len(ordered) + 2)
    )


def fast(ordered: list[int], m: int, beta: float) -> float:
    return smooth_sensitivity(np.array(ordered, dtype=np.int64), m=m, beta=beta, bounds=BOUNDS)


def place(ordered: list[int], p: Fraction) -> int:
    return math.ceil(p * len(ordered))


@given(
    st.lists(st.integers(*BOUNDS), max_size=40),
    st.fractions(Fraction(1, 50), Fraction(49, 50)),
    st.floats(0.001, 5),
)
def test_the_j_list_finds_what_the_definition_says(
    counts: list[int], p: Fraction, beta: float
) -> None:
    ordered = sorted(counts)
    m = place(ordered, p)
    assert fast(ordered, m, beta) == pytest.approx(naive(ordered, m, beta), rel=1e-12)


@pytest.mark.parametrize("p", [Fraction(1, 10), Fraction(1, 2), Fraction(9, 10)])
def test_the_j_list_finds_it_on_many_counts_too(p: Fraction) -> None:
    ordered = sorted(np.random.default_rng(5).geometric(0.3, 300).clip(*BOUNDS).tolist())
    for beta in (0.005, 0.1, 1.0):
        m = place(ordered, p)
        assert fast(ordered, m, beta) == pytest.approx(naive(ordered, m, beta), rel=1e-12)


def neighbours(keys: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Counts per key before and after each row is blanked."""
    whole = sorted(Counter(keys).values())
    return [(whole, sorted(Counter(keys[:i] + keys[i + 1 :]).values())) for i in range(len(keys))]


STREAMS = [
    keys for rows in range(1, 9) for keys in itertools.combinations_with_replacement(range(4), rows)
]


@pytest.mark.parametrize("p", [Fraction(1, 10), Fraction(1, 3), Fraction(3, 4)])
def test_blanking_a_row_moves_the_quantile_by_at_most_s_and_log_s_by_at_most_beta(
    p: Fraction,
) -> None:
    beta, moved = 0.3, 0
    for keys in STREAMS:
        for pair in neighbours(keys):
            (one, s_one), (other, s_other) = (
                (at(x, place(x, p)), fast(x, place(x, p), beta)) for x in pair
            )
            assert abs(one - other) <= min(s_one, s_other)
            assert abs(math.log(s_one / s_other)) <= beta * (1 + 1e-12)
            moved += one != other
    assert moved > 10


def test_the_densities_of_neighbours_differ_by_at_most_e_to_the_epsilon() -> None:
    epsilon, p = 0.8, Fraction(1, 3)
    outputs = np.linspace(-300, 300, 2001)
    for keys in STREAMS[::7]:
        for pair in neighbours(keys):
            densities = []
            for x in pair:
                scale = 2 * fast(x, place(x, p), epsilon / 2) / epsilon
                z = (outputs - at(x, place(x, p))) / scale
                densities.append(1 / (scale * (1 + z * z)))
            ratio = densities[0] / densities[1]
            assert max(ratio.max(), 1 / ratio.min()) <= math.exp(epsilon) * (1 + 1e-9)


def draws(k: int, epsilon: Fraction, size: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    source = Randomness.insecure_from_seed(b"cauchy")
    counts = np.repeat(np.arange(1, 200), 40)
    bounds = (1, 10_000)
    return np.array(
        [
            smooth_quantile(
                counts, p=Fraction(1, 2), epsilon=epsilon, k=k, bounds=bounds, randomness=source
            )
            for _ in range(size)
        ]
    )


@pytest.mark.slow
def test_noise_is_cauchy_around_the_quantile_with_the_scale_of_s() -> None:
    epsilon, k = Fraction(1, 2), 3
    found = draws(k, epsilon, 2_000)
    ordered = np.repeat(np.arange(1, 200), 40)
    beta = float(epsilon) / k / 2
    s = smooth_sensitivity(ordered, m=math.ceil(len(ordered) / 2), beta=beta, bounds=(1, 10_000))
    assert np.median(found) == pytest.approx(100, abs=1)
    # half of all Cauchy draws are within one scale
    assert np.mean(np.abs(found - 100) <= 2 * k * s / float(epsilon)) == pytest.approx(
        0.5, abs=0.05
    )


def test_the_answer_stays_within_the_bounds() -> None:
    few = np.array([3, 9], dtype=np.int64)
    source = Randomness.insecure_from_seed(b"bounds")
    found = [
        smooth_quantile(
            few, p=Fraction(1, 2), epsilon=Fraction(1, 9), k=1, bounds=BOUNDS, randomness=source
        )
        for _ in range(200)
    ]
    assert min(found) == BOUNDS[0]
    assert max(found) == BOUNDS[1]


def test_no_keys_at_all_have_a_quantile_too() -> None:
    none = np.zeros(0, dtype=np.int64)
    source = Randomness.insecure_from_seed(b"none")
    found = smooth_quantile(
        none, p=Fraction(1, 2), epsilon=Fraction(1), k=1, bounds=BOUNDS, randomness=source
    )
    assert BOUNDS[0] <= found <= BOUNDS[1]
