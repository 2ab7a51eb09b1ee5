"""The exponential mechanism draws exactly what it says, and its draws cost what they say."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from pyramidion.errors import PrivacyError
from pyramidion.privacy.budget import Unit
from pyramidion.privacy.exponential import Method, _layer, chosen, epsilon_per_draw
from pyramidion.privacy.randomness import Randomness, Words
from pyramidion.privacy.twins import below, exp_interval

Utilities = Sequence[int | Fraction]

CASES: list[tuple[Utilities, Sequence[int] | None, Fraction, Fraction | int]] = [
    ([0, 0, 0], None, Fraction(1), 1),
    ([0, -1, -2, -3, 5], None, Fraction(1), 1),
    ([Fraction(1, 3), Fraction(-7, 2), 0], None, Fraction(3, 2), Fraction(1, 2)),
    ([7, 7, 6, 0, -40], [1, 5, 0, 20, 3], Fraction(1, 4), 3),
    ([0, -80], [1, 2**62], Fraction(1), 1),  # e^-40 2^62 is about 20
    ([0, -172, -2000], [1, 2**62, 2**61], Fraction(1, 2), 1),  # the last is never seen
    (list(range(0, -80, -1)), None, Fraction(1, 5), 2),
]
cases = pytest.mark.parametrize(("utilities", "base", "epsilon", "sensitivity"), CASES)


def masses(
    utilities: Utilities,
    *,
    epsilon: Fraction,
    sensitivity: Fraction | int,
    base: Sequence[int] | None = None,
) -> list[Decimal]:
    """The probabilities as the formula has them, to 50 digits."""
    with localcontext() as context:
        context.prec = 60
        rate = epsilon / (2 * sensitivity)
        powers = [
            (Decimal((rate * u).numerator) / Decimal((rate * u).denominator)).exp()
            for u in map(Fraction, utilities)
        ]
        terms = [b * e for b, e in zip(base or [1] * len(powers), powers, strict=True)]
        return [term / sum(terms) for term in terms]


def counted(draws: Iterable[int], size: int) -> NDArray[np.int64]:
    return np.bincount(list(draws), minlength=size)


def fit(observed: NDArray[np.int64], mass: Sequence[Decimal]) -> float:
    """The p-value of a chi-square test; candidates that expect under 10 are one bin."""
    expected = np.array([float(p) for p in mass]) * observed.sum()
    rare = expected < 10
    seen = [*observed[~rare], observed[rare].sum()]
    hoped = [*expected[~rare], max(expected[rare].sum(), 1e-9)]
    return float(stats.chisquare(seen, hoped, sum_check=False).pvalue) if len(hoped) > 1 else 1.0


@pytest.mark.slow
@cases
def test_draws_fit_the_exact_mass_function(
    utilities: Utilities,
    base: Sequence[int] | None,
    epsilon: Fraction,
    sensitivity: Fraction | int,
) -> None:
    source = Randomness.insecure_from_seed(b"chosen")
    mass = masses(utilities, epsilon=epsilon, sensitivity=sensitivity, base=base)
    drawn = (
        chosen(utilities, epsilon=epsilon, sensitivity=sensitivity, randomness=source, base=base)
        for _ in range(5_000)
    )
    assert fit(counted(drawn, len(utilities)), mass) > 1e-4


@pytest.mark.slow
def test_the_fit_notices_a_tenth_more_epsilon() -> None:
    source = Randomness.insecure_from_seed(b"chosen")
    utilities = [0, -1, -2, -3, 5]
    wrong = (
        chosen(utilities, epsilon=Fraction(11, 10), sensitivity=1, randomness=source)
        for _ in range(20_000)
    )
    mass = masses(utilities, epsilon=Fraction(1), sensitivity=1)
    assert fit(counted(wrong, 5), mass) < 1e-6


def test_candidates_of_base_zero_are_never_chosen_and_do_not_hide_the_others() -> None:
    drawn = [chosen([10**9, 0, 0], epsilon=Fraction(1), sensitivity=1, base=[0, 1, 1])] * 50
    assert 0 not in drawn


def scripted(first: int, spare: Sequence[int]) -> Words:
    rest = iter(spare)

    def source(array: NDArray[np.uint64]) -> None:
        array[:] = first

    def further(array: NDArray[np.uint64]) -> None:
        array[:] = next(rest)

    return Words(source, further, chunk=1)


@pytest.mark.parametrize(("more", "layer"), [([0], 0), ([2**64 - 1], 1)])
def test_a_number_on_the_border_of_two_layers_is_decided_by_its_further_digits(
    more: list[int], layer: int
) -> None:
    one, power = 1 << 256, exp_interval(Fraction(1), 256)[0]
    border = (one << 64) // (one + power)  # of the layers 0 and 1, with a mass of 1 each
    assert _layer(scripted(border, more), [0, 1], [1, 1]) == layer
    assert _layer(scripted(border - 1, []), [0, 1], [1, 1]) == 0
    assert _layer(scripted(border + 1, []), [0, 1], [1, 1]) == 1


def test_the_last_numbers_below_one_fall_into_layers_beyond_all_digits_of_a_word() -> None:
    assert _layer(scripted(2**64 - 1, [2**64 - 1]), [0, 50, 70], [1, 1, 1]) == 2
    less = 2**64 - 3 * 10**12  # then e^-60 is left up to 1
    assert _layer(scripted(2**64 - 1, [less]), [0, 50, 70], [1, 1, 1]) == 1
    assert _layer(scripted(2**64 - 1, [0]), [0, 50, 70], [1, 1, 1]) == 0
    assert _layer(scripted(2**64 - 1, [2**64 - 1] * 40), [0, 1000], [1, 1]) == 1


def test_fair_integers_are_fair() -> None:
    with Randomness.insecure_from_seed(b"below").words() as words:
        drawn = counted((below(words, 7) for _ in range(20_000)), 7)
    assert stats.chisquare(drawn).pvalue > 1e-4
    most = 2**63 + 2**62  # a quarter of the words are rejected, or the lower half came more often
    with Randomness.insecure_from_seed(b"below").words() as words:
        halves = sum(below(words, most) < most // 2 for _ in range(20_000))
    assert abs(halves - 10_000) < 5 * 20_000**0.5 / 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": Fraction(0)},
        {"epsilon": Fraction(-1)},
        {"sensitivity": 0},
        {"utilities": []},
        {"base": [0, 0]},
        {"base": [1]},
        {"base": [-1, 3]},
        {"base": [2**63, 1]},
    ],
)
def test_what_cannot_be_private_or_exact_is_refused(wrong: dict[str, object]) -> None:
    asked: dict[str, object] = {"utilities": [0, 1], "epsilon": Fraction(1), "sensitivity": 1}
    with pytest.raises(PrivacyError):
        chosen(**(asked | wrong))  # type: ignore[arg-type]


amounts = st.one_of(
    st.fractions(min_value=Fraction(1, 10**12), max_value=100),
    st.floats(1e-300, 1e6).map(Fraction),
)
COST: dict[tuple[Unit, Method], Fraction] = {
    ("rho", "exponential"): Fraction(1, 8),
    ("rho", "smooth"): Fraction(1, 2),
}


@given(amounts, st.integers(1, 500))
def test_pure_epsilons_of_draws_sum_to_the_amount(amount: Fraction, draws: int) -> None:
    for method in ("exponential", "smooth"):
        each = epsilon_per_draw(amount, unit="epsilon", draws=draws, method=method)  # type: ignore[arg-type]
        assert draws * each == amount


@given(amounts, st.integers(1, 500), st.sampled_from(sorted(COST)))
def test_draws_never_cost_more_than_the_amount_and_hardly_less(
    amount: Fraction, draws: int, case: tuple[Unit, Method]
) -> None:
    each = epsilon_per_draw(amount, unit=case[0], draws=draws, method=case[1])
    spent = draws * each**2 * COST[case]
    assert amount * (1 - Fraction(1, 2**100)) < spent <= amount


def test_draws_without_a_budget_are_refused() -> None:
    for amount, draws in ((Fraction(0), 1), (Fraction(1), 0), (Fraction(-1), 3)):
        with pytest.raises(PrivacyError):
            epsilon_per_draw(amount, unit="rho", draws=draws)


def test_nothing_of_exact_utilities_is_kept_after_a_draw() -> None:
    chosen([0, -137, -411], epsilon=Fraction(2), sensitivity=1)
    found = vars(sys.modules[chosen.__module__]).values()
    assert not any(hasattr(each, "cache_info") for each in found)
