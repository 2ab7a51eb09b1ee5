"""Budget arithmetic: pure ε, zCDP, and the way from one to the other.

With δ = 0 budgets are ε and add up; noise is discrete Laplace. With δ > 0 they
are ρ, in zero-concentrated differential privacy (Bun and Steinke 2016), and add
up too; noise is discrete Gaussian. A pure ε counts as ρ = ε²/2.

ρ-zCDP gives (ε, δ(ε))-differential privacy with (Canonne, Kamath, Steinke 2020)

    δ(ε) = min over α > 1 of  exp((α-1)(αρ - ε)) / (α-1) · (1 - 1/α)^α.

Every α gives a true bound; only its tightness depends on finding the best. So
a search that stops early, or a rounding in α, can waste budget but never
overspend it. Floating-point error in the bound itself is covered by `SLACK`.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Literal

from pyramidion.config.settings import Settings
from pyramidion.errors import PrivacyError

Unit = Literal["epsilon", "rho"]
"""What a budget is told in: pure ε, or ρ of zCDP."""

LEAST_DELTA = 1e-300  # below, doubles lose digits and rounding could overspend
SLACK = 1e-9  # relative; double rounding in log δ stays below 1e-12 for the δ one would choose


def pure_rho(epsilon: float) -> float:
    """The zCDP budget that covers a purely ε-private part."""
    return epsilon * epsilon / 2


def _log_delta(alpha: float, rho: float, epsilon: float) -> float:
    return (
        (alpha - 1) * (alpha * rho - epsilon) - math.log(alpha - 1) + alpha * math.log1p(-1 / alpha)
    )


def delta_of(*, rho: float, epsilon: float) -> float:
    """The smallest known δ for which ρ-zCDP is (ε, δ)-differential privacy.

    >>> delta_of(rho=0.0, epsilon=1.0)
    0.0
    >>> round(delta_of(rho=0.1, epsilon=2.0), 8)
    4.33e-06
    """
    if rho < 0 or not epsilon >= 0:
        raise PrivacyError("budgets are numbers of at least 0; check rho and epsilon")
    if rho == 0:
        return 0.0
    low, high = -30.0, 60.0  # log(α - 1): from where 1 + e^x is still above 1
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(100):  # leaves an interval of 1e-19
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        left, right = (_log_delta(1 + math.exp(x), rho, epsilon) for x in (a, b))
        low, high = (low, b) if left < right else (a, high)
    bound = _log_delta(1 + math.exp((low + high) / 2), rho, epsilon)
    return min(1.0, math.exp(min(bound, 0.0)))


def budget_of(settings: Settings) -> tuple[Unit | Literal["none"], Fraction]:
    """The unit and the budget of every window: ρ, pure ε, or nothing to keep.

    What is charged and what the noise is drawn for are both shares of this.

    >>> budget_of(Settings(epsilon=0.5, delta=0))
    ('epsilon', Fraction(1, 2))
    """
    if settings.mechanism == "none":
        return "none", Fraction(0)
    if settings.mechanism == "laplace":
        return "epsilon", Fraction(settings.epsilon)
    return "rho", Fraction(rho_of(epsilon=settings.epsilon, delta=settings.delta))


@cache
def rho_of(*, epsilon: float, delta: float) -> float:
    """The largest ρ that keeps (ε, δ), rounded down.

    >>> rho = rho_of(epsilon=1.0, delta=1e-9)
    >>> delta_of(rho=rho, epsilon=1.0) <= 1e-9
    True
    """
    if not LEAST_DELTA <= delta < 1 or not 0 < epsilon < math.inf:
        raise PrivacyError(
            f"zCDP needs a delta from {LEAST_DELTA} to 1 and a finite epsilon above 0; "
            f"with delta = 0 there is pure privacy by Laplace noise"
        )
    low, high = 0.0, 1.0
    while delta_of(rho=high, epsilon=epsilon) < delta:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        if delta_of(rho=middle, epsilon=epsilon) <= delta * (1 - SLACK):
            low = middle
        else:
            high = middle
    return low * (1 - SLACK)


def epsilon_of(*, rho: float, delta: float) -> float:
    """The smallest ε for which ρ-zCDP is (ε, δ)-differential privacy, rounded up."""
    if not 0 < delta < 1 or not rho >= 0:
        raise PrivacyError("epsilon_of needs 0 < delta < 1 and rho of at least 0")
    low, high = 0.0, 1.0
    while delta_of(rho=rho, epsilon=high) > delta:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        if delta_of(rho=rho, epsilon=middle) <= delta * (1 - SLACK):
            high = middle
        else:
            low = middle
    return high * (1 + SLACK)


def laplace_scale(*, epsilon: Fraction, k: int, omega: int, rows: int) -> Fraction:
    """Scale that hides k observations of weight up to Ω in a table of h hash rows: k Ω h / ε."""
    if epsilon <= 0:
        raise PrivacyError("a table with no share of epsilon cannot be noised; give it one")
    return Fraction(k * omega * rows) / epsilon


def gaussian_variance(*, rho: Fraction, k: int, omega: int, rows: int) -> Fraction:
    """Variance that hides k observations of weight up to Ω in h hash rows: k² Ω² h / (2 ρ)."""
    if rho <= 0:
        raise PrivacyError("a table with no share of rho cannot be noised; give it one")
    return Fraction(k * k * omega * omega * rows) / (2 * rho)
