"""What is expected of a stream before any of it is seen: how many rows, how many values.

Everything here is public: the schema, and what a person says. Nothing is read off
observations. Where nobody says how many distinct values an open feature has, it is
guessed from the rows alone, and the guess is marked as one.

**The assumption about sizes.** Keys have Zipf sizes: the i-th largest has a share of
the rows proportional to 1/i**skew (skew 1 as in words and clicks, 0: all the same).
The *typical* key is the one of average size, rows / distinct.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pyramidion.config.checks import checked_number, checked_whole, nearest
from pyramidion.config.schema import Categorical, Schema
from pyramidion.errors import SchemaError

Floats = NDArray[np.float64]

MOST_DISTINCT = 10**12
_ALONE = 64  # the largest keys stand for themselves, the others in groups of similar rank
_GROUPS = 192


@dataclass(frozen=True)
class Population:
    """The keys of one table over all windows: how many there are, and their sizes."""

    distinct: int
    rows: float
    skew: float

    @property
    def typical(self) -> float:
        """The size of an average key, at least 1.

        >>> Population(distinct=100, rows=5_000, skew=1.0).typical
        50.0
        """
        return max(1.0, self.rows / self.distinct)

    @cached_property
    def groups(self) -> tuple[Floats, Floats]:
        """Keys in groups of similar size, largest first: how many keys, and the size of each."""
        edges = np.arange(1.0, min(self.distinct, _ALONE) + 1)
        if self.distinct > _ALONE:
            rest = np.geomspace(_ALONE + 1, self.distinct + 1, _GROUPS)
            edges = np.unique(np.concatenate([edges, np.round(rest)]))
        else:
            edges = np.append(edges, self.distinct + 1.0)
        number = np.diff(edges)
        middle = np.sqrt(edges[:-1] * np.maximum(edges[:-1], edges[1:] - 1))
        share = middle**-self.skew
        return number, share * self.rows / float(number @ share)


@dataclass(frozen=True)
class Expected:
    """What a person expects of a stream: rows in a window, windows summed, distinct values."""

    rows: int
    windows: int = 1
    distinct: Mapping[str, int] = field(default_factory=dict)
    skew: float = 1.0

    def __post_init__(self) -> None:
        checked_whole("rows, the expected rows of a window,", self.rows, 1, 2**40)
        checked_whole("windows, the windows that are summed,", self.windows, 1, 10**6)
        if not 0 <= checked_number("skew", self.skew) <= 4:
            raise SchemaError("skew must be from 0 (all keys of one size) to 4; 1 is usual")
        for name, number in self.distinct.items():
            checked_whole(f"the distinct values of {name!r}", number, 1, MOST_DISTINCT)

    @property
    def total(self) -> int:
        """Rows in the complete tables."""
        return self.rows * self.windows

    def refuse_unknown(self, schema: Schema) -> None:
        """Refuse distinct values of a table that the schema does not have."""
        for name in self.distinct:
            if name not in schema.table_names:
                raise SchemaError(
                    f"distinct names the table {name!r}, which the schema does not have; "
                    f"{nearest(name, schema.table_names)}"
                )

    def told(self, schema: Schema, name: str) -> bool:
        """Whether a table's distinct values are known: by hand, or all its features are finite."""
        parts = schema.tables[schema.table_names.index(name)]
        return name in self.distinct or all(self._known(schema, part) for part in parts)

    def _known(self, schema: Schema, part: str) -> bool:
        return part in self.distinct or schema.feature(part).dense

    def population(self, schema: Schema, name: str) -> Population:
        """The keys of a table: as told, as declared, or as guessed.

        >>> from pyramidion import Label
        >>> late = Label("late", classes=[0, 1])
        >>> flights = Schema(features=[Categorical("tailnum")], label=late)
        >>> Expected(rows=1_000_000).population(flights, "tailnum").distinct
        10000
        """
        if name in self.distinct:
            return self._of(self.distinct[name])
        parts = schema.tables[schema.table_names.index(name)]
        product = math.prod(self._values(schema, part) for part in parts)
        finite = all(schema.feature(part).dense for part in parts)
        most = product if len(parts) == 1 or finite else max(1, self.total // 4)
        return self._of(min(product, most))

    def _of(self, distinct: int) -> Population:
        return Population(distinct, float(self.total), self.skew)

    def _values(self, schema: Schema, part: str) -> int:
        if part in self.distinct:
            return self.distinct[part]
        feature = schema.feature(part)
        if isinstance(feature, Categorical):
            if feature.domain is None:
                return max(1, round(math.pow(self.total, 2 / 3)))
            return len(feature.domain)
        return len(feature.cuts) + 1
