"""Q2: what does protection cost? Loss against ε.

``q2`` has the models, ``noise`` the choices: Laplace or Gaussian noise, equal shares of the
budget or shares by hand, the paper's ratio or estimates that know the noise, and how many
observations are hidden together.
"""

from __future__ import annotations

import math
from typing import Any

from lab.count_models import (
    LOGISTIC,
    NETWORK,
    TREES,
    CountModel,
    mechanism,
    models,
)
from lab.datasets import DataSet, kind
from lab.experiments.experiment import LARGE, QUICK, Experiment, baseline, store
from lab.paper import references
from lab.points import Figure, Job
from lab.stores import Setup

HOT = {"movielens": 0.01, "criteo": 0.1}
"""The share of the past that is hot: what the paper has, where there are rows enough for it."""

LARGE_HOT = 0.004

EPSILONS = (0.03, 0.1, 0.2, 0.33, 1.0, 3.0, math.inf)
LARGE_EPSILONS = (0.01, 0.1, 0.2, 1.0)
QUICK_EPSILONS = (0.1, 1.0)
FEWER_EPSILONS = (0.1, 0.33, 1.0, 3.0)
TELLING = (0.1, 1.0, math.inf)
"""What tells most of a choice; the others where they are asked for."""
FROM_GENERATED = (0.1, 0.2, 1.0, math.inf)
"""What generated clicks are asked among all figures."""

VARIANTS: dict[str, dict[str, Any]] = {
    "Laplace": {"mechanism": "laplace"},
    "Gaussian": {"mechanism": "gaussian"},
    "equal shares": {"shares": "equal"},
    "ratio": {"knobs": {"estimate": "ratio"}},
    "k = 10": {"k": 10},
    "k = 100": {"k": 100},
}
"""What is changed in each line of ``noise``."""

NETWORKED = ("Gaussian", "equal shares")
"""The lines that the paper has of Criteo's neural network: with and without weights."""


def hot(data: DataSet) -> float:
    """The share of the past that is hot while noise is what varies."""
    return LARGE_HOT if data.rows >= LARGE else HOT.get(data.name, 0.1)


def _epsilons(data: DataSet, quick: bool) -> tuple[float, ...]:
    if quick:
        return QUICK_EPSILONS
    return LARGE_EPSILONS if data.rows >= LARGE else EPSILONS


def chosen(data: DataSet, *, quick: bool = False, network: bool = False) -> list[CountModel]:
    """The models of a choice: a linear one and trees; and Criteo's neural network at few places."""
    named = (LOGISTIC,) if quick else (LOGISTIC, TREES)
    if network and kind(data.name) == "criteo" and not quick:
        named = (*named, NETWORK)
    return [model for model in models(data) if model.name in named]


def plan(data: DataSet, *, quick: bool, seeds: int) -> tuple[Figure, list[Job]]:
    """The models against ε."""
    figure = Figure(
        name="q2",
        data=data.name,
        title=f"Q2: loss against ε, {data.title}",
        x_label="ε",
        references=references("q2", data.name),
        text=f"Counts of the past under {mechanism(data).capitalize()} noise that hides one "
        f"observation (k = 1), models trained on {100 * hot(data):g} % of the past. At ∞ there is "
        f"no noise.",
    )
    repeated = 1 if data.rows >= LARGE else seeds
    jobs = [
        store("q2", data, setup, models(data, quick=quick), epsilon, seed=seed, more=more)
        for epsilon in _epsilons(data, quick)
        for setup in [Setup(hot(data), epsilon=epsilon, knobs=QUICK if quick else {})]
        for more in [kind(data.name) == "clicks" and epsilon not in FROM_GENERATED]
        for seed in range(repeated)
    ]
    return figure, [baseline(data), *jobs]


def plan_noise(data: DataSet, *, quick: bool, seeds: int) -> tuple[Figure, list[Job]] | None:
    """One model against ε, one choice changed in each line."""
    if data.rows >= LARGE:
        return None
    figure = Figure(
        name="noise",
        data=data.name,
        title=f"Q2: what the choices of noise are worth, {data.title}",
        x_label="ε",
        references=references("noise", data.name),
        text="As in q2, with one choice changed in each line; in that of the mechanism that q2 "
        "has, nothing is. k observations are hidden together by k times the noise.",
    )
    epsilons = QUICK_EPSILONS[-1:] if quick else FEWER_EPSILONS
    jobs = [
        store("noise", data, setup, asked, epsilon, seed=seed, variant=variant, more=more)
        for variant, changed in VARIANTS.items()
        for epsilon in epsilons
        for setup in [_changed(Setup(hot(data), epsilon=epsilon), quick, changed)]
        for more in [epsilon not in TELLING]
        for asked in [chosen(data, quick=quick, network=variant in NETWORKED and not more)]
        for seed in range(seeds)
    ]
    return figure, [baseline(data), *jobs]


def _changed(setup: Setup, quick: bool, changed: dict[str, Any]) -> Setup:
    knobs = {**changed.get("knobs", {}), **(QUICK if quick else {})}
    return setup.but(**(changed | {"knobs": knobs}))


Q2 = Experiment("q2", "loss against ε, all models", plan)
NOISE = Experiment("noise", "loss against ε by mechanism, shares, estimates and k", plan_noise)
