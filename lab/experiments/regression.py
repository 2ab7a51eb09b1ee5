"""Q5: numbers instead of classes. Squared loss of ratings against the share of hot data.

A label that is a number is counted in bins, here one for each star. A table then tells the
probability of each bin and what is expected of the number, so that linear models have something
that grows with it.
"""

from __future__ import annotations

import math
from typing import Any

from lab.count_models import FEW_ROWS, TREES, VOWPAL, CountModel
from lab.datasets import DataSet
from lab.experiments.experiment import QUICK, Experiment, baseline, raw, store
from lab.paper import references
from lab.points import Figure, Job
from lab.raw_models import FACTORIZATION, HASHED, LINEAR, best_model
from lab.stores import Setup
from pyramidion.learn.scaling import FlooredScaler

SHARES = (0.002, 0.008, 0.03, 0.1, 0.3)
QUICK_SHARES = (0.03,)
NOISY = (0.008, 0.03, 0.1)
RAW = (
    *((LINEAR, 0.01), (LINEAR, 0.1), (LINEAR, 0.3)),
    *((HASHED, 0.1), (HASHED, 1.0), (FACTORIZATION, 0.1), (FACTORIZATION, 1.0)),
)
"""Raw models, and the shares of the past that they learn."""
BETWEEN = (0.002, 0.03)
"""Shares that tell little more than those beside them."""
EPSILON = 1.0
COUNTED = "linear regression"


def linear(alpha: float = 100.0) -> CountModel:
    """Ridge regression."""

    def make(_: int, __: int) -> Any:
        from sklearn.linear_model import Ridge
        from sklearn.pipeline import make_pipeline

        return make_pipeline(FlooredScaler(), Ridge(alpha))

    return CountModel(COUNTED, make, {"alpha": alpha})


def trees(**parameters: Any) -> CountModel:
    """Boosted trees."""
    chosen = FEW_ROWS | {"n_estimators": 150} | parameters

    def make(_: int, seed: int) -> Any:
        from lightgbm import LGBMRegressor

        return LGBMRegressor(**chosen, random_state=seed, n_jobs=2, verbose=-1)

    return CountModel(TREES, make, chosen)


def vowpal(passes: int = 3, learning_rate: float = 0.02) -> CountModel:
    """Vowpal Wabbit's linear model."""

    def make(_: int, seed: int) -> Any:
        from pyramidion.learn.vowpal import VowpalRegressor

        return VowpalRegressor(passes=passes, learning_rate=learning_rate, random_state=seed)

    return CountModel(VOWPAL, make, {"passes": passes, "learning_rate": learning_rate})


MODELS = (linear(), trees(), vowpal())


def plan(data: DataSet, *, quick: bool, seeds: int) -> tuple[Figure, list[Job]] | None:
    """Models on counts, with and without noise, and raw ones on as many rows."""
    if not data.schema.labels[0].continuous:
        return None
    figure = Figure(
        name="regression",
        data=data.name,
        title=f"Q5: squared loss of the rating against hot data, {data.title}",
        x_label="hot rows, % of the past",
        baseline_at=100,
        references=references("regression", data.name),
        text="The rating as a number, counted in five bins. Models on counts train on the hot rows "
        f"alone; those at ε = {EPSILON:g} by counts under Laplace noise.",
    )
    knobs = QUICK if quick else {}
    jobs = [
        store("regression", data, setup, MODELS, 100 * share, seed=seed, variant=variant, more=more)
        for epsilon, shares in ((math.inf, SHARES), (EPSILON, NOISY))
        for share in (QUICK_SHARES if quick else shares)
        for setup in [Setup(share, epsilon, knobs=knobs)]
        for more in [share in BETWEEN]
        for variant in ["" if epsilon == math.inf else f"ε = {epsilon:g}"]
        for seed in range(1 if epsilon == math.inf else seeds)
    ]
    return figure, [baseline(data), *jobs, *([] if quick else _raw(data))]


def _raw(data: DataSet) -> list[Job]:
    """Raw models on as many rows, and on all."""
    return [
        raw("regression", data, best_model(data.name, name), share, 100 * share, more=more)
        for name, share in RAW
        for more in [(name, share) == (HASHED, 1.0)]
    ]


REGRESSION = Experiment("regression", "squared loss of a number, on counts and on raw rows", plan)
