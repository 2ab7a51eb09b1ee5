"""What is done in the training process, and nothing that it does not need.

The process waits with this imported, so neither Arrow nor kernels are.
"""

from __future__ import annotations

import math
import time
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_regressor
from sklearn.metrics import log_loss
from sklearn.pipeline import Pipeline

from pyramidion.config.checks import Value
from pyramidion.learn.recipes import Recipe, estimator_of

Weights = NDArray[np.float64] | None
"""How much each row counts; None: all the same."""

TAKEN = "sample_weight"
"""As scikit-learn calls it."""
TEST = 5  # of a learning curve, one row in so many, the newest, is tested on
SQUARES, ERRORS = "squared loss", "error rate"
TINY = 1e-15  # a probability is at least this: one class that was never seen is not the end


def fit(
    recipe: Recipe,
    X: NDArray[np.float32],
    columns: list[int],
    y: NDArray[Any],
    weights: Weights = None,
) -> Any:
    """A new estimator that has learned from some columns, by the rows' weights if it takes them."""
    estimator = estimator_of(recipe)
    estimator.fit(X[:, columns], y, **weighing(estimator, weights))
    return estimator


def weighing(estimator: Any, weights: Weights, by: str = "fit") -> dict[str, Any]:
    """Weights of rows as an estimator takes them; nothing where there are none, or it takes none.

    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> list(weighing(make_pipeline(StandardScaler(), LogisticRegression()), np.ones(1)))
    ['logisticregression__sample_weight']
    >>> list(weighing(KNeighborsClassifier(), np.ones(1)))
    []
    """
    before, last = "", estimator
    while isinstance(last, Pipeline):
        step, last = last.steps[-1]
        before += f"{step}__"
    if weights is None or TAKEN not in signature(getattr(last, by)).parameters:
        return {}
    return {before + TAKEN: weights}


def timed(
    recipe: Recipe,
    X: NDArray[np.float32],
    columns: list[int],
    y: NDArray[Any],
    weights: Weights = None,
) -> tuple[Any, float]:
    """What `fit` gives, and the seconds it took."""
    began = time.perf_counter()
    return fit(recipe, X, columns, y, weights), time.perf_counter() - began


def losses(
    recipe: Recipe,
    X: NDArray[np.float32],
    columns: list[int],
    y: NDArray[Any],
    classes: tuple[Value, ...],
    sizes: list[int],
    weights: Weights = None,
) -> tuple[str, list[float]]:
    """Fit for each size, the rows just before the newest, and test on the newest.

    Rows too few to learn from, such as rows of one class, have an infinite loss.
    """
    start = len(y) - tested(len(y))
    newest, truth = X[start:][:, columns], y[start:]
    found, name = [], ""
    for size in sizes:
        try:
            some = slice(start - size, start)
            estimator = fit(recipe, X[some], columns, y[some], _of(weights, some))
        except ValueError:
            if size == sizes[-1]:
                raise
            found.append(math.inf)
            continue
        name, loss = _loss(estimator, newest, truth, classes, _of(weights, slice(start, None)))
        found.append(loss)
    return name, found


def beside_prior(
    recipe: Recipe,
    X: NDArray[np.float32],
    columns: list[int],
    y: NDArray[Any],
    classes: tuple[Value, ...],
    weights: Weights = None,
) -> tuple[str, float, float]:
    """Fit on all but the newest rows; the loss on these, beside that of the label's rates."""
    start = len(y) - tested(len(y))
    old, new = _of(weights, slice(start)), _of(weights, slice(start, None))
    estimator = fit(recipe, X[:start], columns, y[:start], old)
    name, loss = _loss(estimator, X[start:][:, columns], y[start:], classes, new)
    return name, loss, prior_loss(name, y[:start], y[start:], classes, (old, new))


def _of(weights: Weights, some: slice) -> Weights:
    return None if weights is None else weights[some]


def prior_loss(
    name: str,
    before: NDArray[Any],
    y: NDArray[Any],
    classes: tuple[Value, ...],
    weights: tuple[Weights, Weights] = (None, None),
) -> float:
    """The loss of who knows the mean, the rates or the likeliest class of the rows before.

    >>> before = np.array([0, 0, 0, 1])
    >>> prior_loss(ERRORS, before, np.array([0, 1]), (0, 1))
    0.5
    >>> prior_loss(SQUARES, np.array([1.0, 3.0]), np.array([4.0]), ())
    4.0
    """
    old, new = weights
    if name == SQUARES:
        return _mean((_mean(before, old) - y) ** 2, new)
    found, places = np.unique(before, return_inverse=True)
    counts = np.bincount(places, old)
    if name == ERRORS:
        return _mean(found[counts.argmax()] != y, new)
    rates = np.tile(counts / counts.sum(), (len(y), 1))
    return _log_loss(aligned(rates, found, classes), y, classes, new)


def _mean(values: NDArray[Any], weights: Weights) -> float:
    return float(np.average(values, weights=weights))


def tested(rows: int) -> int:
    """How many of the newest rows are tested on."""
    return rows // TEST


def aligned(given: NDArray[Any], found: NDArray[Any], classes: tuple[Value, ...]) -> NDArray[Any]:
    """Probabilities with a column for each class; a class that was not found has none.

    They stay as precise as they are: to whoever checks that they add up to one, those of single
    precision are wrong in double.

    >>> aligned(np.array([[0.25, 0.75]]), np.array([0, 2]), (2, 1, 0))
    array([[0.75, 0.  , 0.25]])
    """
    wanted = np.array(classes)
    out = np.zeros((len(given), len(classes)), dtype=given.dtype)
    for column, each in enumerate(found):
        out[:, np.flatnonzero(wanted == each)] = given[:, [column]]
    return out


def _loss(
    estimator: Any,
    X: NDArray[np.float32],
    y: NDArray[Any],
    classes: tuple[Value, ...],
    weights: Weights,
) -> tuple[str, float]:
    if not classes or is_regressor(estimator):
        return SQUARES, _mean((estimator.predict(X) - y) ** 2, weights)
    if not hasattr(estimator, "predict_proba"):
        return ERRORS, _mean(estimator.predict(X) != y, weights)
    given = aligned(estimator.predict_proba(X), estimator.classes_, classes)
    return "log loss", _log_loss(given, y, classes, weights)


def _log_loss(
    given: NDArray[Any], y: NDArray[Any], classes: tuple[Value, ...], weights: Weights
) -> float:
    order = np.argsort(np.array(classes), kind="stable")  # as scikit-learn wants them
    clipped = np.clip(given[:, order].astype(np.float64), TINY, 1.0)
    shares = clipped / clipped.sum(axis=1, keepdims=True)
    return float(log_loss(y, shares, labels=np.array(classes)[order], sample_weight=weights))
