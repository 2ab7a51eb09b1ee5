"""What a fitted estimator says of rows, by the features it learned from: here or on an edge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from joblib import parallel_config  # type: ignore[import-untyped]
from numpy.typing import NDArray

from pyramidion.config.checks import Value
from pyramidion.counts.guarantee import Guarantee
from pyramidion.counts.snapshot import Features, Snapshot
from pyramidion.errors import SchemaError, StateError
from pyramidion.learn.jobs import aligned
from pyramidion.learn.linear import Linear


class Predictions(Features):
    """Predictions that say what they promise: ``predictions.guarantee``."""


@dataclass(slots=True)
class Answers:
    """The answers of one estimator: P1, as raw as the rows it learned from."""

    name: str
    """Of the model, for messages."""
    estimator: Any = field(repr=False)
    names: tuple[str, ...]
    """The feature columns it takes, in order."""
    classes: tuple[Value, ...]
    """The columns of probabilities; none when it predicts a number."""
    quick: Linear | None = field(default=None, repr=False)
    """For one row at a time, where it is linear."""

    def predict(self, snapshot: Snapshot, rows: Any) -> NDArray[Any]:
        """The likeliest class, or the expected number."""
        X = self._features(snapshot, rows)
        if not len(X):  # scikit-learn refuses to say nothing of nothing
            kind = np.array(self.classes) if self.classes else np.zeros(1)
            return Predictions.of(kind[:0], snapshot.guarantee.raw())
        return Predictions.of(self._said(self.estimator.predict, X), snapshot.guarantee.raw())

    def predict_proba(self, snapshot: Snapshot, rows: Any) -> NDArray[Any]:
        """A probability for each of `classes`, those included that no hot row had."""
        self.refuse_without_probabilities()
        X = self._features(snapshot, rows)
        if not len(X):
            return Predictions.of(np.zeros((0, len(self.classes))), snapshot.guarantee.raw())
        return Predictions.of(self._chances(X), _raw(snapshot.guarantee))

    def proba_one(
        self, features: NDArray[Any], snapshot: Snapshot | None = None
    ) -> NDArray[np.float64]:
        """A probability for each of `classes`, for one row of features."""
        self.refuse_without_probabilities()
        chosen = None if snapshot is None else columns(self.names, snapshot)
        row = np.asarray(features) if chosen is None else np.asarray(features)[chosen]
        if row.shape != (len(self.names),):
            raise StateError(
                f"model {self.name!r} takes {len(self.names)} features; give them as the snapshot "
                f"has them, and the snapshot too"
            )
        found = None if self.quick is None else self.quick.chances(row)
        if found is None:
            found = self._chances(row.reshape(1, -1))[0]
        return found

    def _chances(self, X: NDArray[np.float32]) -> NDArray[np.float64]:
        if len(X) == 1 and self.quick is not None:
            found = self.quick.chances(X[0])
            if found is not None:
                return found.reshape(1, -1)
        given = self._said(self.estimator.predict_proba, X)
        return aligned(given, self.estimator.classes_, self.classes)

    def _said(self, ask: Callable[[Any], Any], X: NDArray[np.float32]) -> NDArray[Any]:
        """What an estimator says; one that computes itself out of the numbers has no answer."""
        try:
            # Other processes would keep what was learned.
            with parallel_config(backend="threading"), np.errstate(all="ignore"):
                said = np.asarray(ask(X))
        except ValueError:  # one step of a pipeline says of another; it may quote what was learned
            raise self._lost() from None
        if said.dtype.kind == "f" and not np.isfinite(said).all():
            raise self._lost()
        return said

    def _lost(self) -> StateError:
        return StateError(
            f"model {self.name!r} finds no number for these features; give them as the snapshot "
            f"makes them, or register another estimator"
        )

    def refuse_without_probabilities(self) -> None:
        """Raise where there are none."""
        if not self.classes:
            raise SchemaError(
                f"model {self.name!r} predicts a number and has no probabilities; use predict"
            )
        if not hasattr(self.estimator, "predict_proba"):
            raise SchemaError(
                f"model {self.name!r} gives no probabilities; use predict, or register an "
                f"estimator that has predict_proba"
            )

    def _features(self, snapshot: Snapshot, rows: Any) -> NDArray[np.float32]:
        if _is_one(rows):
            X = np.asarray(snapshot.featurize_one(rows)).reshape(1, -1)
        else:
            X = np.asarray(snapshot.array(rows))
        chosen = columns(self.names, snapshot)
        return X if chosen is None else X[:, chosen]


@lru_cache(maxsize=8)
def _raw(guarantee: Guarantee) -> Guarantee:
    return guarantee.raw()


def _is_one(rows: Any) -> bool:
    """Whether it is one row, as a dict of single values."""
    if not isinstance(rows, dict) or not rows:
        return False
    return isinstance(next(iter(rows.values())), str | int | float | bytes | None)


def columns(names: tuple[str, ...], snapshot: Snapshot) -> list[int] | None:
    """Where a snapshot has some features; None: they are all it has, in this order."""
    has = snapshot.names
    if names == tuple(has):
        return None
    place = {name: i for i, name in enumerate(has)}
    if not all(name in place for name in names):  # withdrawn this moment
        raise StateError("features of this model were withdrawn; ask again when it is trained")
    return [place[name] for name in names]
