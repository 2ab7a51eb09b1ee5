"""What comes back from a service, in the types that a store gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.errors import UnreachableError

NOT_OURS = "the service answers in a way that this version does not know; upgrade the older one"


@dataclass(frozen=True)
class Receipt:
    """What became of a batch, as far as a sender may know; see `pyramidion.Receipt`."""

    accepted: int
    refused: int
    late: int

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Self:
        """From what the service told."""
        try:
            names = ("accepted", "refused", "late")
            return cls(**{name: int(told.get(name, 0)) for name in names})
        except (TypeError, ValueError, AttributeError):
            raise UnreachableError(NOT_OURS) from None


@dataclass(frozen=True)
class FetchedRows:
    """Hot rows as features and label: P1, a copy of yours. Drop it when the rows go.

    Unpacks as ``X, y``.
    """

    X: NDArray[np.float32] = field(repr=False)
    y: NDArray[Any] = field(repr=False)
    names: list[str]
    label: str

    @classmethod
    def of(cls, table: pa.Table) -> Self:
        """From the columns that the service sent; the last one is the label."""
        *names, label = table.column_names
        X = np.empty((table.num_rows, len(names)), dtype=np.float32, order="F")
        for place in range(len(names)):
            X[:, place] = table.column(place).to_numpy()
        return cls(X, table.column(len(names)).to_numpy(), names, label)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return iter((self.X, self.y))

    def __len__(self) -> int:
        return len(self.y)


def predicted(told: Mapping[str, Any]) -> NDArray[Any]:
    """The likeliest class of each row, or the expected number."""
    if "predictions" in told:
        return np.asarray(told["predictions"])
    chosen = probabilities(told).argmax(axis=1)
    found: NDArray[Any] = np.asarray(told["classes"])[chosen]
    return found


def probabilities(told: Mapping[str, Any]) -> NDArray[np.float64]:
    """A probability for each class, in the order of ``told["classes"]``."""
    try:
        found = np.asarray(told["probabilities"], dtype=np.float64)
        return found.reshape(-1, len(told["classes"]))
    except (KeyError, TypeError, ValueError):
        raise UnreachableError(NOT_OURS) from None
