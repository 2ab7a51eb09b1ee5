"""Evolution: the workload changes, the raw history is gone. What do models lose after that?

One store of the past at ε = 1, filled once. Then its workload changes in ways that the paper
lists: another algorithm, other hyperparameters, a feature that may not be used any more, and
coarser labels. Beside each stands the loss before it, and beside a removed feature the raw
baseline that was trained without it, for which one would have to go back to the raw history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.count_models import CountModel, logistic, models, trees
from lab.datasets import DataSet
from lab.experiments.experiment import (
    LARGE,
    QUICK,
    Experiment,
    baseline,
    cost,
    lead,
)
from lab.experiments.q2 import hot
from lab.paper import references
from lab.points import Figure, Job, Point
from lab.raw_models import best_model
from lab.raw_results import labels, loss
from lab.stores import Setup, counted, features, tested
from pyramidion.config.checks import Value
from pyramidion.config.schema import Label
from pyramidion.store.pyramid import Pyramid

EPSILON = 1.0
BEFORE, AFTER = 0, 1
ALGORITHM, KNOBS = "algorithm: trees after logistic", "hyperparameters: C of 1 after 0.0001"
COARSER = "coarser labels: two after five"
LIKED = 4
"""Stars from which a movie is liked."""


def plan(data: DataSet, *, quick: bool, seeds: int) -> tuple[Figure, list[Job]] | None:
    """Losses before and after each change."""
    if data.rows >= LARGE:
        return None
    figure = Figure(
        name="evolution",
        data=data.name,
        title=f"When the workload changes without raw history, {data.title}",
        x_label="0: before the change, 1: after it",
        y_label="log loss",
        log_x=False,
        shows="loss",
        references=references("evolution", data.name),
        text=f"One store of the past at ε = {EPSILON:g}; only its hot rows and tables are there "
        "when the workload changes.",
    )
    setup = Setup(hot(data), EPSILON, knobs=QUICK if quick else {})
    if data.schema.labels[0].continuous:
        return figure, [_job(data, setup, _coarser, seed) for seed in range(seeds)]
    changed = [_job(data, setup, _changed, seed) for seed in range(seeds)]
    return figure, [baseline(data), *changed, _without(data)]


def _job(data: DataSet, setup: Setup, changes: Any, seed: int) -> Job:
    about = {"store": setup.told(), "changes": changes.__name__, "seed": seed}

    def run() -> list[Point]:
        with counted(data, setup) as filled:
            return [replace(point, seed=seed) for point in changes(data, filled)]

    return Job("evolution", data.fingerprint, about, run, cost=2 * cost(data, setup, 4))


def removed(data: DataSet) -> str:
    """The feature that is taken away: the first."""
    return data.schema.feature_names[0]


def _changed(data: DataSet, store: Pyramid) -> Iterator[Point]:
    """Two classes: other algorithms, parameters and features."""
    truth, label = labels(data, tested(data)), data.schema.labels[0]
    usual = models(data)[0]

    def lost(model: CountModel, **workload: Any) -> float:
        return loss(label, truth, _predicted(data, store, model, **workload)[:, 1])

    before = lost(usual)
    yield from _pair(ALGORITHM, before, lost(trees()))
    yield from _pair(KNOBS, lost(logistic(1e-4, scaled=False)), lost(logistic(1.0)))
    gone = f"without feature {removed(data)}"
    yield from _pair(gone, before, lost(usual, without=[removed(data)]))


def _coarser(data: DataSet, store: Pyramid) -> Iterator[Point]:
    """Five bins of a number, then two classes of it; both are asked who likes a movie."""
    label = data.schema.labels[0]
    bins, centers = label.class_names, label.centers
    merge: dict[Value, list[Value]] = {
        "no": [name for name, star in zip(bins, centers, strict=True) if star < LIKED],
        "yes": [name for name, star in zip(bins, centers, strict=True) if star >= LIKED],
    }
    singly: dict[Value, list[Value]] = {name: [name] for name in bins}
    truth = (labels(data, tested(data)) >= LIKED).astype(np.float64)
    two = Label("liked", classes=[0, 1])
    model = logistic(0.01)
    five = _predicted(data, store, model, merge=singly)
    before = five[:, [name in merge["yes"] for name in sorted(bins)]].sum(axis=1)
    after = _predicted(data, store, model, merge=merge)[:, 1]
    yield from _pair(COARSER, loss(two, truth, before), loss(two, truth, after))


def _predicted(
    data: DataSet,
    store: Pyramid,
    model: CountModel,
    *,
    without: Sequence[str] = (),
    merge: Mapping[Value, Sequence[Value]] | None = None,
) -> NDArray[np.float64]:
    """What a model of another workload says of the future."""
    training = store.training_set(without=without, merge=merge)
    X, y = training
    snapshot = store.snapshot()
    columns = [snapshot.names.index(name) for name in training.names]
    estimator = model.make(X.shape[1], 0)
    estimator.fit(np.asarray(X), y)
    found: NDArray[np.float64] = estimator.predict_proba(
        features(snapshot, data, tested(data))[:, columns]
    )
    return found


def _pair(name: str, before: float, after: float) -> list[Point]:
    return [Point(name, BEFORE, loss=before), Point(name, AFTER, loss=after)]


def _without(data: DataSet) -> Job:
    """The raw baseline without the feature: what going back to the raw history would give."""
    name = removed(data)
    kept = tuple(feature for feature in data.schema.features if feature.name != name)
    less = replace(data, schema=replace(data.schema, features=kept))
    model = best_model(data.name, lead(data))

    def run() -> list[Point]:
        found = model.losses(less, 0, data.past, tested(data))
        return [Point(f"raw, trained again without {name}", AFTER, loss=found.loss)]

    about = {"raw": model.name, "without": name}
    return Job("evolution", data.fingerprint, about, run, cost=2 + data.past / 200_000)


EVOLUTION = Experiment("evolution", "losses when the workload changes without raw history", plan)
