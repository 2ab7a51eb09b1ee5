"""What a model of raw rows is, and how what it loses is measured.

A raw model learns from observations as they came, without counts: what one would train if
all of the past could be kept. Its loss is the measure for models on counts.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lab.datasets import DataSet
from pyramidion.config.label import Label
from pyramidion.errors import SchemaError

SUREST = 1e-6
"""Probabilities are kept this far from 0 and 1, so that one row cannot cost the earth."""

Range = tuple[int, int]
"""Rows, from the first number to before the second."""


@dataclass(frozen=True)
class RawResult:
    """What a raw model lost, and what it took to train."""

    loss: float
    seconds_to_train: float
    rows: int
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Learnt:
    """What a trained model says of rows it has not seen."""

    predictions: NDArray[np.float64]
    """Probabilities of the second class, or numbers where the label is one."""
    seconds_to_train: float


@dataclass(frozen=True)
class RawModel(ABC):
    """A kind of model with its parameters; a plain value, it holds nothing it learnt."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def losses(self, data: DataSet, start: int, stop: int, test: Range) -> RawResult:
        """Train on the rows from ``start`` to before ``stop``; what it loses on those of test."""
        learnt = self.learnt(data, start, stop, test)
        truth = labels(data, test)
        lost = loss(data.schema.labels[0], truth, learnt.predictions)
        return RawResult(lost, learnt.seconds_to_train, stop - start, dict(self.parameters))

    def predictions(self, data: DataSet, start: int, stop: int, test: Range) -> NDArray[np.float64]:
        """What the model says of the test rows once it has learnt the others."""
        return self.learnt(data, start, stop, test).predictions

    @abstractmethod
    def learnt(self, data: DataSet, start: int, stop: int, test: Range) -> Learnt:
        """Train, predict, and say how long the training took."""

    def changed(self, **parameters: Any) -> Self:
        """The same model with some parameters changed; None takes one away."""
        merged = {**self.parameters, **parameters}
        return replace(self, parameters={k: v for k, v in merged.items() if v is not None})


@dataclass(frozen=True)
class Prior(RawModel):
    """The class rate, or the mean, for every row: what is known without any feature."""

    name: str = "class rate"

    def learnt(self, data: DataSet, start: int, stop: int, test: Range) -> Learnt:
        """The training rows' mean label, for every row of the test."""
        began = time.perf_counter()
        mean = float(labels(data, (start, stop)).mean())
        took = time.perf_counter() - began
        return Learnt(np.full(test[1] - test[0], mean), took)


def labels(data: DataSet, rows: Range) -> NDArray[np.float64]:
    """The rows' labels as numbers: 1 for the second class, or the number itself."""
    label = data.schema.labels[0]
    parts = [targets(label, batch.column(data.label)) for batch in data.read(*rows)]
    return np.concatenate([np.zeros(0), *parts])


def targets(label: Label, column: pa.Array) -> NDArray[np.float64]:
    """One batch's labels as numbers.

    >>> targets(Label("late", classes=["no", "yes"]), pa.array(["yes", "no"])).tolist()
    [1.0, 0.0]
    """
    if label.continuous:
        numbers: NDArray[np.float64] = pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
        return numbers
    classes = label.classes or ()
    if len(classes) != 2:
        raise SchemaError(
            f"label {label.name!r} has {len(classes)} classes and raw models tell two apart; "
            f"give a label of two classes, or a number in bins"
        )
    same: NDArray[Any] = column.to_numpy(zero_copy_only=False) == classes[1]
    return same.astype(np.float64)


def loss(label: Label, truth: NDArray[np.float64], told: NDArray[np.float64]) -> float:
    """The mean log loss of probabilities, or squared loss of numbers.

    >>> round(loss(Label("late", classes=[0, 1]), np.array([1.0, 0.0]), np.array([0.5, 0.5])), 4)
    0.6931
    """
    if label.continuous:
        return float(np.mean((truth - told) ** 2))
    chance = np.clip(told, SUREST, 1 - SUREST)
    return float(-np.mean(np.where(truth == 1, np.log(chance), np.log1p(-chance))))
