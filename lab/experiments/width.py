"""Many features: what 507 of them cost in loss (``wide``), and in time and memory (``width``)."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np

from lab import wide as stream
from lab.count_models import LOGISTIC, TREES, models
from lab.datasets import DataSet
from lab.experiments.experiment import Experiment, baseline, store
from lab.paper import references
from lab.points import Figure, Job, Point
from lab.raw_results import labels, loss
from lab.stores import Setup, counted, features, tested
from pyramidion.counts.snapshot import Snapshot
from pyramidion.privacy.plan import plan as planned

HOT = 0.25
EPSILONS, QUICK_EPSILONS = (0.33, 1.0, 3.0, math.inf), (1.0,)
WIDTHS, QUICK_WIDTHS = (39, 100, 250, 507), (100, 507)
ROWS, QUICK_ROWS = 20_000, 2_000
ASKED, REPEATED = 1_000, 5
EPSILON = 1.0


def plan(data: DataSet, *, quick: bool, seeds: int) -> tuple[Figure, list[Job]] | None:
    """Loss against ε."""
    if data.name != stream.NAME:
        return None
    figure = Figure(
        name="wide",
        data=data.name,
        title=f"Loss against ε, {data.title}",
        x_label="ε",
        references=references("wide", data.name),
        text=f"As q2, with {100 * HOT:g} % hot. 60 of the features tell something; the budget is "
        f"shared by all {stream.FEATURES}.",
    )
    named = (LOGISTIC,) if quick else (LOGISTIC, TREES)
    chosen = [model for model in models(data) if model.name in named]
    jobs = [
        store("wide", data, Setup(HOT, epsilon), chosen, epsilon, seed=seed, more=epsilon == 3.0)
        for epsilon in (QUICK_EPSILONS if quick else EPSILONS)
        for seed in range(seeds if epsilon < math.inf else 1)
    ]
    return figure, [baseline(data), *jobs, _best(data, quick)]


def _best(data: DataSet, quick: bool) -> Job:
    """The loss of the true chances."""

    def run() -> list[Point]:
        chances = np.zeros(0) if data.truth is None else data.truth(*tested(data))
        lost = loss(data.schema.labels[0], labels(data, tested(data)), chances)
        places = QUICK_EPSILONS if quick else (EPSILONS[0], EPSILONS[-1])
        return [Point("best possible", place, loss=lost) for place in places]

    return Job("wide", data.fingerprint, {"best": quick}, run)


def plan_width(
    data: DataSet,
    *,
    quick: bool,
    seeds: int,  # noqa: ARG001
) -> tuple[Figure, list[Job]] | None:
    """Time and memory against the number of features."""
    if data.name != stream.NAME:
        return None
    figure = Figure(
        name="width",
        data=data.name,
        title="What features cost: time and memory against how many there are",
        x_label="features",
        y_label="seconds, milliseconds and kilobytes, as named",
        shows="value",
        references=references("width", data.name),
        text="A store of so many features is planned, filled and asked. Seconds are those of "
        "processors, not of the clock.",
    )
    rows = QUICK_ROWS if quick else ROWS
    return figure, [_cost(data, width, rows) for width in (QUICK_WIDTHS if quick else WIDTHS)]


def _cost(data: DataSet, width: int, rows: int) -> Job:
    def run() -> list[Point]:
        some = replace(data, schema=stream.schema(width), rows=round(rows / 0.8))
        told = {"seconds to plan": _planning(width, rows)}
        began = time.process_time()
        with counted(some, Setup(HOT, EPSILON)) as filled:
            told[f"seconds to count {rows:,} rows"] = time.process_time() - began
            snapshot = filled.snapshot()
            took = min(_featurizing(snapshot, some) for _ in range(REPEATED))
            told[f"milliseconds to featurize {ASKED:,} rows"] = 1e3 * took
        told["kilobytes of complete tables"] = _kilobytes(width, rows)
        return [Point(name, width, value=value) for name, value in told.items()]

    return Job("width", data.fingerprint, {"features": width, "rows": rows}, run, cost=width / 80)


def _featurizing(snapshot: Snapshot, data: DataSet) -> float:
    began = time.process_time()
    features(snapshot, data, (0, ASKED))
    return time.process_time() - began


def _planning(width: int, rows: int) -> float:
    began = time.process_time()
    planned(stream.schema(width), rows=rows, epsilon=EPSILON)
    return time.process_time() - began


def _kilobytes(width: int, rows: int) -> float:
    return planned(stream.schema(width), rows=rows, epsilon=EPSILON).complete_bytes / 1e3


WIDE = Experiment("wide", "loss against ε with 507 features", plan)
WIDTH = Experiment("width", "time and memory against the number of features", plan_width)
