"""What the store trains: logistic regression and boosted trees, on log-odds from counts.

Both learn from two weeks of flights. What these tell about carriers, hours and weather
holds in the month to come; how many flights were late of late does not, for that swings with
the season. `Levelled` corrects for it, and the raw models are corrected likewise. Parameters
were chosen by loss on this very year, on both sides.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted

from pyramidion.learn.scaling import FlooredScaler

TRUST = 0.5
"""How far a level is moved. Half way was best over the year; 0 and 1 lost 0.3 to 1.9 % more."""

LOGISTIC, TREES = "logistic regression", "boosted trees"
NAMES = (LOGISTIC, TREES)

Floats = NDArray[np.float64]


def estimators(columns: int, features: int | None = None) -> dict[str, Any]:
    """The models by name, for so many columns, the first of which are the features' own."""
    from lightgbm import LGBMClassifier

    trees = LGBMClassifier(
        n_estimators=100,
        learning_rate=0.05,
        num_leaves=15,
        min_child_samples=100,
        reg_lambda=10.0,
        colsample_bytree=0.5,
        monotone_constraints=[1] * columns,  # whoever was later before is not less late now
        random_state=0,
        n_jobs=1,
        verbose=-1,
    )
    linear = make_pipeline(FlooredScaler(), LogisticRegression(C=0.001))
    found = {LOGISTIC: linear, TREES: trees}
    return {name: Levelled(model, features=features) for name, model in found.items()}


class Levelled(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose level is moved towards the rate that the counts remember.

    The columns are log-odds from count tables, so their probabilities, averaged over the
    training rows, are the rate of the past; where groups have other columns too, those of the
    ``features`` are the first. ``trust`` 0 keeps the training rows' own rate, 1 takes the
    past's. Two classes.
    """

    def __init__(
        self, estimator: Any, *, trust: float = TRUST, features: int | None = None
    ) -> None:
        self.estimator = estimator
        self.trust = trust
        self.features = features

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the estimator, and note both rates."""
        self.estimator_ = clone(self.estimator).fit(X, y)
        self.classes_ = self.estimator_.classes_
        if len(self.classes_) != 2:
            raise ValueError("Levelled knows two classes, and both must be there")
        odds = np.asarray(X, dtype=np.float64)[:, : self.features]
        remembered = float(_probability(odds).mean())
        self.shift_ = shift(float(np.mean(y == self.classes_[1])), remembered, self.trust)
        return self

    def predict_proba(self, X: Any) -> Floats:
        """The estimator's probabilities at the other level."""
        check_is_fitted(self)
        moved = shifted(self.estimator_.predict_proba(X)[:, 1], self.shift_)
        return np.stack([1.0 - moved, moved], axis=1)

    def predict(self, X: Any) -> NDArray[Any]:
        """The likelier class."""
        likelier: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return likelier


def shift(rate: float, other: float, trust: float) -> float:
    """What to add to log-odds so that a rate moves towards another one.

    >>> round(shift(0.2, 0.5, 1.0), 3)  # odds of 1 to 4 become even
    1.386
    """
    low, high = (np.log(r) - np.log1p(-r) for r in (rate, other))
    return float(trust * (high - low))


def shifted(probability: NDArray[Any], by: float) -> Floats:
    """Probabilities with something added to their log-odds.

    >>> shifted(np.array([0.2, 0.5]), shift(0.2, 0.5, 1.0)).round(3)
    array([0.5, 0.8])
    """
    odds = np.exp(by) * probability.astype(np.float64) / (1.0 - probability.astype(np.float64))
    moved: Floats = odds / (1.0 + odds)
    return moved


def _probability(log_odds: Floats) -> Floats:
    found: Floats = 1.0 / (1.0 + np.exp(-log_odds))
    return found
