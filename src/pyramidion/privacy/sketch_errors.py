"""What noise and collisions do to an estimate, simulated: a few thousand keys, drawn anew.

The error of a key in one hash row is the noise of its cell and the other keys in its
bucket, each with a sign (count-median) or without (count-min). The estimate takes the
middle, or the least, of the rows exactly as `pyramidion.counts.estimate_kernels` does:
the median, or the mean of the rows within 3 deviations of it. Two columns are drawn
side by side, a class and all the others, since a colliding key brings both.

A formula would do for the noise alone (`Noise`, which the standard deviations of
`pyramidion.counts.estimates` give). It does not for collisions: those of Zipf keys are
heavy-tailed, and what the middle leaves of them depends on the noise beside them.

Every call draws the same numbers, so two plans differ by what they choose, not by luck.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pyramidion.counts.estimates import MEAN_NEAR_MEDIAN, MEDIAN_OF_LAPLACE
from pyramidion.counts.layout import Table
from pyramidion.counts.scatter import MAD
from pyramidion.privacy.population import Population

Floats = NDArray[np.float64]

SAMPLES = 3_000  # keys drawn: standard deviations are then off by about 1.5 %
STRENGTH = 10.0
"""a: a key's own rates scatter around the prior with variance π(1-π)/(a+1), as is typical."""

_MET = 3.0  # keys per bucket that are drawn one by one; the lighter ones are a Gaussian sum
_DRAWS = 8  # of Laplace noise; the sum of more is drawn as a Gaussian
CUT = 0.95  # the twentieth of the keys that is hit hardest counts no more than where it begins
_NEAR = 3.0


@dataclass(frozen=True)
class Classes:
    """How the label that is looked at is counted: its classes, cells in each, their share."""

    classes: int
    cells: int

    @property
    def prior(self) -> float:
        """π of a class: all are taken to be as frequent."""
        return 1.0 / self.classes


@dataclass(frozen=True)
class SketchErrors:
    """The errors of one complete table: ``table`` has the variance and bound of the sum."""

    table: Table
    mechanism: Literal["none", "laplace", "gaussian"]
    classes: Classes
    population: Population
    grain: float = 1.0
    """What one observation weighs in the cells."""
    samples: int = SAMPLES

    @property
    def _draws(self) -> int:
        return self.table.windows * self.classes.cells

    @property
    def _averaged(self) -> bool:
        """As `Estimates._averaged`: rows are averaged where their noise is nearly Gaussian."""
        return self.mechanism == "gaussian" or (self.mechanism == "laplace" and self._draws > 1)

    @property
    def variance(self) -> float:
        """Of the noise of a class in one hash row."""
        return self.table.variance * self.classes.cells

    @cached_property
    def noise(self) -> float:
        """The standard deviation that noise alone gives to the estimated count of a class."""
        if self.table.kind == "count-min":
            least = self._rows(np.random.default_rng(0), collide=False).min(axis=1)
            return float(least[:, 0].std())
        table = MEAN_NEAR_MEDIAN if self._averaged else MEDIAN_OF_LAPLACE
        return float((self.variance * table[self.table.rows - 1]) ** 0.5)

    @cached_property
    def collisions(self) -> float:
        """What other keys in the same cells add to that, the hardest hit twentieth cut."""
        if self.table.kind == "dense":
            return 0.0
        alone = self._middle(self._rows(np.random.default_rng(0), collide=False))
        more = _cut_square(self.errors[:, 0]) - _cut_square(alone[:, 0])
        return float(max(0.0, more) ** 0.5)

    @property
    def deviation(self) -> float:
        """The standard deviation of the estimated count of a class, of both together."""
        return float(np.hypot(self.noise, self.collisions))

    @property
    def bias(self) -> float:
        """How far the estimate lies off on average: only that of a count-min sketch does."""
        return float(self.errors[:, 0].mean()) if self.table.kind == "count-min" else 0.0

    @cached_property
    def errors(self) -> Floats:
        """Errors of the estimated counts of keys: errors[key, (class, all others)]."""
        return self._middle(self._rows(np.random.default_rng(0), collide=True))

    def _rows(self, random: np.random.Generator, *, collide: bool) -> Floats:
        """Errors in each hash row: rows[key, row, (class, all others)]."""
        shape = (self.samples, self.table.rows)
        others = self.classes.classes - 1
        rows = np.stack(
            [self._noise(random, shape, 1), self._noise(random, shape, others)], axis=-1
        )
        return rows + self._met(random, shape) if collide else rows

    def _noise(self, random: np.random.Generator, shape: tuple[int, int], columns: int) -> Floats:
        variance = self.variance * columns
        draws = self._draws * columns
        if self.mechanism == "laplace" and draws <= _DRAWS:
            each = random.laplace(0.0, (variance / draws / 2) ** 0.5, (draws, *shape))
            total: Floats = each.sum(axis=0)
            return total
        return random.normal(0.0, variance**0.5, shape)

    def _met(self, random: np.random.Generator, shape: tuple[int, int]) -> Floats:
        """The keys that share a bucket, by class: those of size one by one, the rest at once."""
        if self.table.kind == "dense":
            return np.zeros((*shape, 2))
        number, size = self.population.groups
        size = size * self.grain
        heavy = np.cumsum(number) <= max(_MET * self.table.width, number[0])
        signed = self.table.kind == "count-median"
        met = self._one_by_one(random, shape, number[heavy], size[heavy], signed=signed)
        light = number[~heavy] @ size[~heavy] ** 2 / self.table.width
        mean = 0.0 if signed else number[~heavy] @ size[~heavy] / self.table.width
        both, apart = random.normal(0.0, light**0.5, (2, *shape))
        return met + _split(both + mean, self.classes.prior, apart * self._scatter)

    @property
    def _scatter(self) -> float:
        """The standard deviation of a key's own rate around the prior."""
        pi = self.classes.prior
        return float((pi * (1 - pi) / (STRENGTH + 1)) ** 0.5)

    def _one_by_one(
        self,
        random: np.random.Generator,
        shape: tuple[int, int],
        number: Floats,
        size: Floats,
        *,
        signed: bool,
    ) -> Floats:
        keys = float(number.sum())
        many = random.poisson(keys / self.table.width, shape).ravel()
        which = np.searchsorted(np.cumsum(number) / keys, random.random(int(many.sum())))
        weight = size[np.minimum(which, len(size) - 1)]
        if signed:
            weight = weight * (1.0 - 2.0 * random.integers(0, 2, len(weight)))
        rate = self.rates(random)[random.integers(0, self.samples, len(weight))]
        cell = np.repeat(np.arange(many.size), many)
        columns = [np.bincount(cell, weight * r, many.size) for r in (rate, 1.0 - rate)]
        return np.stack(columns, axis=-1).astype(np.float64).reshape(*shape, 2)

    def rates(self, random: np.random.Generator) -> Floats:
        """Rates of the class, one for each key drawn: they scatter around the prior."""
        pi = self.classes.prior
        return random.beta(STRENGTH * pi, STRENGTH * (1 - pi), self.samples)

    def _middle(self, rows: Floats) -> Floats:
        """The median of the rows, the mean of those near it, or the least."""
        if self.table.kind == "count-min":
            least: Floats = rows.min(axis=1)
            return least
        median: Floats = np.median(rows, axis=1)
        if not self._averaged or self.table.rows == 1:
            return median
        noise = self.variance * np.array([1.0, self.classes.classes - 1.0])
        deviation = np.maximum(noise**0.5, MAD * np.median(np.abs(rows), axis=(0, 1)))
        near = np.abs(rows - median[:, None]) <= _NEAR * deviation
        used = near.sum(axis=1)  # of an even number of rows none may be near their median
        mean: Floats = (rows * near).sum(axis=1) / np.maximum(used, 1)
        return np.where(used > 0, mean, median)


def _split(total: Floats, prior: float, apart: Floats) -> Floats:
    return np.stack([total * prior + apart, total * (1 - prior) - apart], axis=-1)


def _cut_square(errors: Floats) -> float:
    """Mean square around the median, where no error counts more than 19 of 20 do."""
    size = np.abs(errors - np.median(errors))
    return float((np.minimum(size, np.quantile(size, CUT)) ** 2).mean())
