"""Q1: how little raw data is enough? Loss against the share of the past that is hot."""

from __future__ import annotations

from collections.abc import Sequence

from lab.count_models import models
from lab.datasets import DataSet, kind
from lab.experiments.experiment import (
    LARGE,
    QUICK,
    Experiment,
    baseline,
    lead,
    points,
    raw,
    store,
    told,
)
from lab.paper import references
from lab.points import Figure, Job, Point
from lab.raw_models import best_model
from lab.stores import Setup, counted, lesson

SHARES = (0.001, 0.002, 0.004, 0.008, 0.02, 0.05, 0.1, 0.3, 1.0)
LARGE_SHARES = (0.0002, 0.001, 0.004, 0.01, 0.03)
QUICK_SHARES = (0.008, 0.1)
ENOUGH = 0.1
"""Hot windows from this share on are trained on once: there is no noise, and rows are many."""

RAW = {
    "movielens": ("matrix factorization", "logistic regression", "boosted trees, hashed"),
    "criteo": ("neural network", "logistic regression", "boosted trees, hashed"),
}
TELLING = (0.001, 0.004, 0.008, 0.02, 0.1)
FROM_GENERATED = (0.001, 0.004, 0.1)
"""What is measured among all figures, of real rows and of generated clicks."""
ALSO = {"criteo": 0.3}
"""Where the paper says something of more hot rows."""
RAW_SHARES = (0.001, 0.01, 0.1, 0.3)
"""A raw model on all rows is the baseline, and there already, or costs as much."""


def plan(data: DataSet, *, quick: bool, seeds: int) -> tuple[Figure, list[Job]]:
    """Models on counts and on raw rows, each on the newest rows of the past."""
    figure = Figure(
        name="q1",
        data=data.name,
        title=f"Q1: loss against hot data, {data.title}",
        x_label="hot rows, % of the past",
        baseline_at=100,
        references=references("q1", data.name),
        text="Models on counts train on the hot rows alone, with counts of the whole past, here "
        "without noise. Raw models train on as many raw rows. All are measured on the future.",
    )
    return figure, [baseline(data), *_counts(data, quick, seeds), *_raw(data, quick)]


def _counts(data: DataSet, quick: bool, seeds: int) -> list[Job]:
    if data.rows >= LARGE:
        return [_nested(data, LARGE_SHARES)]
    return [
        store("q1", data, setup, models(data, quick=quick), 100 * share, seed=seed, more=more)
        for share in (QUICK_SHARES if quick else SHARES)
        for setup in [Setup(share, knobs=QUICK if quick else {})]
        for more in [not quick and share not in _telling(data)]
        for seed in range(seeds if share < ENOUGH else 1)
    ]


def _telling(data: DataSet) -> tuple[float, ...]:
    if kind(data.name) == "clicks":
        return FROM_GENERATED
    return *TELLING, ALSO.get(data.name, TELLING[-1])


def _nested(data: DataSet, shares: Sequence[float]) -> Job:
    """One store for several hot windows: the newest rows of the largest one are the others."""
    setup, chosen = Setup(max(shares)), models(data)
    about = {
        "store": setup.told(),
        "shares": list(shares),
        "models": told(chosen),
    }

    def run() -> list[Point]:
        with counted(data, setup) as filled:
            given = lesson(data, filled)
        found = []
        for share in shares:
            part = given.newest(round(share * data.past))
            found += points(data, part, chosen, 100 * share, seed=0)
        return found

    return Job("q1", data.fingerprint, about, run, cost=data.past / 50_000)


def _raw(data: DataSet, quick: bool) -> list[Job]:
    """Raw models on as many rows."""
    named = RAW.get(data.name, (lead(data),))
    shares = (0.1,) if quick else RAW_SHARES[: 2 if data.rows >= LARGE else None]
    jobs = [
        raw("q1", data, best_model(data.name, name), share, 100 * share, more=share < 0.01)
        for name in named
        for share in shares
    ]
    whole = [name for name in named if name != lead(data)]
    if not quick:
        jobs += [raw("q1", data, best_model(data.name, name), 1.0, 100) for name in whole]
    return jobs


Q1 = Experiment("q1", "loss against the share of hot data, on counts and on raw rows", plan)
