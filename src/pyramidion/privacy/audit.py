"""Canaries: a lower bound on what really leaks.

Rows that differ from all others are included or left out by fair coins; an
attacker who knows everything else guesses which. How well a guess does bounds
the privacy loss from below, whatever the code says of itself. Bounds hold with
the stated confidence (Clopper and Pearson 1934), for each rate by itself.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, norm

CONFIDENCE = 0.9995

Flags = NDArray[np.bool_]


def rate_bounds(hits: int, trials: int, *, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Lower and upper bound of a probability, each true with this confidence.

    >>> low, high = rate_bounds(50, 100)
    >>> 0.3 < low < 0.5 < high < 0.7
    True
    """
    tail = 1 - confidence
    low = float(beta.ppf(tail, hits, trials - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, trials - hits)) if hits < trials else 1.0
    return low, high


def _rates(guesses: Flags, included: Flags, confidence: float) -> tuple[float, float]:
    """Lower bound of the true positive rate, upper bound of the false positive rate."""
    inside, outside = guesses[included], guesses[~included]
    low, _ = rate_bounds(int(inside.sum()), inside.size, confidence=confidence)
    _, high = rate_bounds(int(outside.sum()), outside.size, confidence=confidence)
    return low, high


def gaussian_loss(guesses: Flags, included: Flags, *, confidence: float = CONFIDENCE) -> float:
    """Lower bound of μ: guesses this good cannot come from less than μ-Gaussian privacy.

    ρ-zCDP by Gaussian noise is √(2ρ)-Gaussian differential privacy: no test has
    Φ⁻¹(true positives) - Φ⁻¹(false positives) above it.
    """
    low, high = _rates(guesses, included, confidence)
    return float(norm.ppf(low) - norm.ppf(high))


def pure_loss(guesses: Flags, included: Flags, *, confidence: float = CONFIDENCE) -> float:
    """Lower bound of ε: under pure ε, true positives are at most e^ε false positives."""
    low, high = _rates(guesses, included, confidence)
    return math.log(low / high) if low > 0 else -math.inf


def gaussian_epsilon(*, mu: float, delta: float) -> float:
    """ε at δ of μ-Gaussian privacy: for people who think in ε (Dong, Roth and Su 2022).

    >>> round(gaussian_epsilon(mu=1.0, delta=1e-6), 2), gaussian_epsilon(mu=0.0, delta=1e-6)
    (4.89, 0.0)
    """
    if mu <= 0 or _gaussian_delta(0.0, mu) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while _gaussian_delta(high, mu) > delta:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _gaussian_delta(middle, mu) > delta else (low, middle)
    return low


def _gaussian_delta(epsilon: float, mu: float) -> float:
    """δ(ε) = Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ)."""
    behind = math.exp(epsilon + float(norm.logcdf(-mu / 2 - epsilon / mu)))
    return float(norm.cdf(mu / 2 - epsilon / mu)) - behind
