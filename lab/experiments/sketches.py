"""Count-min against count-median: loss, and the bias of what they say of a count.

Every feature is counted in a sketch here, also those whose values are known: that is where the
two differ. ``sketches`` shows the loss, ``bias`` how far counts are off on average.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.count_models import models
from lab.datasets import DataSet
from lab.experiments.experiment import (
    LARGE,
    QUICK,
    Experiment,
    baseline,
    cost,
    store,
)
from lab.experiments.q2 import TELLING, hot
from lab.paper import references
from lab.points import Figure, Job, Point
from lab.stores import Setup, counted, features, tested

SKETCHES = ("count-median", "count-min")
ESTIMATES = {"ratio": "the paper's ratio", "shrinkage": "noise-aware"}
EPSILONS = (0.1, 0.33, 1.0, 3.0, math.inf)
QUICK_EPSILONS = (1.0,)
ROWS = 5
ASKED = 20_000
"""Future rows whose counts are asked for."""


def _setup(data: DataSet, sketch: str, estimate: str, epsilon: float, **knobs: Any) -> Setup:
    chosen = {"sketch": sketch, "estimate": estimate, "rows": ROWS, **knobs}
    return Setup(hot(data), epsilon, mechanism="laplace", shares="equal", open=True, knobs=chosen)


def plan(data: DataSet, *, quick: bool, seeds: int) -> tuple[Figure, list[Job]] | None:
    """Loss by sketch and estimate."""
    if data.rows >= LARGE:
        return None
    chosen = models(data)[:1]
    figure = Figure(
        name="sketches",
        data=data.name,
        title=f"Count-median against count-min: loss, {data.title}",
        x_label="ε",
        references=references("sketches", data.name),
        text=f"{chosen[0].name.capitalize()}; every feature in a sketch of {ROWS} hash rows, equal "
        f"shares, Laplace noise. The noise-aware estimate takes off the bias that it finds in "
        f"count-min; the paper's ratio does not.",
    )
    jobs = [
        store("sketches", data, setup, chosen, epsilon, seed=seed, variant=named, more=more)
        for sketch in SKETCHES
        for estimate, told in ESTIMATES.items()
        for named in [f"{sketch}, {told}"]
        for epsilon in (QUICK_EPSILONS if quick else EPSILONS)
        for setup in [_setup(data, sketch, estimate, epsilon, **(QUICK if quick else {}))]
        for more in [epsilon not in TELLING]
        for seed in range(seeds)
    ]
    return figure, [baseline(data), *jobs]


def plan_bias(data: DataSet, *, quick: bool, seeds: int) -> tuple[Figure, list[Job]] | None:
    """How far counts are off, by sketch."""
    if data.rows >= LARGE:
        return None
    figure = Figure(
        name="bias",
        data=data.name,
        title=f"Count-median against count-min: bias, {data.title}",
        x_label="ε",
        y_label="counts too large (above 0) or too small, in rows",
        shows="value",
        text="What a sketch says of the counts of future rows' values, less the true count, on "
        "average over values and tables. The minimum picks the most negative noise.",
    )
    epsilons = QUICK_EPSILONS if quick else EPSILONS
    knobs = QUICK if quick else {}
    return figure, [
        _bias(data, _setup(data, sketch, "ratio", epsilon, columns=("count",), **knobs), seed)
        for sketch in SKETCHES
        for epsilon in epsilons
        for seed in range(seeds)
    ]


def _bias(data: DataSet, setup: Setup, seed: int) -> Job:
    about = {"store": setup.told(), "seed": seed, "asked": ASKED}

    def run() -> list[Point]:
        off = _counts(data, setup) - _exact(data)
        sketch = str(setup.knobs["sketch"])
        return [Point(sketch, setup.epsilon, value=float(off.mean()), seed=seed)]

    more = setup.epsilon not in TELLING
    return Job("bias", data.fingerprint, about, run, cost=1 + cost(data, setup, 0), more=more)


@lru_cache(maxsize=1)
def _exact(data: DataSet) -> NDArray[np.float64]:
    """Without noise, and so wide that hardly two values meet."""
    wide = {"columns": ("count",), "buckets": 1 << 18}
    return _counts(data, _setup(data, "count-min", "ratio", math.inf, **wide))


def _counts(data: DataSet, setup: Setup) -> NDArray[np.float64]:
    """The counts of some future rows' values, by every table and label."""
    start, stop = tested(data)
    with counted(data, setup) as filled:
        told = features(filled.snapshot(), data, (start, min(stop, start + ASKED)))
    return told.astype(np.float64)


SKETCHING = Experiment("sketches", "count-min against count-median: loss", plan)
BIAS = Experiment("bias", "count-min against count-median: bias of the counts", plan_bias)
