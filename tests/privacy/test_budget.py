from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyramidion import PrivacyError
from pyramidion.privacy.budget import (
    delta_of,
    epsilon_of,
    gaussian_variance,
    laplace_scale,
    pure_rho,
    rho_of,
)

epsilons = st.floats(0.01, 20.0)
deltas = st.floats(1e-15, 0.1)
rhos = st.floats(1e-6, 10.0)


@given(epsilons, deltas)
@settings(max_examples=40, deadline=None)
def test_the_rho_of_a_guarantee_keeps_it_and_little_more_would_not(e: float, d: float) -> None:
    rho = rho_of(epsilon=e, delta=d)
    assert 0 < delta_of(rho=rho, epsilon=e) <= d
    assert delta_of(rho=rho * 1.001, epsilon=e) > d


@given(rhos, deltas)
@settings(max_examples=40, deadline=None)
def test_the_epsilon_of_a_rho_is_safe_and_tight(rho: float, d: float) -> None:
    epsilon = epsilon_of(rho=rho, delta=d)
    assert delta_of(rho=rho, epsilon=epsilon) <= d
    assert epsilon < 1e-6 or delta_of(rho=rho, epsilon=epsilon * 0.999) > d


@pytest.mark.parametrize(("rho", "delta"), [(0.01, 1e-9), (0.1, 1e-6), (1.0, 1e-5), (3.0, 1e-12)])
def test_the_conversion_agrees_with_opendp(rho: float, delta: float) -> None:
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    scale = 100.0
    sensitivity = round(math.sqrt(2 * rho) * scale)
    gaussian = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=scale))
    theirs = gaussian.map(sensitivity).epsilon(delta)
    ours = epsilon_of(rho=(sensitivity / scale) ** 2 / 2, delta=delta)
    assert ours == pytest.approx(theirs, rel=1e-4)


@pytest.mark.parametrize(("rho", "delta"), [(0.01, 1e-9), (0.1, 1e-6), (1.0, 1e-5)])
def test_the_conversion_is_no_tighter_than_the_gaussian_mechanism_truly_is(
    rho: float, delta: float
) -> None:
    """dp-accounting composes the very same Gaussian exactly: our ε must not be below its ε."""
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    exact = pld.from_gaussian_mechanism(1 / math.sqrt(2 * rho)).get_epsilon_for_delta(delta)
    ours = epsilon_of(rho=rho, delta=delta)
    assert exact <= ours * (1 + 1e-6)
    assert ours <= exact * 1.15


@pytest.mark.parametrize(("rho", "delta"), [(0.05, 1e-8), (0.5, 1e-6)])
def test_the_conversion_agrees_with_renyi_accounting(rho: float, delta: float) -> None:
    rdp = pytest.importorskip("dp_accounting.rdp.rdp_privacy_accountant")
    orders = [1 + x / 100 for x in range(1, 20_000)]
    theirs = rdp.compute_epsilon(orders, [rho * order for order in orders], delta)[0]
    assert epsilon_of(rho=rho, delta=delta) == pytest.approx(theirs, rel=1e-3)


def test_delta_never_grows_with_epsilon_nor_falls_with_rho() -> None:
    steps = [0.1 * i for i in range(1, 60)]
    over = [delta_of(rho=0.1, epsilon=e) for e in steps]
    assert over == sorted(over, reverse=True)
    under = [delta_of(rho=r, epsilon=1.0) for r in steps]
    assert under == sorted(under)


def test_a_pure_part_enters_zcdp_as_half_its_square() -> None:
    assert pure_rho(0.5) == 0.125


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1.0, 0.0), (1.0, 1.0), (0.0, 0.1), (math.inf, 0.1)]
)
def test_budgets_that_mean_nothing_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(PrivacyError):
        rho_of(epsilon=epsilon, delta=delta)


@pytest.mark.parametrize(("epsilon", "delta"), [(1000.0, 1e-9), (1e-6, 1e-12), (50.0, 0.999)])
def test_extreme_budgets_convert_without_failing(epsilon: float, delta: float) -> None:
    assert delta_of(rho=rho_of(epsilon=epsilon, delta=delta), epsilon=epsilon) <= delta


def test_a_delta_too_small_for_doubles_is_refused() -> None:
    with pytest.raises(PrivacyError, match="delta"):
        rho_of(epsilon=1.0, delta=5e-324)


@pytest.mark.parametrize("none", [Fraction(0), Fraction(-1)])
def test_a_table_without_a_share_gets_no_noise_and_is_refused(none: Fraction) -> None:
    with pytest.raises(PrivacyError, match="share"):
        laplace_scale(epsilon=none, k=1, omega=1, rows=1)
    with pytest.raises(PrivacyError, match="share"):
        gaussian_variance(rho=none, k=1, omega=1, rows=1)


def test_the_scale_is_the_l1_sensitivity_over_epsilon() -> None:
    assert laplace_scale(epsilon=Fraction(1, 39), k=1, omega=1, rows=5) == 195
    assert laplace_scale(epsilon=Fraction(1, 2), k=3, omega=7, rows=5) == 210


def test_the_variance_is_the_squared_l2_sensitivity_over_two_rho() -> None:
    assert gaussian_variance(rho=Fraction(1, 8), k=3, omega=7, rows=5) == 9 * 49 * 5 * 4
