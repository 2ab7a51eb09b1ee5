"""Values beside counts: what hot rows say of their own values, learned together with the counts.

One logistic regression, once on the columns of counts alone and once on these and a sparse column
for each value that enough hot rows have (`TrainingSet.values`). How much a column is punished for
being used is chosen from the hot rows alone, as whoever trains a model would: by what models of
their older part lose on the newest fifth. Many values need many hot rows, so where there are
45 million rows there is also a line with a larger hot window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lab.count_models import LOGISTIC
from lab.datasets import DataSet, kind
from lab.experiments.experiment import LARGE, QUICK, Experiment, baseline, cost
from lab.experiments.q2 import FROM_GENERATED, hot
from lab.paper import references
from lab.points import Figure, Job, Point
from lab.raw_results import labels, loss
from lab.stores import Setup, counted, tested
from pyramidion.learn.scaling import FlooredScaler
from pyramidion.store.pyramid import Pyramid

EPSILONS = (0.1, 0.2, 1.0, math.inf)
LARGE_EPSILONS = (0.01, 0.2, 1.0, math.inf)
PENALTIES = (0.003, 0.01, 0.03, 0.1)
"""Of these C the one is taken that loses least on the newest hot rows."""
NEWEST = 0.2
"""Of the hot rows, to choose it by."""
MORE_HOT = 0.02
"""The share of the past that is hot in the further line of large data sets."""
SEEN = 10
"""Hot rows that must have a value for it to have a column."""
COUNTS, BOTH = "counts", "counts and values"


class Lesson(NamedTuple):
    """Columns of counts, scaled, those of values, and labels; of hot and of future rows."""

    counts: NDArray[np.float32]
    values: Any
    y: NDArray[Any]
    future: NDArray[np.float32]
    future_values: Any
    truth: NDArray[np.float64]


def plan(data: DataSet, *, quick: bool, seeds: int) -> tuple[Figure, list[Job]] | None:
    """Two lines against ε."""
    if data.schema.labels[0].continuous:
        return None
    figure = Figure(
        name="values",
        data=data.name,
        title=f"Values beside counts, {data.title}",
        x_label="ε",
        references=references("values", data.name),
        text=f"Logistic regression, trained on {100 * hot(data):g} % of the past unless more is "
        f"said: on the counts of the past alone, and on these and the values that {SEEN} or more "
        f"hot rows have. The values cost no privacy: they are read from rows that are hot, and the "
        f"model goes with these rows. At ∞ counts have no noise.",
    )
    large = data.rows >= LARGE
    epsilons = (1.0,) if quick else LARGE_EPSILONS if large else EPSILONS
    jobs = [
        _job(data, Setup(share, epsilon=epsilon, knobs=QUICK if quick else {}), seed)
        for share in ((hot(data), MORE_HOT) if large else (hot(data),))
        for epsilon in epsilons
        for seed in range(1 if large or epsilon == math.inf else seeds)
    ]
    return figure, [baseline(data), *jobs]


def _job(data: DataSet, setup: Setup, seed: int) -> Job:
    about = {"values": {"C": list(PENALTIES), "seen": SEEN}, "store": setup.told(), "seed": seed}
    more_hot = f", {100 * setup.hot:g} % hot" if setup.hot > hot(data) else ""

    def run() -> list[Point]:
        with counted(data, setup) as filled:
            given = lesson(data, filled)
        return [
            Point(f"{name}: {LOGISTIC}{more_hot}", setup.epsilon, loss=found, seed=seed)
            for name, found in zip((COUNTS, BOTH), losses(data, given), strict=True)
        ]

    more = kind(data.name) == "clicks" and setup.epsilon not in FROM_GENERATED[1:]
    return Job("values", data.fingerprint, about, run, cost(data, setup, 3), more)


def lesson(data: DataSet, store: Pyramid) -> Lesson:
    """What is learned from a store, and asked of it."""
    from scipy.sparse import vstack

    training, snapshot = store.training_set(values=True), store.snapshot()
    scaler = FlooredScaler().fit(training.X)
    kept = np.flatnonzero(np.bincount(training.values.indices) >= SEEN)
    future, values = [], []
    for batch in data.read(*tested(data)):
        future.append(scaler.transform(snapshot.array(batch)))
        values.append(snapshot.values(batch, training.valued)[:, kept])
    return Lesson(
        scaler.transform(training.X),
        training.values[:, kept],
        training.y,
        np.concatenate(future),
        vstack(values, format="csr"),
        labels(data, tested(data)),
    )


def losses(data: DataSet, given: Lesson) -> Sequence[float]:
    """What is lost on counts, and on counts and values."""
    from scipy.sparse import hstack

    both = hstack([given.counts, given.values], format="csr")
    future = hstack([given.future, given.future_values], format="csr")
    found = []
    for X, asked in ((given.counts, given.future), (both, future)):
        chances = _trained(X, given.y).predict_proba(asked)[:, 1]
        found.append(loss(data.schema.labels[0], given.truth, chances))
    return found


def _trained(X: Any, y: NDArray[Any]) -> Any:
    """A model of all hot rows, with the penalty that is best for their newest part."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    older = round((1 - NEWEST) * X.shape[0])

    def missed(C: float) -> float:
        model = LogisticRegression(C=C, max_iter=1_000).fit(X[:older], y[:older])
        return float(log_loss(y[older:], model.predict_proba(X[older:]), labels=model.classes_))

    return LogisticRegression(C=min(PENALTIES, key=missed), max_iter=1_000).fit(X, y)


VALUES = Experiment("values", "what hot rows' own values add to counts", plan)
