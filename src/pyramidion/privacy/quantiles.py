"""Private quantiles: of counts per key, for weights; of a column's values, for bin edges.

Both are draws of the exponential mechanism over *public* candidates c. With n the number of x
and r the quantile's rank between 0 and 1,

    values   u(c) = -|#{x < c} - r n|
    counts   u(c) = -max(#{x < c} - r n, r n - #{x < c'}, 0),    c' the next candidate.

A cut is as good as it divides the values, wherever it lies between two of them. A count is good
if the quantile is in its cell, from c up to c'. (With the first utility for counts, all c up to
the least count would be equally good: where half of the keys have 6 rows and none has fewer, 1
would be as likely as 6.)

Of counts the mechanism's base is ∝ 1/c: where rows say little, few rows per key are likelier
than many. A table that is taken for a large one by mistake is starved; one that is taken for a
small one gets what other small ones get. Were all c alike, tables with few keys would get
anything from 1 to 10,000, and shares would be worse than equal ones by what `least-error`
minimises (so it was on Criteo at small budgets). The base is public, so it costs nothing: a
count of c needs 2k ln(c) / ε keys more on its side than a count of 1 does.

**Sensitivity 1**, for one blanked observation: each #{x < c} - r n changes by at most 1, and
neither absolute values nor maxima make that more. Values: its x is gone, so n falls by one
and #{x < c} by one or not at all, the difference changes by r or 1 - r. Counts: the count of
one key falls from x to x - 1. While the key stays, n is the same and #{x < c} rises by one for
x - 1 < c <= x alone. With x = 1 the key is gone: n falls by one, #{x < c} by one where c > 1,
the difference changes by r or 1 - r. For k observations the sensitivity is k, by the triangle
inequality; the draw divides by 2k.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyramidion.config.schema import Schema
from pyramidion.errors import PrivacyError, SchemaError
from pyramidion.privacy.budget import Unit
from pyramidion.privacy.exponential import Method, chosen, epsilon_per_draw
from pyramidion.privacy.randomness import Randomness
from pyramidion.privacy.smooth import smooth_quantile
from pyramidion.rows.observations import Observations
from pyramidion.rows.validation import floats

LEAST, MOST = 1, 10_000
"""Between these the quantile of counts per key is looked for: the paper's bounds."""

FEWEST_ROWS = 1_000
"""Of fewer rows nothing is worth reading: the answer would be the noise."""

_COUNTS = sorted({*(round(2 ** (i / 4)) for i in range(54) if 2 ** (i / 4) < MOST), MOST})
_BASE = [MOST // count for count in _COUNTS]  # ∝ 1 / c, in whole numbers
_EVEN = 512  # candidate cuts at equal distances
_OCTAVES, _PER_OCTAVE = 40, 8  # and next to the bounds and to 0, each 9 % further than the last


def count_quantile(
    counts: NDArray[np.int64],
    *,
    p: float,
    epsilon: Fraction,
    k: int,
    method: Method = "exponential",
    randomness: Randomness | None = None,
) -> float:
    """The p-quantile of counts per key, within 1 and 10,000: ε-private for k observations.

    ``counts`` has each key's number of rows, keys without rows left out. Candidates of
    `exponential` are whole numbers about 19 % apart; `smooth` is the paper's, in floating
    point, see `pyramidion.privacy.smooth`.

    >>> seen = np.full(100_000, 40)
    >>> count_quantile(seen, p=0.1, epsilon=Fraction(1), k=1)
    38.0
    """
    source = randomness if randomness is not None else Randomness()
    rank = Fraction(repr(p))  # the decimal that was written
    if not 0 < rank < 1 or k < 1 or not epsilon > 0:
        raise PrivacyError(
            "a private quantile needs a rank between 0 and 1, k of at least 1 and an epsilon "
            "above 0; give it all three"
        )
    if method == "smooth":
        bounds = (LEAST, MOST)
        return smooth_quantile(
            counts, p=rank, epsilon=epsilon, k=k, bounds=bounds, randomness=source
        )
    utilities = _count_utilities(counts, rank)
    scale = k * rank.denominator
    place = chosen(utilities, epsilon=epsilon, sensitivity=scale, randomness=source, base=_BASE)
    return float(_COUNTS[place])


def _count_utilities(counts: NDArray[np.int64], rank: Fraction) -> list[int]:
    """u of each cell of the grid, times the rank's denominator: whole numbers."""
    below = [*_below(counts, np.array(_COUNTS)), len(counts)]
    beyond = [rank.denominator * count - rank.numerator * len(counts) for count in below]
    return [-max(start, -stop, 0) for start, stop in pairwise(beyond)]


def _below(values: NDArray[Any], grid: NDArray[Any]) -> list[int]:
    """How many values are below each candidate."""
    found: list[int] = np.searchsorted(np.sort(values), grid, side="left").tolist()
    return found


def _cut_utilities(below: Sequence[int], size: int, rank: Fraction) -> list[int]:
    """u of each candidate cut, times the rank's denominator: whole numbers."""
    target = rank.numerator * size
    return [-abs(rank.denominator * count - target) for count in below]


def cuts(
    values: NDArray[np.float64],
    *,
    bins: int,
    bounds: tuple[float, float],
    epsilon: Fraction,
    k: int,
    randomness: Randomness | None = None,
) -> tuple[float, ...]:
    """Cuts into bins of about equally many values: bins - 1 draws, each ε-private.

    Cut i is drawn for rank i / bins, from public candidates strictly within ``bounds``. All of
    them together cost (bins - 1) ε, or (bins - 1) ε²/8 in zCDP: see `epsilon_per_draw`. Put
    in order and moved to the next free candidate where two are the same, which costs nothing.
    ``values`` has no missing ones; those beyond the bounds count as below or above.
    """
    grid = candidates(bounds)
    if bins < 2 or len(grid) < bins - 1:
        raise SchemaError(
            "private cuts need at least two bins, and bounds with so many numbers between them; "
            "lower bins or widen the bounds"
        )
    source = randomness if randomness is not None else Randomness()
    below, drawn = _below(values, grid), []
    for rank in (Fraction(i, bins) for i in range(1, bins)):
        utilities = _cut_utilities(below, len(values), rank)
        scale = k * rank.denominator
        drawn.append(chosen(utilities, epsilon=epsilon, sensitivity=scale, randomness=source))
    return tuple(float(grid[i]) for i in _distinct(drawn, len(grid)))


def candidates(bounds: tuple[float, float]) -> NDArray[np.float64]:
    """Where cuts may lie, in order: public, from the bounds alone.

    Even points, and points that come geometrically close to either bound and to 0: a column
    with a heavy tail has most of its values in the first thousandth of its range.

    >>> bool(candidates((0.0, 1e6))[0] < 1e-5)
    True
    """
    low, high = bounds
    if not -np.inf < low < high < np.inf:
        raise SchemaError("bounds of private cuts are two finite numbers in order; give both")
    near = 2.0 ** -(np.arange(1, _OCTAVES * _PER_OCTAVE + 1) / _PER_OCTAVE)
    part = np.concatenate([np.arange(1, _EVEN) / _EVEN, near, 1 - near])
    points = [low * (1 - part) + high * part]
    if low < 0 < high:
        points += [low * near, high * near, np.zeros(1)]
    every = np.unique(np.concatenate(points))
    return every[(every > low) & (every < high)]


def _distinct(drawn: Sequence[int], size: int) -> list[int]:
    """The indices in order, each moved up to the next free one, or down at the very end."""
    moved: list[int] = []
    for index in sorted(drawn):
        moved.append(max(index, moved[-1] + 1) if moved else index)
    for place in range(len(moved)):
        moved[place] = min(moved[place], size - len(moved) + place)
    return moved


# --- bin edges -----------------------------------------------------------------------------------


CERTAIN = Fraction(10**6)
"""The ε of a draw where there is no privacy: the best cut, but for a chance of nothing."""


def read_cuts(
    batches: Iterable[Observations],
    schema: Schema,
    *,
    budget: Fraction,
    unit: Unit | Literal["none"],
    k: int,
    randomness: Randomness | None = None,
) -> dict[str, tuple[float, ...]]:
    """Edges of the columns whose bins are not declared, for at most this budget.

    Every cut of every column is one draw; all draws share the budget equally. Rows that touch no
    table (of weight 0) are not read, nor are missing values.
    """
    binned, found = schema.binned, dict[str, list[NDArray[np.float64]]]()
    for observations in batches:
        for column in binned:
            found.setdefault(column, []).append(_values(observations, column))
    draws = sum(bins - 1 for bins, _ in binned.values())
    epsilon = CERTAIN if unit == "none" else epsilon_per_draw(budget, draws=draws, unit=unit)
    return {
        column: cuts(
            np.concatenate(found.get(column, [np.empty(0)])),
            bins=bins,
            bounds=bounds,
            epsilon=epsilon,
            k=k,
            randomness=randomness,
        )
        for column, (bins, bounds) in binned.items()
    }


def _values(observations: Observations, column: str) -> NDArray[np.float64]:
    """The values of a column that are there, of rows that are counted."""
    if column in observations.numbers:
        values = observations.numbers[column]
    else:
        values = floats(observations.columns[column], missing=np.nan)
    counted = np.broadcast_to(observations.weights > 0, values.shape)
    return values[counted & ~np.isnan(values)]
