"""Counts to probabilities, knowing the noise.

**Ratio** (the paper's): c_l / Σc, or the prior where the estimate's standard
deviation would pass a threshold.

**Shrinkage** (default): with π the prior, c_l the count of class l, n = max(Σ c_l, 0),
c_l moved to 0 or n where noise took it beyond, and V_l the noise of c_l - π_l n in
units of π_l(1 - π_l),

    p_l = π_l + (c_l - π_l n) · n / (n² + a n + (a + 1) V_l),

renormalised. It is the best linear estimate when a key's own rates scatter around
the prior with variance π(1-π)/(a+1): sampling adds π(1-π)/n, noise adds π(1-π)V/n².
Without noise it is (c_l + aπ_l)/(n + a), the usual smoothing; under noise much
larger than the counts it is the prior. It is never 0 or 1 under noise: the counts
are moved, not the result (on synthetic tables, 8 to 20 % less excess log loss).
With importance weights, a observations weigh a·g, see `pyramidion.counts.dispersion`.

**Groups** are shrunk to what their parts say together: in the place of π is m, the
prior times p_l/π_l of each part, renormalised (the log-odds of the parts, summed). Where noise
swamps a group its parts are left, and not the prior. Keys of a group scatter less around
that than around the prior: of 1/(a + 1) the parts' own is taken off, down to a tenth,
as if effects were independent and added up. (Where tables are dense, a could be read against
m itself; on MovieLens that was no better. Of a sketch the cells do not tell their parts.)

Everything is computed from sealed cells, so it is post-processing and free:
- the prior, from its own noisy table;
- V, from the known noise, and in sketches from *probes*: keys that nobody has. An
  estimate is a count plus an error that does not depend on the count (median,
  minimum and mean all move with their rows), so what probes find is the error of
  every key, collisions included. Their largest twentieth is cut: a few meet a heavy
  key, and F₂/width would be ruled by those;
- of a count-min sketch the probes' median too, where it is below zero: noise makes
  the minimum too small, and shrinkage takes that off (the ratio does not). What
  collisions add is left: their rates are near the prior, so they shrink a key to it;
- a, per table and label, by moments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyramidion.config.schema import Label, Schema
from pyramidion.config.settings import Settings
from pyramidion.counts import estimate_kernels
from pyramidion.counts.arena import Arena
from pyramidion.counts.columns import Columns
from pyramidion.counts.dispersion import MAD, Scatter, noise_of_rates
from pyramidion.counts.estimate_kernels import MADE_PARTS
from pyramidion.counts.layout import Table
from pyramidion.errors import StateError
from pyramidion.rows.packed_kernels import Bundle

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

_ENOUGH = 1 << 17  # cells: more hash rows of a table are looked at until there are so many
_MOST = 1 << 22  # cells: one hash row with more is looked at in part, 32 MB of doubles
_PROBES = 4_096  # and fewer, but at least _FEWEST, where labels are many
_FEWEST = 512
_CUT = 0.95
_LEFT = 0.1  # of a group's scatter, at least, is its own and not its parts'
_LEAST = 1e-12  # of the prior: 1 - π must stay above 0 in doubles


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

    @cached_property
    def of_label(self) -> list[slice]:
        """The class columns of each label."""
        return [slice(int(start), int(stop)) for start, stop in pairwise(self.borders)]

    def summed(self, cells: NDArray[Any]) -> Floats:
        """Cells [..., joint label] to [..., class column]."""
        out = np.zeros((*cells.shape[:-1], int(self.borders[-1])))
        for label in self.of_joint:
            for joint, column in enumerate(label):
                out[..., column] += cells[..., joint]
        return out


@dataclass(frozen=True)
class Studied:
    """What was computed from all cells of some tables, and is all that features need of them
    besides the cells of their keys: P2, as the tables are."""

    prior: Floats  # [class column]
    strength: Floats  # [table, label]
    spread: Floats  # [table, class column], as those after it
    shift: Floats
    deviations: Floats


def _centers(label: Label) -> tuple[float, ...]:
    return label.centers if label.continuous else (0.0,) * label.cardinality


class Estimates:
    """Features from complete tables: all that depends on cells, computed once.

    Each table has its own noise and its own number of windows: it may have begun late.
    """

    together = False
    """Whether features of all tables are best asked for at once."""

    def __init__(
        self,
        schema: Schema,
        settings: Settings,
        arena: Arena,
        columns: Columns,
        studied: Studied | None = None,
    ) -> None:
        self._settings = settings
        self._arena = arena
        self._weighted = schema.weight is not None
        self._unit = float(settings.weight_unit) if self._weighted else 1.0
        self._classes = Classes.of(schema)
        self._template, self._makeup = columns.template, columns.makeup
        self._raw = np.array(columns.raw, dtype=np.int64).reshape(-1, 3)
        if studied is None:
            self._study_all(len(arena.layout.tables), len(schema.labels))
        else:
            self.prior, self.strength, self.spread = studied.prior, studied.strength, studied.spread
            self.shift, self.deviations = studied.shift, studied.deviations
        self._kernel = self._for_kernel()
        self._one = self._for_one()

    @property
    def studied(self) -> Studied:
        """What was computed from all cells."""
        return Studied(self.prior, self.strength, self.spread, self.shift, self.deviations)

    def _study_all(self, tables: int, labels: int) -> None:
        self.prior = self._prior()
        self.strength = np.zeros((tables, labels))
        self._scatter = np.zeros((tables, labels))  # 1/(a + 1) around the prior
        self.spread = np.zeros((tables, self.prior.size))
        self.shift = np.zeros((tables, self.prior.size))
        self.deviations = np.zeros((tables, self.prior.size))
        for table in range(1, tables):
            self._study(table)

    def _prior(self) -> Floats:
        counts = self._classes.summed(self._arena.cells(0))[0, 0] / self._unit
        prior: Floats = np.maximum(counts, 0.0) + 1.0
        for label in self._classes.of_label:
            prior[label] = np.maximum(prior[label] / prior[label].sum(), _LEAST)
            prior[label] /= prior[label].sum()
        return prior

    def _study(self, table: int) -> None:
        """What the kernel must know of one table: how to take the middle, V, shift, a."""
        spec = self._arena.layout.tables[table]
        noise, sums = spec.variance * self._classes.sizes, self._sample(table)
        if spec.kind == "count-median":
            row = np.maximum(noise, (MAD * np.median(np.abs(sums), axis=0)) ** 2)
            self.deviations[table] = np.where(self._averaged(spec), np.sqrt(row), 0.0)
        spread = self._spread(table, noise)
        for m, label in enumerate(self._classes.of_label):
            scatter = Scatter.of(
                sums[:, label],
                self.prior[label],
                noise[label],
                sketch=spec.kind != "dense",
                beyond=self._stands_out(len(sums)),
            )
            grain = self._grain(scatter)
            strength = 1.0
            if self._settings.estimate == "shrinkage":
                self._scatter[table, m] = 1.0 / (scatter.strength(grain) + 1.0)
                strength = 1.0 / self._own(table, m) - 1.0
                spread[label] *= strength + 1.0
            self.strength[table, m] = strength * grain
        self.spread[table] = spread

    def _own(self, table: int, label: int) -> float:
        """How far the rates of a table's keys scatter around what they are shrunk to."""
        whole, parts = self._scatter[table, label], self._makeup[table, MADE_PARTS:]
        of_parts = self._scatter[parts[parts > 0], label].sum()
        return float(max(whole - of_parts, _LEFT * whole))

    def _sample(self, table: int) -> Floats:
        """Some of a table's cells, by class columns: whole hash rows, if at all possible.

        A hash row has every key once, so that the few keys of a small table are all seen.
        """
        cells = self._arena.cells(table)
        _, width, labels = cells.shape
        rows, step = max(1, _ENOUGH // (width * labels)), max(1, width * labels // _MOST)
        return self._classes.summed(cells[:rows, ::step].reshape(-1, labels))

    def _averaged(self, spec: Table) -> NDArray[np.bool_]:
        """Which columns take the mean of near rows: noise there is Gaussian, or nearly so.

        The median is better for Laplace noise alone, worse for the sum of two or more.
        """
        draws = spec.windows * self._classes.sizes
        gaussian = self._settings.mechanism == "gaussian"
        return np.full(draws.shape, True) if gaussian else (draws > 1) & self._settings.private

    def _spread(self, table: int, noise: Floats) -> Floats:
        """V_l: variance of c_l - π_l s in units of π_l (1 - π_l); sets the shift on its way."""
        spec = self._arena.layout.tables[table]
        efficiency = np.where(
            self._averaged(spec), MEAN_NEAR_MEDIAN[spec.rows - 1], MEDIAN_OF_LAPLACE[spec.rows - 1]
        )
        spread = self._of_rates(noise * efficiency)
        if spec.kind == "dense":
            return spread
        errors = self._probed(table)
        if spec.kind == "count-median":
            return np.maximum(spread, self._of_errors(errors))
        typical = np.median(errors, axis=0)
        if self._settings.estimate == "shrinkage":
            self.shift[table] = np.minimum(typical, 0.0)
        return self._of_errors(errors - typical)

    def _of_rates(self, variance: Floats) -> Floats:
        out = np.empty_like(variance)
        for label in self._classes.of_label:
            p = self.prior[label]
            out[label] = noise_of_rates(variance[label], p) / (p * (1 - p))
        return out

    def _probed(self, table: int) -> Floats:
        """What the sketch says of keys that nobody has: its errors."""
        size = max(_FEWEST, min(_PROBES, _ENOUGH // self._arena.layout.labels))
        keys = np.random.default_rng(0).integers(0, 1 << 64, size, dtype=np.uint64)
        return self._counts(table, keys)

    def _of_errors(self, errors: Floats) -> Floats:
        out = np.empty(errors.shape[1])
        for label in self._classes.of_label:
            p, e = self.prior[label], errors[:, label]
            size = np.abs(e - p * e.sum(axis=1, keepdims=True))
            size = np.minimum(size, np.quantile(size, _CUT, axis=0))
            out[label] = (size**2).mean(axis=0) / (p * (1 - p))
        return out

    def _grain(self, scatter: Scatter) -> float:
        """What one observation weighs in the cells: E[w²]/E[w], between F and Ω.

        At least the mean weight; at most what weights between F and Ω of that mean
        can reach (Bhatia and Davis). Row totals are public, the prior is private.
        """
        if not self._weighted:
            return self._unit
        least, most = self._unit, float(self._settings.omega)
        total = float(self._arena.cells(0).sum(dtype=np.int64))
        mean = min(max(total / max(self._arena.rows, 1), least), most)
        return scatter.grain(mean, most + least - most * least / mean)

    def _stands_out(self, cells: int) -> float:
        """How many deviations of the noise none of so many empty cells shows, but one time in 20.

        Tails of the sum of several draws are lighter than Laplace's, heavier than Gaussian ones.
        """
        rare = math.log(max(cells, 1000))
        if self._settings.mechanism == "laplace":
            return (rare + 3.0) / math.sqrt(2.0)
        return math.sqrt(2.0 * (rare + 2.0))

    def on(self, arena: Arena) -> Estimates:
        """The same estimates on other cells: nothing is studied anew, not even the prior.

        Keys swamped by noise are given the prior (groups, what their parts say). Were it another
        one in training than in serving, a tree would split between the two.
        """
        twin = copy(self)
        twin._arena = arena
        twin._kernel = twin._for_kernel()
        twin._one = twin._for_one()
        return twin

    def _for_kernel(self) -> tuple[Any, ...]:
        """What the kernel needs besides keys; kept, since one row takes microseconds."""
        ratio = self._settings.estimate == "ratio"
        return (
            *self._cells(),
            np.uint64(self._arena.layout.labels),
            self._classes.of_joint,
            self._classes.borders,
            self.prior,
            self.strength,
            self.spread,
            self.shift,
            self.deviations,
            self._classes.centers,
            self._template,
            self._makeup,
            estimate_kernels.RATIO if ratio else estimate_kernels.SHRINKAGE,
            self._settings.backoff_deviation,
            self._unit,
        )

    def _cells(self) -> tuple[NDArray[Any], ...]:
        """The plan that finds cells, and these as 32-bit and as 64-bit ones."""
        return self._arena.layout.plan, *self._arena.views()

    def _for_one(self) -> Bundle:
        """The same for one row, whose kernel has no time to unpack so many arrays."""
        settings, ratio = self._settings, self._settings.estimate == "ratio"
        method = estimate_kernels.RATIO if ratio else estimate_kernels.SHRINKAGE
        return Bundle(
            *self._kernel[:3],  # plan and cells; once in a pickle
            np.array([self._arena.layout.labels, method], dtype=np.int64),
            np.array([settings.backoff_deviation, self._unit], dtype=np.float64),
            self._classes.of_joint,
            self._classes.borders,
            self.prior,
            self.strength,
            self.spread,
            self.shift,
            self.deviations,
            self._classes.centers,
            self._template,
            self._makeup,
            self._raw,
        )

    def one(self, keys: NDArray[np.uint64], out: NDArray[np.float32]) -> None:
        """Write the features of one row, keys[table, 0], into out[column], raw ones too."""
        bad: int = estimate_kernels.estimate_one(self._one.places, keys, out)
        if bad:
            self.refuse_code(bad)

    def refuse_code(self, table: int) -> None:
        """Raise what a kernel found: a dense table was asked for a code it lacks."""
        spec = self._arena.layout.tables[table]
        raise StateError(
            f"count table {spec.name!r} has {spec.width} codes and was asked for one beyond; "
            f"make keys with the snapshot's own schema"
        )

    def features(
        self,
        keys: NDArray[np.uint64],
        out: NDArray[np.float32],
        tables: Sequence[int] | None = None,
        start: int = 0,
        *,
        shown: int = 0,
    ) -> None:
        """Write the features of keys[table, row] into out[column, row], which has all of these.

        From row ``start`` of ``out`` on. The keys are those of all tables, or of some; of
        these the first, before ``shown``, are parts of groups, and are not written.
        """
        bad: int = estimate_kernels.estimate(  # type: ignore[call-arg]
            *self._kernel, keys, numbered(keys, tables), shown, out, start
        )
        if bad:
            self.refuse_code(bad)

    def counts(self, table: int, keys: NDArray[np.uint64]) -> Floats:
        """Estimated counts per class column of some keys of one table (0 is the prior's)."""
        spec = self._arena.layout.tables[table]
        if keys.dtype != np.uint64:
            raise StateError("keys are unsigned 64-bit integers; make them with the own door")
        if spec.kind == "dense" and keys.size and int(keys.max()) >= spec.width:
            self.refuse_code(table)
        return self._counts(table, keys) / self._unit

    def _counts(self, table: int, keys: NDArray[np.uint64]) -> Floats:
        out = np.empty((keys.size, self.prior.size))
        estimate_kernels.counts_of(
            self._arena.layout.plan,
            table,
            *self._arena.views(),
            np.uint64(self._arena.layout.labels),
            keys,
            self._classes.of_joint,
            self.deviations,
            out,
        )
        return out


def numbered(keys: NDArray[np.uint64], tables: Sequence[int] | None) -> NDArray[np.int64]:
    """The rows of the plan that keys are of; tables are numbered without its first."""
    given = range(len(keys)) if tables is None else tables
    return np.array(given, dtype=np.int64) + 1
