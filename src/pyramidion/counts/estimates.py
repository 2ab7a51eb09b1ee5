"""Counts to probabilities, knowing the noise.

**Ratio** (the paper's): c_l / Σc, or the prior where the estimate's standard
deviation would pass a threshold.

**Shrinkage** (default): with π the prior, c_l the count of class l, s = Σ c_l,
n = max(s, 0) and V_l the noise of c_l - π_l s in units of π_l(1 - π_l),

    p_l = π_l + (c_l - π_l s) · n / (n² + a n + (a + 1) V_l),

clipped and renormalised. It is the best linear estimate when a key's own rates
scatter around the prior with variance π(1-π)/(a+1): sampling adds π(1-π)/n,
noise adds π(1-π)V/n². Without noise it is (c_l + aπ_l)/(n + a), the usual
smoothing; under noise much larger than the counts it is the prior.

Everything is computed from sealed cells, so it is post-processing and free:
- the prior, from its own noisy table;
- V, from the known noise and, in sketches, from the median absolute cell: most
  cells hold collisions and noise, few hold a heavy key, so the median sees the
  former. F₂/width would be ruled by the few heavy keys;
- a, per table, by moments: how much the rates of cells that stand out from the
  noise scatter beyond sampling and noise.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyramidion.counts import kernels
from pyramidion.counts.arena import Arena
from pyramidion.schema import Label, Schema
from pyramidion.settings import Settings

Floats = NDArray[np.float64]
Mechanism = Literal["none", "laplace", "gaussian"]

# Variance of the middle of h rows in units of one row's variance: the median (of
# Laplace rows, and where there is no noise), and the mean of Gaussian rows within
# 3 deviations of their median. Simulated; a test simulates them again.
MEDIAN_OF_LAPLACE = (
    1.0, 0.5, 0.319, 0.21, 0.176, 0.13, 0.118, 0.0937, 0.0877, 0.0727, 0.0693, 0.0588, 0.057,
    0.0496, 0.048, 0.0425,
)  # fmt: skip
MEAN_NEAR_MEDIAN = (
    1.0, 0.5, 0.358, 0.262, 0.21, 0.175, 0.15, 0.13, 0.116, 0.104, 0.0948, 0.0863, 0.0803, 0.074,
    0.0694, 0.0647,
)  # fmt: skip

_MAD = 1.4826  # standard deviation of a normal variable over its median absolute value
_SAMPLE = 65_536  # cells looked at for each moment
_STRENGTHS = (0.5, 1e7)
_TYPICAL = 1 / 11  # 1/(a + 1) where nothing can be seen, and for weighing cells: a = 10


@dataclass(frozen=True)
class Classes:
    """The classes of all labels side by side, and how joint labels map to them."""

    of_joint: NDArray[np.int64]  # [label, joint label] -> class column
    borders: NDArray[np.int64]  # label m has columns borders[m] to borders[m + 1]
    centers: Floats

    @classmethod
    def of(cls, schema: Schema) -> Classes:
        """The classes of a schema's labels."""
        sizes = [label.cardinality for label in schema.labels]
        digits = np.unravel_index(np.arange(schema.cardinality), sizes)
        borders = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        of_joint = np.stack([d + start for d, start in zip(digits, borders, strict=False)])
        centers = [c for label in schema.labels for c in _centers(label)]
        return cls(of_joint.astype(np.int64), borders, np.array(centers))

    @cached_property
    def sizes(self) -> Floats:
        """Joint labels summed into each class column."""
        counts = np.bincount(self.of_joint.ravel(), minlength=int(self.borders[-1]))
        return counts.astype(np.float64)

    def summed(self, cells: NDArray[Any]) -> Floats:
        """Cells [..., joint label] to [..., class column]."""
        out = np.zeros((*cells.shape[:-1], int(self.borders[-1])))
        for label in self.of_joint:
            for joint, column in enumerate(label):
                out[..., column] += cells[..., joint]
        return out


def _centers(label: Label) -> tuple[float, ...]:
    return label.centers if label.continuous else (0.0,) * label.cardinality


class Estimates:
    """Features from complete tables: all that depends on cells, computed once."""

    def __init__(
        self,
        schema: Schema,
        settings: Settings,
        arena: Arena,
        variances: tuple[float, ...],
        template: NDArray[np.int64],
    ) -> None:
        self._settings = settings
        self._arena = arena
        self._unit = float(settings.weight_unit)
        self._classes = Classes.of(schema)
        self._template = template
        self.prior = self._prior()
        tables, columns = len(arena.layout.tables), self.prior.size
        self.strength = np.zeros(tables)
        self.spread = np.zeros((tables, columns))
        self.deviations = np.zeros((tables, columns))
        for table in range(1, tables):
            self._study(table, variances[table])
        self._kernel = self._for_kernel()

    def _prior(self) -> Floats:
        counts = self._classes.summed(self._arena.cells(0))[0, 0] / self._unit
        prior: Floats = np.maximum(counts, 0.0) + 1.0
        for start, stop in zip(self._classes.borders, self._classes.borders[1:], strict=False):
            prior[start:stop] /= prior[start:stop].sum()
        return prior

    def _study(self, table: int, variance: float) -> None:
        spec = self._arena.layout.tables[table]
        cells = self._arena.cells(table)
        step = max(1, cells.shape[0] * cells.shape[1] // _SAMPLE)
        sums = self._classes.summed(cells[:, ::step].reshape(-1, cells.shape[2]))
        noise = variance * self._classes.sizes
        if spec.kind == "dense":
            row = noise
        else:
            row = np.maximum(noise, (_MAD * np.median(np.abs(sums), axis=0)) ** 2)
        averaged = spec.kind == "count-median" and self._settings.mechanism == "gaussian"
        efficiency = (MEAN_NEAR_MEDIAN if averaged else MEDIAN_OF_LAPLACE)[spec.rows - 1]
        self.deviations[table] = np.sqrt(row) if averaged else 0.0
        spread = self._relative_noise(row * efficiency)
        if self._settings.estimate == "ratio":
            self.spread[table] = spread
            return
        strength = self._strength(sums, noise, sketch=spec.kind != "dense")
        self.strength[table] = strength * self._unit
        self.spread[table] = (strength + 1.0) * spread

    def _relative_noise(self, variance: Floats) -> Floats:
        """V_l: variance of c_l - π_l s in units of π_l (1 - π_l)."""
        out = np.empty_like(variance)
        for start, stop in zip(self._classes.borders, self._classes.borders[1:], strict=False):
            p, v = self.prior[start:stop], variance[start:stop]
            out[start:stop] = ((1 - p) ** 2 * v + p**2 * (v.sum() - v)) / (p * (1 - p))
        return out

    def _strength(self, sums: Floats, noise: Floats, *, sketch: bool) -> float:
        """a: from the scatter of the cells' rates beyond sampling and noise.

        Only cells whose total stands out from the noise are looked at; each tells
        1/(a + 1) by itself, and is weighed by how well.
        """
        above, below = 0.0, 0.0
        for start, stop in zip(self._classes.borders, self._classes.borders[1:], strict=False):
            p, c, v = self.prior[start:stop], sums[:, start:stop], noise[start:stop]
            s = c.sum(axis=1)
            known = (1 - p) ** 2 * v + p**2 * (v.sum() - v)
            off = (c - p * s[:, None]) ** 2
            total = float(v.sum())
            if sketch:
                known = np.maximum(known, _MAD**2 * np.median(off, axis=0))
                total = max(total, float(_MAD * np.median(np.abs(s))) ** 2)
            clear = np.abs(s) > max(self._stands_out(len(s)) * total**0.5, 2.0 * self._unit)
            s2, n = s[clear] ** 2, np.abs(s[clear]) * self._unit
            pq = float((p * (1 - p)).sum())
            told = (off[clear].sum(axis=1) - known.sum() - pq * n) / (pq * (s2 - n))
            weight = (known.sum() / pq / s2 + n / s2 + _TYPICAL) ** -2
            above += float(weight.sum())
            below += float(weight @ told)
        if above == 0.0:
            return 1.0 / _TYPICAL - 1.0
        return float(np.clip(above / max(below, 1e-12) - 1.0, *_STRENGTHS))

    def _stands_out(self, cells: int) -> float:
        """How many deviations of the noise none of so many empty cells would show."""
        rare = math.log(max(cells, 1000))
        return (rare + 3.0) / 2**0.5 if self._settings.mechanism == "laplace" else (2 * rare) ** 0.5

    def on(self, arena: Arena) -> Estimates:
        """The same estimates on other cells: nothing is studied anew, not even the prior.

        Keys swamped by noise are given the prior. Were it another one in training
        than in serving, a tree would split between the two.
        """
        twin = copy(self)
        twin._arena = arena
        twin._kernel = twin._for_kernel()
        return twin

    def _for_kernel(self) -> tuple[Any, ...]:
        """What `kernels.estimate` needs besides keys; kept, since one row takes microseconds."""
        ratio = self._settings.estimate == "ratio"
        return (
            self._arena.layout.plan,
            *self._arena.views(),
            np.uint64(self._arena.layout.labels),
            self._classes.of_joint,
            self._classes.borders,
            self.prior,
            self.strength,
            self.spread,
            self.deviations,
            self._classes.centers,
            self._template,
            kernels.RATIO if ratio else kernels.SHRINKAGE,
            self._settings.backoff_deviation,
            self._unit,
        )

    def features(self, keys: NDArray[np.uint64], out: NDArray[np.float32], first: int = 0) -> None:
        """Write the features of keys[table, row] into out[column, row], from a first table on."""
        # The prior is the plan's first table.
        kernels.estimate(*self._kernel, keys, first + 1, out)  # type: ignore[call-arg]

    def counts(self, table: int, keys: NDArray[np.uint64]) -> Floats:
        """Estimated counts per class column of some keys of one table (0 is the prior's)."""
        out = np.empty((keys.size, self.prior.size))
        kernels.counts_of(
            self._arena.layout.plan,
            table,
            *self._arena.views(),
            np.uint64(self._arena.layout.labels),
            keys,
            self._classes.of_joint,
            self.deviations,
            out,
        )
        return out / self._unit
