"""Off-policy estimates: what a policy would have earned, told from what another one logged.

A *log* has, row by row, the reward of the action that was taken and the probability with which
the logging policy took it, its propensity p. Of another policy only ``agreed`` is needed: the
probability with which it takes the action that was logged, 1 or 0 where it does not draw.

    ips              mean of w·r, with w = agreed / p: unbiased, and wide where p is small
    snips            Σ w·r / Σ w: a little biased, and never beyond the rewards seen
    doubly_robust    a model's guess, plus w times what the model missed: unbiased whatever the
                     model, and narrow where it is good

Propensities below a declared ``p_min`` count as that one, as in the count tables: then one row
cannot weigh more than 1 / p_min, and where the log was bolder than that, estimates are biased.

Intervals are by empirical likelihood (Owen 1988; for bandits Karampatziakis, Langford and Mineiro
2020). A value θ is within if the weights of the rows need not be moved much to make θ their mean,
where rows as large or as small as rows can be may be added. That is told by

    2 · max over λ of Σ log(1 + λ·z)  ≤  the quantile of χ² with one degree of freedom,

z being what has mean 0 at θ. With two clicks, or none, it still has a sensible upper end
(none among n rows: 1.92 / (p_min·n)), which mean ± 1.96 errors has not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.stats import chi2

from pyramidion.errors import SchemaError

Floats = NDArray[np.float64]
Missed = Callable[[float], Floats]
"""What has mean 0 at a value θ, row by row; then its least and its most, as a last two."""

NEARLY = 1 - 1e-9
"""How near λ goes to where a row would have no weight left."""


@dataclass(frozen=True)
class Estimate:
    """A policy's mean reward, and the interval that holds it with the chance asked for."""

    value: float
    low: float
    high: float
    rows: int


def importance_weights(propensities: ArrayLike, p_min: float) -> Floats:
    """One over each propensity; those below ``p_min`` count as that one.

    >>> importance_weights([0.5, 0.001], 0.1).tolist()
    [2.0, 10.0]
    """
    p = np.asarray(propensities, dtype=np.float64)
    if not (np.isfinite(p).all() and (p > 0).all() and (p <= 1).all() and 0 < p_min <= 1):
        raise SchemaError("a propensity is not above 0 and at most 1; log the odds of each action")
    return 1 / np.maximum(p, p_min)


def ips(
    rewards: ArrayLike,
    agreed: ArrayLike,
    propensities: ArrayLike,
    *,
    p_min: float,
    confidence: float = 0.95,
) -> Estimate:
    """Inverse propensity score: the mean of weighted rewards. Rewards are within 0 and 1.

    >>> ips([1, 0, 1, 0], [1, 0, 0, 1], [0.5] * 4, p_min=0.5).value
    0.5
    """
    r, w = _log(rewards, agreed, propensities, p_min)
    values, most = w * r, 1 / p_min

    def missed(theta: float) -> Floats:
        return np.append(values - theta, [-theta, most - theta])

    return _estimate(float(values.mean()), missed, confidence)


def snips(
    rewards: ArrayLike,
    agreed: ArrayLike,
    propensities: ArrayLike,
    *,
    p_min: float,
    confidence: float = 0.95,
) -> Estimate:
    """Self-normalised: weighted rewards by the sum of weights; the mean reward if that is 0.

    >>> snips([1, 0, 1, 0], [1, 0, 0, 1], [0.25, 0.5, 0.5, 0.5], p_min=0.1).value
    0.6666666666666666
    """
    r, w = _log(rewards, agreed, propensities, p_min)
    most, total = 1 / p_min, float(w.sum())

    def missed(theta: float) -> Floats:
        return np.append(w * (r - theta), [-most * theta, most * (1 - theta)])

    value = float((w * r).sum() / total) if total else float(r.mean())
    return _estimate(value, missed, confidence)


def doubly_robust(
    rewards: ArrayLike,
    agreed: ArrayLike,
    propensities: ArrayLike,
    *,
    guessed: ArrayLike,
    expected: ArrayLike,
    p_min: float,
    confidence: float = 0.95,
) -> Estimate:
    """A model's guesses, corrected where the log knows better.

    ``guessed`` is what the model says of the action that was logged, ``expected`` what it says of
    the policy's own; both from a model that has not seen these rows.

    >>> log = {"rewards": [1, 0], "agreed": [1, 0], "propensities": [0.5, 0.5], "p_min": 0.5}
    >>> doubly_robust(**log, guessed=[0.75, 0.5], expected=[0.75, 0.25]).value
    0.75
    """
    r, w = _log(rewards, agreed, propensities, p_min)
    q, e = np.clip(_floats(guessed, len(r)), 0, 1), np.clip(_floats(expected, len(r)), 0, 1)
    values, most = e + w * (r - q), 1 / p_min
    low, high = float(e.min() - most * q.max()), float(e.max() + most * (1 - q.min()))

    def missed(theta: float) -> Floats:
        return np.append(values - theta, [low - theta, high - theta])

    return _estimate(float(values.mean()), missed, confidence)


# --- rows ----------------------------------------------------------------------------------


def _log(rewards: Any, agreed: Any, propensities: Any, p_min: float) -> tuple[Floats, Floats]:
    """Rewards, and weights of rows, checked."""
    weights = importance_weights(propensities, p_min)
    r, a = _floats(rewards, len(weights)), _floats(agreed, len(weights))
    for name, column in {"reward": r, "probability of agreeing": a}.items():
        if not ((column >= 0) & (column <= 1)).all():
            raise SchemaError(f"a {name} is not within 0 and 1; scale rewards before they are told")
    return r, a * weights


def _floats(column: Any, rows: int) -> Floats:
    found = np.asarray(column, dtype=np.float64)
    if found.shape != (rows,) or not rows:
        raise SchemaError("columns of the log differ in length, or are empty; give one row each")
    return found


# --- intervals -----------------------------------------------------------------------------


def _estimate(value: float, missed: Missed, confidence: float) -> Estimate:
    if not 0 < confidence < 1:
        raise SchemaError("confidence is not between 0 and 1; 0.95 is usual")
    far = float(chi2.ppf(confidence, 1))
    low = _end(missed, value, 0.0, far)
    high = _end(missed, value, 1.0, far)
    return Estimate(value, low, high, len(missed(value)) - 2)


def _end(missed: Missed, value: float, edge: float, far: float) -> float:
    """Where the interval ends between its estimate and the edge of what can be."""
    if (value - edge) * (1 if edge == 0 else -1) <= 1 - NEARLY:
        return value

    def beyond(theta: float) -> float:
        return moved(missed(theta)) - far

    first, last = (value + share * (edge - value) for share in (1 - NEARLY, NEARLY))
    if beyond(first) > 0:  # nothing can be beyond it
        return value
    return edge if beyond(last) <= 0 else float(brentq(beyond, first, last, xtol=1e-9))


def moved(z: Floats) -> float:
    """How far rows must be moved to have mean 0: 2 · max Σ log(1 + λ·z).

    The last two are no rows but the least and the most that one can be: they bound λ.
    """
    rows, least, most = z[:-2], float(z[-2]), float(z[-1])
    if least >= 0 or most <= 0:
        return np.inf
    values, times = np.unique(rows, return_counts=True)

    def slope(strength: float) -> float:
        return float((times * values / (1 + strength * values)).sum())

    down, up = -NEARLY / most, -NEARLY / least
    if slope(down) <= 0:
        strength = down
    elif slope(up) >= 0:
        strength = up
    else:
        strength = brentq(slope, down, up)
    return float(2 * (times * np.log1p(strength * values)).sum())
