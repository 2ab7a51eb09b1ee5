"""Private bin edges of columns, read from observations: percentiles, by the exponential mechanism.

Every cut of every column is one draw; all draws share the budget equally.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pyramidion.config.schema import Schema
from pyramidion.privacy.budget import Unit
from pyramidion.privacy.exponential import epsilon_per_draw
from pyramidion.privacy.quantiles import cuts
from pyramidion.privacy.randomness import Randomness
from pyramidion.rows.observations import Observations
from pyramidion.rows.validation import floats

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

    Rows that touch no table (of weight 0) are not read, nor are missing values.
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
