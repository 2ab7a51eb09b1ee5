"""The paper's tables, with ours beside them: workloads, parameters, parts of a prediction's time.

Ours are read from the code where they stand there, so that the report cannot say something else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lab import policies
from lab.count_models import MODELS
from lab.raw_models import (
    BASELINE,
    FACTORIZATION,
    HASHED,
    LINEAR,
    LOGISTIC,
    NETWORK,
    RIDGE,
    best_model,
)

Rows = Sequence[Sequence[str]]

WORKLOAD = ("the paper's", "observations", "features", "baseline", "ours", "our baseline")
ADS = "advertisements"
WORKLOADS: Rows = (
    (
        f"{ADS}: Criteo Kaggle",
        "45M",
        "39",
        "neural network",
        "137,139 real rows; as many generated clicks as are asked for, up to 45M and more",
        f"{BASELINE['criteo']} (as good as the network on these rows)",
    ),
    (
        f"{ADS}: Criteo Full, 3.34 % clicked",
        "1.2B",
        "39",
        "regularized linear model",
        "generated clicks at that rate",
        BASELINE["clicks-rare"],
    ),
    (
        "movies, liked or not: MovieLens",
        "22M",
        "21",
        "matrix factorization",
        "1,000,209 ratings, 20 features",
        f"{BASELINE['movielens']} (better than matrix factorization here)",
    ),
    (
        "movies, the rating: MovieLens",
        "22M",
        "21",
        "matrix factorization",
        "1,000,209 ratings, 20 features",
        BASELINE["movielens-ratings"],
    ),
    (
        "news: MSN.com, a week",
        "24M",
        "507",
        "contextual bandit",
        "a generated week of 1.4M items, 6 features; Open Bandit, 60,000 rows; 507 generated "
        "features (wide)",
        "contextual bandit",
    ),
)
"""Its table of workloads. Which of ours are in a report is told by its figures."""

PARAMETER = ("data", "model", "the paper's parameters", "ours, on raw rows", "ours, on counts")
_TREES = "100 trees with 8 leaves, subsample 0.5, learning rate 0.1, 8 bits (scikit-learn)"
_SVD = "rank 10, L2 0.001, learning rate 0.015, 18 bits, 20 passes, decay 0.97, power_t 0"
_LINEAR = "learning rate 0.5, 22 bits, 5 passes, early termination 1"
_RAW = (
    (
        "criteo",
        NETWORK,
        "35 hidden nodes, learning rate 0.15, 25 bits, 20 passes, early termination 1",
    ),
    ("criteo", LOGISTIC, "learning rate 0.5, 26 bits"),
    ("criteo", HASHED, _TREES),
    ("clicks-rare", RIDGE, "L2 1.5e-8, learning rate 0.5, 26 bits"),
    ("movielens-ratings", FACTORIZATION, _SVD),
    ("movielens-ratings", LINEAR, _LINEAR),
    ("movielens-ratings", HASHED, _TREES),
    ("movielens", FACTORIZATION, _SVD),
    ("movielens", LOGISTIC, _LINEAR),
    ("movielens", HASHED, _TREES),
)
_ON_COUNTS = {HASHED: "boosted trees", RIDGE: LOGISTIC}


def parameters() -> list[list[str]]:
    """Its table of parameters, and what was chosen here on the end of the past."""
    found = [
        [data, model, known, _told(best_model(data, model).parameters), _counted(data, model)]
        for data, model, known in _RAW
    ]
    news = ["news", "contextual bandit", "IPS, learning rate 0.02, 18 bits"]
    return [*found, [*news, _told(policies.RAW), _told(policies.COUNTS)]]


def _counted(data: str, model: str) -> str:
    known = MODELS.get(data, MODELS["clicks"] if data.startswith("clicks") else ())
    name = _ON_COUNTS.get(model, model)
    return next((_told(found.parameters) for found in known if found.name == name), "-")


def _told(given: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in given.items()) or "-"


PART = ("part of a prediction's time", "paper, no cache", "paper, tables cached", "paper, Velox")
PARTS: Rows = (
    ("featurization", "99.22 %", "4.37 %", "none"),
    ("unmarshalling", "0.04 %", "6.44 %", "7.06 %"),
    ("prediction", "0.01 %", "0.51 %", "0.63 %"),
    ("network and framework", "0.73 %", "88.68 %", "92.31 %"),
    ("in all, median", "283.69 ms", "1.65 ms", "1.58 ms"),
)
"""Its table of latencies. Ours is taken apart by a service that looks at its own clock."""
PARTS_OF_OURS = (
    "The same parts of a prediction here are printed by `python -m benchmarks service`, from a "
    "source tree; see 'The service' in docs/benchmarks.md."
)
