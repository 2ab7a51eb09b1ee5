"""Estimators that keep rows, or every value of a column, in what they learned.

A nearest neighbour is a row; so is a support vector. What such an estimator predicts may be asked
by who may predict, as with all others; what it learned is a copy of the training set, which is for
the role ``train`` alone. So it does not leave the store.

`tests/learn/test_keepers.py` trains every estimator of scikit-learn and looks for its rows in the
bytes that would leave.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

FAMILIES = (
    "sklearn.cluster",  # their exemplars are rows, or there is something for each row
    "sklearn.cross_decomposition",  # each row's scores, from which it can be computed
    "sklearn.gaussian_process",
    "sklearn.isotonic",  # the values at which a step begins
    "sklearn.kernel_ridge",
    "sklearn.manifold",
    "sklearn.neighbors",
    "sklearn.semi_supervised",
)
"""Modules all of whose estimators keep rows, but"""
NONE = frozenset({"NearestCentroid", "NeighborhoodComponentsAnalysis"})
"""these, which keep means and weights."""
KEEPERS = frozenset(
    {
        "sklearn.decomposition._kernel_pca.KernelPCA",
        "sklearn.impute._knn.KNNImputer",
        "sklearn.kernel_approximation.Nystroem",
        "sklearn.preprocessing._data.QuantileTransformer",  # a column's values in order
        "sklearn.preprocessing._encoders._BaseEncoder",  # each value that a column has
        "sklearn.svm._base.BaseLibSVM",
    }
)
"""Others, and what is made of them."""


def keeper_in(estimator: Any) -> str | None:
    """The name of an estimator that keeps rows, if this is one or is made of one.

    >>> from sklearn.ensemble import BaggingClassifier
    >>> from sklearn.svm import SVC, LinearSVC
    >>> X, y = np.arange(80.0).reshape(40, 2), np.array([0, 1] * 20)
    >>> keeper_in(BaggingClassifier(SVC()).fit(X, y))
    'SVC'
    >>> keeper_in(LinearSVC().fit(X, y))
    """
    return next((type(part).__name__ for part in parts(estimator) if _keeps(type(part))), None)


def _keeps(kind: type) -> bool:
    if kind.__name__ in NONE:
        return False
    for each in kind.__mro__:
        module = each.__module__
        if f"{module}.{each.__qualname__}" in KEEPERS:
            return True
        if any(module == name or module.startswith(f"{name}.") for name in FAMILIES):
            return True
    return False


def parts(thing: Any) -> Iterator[Any]:
    """An estimator and all that it is made of."""
    waiting, seen = [thing], set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        if isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list | tuple):
            waiting += each
        elif isinstance(each, np.ndarray) and each.dtype == object:
            waiting += each.ravel().tolist()
        elif hasattr(each, "__dict__") and not isinstance(each, type):
            waiting += vars(each).values()
