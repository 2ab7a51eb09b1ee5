"""Hot rows as a training set: features, labels, and no row that meets its own label.

Hot rows that are already in sealed windows are in the complete tables, each with its own
label. So training rows are featurized with the **complete tables less the exact counts of
all hot rows in them**. Two other ways are traps: leaving out each row alone tells its label by
the one count that is missing, and counts of an earlier window have other noise than those
that are served.

The reduced tables are as raw as the rows (P1): they live in memory, and expire when a row
that was taken off leaves the hot window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.batches import Batch
from pyramidion.checks import nearest
from pyramidion.counts.snapshot import Features, Snapshot
from pyramidion.errors import SchemaError, StateError
from pyramidion.guarantee import Guarantee
from pyramidion.judge import Judge, floats, numbers
from pyramidion.observations import Observations
from pyramidion.schema import Label, Schema

Source = Callable[[], Iterator[tuple[Observations, Batch]]]
"""Goes through the hot rows, batch by batch; each call begins anew."""


@dataclass(frozen=True)
class TrainingSet:
    """Features and labels of all hot rows; unpacks as ``X, y``.

    ``batches`` gives them piece by piece, for hot windows larger than memory.
    """

    snapshot: Snapshot = field(repr=False)
    source: Source = field(repr=False)
    schema: Schema = field(repr=False)
    label: Label

    @property
    def names(self) -> list[str]:
        """The names of the columns of X."""
        return self.snapshot.names

    @property
    def guarantee(self) -> Guarantee:
        """P1: raw rows are in it."""
        return self.snapshot.guarantee

    def batches(self) -> Iterator[tuple[NDArray[np.float32], NDArray[Any]]]:
        """X and y of one batch of hot rows after the other, in the order they came."""
        for observations, batch in self.source():
            yield self.snapshot.array(observations), self._y(observations, batch)

    def _y(self, observations: Observations, batch: Batch) -> NDArray[Any]:
        if self.label.continuous:
            column = numbers(self.label.name, batch.columns[self.label.name], Judge(batch.length))
            return floats(column)
        sizes = [label.cardinality for label in self.schema.labels]
        place = [label.name for label in self.schema.labels].index(self.label.name)
        codes = np.unravel_index(observations.labels, sizes)[place]
        classes: NDArray[Any] = np.array(self.label.classes)
        found: NDArray[Any] = classes[codes]
        return found

    @cached_property
    def _all(self) -> tuple[NDArray[np.float32], NDArray[Any]]:
        parts = list(self.batches())
        if not parts:
            raise StateError("the hot window is empty, so there is nothing to train on; observe")
        X = np.concatenate([np.asarray(x) for x, _ in parts])
        return Features.of(X, self.guarantee), np.concatenate([y for _, y in parts])

    @property
    def X(self) -> NDArray[np.float32]:  # noqa: N802
        """The features, one row for each hot row."""
        return self._all[0]

    @property
    def y(self) -> NDArray[Any]:
        """The labels: classes as declared, or numbers where the label has edges."""
        return self._all[1]

    def to_arrow(self) -> pa.Table:
        """Features and label as one table."""
        columns = dict(zip(self.names, np.asarray(self.X).T, strict=True))
        table = pa.table({**columns, self.label.name: self.y})
        return table.replace_schema_metadata({"pyramidion.guarantee": str(self.guarantee)})

    def __iter__(self) -> Iterator[NDArray[Any]]:
        yield self.X
        yield self.y


def label_of(schema: Schema, name: str | None) -> Label:
    """The label to train on: the only one, or the one that is named."""
    by_name = {label.name: label for label in schema.labels}
    if name is None:
        if len(by_name) > 1:
            raise SchemaError(f"the schema has several labels; name one of {', '.join(by_name)}")
        return schema.labels[0]
    if name not in by_name:
        raise SchemaError(f"there is no label {name!r}; {nearest(name, by_name)}")
    return by_name[name]
