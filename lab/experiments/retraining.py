"""Is retraining cheap? Time to train a model of the store again, beside a raw model on all rows."""

from __future__ import annotations

import time
from collections.abc import Sequence

from lab.count_models import LOGISTIC, TREES, CountModel, models
from lab.datasets import DataSet
from lab.experiments.experiment import (
    LARGE,
    QUICK,
    Experiment,
    baseline,
    cost,
    told,
)
from lab.experiments.q2 import hot
from lab.paper import references
from lab.points import Figure, Job, Point
from lab.stores import Setup, counted
from pyramidion.errors import StateError
from pyramidion.store.pyramid import Pyramid


def plan(data: DataSet, *, quick: bool, seeds: int) -> tuple[Figure, list[Job]] | None:
    """Seconds to retrain each model of a store, and to train the raw baseline."""
    if data.rows >= LARGE:
        return None
    figure = Figure(
        name="retraining",
        data=data.name,
        title=f"Time to retrain, {data.title}",
        x_label="hot rows, % of the past",
        y_label="seconds",
        shows="value",
        references=references("retraining", data.name),
        text="`retrain` of a store: hot rows are read, decrypted and featurized, a child process "
        "trains. Beside it the training of the raw baseline on all of the past. Seconds are this "
        "machine's; what counts is their ratio.",
    )
    chosen = [model for model in models(data) if not quick or model.name in (LOGISTIC, TREES)]
    setup = Setup(hot(data), epsilon=1.0, knobs=QUICK if quick else {})
    jobs = [_retrained(data, setup, chosen, seed) for seed in range(1 if quick else seeds)]
    return figure, [_timed(baseline(data)), *jobs]


def _timed(job: Job) -> Job:
    """The baseline, with its time as the value."""

    def run() -> list[Point]:
        (found,) = job.run()
        return [Point(found.series, found.x, loss=found.loss, value=found.seconds)]

    return Job("retraining", job.data, job.about, run, job.cost)


def _retrained(data: DataSet, setup: Setup, chosen: Sequence[CountModel], seed: int) -> Job:
    about = {"store": setup.told(), "seed": seed, "models": told(chosen)}

    def run() -> list[Point]:
        with counted(data, setup) as filled:
            return [
                Point(f"counts: {model.name}", 100 * setup.hot, value=took, seed=seed, seconds=took)
                for model in chosen
                for took in [_seconds(filled, model, seed)]
            ]

    return Job("retraining", data.fingerprint, about, run, cost=4 + cost(data, setup, len(chosen)))


def _seconds(filled: Pyramid, model: CountModel, seed: int) -> float:
    filled.register("model", model.make(len(filled.snapshot().names), seed))
    began = time.perf_counter()
    trained = filled.models.retrain("model")
    if not trained.available:
        raise StateError(f"{model.name} was not trained again: {trained.why}")
    return time.perf_counter() - began


RETRAINING = Experiment("retraining", "time to train again, on counts and on raw rows", plan)
