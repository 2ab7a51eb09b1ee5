"""The same two models with everything in the clear: every raw flight so far, every value as it is.

They are what a team without a store would train, and made as strong as we know how. Logistic
regression sees all categories one-hot, planes and flight numbers included, the weather in the
store's bins and pairs of features; boosted trees see categories natively and the weather as
numbers. Their level is moved half way to the last two weeks', which takes 0.6 % off their loss.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from pyramidion.demo.flights import DAY, EDGES, WEATHER, Flights
from pyramidion.demo.models import LOGISTIC, TREES, TRUST, Floats, shift, shifted

NAMED = ("carrier", "origin", "dest", "tailnum", "flight")
NUMBERS = ("hour", "minute", "weekday", "distance", *WEATHER)
PAIRS = (
    ("origin", "hour"),
    ("origin", "dest"),
    ("origin", "carrier"),
    ("origin", "wind_speed"),
    ("hour", "weekday"),
    ("hour", "carrier"),
    ("hour", "humid"),
    ("precip", "visib"),
)
RECENT = 14 * DAY

Codes = NDArray[np.int64]


class Twins:
    """Both models, trained again on all flights before a month."""

    def __init__(self, flights: Flights) -> None:
        self._flights = flights
        codes = {name: _named(flights, name) for name in NAMED}
        codes |= {name: flights.column(name) for name in ("hour", "weekday")}
        codes |= {name: _binned(flights, name) for name in (*EDGES, "distance")}
        self._one_hot = _one_hot(codes)
        self._mixed = np.stack(
            [codes[name].astype(np.float64) for name in NAMED]
            + [flights.column(name).astype(np.float64) for name in NUMBERS],
            axis=1,
        )
        self._linear = LogisticRegression(C=0.01, tol=1e-3, max_iter=300, warm_start=True)

    def predict(self, month: int) -> dict[str, Floats]:
        """Probabilities that flights of a month are late, from all flights before it."""
        past, end = self._flights.until(month), self._flights.until(month + 1)
        y = self._flights.late[:past]
        by = self._shift(past)
        linear = self._linear.fit(self._one_hot[:past], y)
        trees = self._trees().fit(self._mixed[:past], y, categorical_feature=[*range(len(NAMED))])
        return {
            LOGISTIC: shifted(linear.predict_proba(self._one_hot[past:end])[:, 1], by),
            TREES: shifted(trees.predict_proba(self._mixed[past:end])[:, 1], by),
        }

    def _shift(self, past: int) -> float:
        """From the rate of the whole past towards that of the last two weeks."""
        times, late = self._flights.column("time")[:past], self._flights.late[:past]
        recent = late[np.searchsorted(times, times[-1] - RECENT) :]
        return shift(float(late.mean()), float(recent.mean()), TRUST)

    @staticmethod
    def _trees() -> Any:
        from lightgbm import LGBMClassifier

        return LGBMClassifier(
            n_estimators=80,
            learning_rate=0.1,
            num_leaves=15,
            min_child_samples=200,
            colsample_bytree=0.5,
            cat_smooth=100.0,
            cat_l2=100.0,
            max_cat_threshold=8,
            random_state=0,
            n_jobs=1,
            verbose=-1,
        )


def _named(flights: Flights, name: str) -> Codes:
    column = flights.rows.column(name).combine_chunks().dictionary_encode()
    codes: Codes = pc.fill_null(column.indices.cast("int64"), len(column.dictionary)).to_numpy()
    return codes


def _binned(flights: Flights, name: str) -> Codes:
    """The store's bins, the last one for a missing value; and some for the distance."""
    values = flights.column(name).astype(np.float64)
    edges = EDGES.get(name, (250, 500, 750, 1_000, 1_500, 2_000))
    return np.where(np.isnan(values), len(edges) + 1, np.digitize(values, edges))


def _one_hot(codes: dict[str, Codes]) -> sparse.csr_matrix:
    """A column for each value of each feature and each pair."""
    joined = [codes[a] * (codes[b].max() + 1) + codes[b] for a, b in PAIRS]
    places, width = [], 0
    for each in (*codes.values(), *joined):
        found, place = np.unique(each, return_inverse=True)
        places.append(place + width)
        width += len(found)
    indices = np.stack(places, axis=1)
    rows, ones = indices.shape
    return sparse.csr_matrix(
        (np.ones(rows * ones), indices.ravel(), np.arange(0, rows * ones + 1, ones)),
        shape=(rows, width),
    )
