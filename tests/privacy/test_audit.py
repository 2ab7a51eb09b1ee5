"""The statistical audit on CountFeaturizer: quiet at its guarantee, loud with half the noise."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pyramidion import CountFeaturizer
from pyramidion.privacy import table_noise
from pyramidion.privacy.audit import gaussian_loss, pure_loss, rate_bounds
from pyramidion.privacy.budget import rho_of
from tests import canaries

EPSILON = 3.0  # the bounds lie 4.3 deviations from the rates: at 1 one would need more canaries
SURE = 0.99999
"""Of each rate: both together are wrong once in a thousand million runs, the noise being fresh."""


def fitted(
    canary_count: int, features: int, seed: int, **settings: Any
) -> tuple[CountFeaturizer, list[NDArray[np.float64]], NDArray[np.bool_]]:
    random = np.random.default_rng(seed)
    X = canaries.frame(canary_count, features)
    y = random.integers(0, 2, canary_count)
    included = random.random(canary_count) < 0.5
    featurizer = CountFeaturizer(classes=[0, 1], **settings)
    featurizer.fit(X[included], y[included])
    return featurizer, canaries.seen(featurizer, X, y, included), included


def gaussian_audit(seed: int) -> float:
    """The lower bound of μ that 8,000 canaries over 40 tables show."""
    featurizer, seen, included = fitted(8_000, 40, seed, epsilon=EPSILON, buckets=16_384)
    variances = [noise.variance for noise in featurizer._counting_.birth.noises[1:]]
    # Log-likelihood ratio of "noise plus one" against "noise", over all cells of a canary.
    score = sum((own - 0.5).sum(axis=0) / v for own, v in zip(seen, variances, strict=True))
    return gaussian_loss(score > 0, included, confidence=SURE)


def pure_audit(seed: int, rows: int, canary_count: int) -> float:
    """The lower bound of ε that one table shows at pure ε = 1."""
    settings = {"epsilon": 1.0, "delta": 0.0, "rows": rows, "buckets": 2**20}
    _, seen, included = fitted(canary_count, 1, seed, **settings)
    return pure_loss((seen[0] >= 1).all(axis=0), included, confidence=SURE)


def promised() -> float:
    return (2 * rho_of(epsilon=EPSILON, delta=1e-9)) ** 0.5


@pytest.fixture
def halved_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    scale, variance = table_noise.laplace_scale, table_noise.gaussian_variance

    def half(**given: Any) -> Fraction:
        return scale(**given) / 2

    def quarter(**given: Any) -> Fraction:
        return variance(**given) / 4

    monkeypatch.setattr(table_noise, "laplace_scale", half)
    monkeypatch.setattr(table_noise, "gaussian_variance", quarter)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_gaussian_audit_is_quiet_at_the_stated_guarantee(seed: int) -> None:
    assert gaussian_audit(seed) <= promised()


@pytest.mark.slow
@pytest.mark.usefixtures("halved_noise")
@pytest.mark.parametrize("seed", range(3))
def test_the_gaussian_audit_finds_halved_noise(seed: int) -> None:
    assert gaussian_audit(seed) > promised()


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "count"), [(1, 2_000), (5, 20_000)])
def test_the_pure_audit_is_quiet_at_the_stated_guarantee(rows: int, count: int) -> None:
    assert pure_audit(1, rows, count) <= 1.0


@pytest.mark.slow
@pytest.mark.usefixtures("halved_noise")
@pytest.mark.parametrize(("rows", "count"), [(1, 2_000), (5, 20_000)])
def test_the_pure_audit_finds_halved_noise(rows: int, count: int) -> None:
    assert pure_audit(1, rows, count) > 1.0


def test_a_canary_left_out_and_one_counted_differ_by_one() -> None:
    """The control: without noise, what is left in a canary's cells tells it apart for certain."""
    _, seen, included = fitted(200, 3, 0, epsilon=np.inf)
    for own in seen:
        np.testing.assert_array_equal(own, np.broadcast_to(included, own.shape))


def test_rate_bounds_contain_the_rate_and_reach_the_ends() -> None:
    assert rate_bounds(0, 10)[0] == 0.0
    assert rate_bounds(10, 10)[1] == 1.0
    low, high = rate_bounds(300, 1000)
    assert low < 0.3 < high


def test_perfect_guesses_bound_the_loss_from_far_above_zero() -> None:
    included = np.arange(1000) % 2 == 0
    assert gaussian_loss(included, included) > 4
    assert pure_loss(included, included) > 4
    assert pure_loss(~included, included) < 0
