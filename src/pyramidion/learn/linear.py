"""One row through a linear classifier: what scikit-learn computes, without what it checks.

scikit-learn looks every row over, several times in a pipeline, which takes twenty times as long as
multiplying it. Here the same operations are done on the same numbers in the same order, so that
the answer is the same; an answer that is not finite is left to scikit-learn, which says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from pyramidion.checks import Value

PIPELINE = "sklearn.pipeline.Pipeline"
STANDARD = "sklearn.preprocessing._data.StandardScaler"
FLOORED = "pyramidion.learn.scaling.FlooredScaler"
LOGISTIC = (
    "sklearn.linear_model._logistic.LogisticRegression",
    "sklearn.linear_model._logistic.LogisticRegressionCV",
)
"""Classes by their names, so that none is imported that nobody uses."""

Step = Callable[[NDArray[Any]], NDArray[Any]]


@dataclass(frozen=True)
class Linear:
    """A logistic regression, after scalers or none, for one row at a time.

    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = np.array([[0.0], [1.0], [2.0]], dtype=np.float32), np.array(["a", "b", "b"])
    >>> model = LogisticRegression().fit(X, y)
    >>> quick = Linear.of(model, ("b", "a"))
    >>> bool((quick.chances(X[1]) == model.predict_proba(X[1:2])[0, ::-1]).all())
    True
    """

    steps: tuple[Step, ...] = field(repr=False)
    weights: NDArray[Any] = field(repr=False)
    """Column × output."""
    intercept: NDArray[Any] = field(repr=False)
    places: NDArray[np.int64]
    """Where the probability of each class it has found goes."""
    size: int
    """How many classes there are."""

    @classmethod
    def of(cls, estimator: Any, classes: tuple[Value, ...]) -> Linear | None:
        """The same for an estimator that has learned; None where it is no such model."""
        *before, last = _steps(estimator)
        steps = [_scaling(each) for each in before]
        if _name(last) not in LOGISTIC or None in steps:
            return None
        coef, found = last.coef_, last.classes_.tolist()
        if not isinstance(coef, np.ndarray) or coef.ndim != 2 or not set(found) <= set(classes):
            return None
        places = np.array([classes.index(each) for each in found])
        return cls(tuple(s for s in steps if s), coef.T, last.intercept_, places, len(classes))

    def chances(self, features: NDArray[Any]) -> NDArray[np.float64] | None:
        """A probability for each class; None where these are not numbers."""
        row = features.reshape(1, -1)
        if row.shape[1] != len(self.weights):
            return None
        for step in self.steps:
            row = step(row)
        scores = row @ self.weights + self.intercept
        found = _two(scores[0]) if len(self.places) == 2 else _several(scores[0])
        if not np.isfinite(scores).all():
            return None
        out = np.zeros(self.size)
        out[self.places] = found
        return out


def _two(scores: NDArray[Any]) -> NDArray[Any]:
    chance = expit(scores)
    return np.concatenate([1 - chance, chance])


def _several(scores: NDArray[Any]) -> NDArray[Any]:
    powers = np.exp(scores - scores.max())
    shares: NDArray[Any] = powers / powers.sum()
    return shares


def _steps(estimator: Any) -> list[Any]:
    if _name(estimator) == PIPELINE:
        return [step for _, step in estimator.steps]
    return [estimator]


def _name(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _scaling(scaler: Any) -> Step | None:
    """What a scaler does to a row, in the row's own precision."""
    if _name(scaler) == FLOORED:
        mean, scale = scaler.mean_, scaler.scale_
        return lambda row: ((row - mean) / scale).astype(row.dtype)
    if _name(scaler) != STANDARD:
        return None
    single = _shifts(scaler, np.float32)
    double = _shifts(scaler, np.float64)
    return lambda row: (single if row.dtype == np.float32 else double)(row)


def _shifts(scaler: Any, precision: Any) -> Step:
    mean = scaler.mean_.astype(precision) if scaler.with_mean else precision(0)
    scale = scaler.scale_.astype(precision) if scaler.with_std else precision(1)
    return lambda row: (row - mean) / scale
