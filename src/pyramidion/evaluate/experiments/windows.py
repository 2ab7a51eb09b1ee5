"""How many windows? Each has noise of its own, so finer retention costs accuracy."""

from __future__ import annotations

from pyramidion.evaluate.count_models import models
from pyramidion.evaluate.datasets import DataSet
from pyramidion.evaluate.experiments.experiment import LARGE, QUICK, Experiment, baseline, store
from pyramidion.evaluate.experiments.q2 import hot
from pyramidion.evaluate.paper import references
from pyramidion.evaluate.points import Figure, Job
from pyramidion.evaluate.stores import Setup

WINDOWS = {"movielens": (1, 3, 10, 30, 100, 1000), "criteo": (1, 3, 10)}
OTHERS = (1, 10, 100)
QUICK_WINDOWS = (1, 10)
EPSILON = 1.0


def plan(data: DataSet, *, quick: bool, seeds: int) -> tuple[Figure, list[Job]] | None:
    """Loss against the number of flat windows at ε = 1."""
    if data.rows >= LARGE:
        return None
    figure = Figure(
        name="windows",
        data=data.name,
        title=f"Loss against the number of windows, {data.title}",
        x_label="windows that the past is counted in",
        references=references("windows", data.name),
        text=f"ε = {EPSILON:g} for each observation, whatever the number of windows: it is in one "
        f"of them. The noise of all windows adds up.",
    )
    numbers = QUICK_WINDOWS if quick else WINDOWS.get(data.name, OTHERS)
    jobs = [
        store("windows", data, setup, models(data)[:1], number, seed=seed)
        for number in numbers
        for setup in [Setup(hot(data), EPSILON, windows=number, knobs=QUICK if quick else {})]
        for seed in range(seeds)
    ]
    return figure, [baseline(data), *jobs]


WINDOWING = Experiment("windows", "loss against the number of flat windows", plan)
