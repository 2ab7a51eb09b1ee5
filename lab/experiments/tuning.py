"""How parameters were chosen: every trial, measured on the end of the past.

Raw models try what is in `lab.raw_models.GRIDS` and are measured on the last
eighth of the past, models on counts what is in `GRIDS` here, from stores at ε = 1 that count
the first four fifths of the past. The future is never read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from lab import count_models
from lab.count_models import CountModel
from lab.datasets import DataSet, kind
from lab.experiments.experiment import LARGE, Experiment, points
from lab.experiments.q2 import hot
from lab.paper import references
from lab.points import Figure, Job, Point
from lab.raw_models import GRIDS as RAW_GRIDS
from lab.raw_models import PAPER, tuned
from lab.stores import Setup, counted, lesson

GRIDS: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "logistic": {"C": [0.001, 0.003, 0.01, 0.03, 0.1, 1.0], "scaled": [True, False]},
    "network": {"alpha": [1.0, 3.0, 10.0], "learning_rate": [0.001, 0.003, 0.01]},
    "trees": {
        "n_estimators": [100, 300],
        "num_leaves": [2, 4, 8],
        "min_child_samples": [50, 200],
        "colsample_bytree": [0.2, 0.5, 1.0],
    },
    "vowpal": {"passes": [3, 10], "learning_rate": [0.02, 0.05, 0.2]},
}


def plan(data: DataSet, *, quick: bool, seeds: int) -> tuple[Figure, list[Job]] | None:
    """All trials of a data set."""
    if data.rows >= LARGE or quick:
        return None
    figure = Figure(
        name="tuning",
        data=data.name,
        title=f"Choosing parameters, {data.title}",
        x_label="trial",
        y_label="loss on the end of the past",
        log_x=False,
        shows="loss",
        references=references("tuning", data.name),
        text="Each point is a model with other parameters, trained on the first part of the past "
        "and measured on its end. Which parameters a trial had stands in the results.",
    )
    raw = [_raw(data, model) for name, model in RAW_GRIDS if name == kind(data.name)]
    return figure, [*raw, _counts(data, seeds)]


def _raw(data: DataSet, model: str) -> Job:
    grid = RAW_GRIDS[kind(data.name), model]
    about = {"raw": model, "grid": {name: list(values) for name, values in grid.items()}}

    def run() -> list[Point]:
        trials = tuned(PAPER[model], data, grid)[1]
        return [
            Point(
                f"raw: {model}",
                number,
                loss=trial.lost if math.isfinite(trial.lost) else math.nan,
                seconds=trial.result.seconds_to_train,
                detail={"parameters": dict(trial.model.parameters)},
            )
            for number, trial in enumerate(trials, 1)
        ]

    return Job("tuning", data.fingerprint, about, run, cost=60 + data.past / 5_000)


def _counts(data: DataSet, seeds: int) -> Job:
    """All models on counts from the same stores; their losses are the mean over these."""
    within = data.cut(data.past)
    about = {"grids": {name: dict(grid) for name, grid in GRIDS.items()}, "seeds": seeds}

    def run() -> list[Point]:
        found = []
        for seed in range(seeds):
            with counted(within, Setup(hot(data), epsilon=1.0)) as filled:
                given = lesson(within, filled)
            for number, model in enumerate(candidates(), 1):
                told = {"parameters": dict(model.parameters)}
                found += [
                    replace(point, detail=told)
                    for point in points(within, given, [model], number, seed=seed)
                ]
        return found

    return Job("tuning", data.fingerprint, about, run, cost=60 + data.past / 5_000)


def candidates() -> Iterator[CountModel]:
    """Every model on counts with every combination of its parameters."""
    for name, grid in GRIDS.items():
        make = getattr(count_models, name)
        for values in product(*grid.values()):
            yield make(**dict(zip(grid, values, strict=True)))


TUNING = Experiment("tuning", "how parameters were chosen, in the past alone", plan)
