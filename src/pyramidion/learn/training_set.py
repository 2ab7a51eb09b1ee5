"""Hot rows as a training set: features, labels, and no row that meets its own label.

How the tables are kept from telling a row its label is in `pyramidion.learn.reduced`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.config.schema import Label, Schema
from pyramidion.counts.guarantee import Guarantee
from pyramidion.counts.snapshot import Features
from pyramidion.counts.values import values_of
from pyramidion.errors import StateError
from pyramidion.learn.reduced import Reduced
from pyramidion.learn.workload import Workload
from pyramidion.rows.observations import Observations

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Piece = tuple[NDArray[np.float32], NDArray[Any], NDArray[np.float64], "csr_matrix | None"]
"""Features, labels, weights and, where they were asked for, values."""


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Features and labels of all hot rows; unpacks as ``X, y``. It is empty once a row leaves.

    ``batches`` gives them piece by piece, for hot windows larger than memory.
    """

    reduced: Reduced = field(repr=False)
    schema: Schema = field(repr=False)
    workload: Workload
    unit: int = 1
    """What a row of weight 1 adds to a cell."""
    with_values: bool = False

    @property
    def label(self) -> Label:
        """What y is of; its classes may be merged."""
        return self.workload.label

    def expire(self, why: str) -> None:
        """Drop features and labels: rows of them must be forgotten."""
        self.reduced.expire(why)
        vars(self).pop("_made", None)

    @cached_property
    def _columns(self) -> list[int]:
        used = enumerate(self.reduced.base.parts)
        return [column for column, parts in used if self.workload.uses(parts)]

    @property
    def names(self) -> list[str]:
        """The names of the columns of X."""
        names = self.reduced.base.names
        return [names[column] for column in self._columns]

    @property
    def guarantee(self) -> Guarantee:
        """P1: raw rows are in it."""
        return self.reduced.guarantee

    def batches(self) -> Iterator[tuple[NDArray[np.float32], NDArray[Any]]]:
        """X and y of one batch of hot rows after the other, in the order they came."""
        for X, y, *_ in self._pieces():
            yield X, y

    def _pieces(self) -> Iterator[Piece]:
        for hot, X in self.reduced.features():
            some = X if len(self._columns) == X.shape[1] else X[:, self._columns]
            y = self.workload.y(self.schema, hot.observations, hot.batch)
            weights = np.broadcast_to(hot.observations.weights / self.unit, len(y))
            yield Features.of(some, self.guarantee), y, weights, self._values(hot.observations)

    @property
    def _all(self) -> Piece:
        """Made once; rows that leave meanwhile take it with them."""
        made = self._made
        if self.reduced.expired:
            vars(self).pop("_made", None)
            raise StateError("this training set has expired: hot rows of it left; take a new one")
        return made

    @cached_property
    def _made(self) -> Piece:
        parts = list(self._pieces())
        if not parts:
            raise StateError("the hot window is empty, so there is nothing to train on; observe")
        X, y, weights = (np.concatenate([np.asarray(p[i]) for p in parts]) for i in range(3))
        return Features.of(X, self.guarantee), y, weights, _stacked([part[3] for part in parts])

    def _values(self, hot: Observations) -> csr_matrix | None:
        if not self.with_values:
            return None
        return values_of(hot.under(self.reduced.base.encoder), self.valued)

    @property
    def X(self) -> NDArray[np.float32]:  # noqa: N802
        """The features, one row for each hot row."""
        return self._all[0]

    @property
    def y(self) -> NDArray[Any]:
        """The labels: classes as declared, or numbers where the label has edges."""
        return self._all[1]

    @property
    def weights(self) -> NDArray[np.float64]:
        """How many times each row is counted: 1/p where the schema names a propensity, else 1.

        To be given as ``sample_weight``. Smaller propensities than `p_min` count as that one; a row
        beyond what a person may have counted weighs nothing.
        """
        return self._all[2]

    @property
    def values(self) -> csr_matrix:
        """The values of the hot rows themselves, a sparse column for each, beside X.

        As raw as the rows, like y; `Snapshot.values` gives the same columns for rows to predict.
        """
        if not self.with_values:
            raise StateError("this training set has no values; ask training_set(values=True)")
        return self._all[3]

    @property
    def valued(self) -> list[str]:
        """The features whose values are in `values`: those whose own table is used."""
        tables = self.reduced.base.encoder.shapes
        single = [shape.parts for shape in tables if len(shape.parts) == 1]
        return [parts[0] for parts in single if self.workload.uses(parts)]

    def to_arrow(self) -> pa.Table:
        """Features and label as one table."""
        columns = dict(zip(self.names, np.asarray(self.X).T, strict=True))
        table = pa.table({**columns, self.label.name: self.y})
        return table.replace_schema_metadata({"pyramidion.guarantee": str(self.guarantee)})

    def __iter__(self) -> Iterator[NDArray[Any]]:
        yield self.X
        yield self.y


def _stacked(parts: list[csr_matrix | None]) -> csr_matrix | None:
    some = [part for part in parts if part is not None]
    if not some:
        return None
    from scipy.sparse import vstack

    return vstack(some, format="csr")
