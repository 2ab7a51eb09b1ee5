"""From errors of counts to errors of probabilities, as `pyramidion.counts.estimates` makes them.

A few thousand keys, of typical size or as rows meet them, have rates of their own,
labels drawn at these rates, and the errors of `SketchErrors` in their counts. Then each
has two probabilities: the one that its exact counts give, and the one that is served.
How far the first is from the rate is what any table of so few rows leaves; how far the
second is from the first is what noise and collisions *cost*. The two are nearly
independent: the square of the whole is the sum of their squares.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pyramidion.config.settings import Settings
from pyramidion.counts.scatter import noise_of_rates
from pyramidion.privacy.sketch_errors import CUT, STRENGTH, SketchErrors

Floats = NDArray[np.float64]


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
