"""The search for settings: noise, hash rows, buckets, kind of sketch, windows, shares.

All sketches of a store have the same rows and buckets, so the best common ones are
looked for: for each noise and each number of hash rows the fewest buckets that come
within 5 % of what the memory allows at most; and of all these, within 2 % of the best,
the one that takes the least memory. What is compared is the cost of the probabilities
that a row is given: the root mean square over rows and tables. Where a target must hold
in every table it is the cost of a typical key in the worst table.

Where many windows are summed, a tree of them is considered beside flat ones: the one whose radix,
depth and level shares leave the least noise. It has a table more in memory for each level, and
every row is counted and written once in each.

Under Laplace noise h hash rows cost h times the noise, under Gaussian noise √h times,
which their mean gains again. Nothing here says so: the prediction shows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NoReturn

from pyramidion.config.settings import Settings
from pyramidion.config.window_tree import best
from pyramidion.errors import SchemaError
from pyramidion.privacy.prediction import (
    Predictor,
    complete,
    populating_bytes,
    root_mean_square,
)
from pyramidion.privacy.table_noise import sizes_of
from pyramidion.privacy.weights import weights_of
from pyramidion.rows.encoding import table_shapes

HASH_ROWS = (1, 3, 5, 7)
_FEWEST, _MOST = 8, 24  # powers of two of buckets
_WITHIN, _NOTHING = 1.02, 0.0005  # costs no further apart than this are as good
_BUCKETS_WITHIN = 1.05  # twice the memory should be worth more than that
_SAMPLES = 600  # keys drawn for a comparison; all compared meet the same keys
_LOOKED_AT = 8  # tables, from the fewest to the most distinct values
_QUIET = 0.5  # deviation of noise in a cell, below which a minimum is not led astray
_TREE_WORTH = 0.75  # a tree takes a table more for each level: it must lower the noise to this
_TOP_CELL = 2**31 - 2**24  # leaves room for the noise in 32 bits


@dataclass(frozen=True)
class Alternative:
    """A choice that was considered, and what it would have cost."""

    mechanism: str
    sketch: str
    rows: int
    buckets: int
    cost: float
    """At equal shares: of a row's probabilities, or with a target of the worst table's."""
    nbytes: int
    """Of a window and of the complete tables, together; in a tree, of a node of each level, too."""
    windows: str = "flat"
    """Flat, or a tree of a radix and depth."""


@dataclass(frozen=True)
class Proposals:
    """Settings that could be, from a base whose other knobs stay, within a memory bound."""

    predictor: Predictor
    base: Settings
    memory: int
    every_table: bool
    """Whether the worst table counts, and not the mean."""

    def best(self) -> tuple[Settings, tuple[Alternative, ...]]:
        """The settings to propose, and all that were compared, the cheapest first."""
        found = [
            (self._alternative(settings), settings)
            for flat in self._starts()
            for start in self._windowed(flat)
            for settings in [self._with_buckets(start)]
            if settings is not None
        ]
        if not found:
            self._refuse_memory()
        found.sort(key=lambda pair: pair[0].cost)
        enough = [pair for pair in found if pair[0].cost <= _nearly(found[0][0].cost)]
        chosen = min(enough, key=lambda pair: (pair[0].nbytes, pair[1].delta))[1]
        return self._shared(chosen), tuple(alternative for alternative, _ in found)

    def _starts(self) -> Iterator[Settings]:
        """One for each noise, number of hash rows and kind of sketch."""
        noises = (self.base.delta, 0.0) if self.base.private else (self.base.delta,)
        for delta in dict.fromkeys(noises):
            noisy = self._public(replace(self.base, delta=delta))
            for rows in HASH_ROWS if self._has_sketch else ():
                settings = replace(noisy, rows=rows, sketch="count-median")
                yield settings
                if rows > 1 and self._quiet(settings):
                    yield replace(settings, sketch="count-min")
            if not self._has_sketch:
                yield noisy

    def _windowed(self, settings: Settings) -> Iterator[Settings]:
        """As it is, and as a tree of windows where that leaves clearly less noise."""
        yield settings
        windows, mechanism = self.predictor.expected.windows, settings.mechanism
        levels = best(windows, mechanism) if settings.private else None
        if settings.windows == "flat" and settings.shards == 1 and levels is not None:
            shares = [round(share, 3) for share in levels.shares]
            told = {"tree_radix": levels.radix, "tree_depth": levels.depth, "tree_shares": shares}
            grown = replace(settings, windows="tree", **told)  # type: ignore[arg-type]
            if levels.variance(windows, mechanism) <= _TREE_WORTH * windows:
                yield grown

    def _public(self, settings: Settings) -> Settings:
        """Ten times the expected rows are allowed, unless that alone made cells wide."""
        rows = self.predictor.expected.rows
        summed = self.predictor.expected.windows * settings.shards
        narrow = _TOP_CELL // (settings.omega * summed)
        most = 2 * rows if 2 * rows <= narrow < 10 * rows else 10 * rows
        most = max(most, settings.k, settings.window_rows or 1)
        return replace(settings, max_rows_per_window=most)

    def _quiet(self, settings: Settings) -> bool:
        total = complete(self.predictor.schema, settings, self.predictor.expected.windows)
        return max(table.variance for table in total.tables[1:]) < _QUIET**2

    def _with_buckets(self, start: Settings) -> Settings | None:
        """The fewest buckets that are nearly as good as the most that fit; None: none do."""
        if not self._has_sketch:
            return start if self._nbytes(start) <= self.memory else None
        low, high = _FEWEST, self._most_buckets
        while high >= low and self._nbytes(self._sized(start, high)) > self.memory:
            high -= 1
        if high < low:
            return None
        enough = _nearly(self._cost(self._sized(start, high)), _BUCKETS_WITHIN)
        while low < high:
            middle = (low + high) // 2
            if self._cost(self._sized(start, middle)) <= enough:
                high = middle
            else:
                low = middle + 1
        return self._sized(start, high)

    @cached_property
    def _has_sketch(self) -> bool:
        shapes = table_shapes(self.predictor.schema, self.base.dense_limit)
        return any(shape.codes is None for shape in shapes)

    @cached_property
    def _most_buckets(self) -> int:
        """More than 64 buckets for each value separate nothing any more."""
        most = max(keys.distinct for keys in self.predictor.populations.values())
        return min(_MOST, max(_FEWEST, (64 * most).bit_length()))

    def _sized(self, settings: Settings, power: int) -> Settings:
        """A group that takes no more cells densely than in a sketch is better dense."""
        cells = min(2**28, settings.rows << power)
        limit = max(self.base.dense_limit, cells) if self._finite_groups else self.base.dense_limit
        return replace(settings, buckets=1 << power, dense_limit=limit)

    @cached_property
    def _finite_groups(self) -> bool:
        """Whether a group of finite features is too large to be dense as things stand."""
        schema, limit = self.predictor.schema, self.base.dense_limit
        return any((schema.codes(group) or 0) > limit for group in schema.groups)

    def _nbytes(self, settings: Settings) -> int:
        schema, windows = self.predictor.schema, self.predictor.expected.windows
        held = populating_bytes(schema, settings)
        return held + complete(schema, settings, windows).nbytes

    def _alternative(self, settings: Settings) -> Alternative:
        cost, nbytes = self._cost(settings), self._nbytes(settings)
        levels, of_noise = settings.levels, (settings.mechanism, settings.sketch)
        windows = "flat" if levels is None else f"tree {levels.radix} x {levels.depth}"
        return Alternative(*of_noise, settings.rows, settings.buckets, cost, nbytes, windows)

    @cached_property
    def _costs(self) -> dict[Settings, float]:
        """Costs that were asked for already."""
        return {}

    def _cost(self, settings: Settings) -> float:
        if settings not in self._costs:
            looked_at, by_row = self._looked_at, not self.every_table
            costs = self.predictor.costs(settings, looked_at, by_row=by_row, samples=_SAMPLES)
            self._costs[settings] = root_mean_square(costs) if by_row else max(costs)
        return self._costs[settings]

    @cached_property
    def _looked_at(self) -> list[str]:
        """Tables from the fewest to the most distinct values: not all, where there are many."""
        keys = self.predictor.populations
        names = sorted(keys, key=lambda name: keys[name].distinct)
        if len(names) <= _LOOKED_AT:
            return names
        step = (len(names) - 1) / (_LOOKED_AT - 1)
        return [names[round(i * step)] for i in range(_LOOKED_AT)]

    def _shared(self, settings: Settings) -> Settings:
        """Shares by hand where the sizes of all keys are known and equal ones are not as good."""
        told = self.predictor.expected.told
        names = self.predictor.schema.table_names
        if settings.shares or not all(told(self.predictor.schema, name) for name in names):
            return settings
        halves = replace(settings, shares=self.halves(settings))
        if not settings.private or _nearly(self._cost(halves)) >= self._cost(settings):
            return replace(settings, weights="equal")
        return halves

    def halves(self, settings: Settings) -> Mapping[str, float]:
        """Half of the budget equally, half where it saves most, by the size of a typical key.

        Relative: 1 on average, never below a half.
        """
        shapes = table_shapes(self.predictor.schema, settings.dense_limit)
        typical = {shape.name: self.predictor.populations[shape.name].typical for shape in shapes}
        least = replace(settings, weights="least-error", shards=1)
        shares = weights_of(least, sizes_of(settings, shapes), typical)
        return {name: round(0.5 + 0.5 * float(of) * len(shares), 3) for name, of in shares.items()}

    def _refuse_memory(self) -> NoReturn:
        least = replace(self._public(self.base), rows=1)
        takes = self._nbytes(self._sized(least, _FEWEST) if self._has_sketch else least)
        raise SchemaError(
            f"the smallest tables of this schema take {takes:,} bytes, a window and the complete "
            f"tables together, and memory is {self.memory:,}; raise memory, or count fewer groups"
        )


def _nearly(cost: float, within: float = _WITHIN) -> float:
    return max(within * cost, cost + _NOTHING)
