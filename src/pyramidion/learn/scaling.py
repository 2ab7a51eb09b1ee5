"""Standardised features with a floor under the deviation.

A count table that noise swamps gives every row almost the same feature. Divided by its own
tiny deviation such a column would be as loud as the best one, and all of it noise: a linear
model then learns the noise, and blows up where the noise is drawn anew.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

FLOOR = 0.05
"""In log-odds: a feature that moves the odds by less than 5 % tells next to nothing."""


class FlooredScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Like scikit-learn's StandardScaler, with a ``floor`` under the deviation.

    A column that varies by less than ``floor`` is centred and stays small.

    >>> X = np.array([[0.0, 10.0], [2.0, 10.0], [4.0, 10.01]])
    >>> FlooredScaler().fit_transform(X).round(2)
    array([[-1.22, -0.07],
           [ 0.  , -0.07],
           [ 1.22,  0.13]])
    """

    def __init__(self, *, floor: float = FLOOR) -> None:
        self.floor = floor

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Learn the mean and the deviation of each column."""
        if not self.floor > 0:
            raise ValueError(f"floor must be above 0, not {self.floor!r}")
        given = validate_data(self, X, dtype=(np.float64, np.float32)).astype(np.float64)
        self.mean_ = given.mean(axis=0)
        self.scale_ = np.maximum(given.std(axis=0), self.floor)
        return self

    def transform(self, X: Any) -> NDArray[np.floating[Any]]:
        """Centre each column, and divide it by its deviation or by the floor."""
        check_is_fitted(self)
        given = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        scaled: NDArray[np.floating[Any]] = (given - self.mean_) / self.scale_
        return scaled.astype(given.dtype)

    def inverse_transform(self, X: Any) -> NDArray[np.floating[Any]]:
        """The features as they were before `transform`."""
        check_is_fitted(self)
        given = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        found: NDArray[np.floating[Any]] = given * self.scale_ + self.mean_
        return found.astype(given.dtype)
