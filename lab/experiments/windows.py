"""How many windows? Each has noise of its own, so finer retention costs accuracy.

``windows`` shows the loss, of flat windows and of a tree of them; ``window-noise`` the noise alone,
to numbers of windows that no data set here would bear. Noise depends on no rows, so it takes none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from lab.count_models import mechanism, models
from lab.datasets import DataSet, kind
from lab.experiments.experiment import LARGE, QUICK, Experiment, baseline, store
from lab.experiments.q2 import hot
from lab.paper import references
from lab.points import Figure, Job, Point
from lab.stores import Setup
from lab.window_noise import SCHEMA, deviation, trees
from pyramidion.config.window_tree import Mechanism, best

WINDOWS = {"movielens": (1, 3, 10, 30, 100, 1000), "criteo": (1, 3, 10)}
OTHERS = (1, 10, 100)
QUICK_WINDOWS = {"movielens": (1, 10)}
QUICK_OTHERS = (1, 3)
BETWEEN = (3, 30)
"""What tells little more than the numbers beside it."""
EPSILON = 1.0
NOISE = (1, 10, 52, 100, 365, 1_000, 10_000, 100_000)
QUICK_NOISE = (10, 100)
MOST = 10_000
"""Windows whose Laplace noise is measured among all figures; Gaussian noise, which the paper's tree
is for, is to all."""
TABLES = "tables"
PLACES = 8
"""Where the oldest window lies in a node of the top level: which nodes are used depends on that."""
GOLDEN = 0.6180339887498949  # multiples of it are spread evenly, and on no power of two
MECHANISMS: tuple[Mechanism, ...] = ("gaussian", "laplace")


def plan(data: DataSet, *, quick: bool, seeds: int) -> tuple[Figure, list[Job]] | None:
    """Loss against the number of windows at ε = 1, flat and in the tree that the planner takes."""
    if data.rows >= LARGE:
        return None
    figure = Figure(
        name="windows",
        data=data.name,
        title=f"Loss against the number of windows, {data.title}",
        x_label="windows that the past is counted in",
        references=references("windows", data.name),
        text=f"ε = {EPSILON:g} for each observation, whatever the number of windows: it is in one "
        f"of them. The noise of all flat windows adds up; in a tree, larger nodes stand for most "
        f"of them, and its levels share the budget. Of each number the tree with the least noise.",
    )
    numbers = WINDOWS.get(data.name, OTHERS)
    if quick:
        numbers = QUICK_WINDOWS.get(data.name, QUICK_OTHERS)
    jobs = [
        store("windows", data, setup, asked, number, seed=seed, variant=variant, more=more)
        for number in numbers
        for variant, knobs in _kinds(data, number).items()
        for setup in [_setup(data, number, (QUICK if quick else {}) | knobs)]
        for asked in [models(data)[:1]]
        for more in [number in BETWEEN or (number > 10 and kind(data.name) == "clicks")]
        for seed in range(seeds)
    ]
    return figure, [baseline(data), *jobs]


def _setup(data: DataSet, windows: int, knobs: dict[str, Any]) -> Setup:
    return Setup(hot(data), EPSILON, windows=windows, knobs=knobs)


def _kinds(data: DataSet, windows: int) -> dict[str, dict[str, Any]]:
    """Flat windows, and the best tree of so many where there is one."""
    levels = best(windows, mechanism(data))
    if levels is None:
        return {"": {}}
    shape = {"tree_radix": levels.radix, "tree_depth": levels.depth}
    return {"": {}, "tree": {"windows": "tree", **shape, "tree_shares": list(levels.shares)}}


def no_rows() -> DataSet:
    """What the noise of tables alone is measured on."""
    made_for = ("window-noise",)
    return DataSet(TABLES, "any rows", SCHEMA, 0, _nothing, "any rows", made_for=made_for)


def _nothing(_: int, __: int) -> Iterator[pa.RecordBatch]:
    return iter(())


def plan_noise(data: DataSet, *, quick: bool, seeds: int) -> tuple[Figure, list[Job]] | None:
    """The noise of windows summed, against their number."""
    if data.name != TABLES:
        return None
    figure = Figure(
        name="window-noise",
        data=data.name,
        title="Noise of windows summed, flat and in trees",
        x_label="windows that are summed",
        y_label="deviation of the noise, in tables that have the whole budget",
        shows="value",
        references=references("window-noise", data.name),
        text="Measured on tables as a store bears and sums them; it is the same for every data "
        "set. The binary tree whose levels share equally is the paper's, which it simulated; the "
        "best one has the radix, depth and shares that the planner finds.",
    )
    numbers = QUICK_NOISE if quick else NOISE
    return figure, [
        _noise(data, number, noise, kind, seed)
        for number in numbers
        for noise in MECHANISMS
        for kind in trees(number, noise)
        for seed in range(seeds)
    ]


def _noise(data: DataSet, windows: int, noise: Mechanism, kind: str, seed: int) -> Job:
    about = {"windows": windows, "mechanism": noise, "kind": kind, "seed": seed}

    def run() -> list[Point]:
        levels = trees(windows, noise)[kind]
        period = 1 if levels is None else levels.span(levels.depth - 1)
        places = [(GOLDEN * (1 + place + PLACES * seed)) % 1 for place in range(PLACES)]
        firsts = sorted({int(period * place) for place in places})
        each = [deviation(windows, levels, noise, first) for first in firsts]
        found = float(np.sqrt(np.mean(np.square(each))))
        expected = windows if levels is None else levels.variance(windows, noise)
        detail = {"predicted": expected**0.5, "levels": levels and levels.depth}
        name = f"{kind}, {noise.capitalize()}"
        return [Point(name, windows, value=found, seed=seed, detail=detail)]

    more = windows > MOST and noise == "laplace"
    return Job("window-noise", data.fingerprint, about, run, cost=0.1 + windows / 5_000, more=more)


WINDOWING = Experiment("windows", "loss against the number of windows, flat and in a tree", plan)
SUMMING = Experiment("window-noise", "noise of windows summed, flat and in trees", plan_noise)
