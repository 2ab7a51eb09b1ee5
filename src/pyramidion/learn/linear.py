"""One row through a linear classifier: what scikit-learn computes, without what it checks.

scikit-learn looks every row over, several times in a pipeline, which takes twenty times as long as
multiplying it. Here one kernel does it. Sums are in doubles: scikit-learn's answer, but for the
digits that it loses where it sums in single precision. An answer that is not finite is left to
scikit-learn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyramidion.config.checks import Value
from pyramidion.learn import linear_kernels as kernels
from pyramidion.rows.packed_kernels import Bundle

PIPELINE = "sklearn.pipeline.Pipeline"
STANDARD = "sklearn.preprocessing._data.StandardScaler"
FLOORED = "pyramidion.learn.scaling.FlooredScaler"
LOGISTIC = (
    "sklearn.linear_model._logistic.LogisticRegression",
    "sklearn.linear_model._logistic.LogisticRegressionCV",
)
"""Classes by their names, so that none is imported that nobody uses."""

Scaling = tuple[NDArray[np.float64], NDArray[np.float64]]
"""What a scaler takes off each column, and divides it by."""


@dataclass(frozen=True)
class Linear:
    """A logistic regression, after scalers or none, for one row at a time.

    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = np.array([[0.0], [1.0], [2.0]]), np.array(["a", "b", "b"])
    >>> model = LogisticRegression().fit(X, y)
    >>> quick = Linear.of(model, ("b", "a"))
    >>> bool(np.allclose(quick.chances(X[1]), model.predict_proba(X[1:2])[0, ::-1]))
    True
    """

    _numbers: Bundle = field(repr=False)
    width: int
    """How many features it takes,"""
    size: int
    """and how many classes there are."""

    @classmethod
    def of(cls, estimator: Any, classes: tuple[Value, ...]) -> Linear | None:
        """The same for an estimator that has learned; None where it is no such model."""
        *before, last = _steps(estimator)
        if _name(last) not in LOGISTIC:
            return None
        coef, found = last.coef_, last.classes_.tolist()
        if not isinstance(coef, np.ndarray) or coef.ndim != 2 or not set(found) <= set(classes):
            return None
        scalings = [_scaling(each, coef.shape[1]) for each in before]
        known = [each for each in scalings if each is not None]
        if len(known) < len(scalings):
            return None
        scaling = np.array(known, dtype=np.float64).reshape(-1, 2, coef.shape[1])
        added = np.broadcast_to(np.asarray(last.intercept_, dtype=np.float64), len(coef))
        places = np.array([classes.index(each) for each in found], dtype=np.int64)
        numbers = Bundle(scaling[:, 0], scaling[:, 1], coef.astype(np.float64), added, places)
        return cls(numbers, coef.shape[1], len(classes))

    def chances(self, features: NDArray[Any]) -> NDArray[np.float64] | None:
        """A probability for each class; None where these are not numbers."""
        if features.shape != (self.width,):
            return None
        out = np.empty(self.size)
        return out if kernels.chances_of(self._numbers.places, features, out) else None


def _steps(estimator: Any) -> list[Any]:
    if _name(estimator) == PIPELINE:
        return [step for _, step in estimator.steps]
    return [estimator]


def _name(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _scaling(scaler: Any, width: int) -> Scaling | None:
    """What a scaler does to a row; None where that is not known here."""
    if _name(scaler) not in (FLOORED, STANDARD):
        return None
    standard = _name(scaler) == STANDARD
    mean = np.zeros(width) if standard and not scaler.with_mean else scaler.mean_
    scale = np.ones(width) if standard and not scaler.with_std else scaler.scale_
    return mean, scale
