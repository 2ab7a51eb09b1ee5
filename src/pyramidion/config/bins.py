"""Bins of numbers: declared by edges, even over bounds, or cut at edges read from rows, privately.

Edges are read for all columns at once, from the rows of one window; tables whose keys depend
on them have that window's number in their names, so that counts in other bins never meet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from pyramidion.config.checks import checked_items, checked_number
from pyramidion.errors import SchemaError

MOST_BINS = 65_536
"""As many rows as a dense table of the default ``dense_limit`` holds."""


class Read(NamedTuple):
    """Inner cut points that were read from the rows of a window, privately."""

    window: int
    edges: tuple[float, ...]


@dataclass(frozen=True)
class Cuts:
    """Edges by column, all read from the same window; 0: none were, bins are even."""

    window: int = 0
    edges: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def of(self, column: str) -> Read | None:
        """The edges of a column, where some were read."""
        return Read(self.window, self.edges[column]) if column in self.edges else None


def even_cuts(bins: int, bounds: tuple[float, float]) -> tuple[float, ...]:
    """The inner cut points of even bins."""
    low, high = map(Fraction, bounds)  # exact: no overflow, no drift
    return tuple(float(low + (high - low) * i / bins) for i in range(1, bins))


def checked_bounds(of: str, given: object) -> tuple[float, float]:
    """Return the bounds of a feature or label: two numbers, the lower one first."""
    what = f"the bounds of {of}"
    bounds = [checked_number(f"a number in {what}", bound) for bound in checked_items(what, given)]
    if len(bounds) != 2 or not bounds[0] < bounds[1]:
        raise SchemaError(
            f"{what} must be two numbers, the lower one first; write bounds=(low, high)"
        )
    return bounds[0], bounds[1]
