"""What given settings would do to a stream nobody has seen yet: memory, and each table's errors.

The noise is not derived a second time: a `TableDesign` of the very settings tells the
variance of every cell, and the layout its bytes. What is assumed is said in
`pyramidion.privacy.population` (sizes of keys) and `pyramidion.privacy.error_model`
(rates of keys, classes equally frequent, rows that weigh 1).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.counts.dispersion import noise_of_rates
from pyramidion.counts.layout import PRIOR, Kind, Layout, Table
from pyramidion.privacy.contributions import hidden_of
from pyramidion.privacy.error_model import SAMPLES, Classes, RateErrors, SketchErrors
from pyramidion.privacy.population import Expected, Population
from pyramidion.privacy.table_noise import TableDesign, parts_of, reserves_of
from pyramidion.rows.encoding import table_shapes

_NOBODYS = b"nobody's"


@dataclass(frozen=True)
class TablePlan:
    """One table of a plan. Counts are in observations, deviations are standard deviations."""

    name: str
    kind: Kind
    rows: int
    width: int
    share: float
    """Of the budget of a window."""
    distinct: int
    guessed: bool
    """Whether the number of distinct values is a guess."""
    typical: float
    """Count of an average key over all windows."""
    cell_noise: float
    """Deviation of the noise in one cell of one window."""
    noise: float
    """Deviation that noise gives to one estimated count, all windows summed."""
    collisions: float
    """What other keys in the same cells add, the hardest hit twentieth of the keys cut."""
    deviation: float
    """Of one estimated count: both together."""
    bias: float
    """How far an estimated count lies off on average; 0 but for count-min."""
    cost: float
    """What noise and collisions cost a typical key's probability: the target is for this."""
    error: float
    """How far that probability is from the key's own rate in all, few rows included."""
    row_cost: float
    """The cost for the keys as rows meet them: large keys have more rows."""
    nbytes: int
    """Bytes of the table in one window."""

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Prediction:
    """Tables and bytes under some settings."""

    settings: Settings
    tables: tuple[TablePlan, ...]
    window_bytes: int
    complete_bytes: int

    @property
    def cost(self) -> float:
        """What a row's features cost, root mean square over tables: plans are compared by it."""
        return root_mean_square([table.row_cost for table in self.tables])

    @property
    def worst(self) -> TablePlan:
        """The table whose typical key fares worst."""
        return max(self.tables, key=lambda table: table.cost)


def root_mean_square(costs: Sequence[float]) -> float:
    """Of several tables' costs, one.

    >>> root_mean_square([3.0, 4.0]) == 12.5**0.5
    True
    """
    return math.sqrt(math.fsum(cost * cost for cost in costs) / len(costs))


@lru_cache(maxsize=256)  # a search asks for the bytes and the noise of the same settings
def born(schema: Schema, settings: Settings, level: int = 0) -> TableDesign:
    """What the windows of a stream, or nodes of a level, are born with, most of them."""
    shapes, levels = table_shapes(schema, settings.dense_limit), settings.levels
    reserves = reserves_of(settings, due=())
    return TableDesign(
        settings,
        shapes,
        schema.cardinality,
        _NOBODYS,
        reserves=reserves if level == 0 else reserves_of(settings),
        k=hidden_of(schema, settings),
        part=parts_of(settings, reserves)[level],
        span=1 if levels is None else levels.span(level),
    )


def populating_bytes(schema: Schema, settings: Settings) -> int:
    """Bytes of the tables that take rows: a window's, and those of a node of each level."""
    depth = 1 if settings.levels is None else settings.levels.depth
    return sum(born(schema, settings, level).layout.nbytes for level in range(depth))


def complete(schema: Schema, settings: Settings, windows: int) -> Layout:
    """The layout of so many windows summed: noise adds up, and so do the cells' bounds.

    In a tree, of the nodes that cover them, on average over time. Of every window each shard has
    tables with noise of their own.
    """
    shards = settings.shards
    layout, levels = born(schema, settings).layout, settings.levels
    used = (float(windows),) if levels is None else levels.used(windows)
    each = [born(schema, settings, level).variances for level in range(len(used))]
    noise = [
        shards * math.fsum(nodes * variance for nodes, variance in zip(used, of, strict=True))
        for of in zip(*each, strict=True)
    ]
    drawn = max(1, round(sum(used))) * shards
    return replace(
        layout,
        tables=tuple(
            replace(table, bound=table.bound * windows * shards, variance=variance, windows=drawn)
            for table, variance in zip(layout.tables, noise, strict=True)
        ),
    )


@dataclass(frozen=True)
class Predictor:
    """Predicts for one schema and one expectation, under any settings."""

    schema: Schema
    expected: Expected

    def predict(self, settings: Settings) -> Prediction:
        """Errors and bytes of each table under settings, before any row is seen.

        >>> from pyramidion import Categorical, Label
        >>> late = Label("late", classes=[0, 1])
        >>> flights = Schema(features=[Categorical("carrier", domain=["AA", "UA"])], label=late)
        >>> told = Predictor(flights, Expected(rows=1_000)).predict(Settings(epsilon=1, delta=0))
        >>> [round(table.deviation, 1) for table in told.tables]
        [1.4]
        """
        birth = born(self.schema, settings)
        layout, total = birth.layout, complete(self.schema, settings, self.expected.windows)
        tables = tuple(
            self._told(birth, table, self._rates(settings, total, number))
            for number, table in enumerate(layout.tables)
            if table.name != PRIOR
        )
        held = populating_bytes(self.schema, settings)
        return Prediction(settings, tables, held, total.nbytes)

    def costs(
        self,
        settings: Settings,
        names: Collection[str],
        *,
        by_row: bool = False,
        samples: int = SAMPLES,
    ) -> list[float]:
        """The costs of some tables alone, as in `predict`, or quicker from fewer samples."""
        total = complete(self.schema, settings, self.expected.windows)
        found: dict[object, float] = {}
        costs = []
        for name in names:
            number = total.index[name]
            alike = replace(total.tables[number], name=""), self.populations[name]
            if alike not in found:
                rates = self._rates(settings, total, number, samples)
                found[alike] = replace(rates, by_row=by_row).cost
            costs.append(found[alike])
        return costs

    @cached_property
    def _classes(self) -> Classes:
        """The label with the fewest classes: it sums the most cells, so it is the noisiest."""
        fewest = min(label.cardinality for label in self.schema.labels)
        return Classes(fewest, self.schema.cardinality // fewest)

    @cached_property
    def populations(self) -> dict[str, Population]:
        """The keys of each table, by its name."""
        names = self.schema.table_names
        return {name: self.expected.population(self.schema, name) for name in names}

    def _unit(self, settings: Settings) -> float:
        return float(settings.weight_unit) if self.schema.weight is not None else 1.0

    def _rates(
        self, settings: Settings, total: Layout, number: int, samples: int = SAMPLES
    ) -> RateErrors:
        table, unit = total.tables[number], self._unit(settings)
        keys = self.populations[table.name]
        counts = SketchErrors(table, settings.mechanism, self._classes, keys, unit, samples)
        noise = np.full(self._classes.classes, total.tables[0].variance * self._classes.cells)
        of_rates = noise_of_rates(noise, np.full(noise.size, self._classes.prior))[0]
        return RateErrors(counts, settings, of_rates**0.5 / (self.expected.total * unit))

    def _told(self, birth: TableDesign, table: Table, rates: RateErrors) -> TablePlan:
        counts, keys = rates.counts, rates.counts.population
        unit = self._unit(birth.settings)
        return TablePlan(
            name=table.name,
            kind=table.kind,
            rows=table.rows,
            width=table.width,
            share=float(birth.shares[table.name]),
            distinct=keys.distinct,
            guessed=not self.expected.told(self.schema, table.name),
            typical=keys.typical,
            cell_noise=table.variance**0.5 / unit,
            noise=counts.noise / unit,
            collisions=counts.collisions / unit,
            deviation=counts.deviation / unit,
            bias=counts.bias / unit,
            cost=rates.cost,
            error=rates.total,
            row_cost=replace(rates, by_row=True).cost,
            nbytes=birth.layout.nbytes_of(table),
        )
