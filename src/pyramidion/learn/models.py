"""A model: its recipe, which is stored, and what it learned, which never is.

What a model learned is as raw as the rows it learned from (P1). It lives in memory and goes
when the first of those rows leaves the hot window, or a window behind its features retires.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier, is_regressor

from pyramidion.checks import Value
from pyramidion.counts.snapshot import Features, Snapshot
from pyramidion.errors import SchemaError, StateError
from pyramidion.learn.recipes import Recipe, estimator_of
from pyramidion.learn.workload import Workload

UNTRAINED = "it has not been trained yet"


class Predictions(Features):
    """Predictions that say what they promise: ``predictions.guarantee``."""


@dataclass(frozen=True)
class Fitted:
    """What a model learned, and from what."""

    estimator: Any
    names: tuple[str, ...]
    """The feature columns it takes, in order."""
    rows: int
    last: int
    """It has seen no batch later than this one."""
    at: int
    """When, by the store's clock in microseconds."""


@dataclass(frozen=True)
class Model:
    """A registered model at one moment."""

    name: str
    recipe: Recipe = field(repr=False)
    workload: Workload = field(repr=False)
    fitted: Fitted | None = field(default=None, repr=False)
    why: str = UNTRAINED
    """Why it is unavailable, or could not be trained again."""
    stale: bool = True
    """Whether it is to be trained as soon as that can be."""

    @property
    def available(self) -> bool:
        """Whether it predicts."""
        return self.fitted is not None

    @property
    def estimator(self) -> str:
        """What it is, as one would write it."""
        return " ".join(repr(estimator_of(self.recipe)).split())

    @property
    def label(self) -> str:
        """What it predicts."""
        return self.workload.label.name

    @property
    def classes(self) -> tuple[Value, ...]:
        """The columns of `predict_proba`; none when it predicts a number."""
        return self.workload.classes

    @property
    def rows(self) -> int:
        """How many hot rows it has learned from."""
        return 0 if self.fitted is None else self.fitted.rows

    @property
    def trained(self) -> int | None:
        """When it was trained from scratch, in microseconds since the epoch."""
        return None if self.fitted is None else self.fitted.at

    @property
    def online(self) -> bool:
        """Whether it takes new observations between trainings."""
        return self.fitted is not None and hasattr(self.fitted.estimator, "partial_fit")

    def gone(self, why: str) -> Model:
        """The model without anything it learned."""
        return replace(self, fitted=None, why=why, stale=True)

    def columns(self, snapshot: Snapshot) -> list[int]:
        """The feature columns to learn from."""
        return [i for i, parts in enumerate(snapshot.parts) if self.workload.uses(parts)]

    # --- answers -------------------------------------------------------------------------

    def predict(self, snapshot: Snapshot, rows: Any) -> NDArray[Any]:
        """The likeliest class, or the expected number."""
        fitted = self._ready()
        found = fitted.estimator.predict(_chosen(fitted, snapshot, rows))
        return Predictions.of(np.asarray(found), snapshot.guarantee.raw())

    def predict_proba(self, snapshot: Snapshot, rows: Any) -> NDArray[Any]:
        """A probability for each of `classes`, those included that no hot row had."""
        fitted = self._ready()
        if not self.classes:
            raise SchemaError(
                f"model {self.name!r} predicts a number and has no probabilities; use predict"
            )
        if not hasattr(fitted.estimator, "predict_proba"):
            raise SchemaError(
                f"model {self.name!r} gives no probabilities; use predict, or register an "
                f"estimator that has predict_proba"
            )
        given = np.asarray(fitted.estimator.predict_proba(_chosen(fitted, snapshot, rows)))
        found = aligned(given, fitted.estimator.classes_, self.classes)
        return Predictions.of(found, snapshot.guarantee.raw())

    def _ready(self) -> Fitted:
        if self.fitted is None:
            raise StateError(f"model {self.name!r} is unavailable: {self.why}")
        return self.fitted

    # --- more rows -------------------------------------------------------------------------

    def taught(self, X: NDArray[np.float32], y: NDArray[Any], last: int) -> Model:
        """The model after one more batch; this one stays as it is."""
        fitted = self._ready()
        estimator = deepcopy(fitted.estimator).partial_fit(X, y)
        more = replace(fitted, estimator=estimator, rows=fitted.rows + len(y), last=last)
        return replace(self, fitted=more)


def fit(recipe: Recipe, X: NDArray[np.float32], columns: list[int], y: NDArray[Any]) -> Any:
    """A new estimator that has learned from some columns."""
    return estimator_of(recipe).fit(X[:, columns], y)


def aligned(
    given: NDArray[Any], found: NDArray[Any], classes: tuple[Value, ...]
) -> NDArray[np.float64]:
    """Probabilities with a column for each class; a class that was not found has none.

    >>> aligned(np.array([[0.25, 0.75]]), np.array([0, 2]), (2, 1, 0))
    array([[0.75, 0.  , 0.25]])
    """
    wanted = np.array(classes)
    out = np.zeros((len(given), len(classes)))
    for column, each in enumerate(found):
        out[:, np.flatnonzero(wanted == each)] = given[:, [column]]
    return out


def _chosen(fitted: Fitted, snapshot: Snapshot, rows: Any) -> NDArray[np.float32]:
    X = np.asarray(snapshot.array(rows))
    names = snapshot.names
    if fitted.names == tuple(names):
        return X
    place = {name: i for i, name in enumerate(names)}
    return X[:, [place[name] for name in fitted.names]]


def checked(name: str, estimator: Any, workload: Workload) -> None:
    """Raise where an estimator cannot learn a workload, whatever the rows are."""
    if workload.classifies and is_regressor(estimator):
        workload.label.centers  # noqa: B018 says that classes must be numbers
        if workload.merge:
            raise SchemaError(
                f"model {name!r} merges classes, and {type(estimator).__name__} predicts numbers; "
                f"register a classifier"
            )
    if not workload.classifies and is_classifier(estimator):
        raise SchemaError(
            f"label {workload.label.name!r} is a number and {type(estimator).__name__} predicts "
            f"classes; register a regressor, or merge the bins into classes"
        )
    if not hasattr(estimator, "fit") or not hasattr(estimator, "predict"):
        raise SchemaError(
            f"{type(estimator).__name__} does not predict; register a classifier or a regressor"
        )
    if not hasattr(estimator, "_parameter_constraints"):  # scikit-learn's own have them
        return
    try:
        estimator._validate_params()
    except ValueError as problem:  # about parameters alone: there are no rows yet
        raise SchemaError(f"model {name!r}: {problem}") from None
