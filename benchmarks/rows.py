"""Criteo-shaped rows: 13 columns of 4 bins, 26 Zipf columns of 10 to 10^6 values, a click."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion import Categorical, Continuous, Label, Schema

NUMERIC, OPEN = 13, 26
NAMES = [f"i{j}" for j in range(NUMERIC)] + [f"c{j}" for j in range(OPEN)]


def matrix(rows: int, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and labels as integers, the form that scikit-learn's TargetEncoder is fastest on."""
    random = np.random.default_rng(seed)
    columns = [random.choice(4, size=rows, p=[0.4, 0.3, 0.2, 0.1]) for _ in range(NUMERIC)]
    for j in range(OPEN):
        values = round(10 ** (1 + 5 * j / (OPEN - 1)))
        cumulative = np.cumsum(1 / np.arange(1, values + 1) ** 1.1)
        ranks = np.searchsorted(cumulative, random.random(rows) * cumulative[-1])
        columns.append((ranks * 2_654_435_761 + 97 * j) & ((1 << 40) - 1))
    X = np.ascontiguousarray(np.column_stack(columns), dtype=np.int64)
    return X, (random.random(rows) < 0.25).astype(np.int64)


def table(X: NDArray[Any], y: NDArray[Any]) -> pa.Table:
    """The same rows as an Arrow table."""
    columns = {name: X[:, j].copy() for j, name in enumerate(NAMES)}
    return pa.table({**columns, "click": y})


def schema(*, sketches_only: bool = False) -> Schema:
    """As a user declares it: bins and open categories; or every column a sketch."""
    numeric = [
        Categorical(name) if sketches_only else Continuous(name, edges=[1, 2, 3])
        for name in NAMES[:NUMERIC]
    ]
    return Schema(
        features=[*numeric, *map(Categorical, NAMES[NUMERIC:])],
        label=Label("click", classes=[0, 1]),
    )
