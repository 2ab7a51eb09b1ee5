"""What sealed tables say of a group: whether its values agree more than its parts explain.

From noisy cells c of a table, with π the prior, s = Σ_l c_l and A = c - πs in a bucket,

    λ = ½ (Σ ‖A‖² - noise - N (1 - ‖π‖²)) / (Σ s² - noise - N)

is how much the labels of two rows with the same key agree on average: the Q of
`pyramidion.counts.selection`, per pair of rows. Noise has a known mean in both sums, which is
taken off; keys that share a bucket add to both alike, whatever their signs. Two features that
add up have the sum of their λ together, so what a group *gains* is its λ less those of its parts.

The cells are private already, so this is post-processing and free.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyramidion.counts.arena import Arena
from pyramidion.schema import bare

SURE = 3.0
"""Errors that a gain must exceed to be believed: many groups are asked about, again and again."""

_LAPLACE = 5.0  # variance of a squared Laplace draw of variance 1; a Gaussian one has 2


@dataclass(frozen=True)
class Agreement:
    """λ of a table and its standard error."""

    value: float
    error: float


def _prior(arena: Arena) -> NDArray[np.float64]:
    """P(label) by the noisy table of label totals."""
    counts = np.maximum(arena.cells(0).astype(np.float64).sum(axis=(0, 1)), 0.0) + 1.0
    told: NDArray[np.float64] = counts / counts.sum()
    return told


def agreement(arena: Arena, table: int, rows: int) -> Agreement:
    """Of one table that counts so many rows."""
    spec, prior = arena.layout.tables[table], _prior(arena)
    cells = arena.cells(table).astype(np.float64)
    hashes, width, labels = cells.shape
    sums = cells.sum(axis=2)
    deviations = cells - prior * sums[:, :, None]
    whole = float((prior**2).sum())
    noise = spec.variance * float(((1 - prior) ** 2 + (labels - 1) * prior**2).sum())
    squares = float((deviations**2).sum()) / hashes - width * noise
    pairs = float((sums**2).sum()) / hashes - width * spec.variance * labels
    own = rows * (1 - whole)
    pairs = max(pairs - rows, 1.0)
    sampling = 2 * (pairs + rows) * (1 - whole) ** 2
    drawn = (_LAPLACE * width * noise**2 + 4 * noise * max(squares, 0.0)) / hashes
    return Agreement((squares - own) / (2 * pairs), math.sqrt(sampling + drawn) / (2 * pairs))


def gain(arena: Arena, group: str, rows: Mapping[str, int]) -> Agreement | None:
    """What a group tells beyond its parts, of which one may be a group itself.

    ``rows`` says how many rows each table counts; None where a table is not there yet.
    """
    tables = {frozenset(bare(name).split(",")): t for name, t in arena.layout.index.items() if t}
    whole = frozenset(group.split(","))
    largest = max((parts for parts in tables if parts < whole), key=len, default=frozenset())
    told = []
    for parts in (whole, largest, *(frozenset([name]) for name in sorted(whole - largest))):
        if parts not in tables:
            return None
        name = arena.layout.tables[tables[parts]].name
        told.append(agreement(arena, tables[parts], rows[name]))
    value = told[0].value - sum(part.value for part in told[1:])
    return Agreement(value, math.sqrt(sum(part.error**2 for part in told)))
