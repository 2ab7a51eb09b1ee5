"""What sealed tables say of a group: whether its values agree more than its parts explain.

From noisy cells c of a table, with π the prior, s = Σ_l c_l and A = c - πs in a bucket,

    λ = ½ (Σ ‖A‖² - noise - N (1 - ‖π‖²)) / (Σ s² - noise - N)

is how much the labels of two rows with the same key agree on average: the Q of
`pyramidion.counts.selection`, per pair of rows. Noise has a known mean in both sums, which is
taken off; keys that share a bucket add to both alike, whatever their signs. Two features that
add up have the sum of their λ together, so what a group *gains* is its λ less those of its parts.

That counts rows of one session as agreeing, which `pyramidion.counts.selection` does not. So where
two windows or more count the group, only pairs of rows of *different* windows are asked (`Across`),
with A_t the A of window t under that window's own prior, and s_t its s,

    λ = ½ Σ_{t≠t′} ⟨A_t, A_t′⟩ / Σ_{t≠t′} s_t s_t′
      = ½ (‖Σ_t A_t‖² - Σ_t ‖A_t‖²) / (‖Σ_t s_t‖² - Σ_t ‖s_t‖²).

Windows share neither noise nor rows, so nothing is to be taken off. A label that becomes more
frequent with time moves each window's prior, and no A_t. The group and its parts are asked in the
same windows: of these alone one knows what both say.

The error of that: with r = e_y - π and M the covariance of noise in A per variance of a cell, a
pair of rows adds E⟨r, r′⟩² = Σπ² - 2Σπ³ + (Σπ²)² where labels follow the prior, and a bucket of
two windows v_t v_t′ tr M², tr M² = L - 2 + L²‖π‖⁴. What rows say is multiplied by noise, too, by at
most L‖π‖² of its variance. Sessions make A_t larger than rows that each say something else would,
by a factor that the windows' own squares show, less what lasts: for a part what it says, for a
group what its parts say together. So much larger is a row's part of the error.

The cells are private already, so this is post-processing and free.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyramidion.config.schema import bare
from pyramidion.counts.arena import Arena

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


def parts_of(names: Collection[str], group: str) -> list[str] | None:
    """The tables that a group is judged by: its own, and those of the parts it is made of.

    One part may be a group itself, the largest there is. None where a table is not there.

    >>> parts_of(["", "a", "b", "c", "a,b", "a,b,c"], "a,b,c")
    ['a,b,c', 'a,b', 'c']
    """
    tables = {frozenset(bare(name).split(",")): name for name in names if name}
    whole = frozenset(group.split(","))
    largest = max((parts for parts in tables if parts < whole), key=len, default=frozenset())
    wanted = [whole, largest, *(frozenset([name]) for name in sorted(whole - largest))]
    return [tables[parts] for parts in wanted] if all(map(tables.__contains__, wanted)) else None


def gain(arena: Arena, group: str, rows: Mapping[str, int]) -> Agreement | None:
    """What a group tells beyond its parts, by the pairs of all rows of some tables.

    ``rows`` says how many rows each table counts; None where a table is not there yet.
    """
    index = arena.layout.index
    names = parts_of(index, group)
    if names is None:
        return None
    return _beyond([agreement(arena, index[name], rows[name]) for name in names])


def _beyond(told: Sequence[Agreement]) -> Agreement:
    """Of a group and its parts: what the first says more than the others together."""
    value = told[0].value - sum(part.value for part in told[1:])
    return Agreement(float(value), math.sqrt(sum(part.error**2 for part in told)))


# --- rows of different windows ------------------------------------------------------------------


class Across:
    """What one table of several windows tells, by pairs of rows of different windows.

    Windows are added one by one and not kept: sums of A_t and s_t are, and of their squares.
    """

    def __init__(self) -> None:
        self._deviations: NDArray[np.float64] | float = 0.0
        self._sums: NDArray[np.float64] | float = 0.0
        self._own = np.zeros(4)
        """Σ over windows of ‖A_t‖², ‖s_t‖², squared rows and squared noise variances."""
        self._prior: NDArray[np.float64] | float = 0.0
        self.windows = 0
        self._rows, self._noise = 0, 0.0
        self._weight, self._sketch = 1, False

    def add(self, arena: Arena, table: int) -> None:
        """The table of one more window."""
        prior = _prior(arena)
        spec = arena.layout.tables[table]
        cells = arena.cells(table).astype(np.float64)
        sums = cells.sum(axis=2)
        cells -= prior * sums[:, :, None]
        self._own += [
            float((cells**2).sum()), float((sums**2).sum()), arena.rows**2, spec.variance**2
        ]  # fmt: skip
        self._deviations, self._sums = self._deviations + cells, self._sums + sums
        self._prior = self._prior + prior
        self._rows, self._noise = self._rows + arena.rows, self._noise + spec.variance
        self.windows += 1
        self._weight, self._sketch = arena.layout.weight, spec.kind != "dense"

    def agreement(self, lasting: float | None = None) -> Agreement:
        """λ, and its error if ``lasting`` is all of it that lasts; of two windows or more."""
        whole, sums = np.asarray(self._deviations), np.asarray(self._sums)
        hashes, width, labels = whole.shape
        prior = np.asarray(self._prior) / self.windows
        own = self._own / [hashes, hashes, 1, 1]
        squares = float((whole**2).sum()) / hashes
        pairs = max(float((sums**2).sum()) / hashes - own[1], 1.0)
        value = (squares - own[0]) / (2 * pairs)
        norm, cubes = float((prior**2).sum()), float((prior**3).sum())
        noise = width * self._noise * (labels - 2 + labels * norm)
        # Rows of one window that agree beyond what lasts make sums that are further off.
        rows = max(self._rows * self._weight**2, 1)
        inside = max(own[1] - width * self._noise * labels - rows, 0.0)
        lasts = 2 * max(value if lasting is None else lasting, 0.0) * inside
        together = max((own[0] - noise - lasts) / (rows * max(1 - norm, 1e-9)), 1.0)
        met = pairs
        if self._sketch:  # keys that share a bucket meet, too, in each hash row other ones
            met += (self._rows**2 - own[2]) * self._weight**2 / width / hashes
        sampling = 2 * met * self._weight**2 * (norm - 2 * cubes + norm**2) * together**2
        drawn = 2 * width * (self._noise**2 - own[3]) * (labels - 2 + labels**2 * norm**2)
        drawn += 4 * self._noise * labels * norm * max(squares - noise, 0.0)
        return Agreement(value, math.sqrt(sampling + drawn / hashes) / (2 * pairs))


def gain_across(group: Across, parts: Sequence[Across]) -> Agreement:
    """What a group tells beyond its parts; the error is as if it told no more than they do."""
    told = [part.agreement() for part in parts]
    return _beyond([group.agreement(sum(part.value for part in told)), *told])
