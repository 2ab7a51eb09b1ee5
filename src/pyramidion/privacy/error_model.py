"""What noise and collisions do to counts and to the probabilities made of them, simulated.

**Counts.** The error of a key in one hash row is the noise of its cell and the other keys in its
bucket, each with a sign (count-median) or without (count-min). The estimate takes the
middle, or the least, of the rows exactly as `pyramidion.counts.estimate_kernels` does:
the median, or the mean of the rows within 3 deviations of it. Two columns are drawn
side by side, a class and all the others, since a colliding key brings both.

A formula would do for the noise alone (`Noise`, which the standard deviations of
`pyramidion.counts.estimates` give). It does not for collisions: those of Zipf keys are
heavy-tailed, and what the middle leaves of them depends on the noise beside them.

**Probabilities**, as `pyramidion.counts.estimates` makes them. A few thousand keys, of typical size
or as rows meet them, have rates of their own, labels drawn at these rates, and the errors of
`SketchErrors` in their counts. Then each has two probabilities: the one that its exact counts give,
and the one that is served. How far the first is from the rate is what any table of so few rows
leaves; how far the second is from the first is what noise and collisions *cost*. The two are nearly
independent: the square of the whole is the sum of their squares.

Every call draws the same numbers, so two plans differ by what they choose, not by luck.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pyramidion.config.settings import Settings
from pyramidion.counts.dispersion import MAD, noise_of_rates
from pyramidion.counts.estimates import MEAN_NEAR_MEDIAN, MEDIAN_OF_LAPLACE
from pyramidion.counts.layout import Table
from pyramidion.privacy.population import Population

# --- counts --------------------------------------------------------------------------------------


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


# --- probabilities -------------------------------------------------------------------------------


@dataclass(frozen=True)
class RateErrors:
    """The errors of keys' probabilities, from those of their counts."""

    counts: SketchErrors
    settings: Settings
    prior: float = 0.0
    """Standard deviation of the prior, whose table is noisy too."""
    by_row: bool = False
    """Whether keys are met as rows meet them, the large ones more often; or all are typical."""

    @property
    def cost(self) -> float:
        """What noise and collisions cost: served against exact counts, root mean square."""
        return _rms(self._served - self._exact)

    @property
    def total(self) -> float:
        """Served against the key's own rate, root mean square."""
        return _rms(self._served - self._keys[0])

    @cached_property
    def _keys(self) -> tuple[Floats, Floats, Floats]:
        """Rates of the keys drawn, their exact counts of the class and of all, in cell units."""
        random, keys = np.random.default_rng(1), self.counts.population
        rates = self.counts.rates(random)
        n = np.full(rates.size, keys.typical)
        if self.by_row:
            number, size = keys.groups
            n = random.choice(size, rates.size, p=number * size / (number @ size))
        n = np.maximum(1.0, np.round(n))
        count = random.binomial(n.astype(np.int64), rates).astype(np.float64)
        return rates, count * self.counts.grain, n * self.counts.grain

    @property
    def _exact(self) -> Floats:
        _, count, n = self._keys
        pi = np.full(count.size, self.counts.classes.prior)
        return self._probability(count, n, pi, 0.0)

    @cached_property
    def _served(self) -> Floats:
        _, count, n = self._keys
        errors = self.counts.errors - self._shift
        total = n + errors.sum(axis=1)
        off = np.random.default_rng(2).normal(0.0, self.prior, count.size)
        pi = np.clip(self.counts.classes.prior + off, 0.0, 1.0)
        return self._probability(count + errors[:, 0], total, pi, self._spread)

    @property
    def _shift(self) -> Floats:
        """What the noise takes off a minimum, which shrinkage adds again."""
        if self.counts.table.kind != "count-min" or self.settings.estimate == "ratio":
            return np.zeros(2)
        shift: Floats = np.minimum(np.median(self.counts.errors, axis=0), 0.0)
        return shift

    @property
    def _spread(self) -> float:
        """V: the variance of c - π n by noise and collisions, in units of π(1 - π)."""
        classes, errors = self.counts.classes, self.counts.errors
        pi = classes.prior
        priors = np.full(classes.classes, pi)
        if self.counts.table.kind == "count-min":
            errors = errors - np.median(errors, axis=0)
        known = noise_of_rates(np.full(classes.classes, self.counts.noise**2), priors)[0]
        size = np.abs(errors[:, 0] - pi * errors.sum(axis=1))
        size = np.minimum(size, np.quantile(size, CUT))
        found = 0.0 if self.counts.table.kind == "dense" else float((size**2).mean())
        at_least = 0.0 if self.counts.table.kind == "count-min" else float(known)
        return max(at_least, found) / (pi * (1 - pi))

    def _probability(self, count: Floats, total: Floats, pi: Floats, spread: float) -> Floats:
        if self.settings.estimate == "ratio":
            return self._ratio(count, total, pi, spread)
        n = np.maximum(total, 0.0)
        a = STRENGTH * self.counts.grain
        bottom = n * n + a * n + (STRENGTH + 1) * spread
        kept = np.divide(n, bottom, out=np.zeros_like(n), where=bottom > 0)
        served: Floats = pi + (np.clip(count, 0.0, n) - pi * n) * kept
        return served

    def _ratio(self, count: Floats, total: Floats, pi: Floats, spread: float) -> Floats:
        limit = self.settings.backoff_deviation
        count, rest = np.maximum(count, 0.0), np.maximum(total - count, 0.0)
        s = count + rest
        unsure = (s <= 0) | (pi * (1 - pi) * (s * self.counts.grain + spread) > (limit * s) ** 2)
        ratio = np.divide(count, s, out=np.zeros_like(s), where=s > 0)
        return np.where(unsure, pi, ratio)


def _rms(errors: Floats) -> float:
    return float((errors**2).mean() ** 0.5)
