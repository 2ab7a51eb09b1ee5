"""A model: its recipe, which is stored, and what it learned, which never is.

What a model learned is as raw as the rows it learned from (P1). It lives in memory and goes
when the first of those rows leaves the hot window, or a window behind its features retires.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from joblib import parallel_config  # type: ignore[import-untyped]
from numpy.typing import NDArray
from sklearn.base import is_classifier, is_regressor

from pyramidion.config.checks import Value
from pyramidion.counts.snapshot import Snapshot
from pyramidion.errors import PrivacyError, SchemaError, StateError
from pyramidion.learn.answers import Answers, columns
from pyramidion.learn.jobs import Weights, weighing
from pyramidion.learn.linear import Linear
from pyramidion.learn.recipes import Recipe, estimator_of
from pyramidion.learn.workload import Workload
from pyramidion.rows.observations import Rows

UNTRAINED = "it has not been trained yet"
EXPIRED = "what it learned from has left; take the one that `models` has now"


@dataclass(eq=False)
class Fitted:
    """What a model learned, and from what. Whoever holds it: it is empty once that must go."""

    estimator: Any
    """None once it has expired."""
    names: tuple[str, ...]
    """The feature columns it takes, in order."""
    tables: frozenset[str]
    """The tables they come from."""
    rows: int
    last: int
    """It has seen no batch later than this one."""
    at: int
    """When, by the store's clock in microseconds."""
    version: int
    """No other thing that a model of this name learned has this number."""
    room: int
    """How many versions after this one are its own, for what it learns online."""
    took: float
    """Seconds that it was trained."""
    expires: int
    """When the first row or window that it learned from leaves at the latest, in microseconds."""
    quick: Linear | None = None
    """The same for one row at a time, where it is linear; goes with the estimator."""

    def again(self) -> Fitted:
        """The same for one answer; quicker than `replace`, which is felt with one row."""
        made = object.__new__(Fitted)
        vars(made).update(vars(self))
        return made

    def expire(self) -> None:
        """Drop what was learned."""
        self.estimator = self.quick = None

    def __reduce__(self) -> Any:
        raise PrivacyError(
            "what a model learned is as raw as its rows and is not copied or pickled; train one of "
            "your own on training_set()"
        )


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
        return self.fitted is not None and self.fitted.estimator is not None

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
    def version(self) -> int:
        """The number of what it has learned: grows, is never used twice; 0 where there is none."""
        return 0 if self.fitted is None else self.fitted.version

    @property
    def took(self) -> float | None:
        """How many seconds the training from scratch took."""
        return None if self.fitted is None else self.fitted.took

    @property
    def expires(self) -> int | None:
        """When what it has learned must be gone at the latest, in microseconds since the epoch.

        The oldest row it learned from leaves then, or a window behind its features retires. Where
        `hot_rows` bounds the hot window, or somebody asks to be forgotten, it goes sooner.
        """
        return None if self.fitted is None else self.fitted.expires

    @property
    def online(self) -> bool:
        """Whether it takes new observations between trainings."""
        return self.fitted is not None and hasattr(self.fitted.estimator, "partial_fit")

    def gone(self, why: str) -> Model:
        """The model without anything it learned."""
        return replace(self, fitted=None, why=why, stale=True)

    def begun(self) -> Model:
        """The model for one answer: what is begun is finished, whatever leaves meanwhile."""
        if self.fitted is None:
            return self
        made = object.__new__(Model)
        vars(made).update(vars(self), fitted=self.fitted.again())
        return made

    def ended(self) -> None:
        """The answer was given, or not: let go of the copy that `begun` made."""
        if self.fitted is not None:
            self.fitted.expire()

    def columns(self, snapshot: Snapshot) -> list[int]:
        """The feature columns to learn from."""
        return [i for i, parts in enumerate(snapshot.parts) if self.workload.uses(parts)]

    # --- answers -------------------------------------------------------------------------

    def predict(self, snapshot: Snapshot, rows: Any) -> NDArray[Any]:
        """The likeliest class, or the expected number."""
        return self._answers().predict(snapshot, rows)

    def predict_proba(self, snapshot: Snapshot, rows: Any) -> NDArray[Any]:
        """A probability for each of `classes`, those included that no hot row had."""
        return self._answers().predict_proba(snapshot, rows)

    def proba_one(
        self, features: NDArray[Any], snapshot: Snapshot | None = None
    ) -> NDArray[np.float64]:
        """A probability for each of `classes`, for one row of features.

        They are the model's own, in order, or with a ``snapshot`` all that this one gives.
        """
        return self._answers().proba_one(features, snapshot)

    def _answers(self) -> Answers:
        fitted = self.learned()
        return Answers(self.name, fitted.estimator, fitted.names, self.classes, fitted.quick)

    def learned(self) -> Fitted:
        """What it has learned, for as long as one needs it."""
        fitted = None if self.fitted is None else self.fitted.again()
        if fitted is None or fitted.estimator is None:
            raise StateError(f"model {self.name!r} is unavailable: {self.why or EXPIRED}")
        return fitted

    # --- more rows -------------------------------------------------------------------------

    def taught(
        self, snapshot: Snapshot, rows: Rows, y: NDArray[Any], last: int, weights: Weights = None
    ) -> Model:
        """The model after one more batch; this one stays as it is."""
        fitted = self.learned()
        if not fitted.room:
            raise StateError(f"model {self.name!r} has learned all it can before it is trained")
        X, chosen = np.asarray(snapshot.array(rows)), columns(fitted.names, snapshot)
        estimator = deepcopy(fitted.estimator)
        with parallel_config(backend="threading"):
            weighed = weighing(estimator, weights, "partial_fit")
            estimator.partial_fit(X if chosen is None else X[:, chosen], y, **weighed)
        more = replace(fitted, estimator=estimator, rows=fitted.rows + len(y), last=last)
        more.version, more.room = fitted.version + 1, fitted.room - 1
        more.quick = Linear.of(estimator, self.classes)
        return replace(self, fitted=more)


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
    if not is_classifier(estimator) and not is_regressor(estimator):
        raise SchemaError(
            f"{type(estimator).__name__} does not predict; register a classifier or a regressor"
        )
    if not hasattr(estimator, "_parameter_constraints"):  # scikit-learn's own have them
        return
    try:
        estimator._validate_params()
    except ValueError as problem:  # about parameters alone: there are no rows yet
        raise SchemaError(f"model {name!r}: {problem}") from None
