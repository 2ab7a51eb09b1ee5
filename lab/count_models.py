"""Models on counts, and how a store counts each data set.

Parameters were chosen by what is lost on the last fifth of the past (``python -m lab
tuning``). So were the mechanism and the shares of the budget: tables whose counts are large
get little of it. That is public knowledge here, not read off rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from lab.datasets import DataSet, kind
from pyramidion.config.schema import Schema
from pyramidion.learn.scaling import FlooredScaler

LOGISTIC, NETWORK = "logistic regression", "neural network"
TREES, VOWPAL = "boosted trees", "Vowpal Wabbit"


@dataclass(frozen=True)
class CountModel:
    """An estimator to be trained on counts."""

    name: str
    make: Callable[[int, int], Any]
    """From how many columns there are and a seed; all columns grow with the chance of the label."""
    parameters: Mapping[str, Any]


def logistic(C: float = 0.02, *, scaled: bool = True) -> CountModel:
    """Logistic regression.

    Log-odds from counts are in one unit, and a column that tells little moves little. Left
    unscaled, it is also punished more for being used, which is right where hot rows are few.
    """

    def make(_: int, __: int) -> Any:
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        linear = LogisticRegression(C=C, max_iter=1_000)
        return make_pipeline(FlooredScaler(), linear) if scaled else linear

    return CountModel(LOGISTIC, make, {"C": C, "scaled": scaled})


def network(hidden: int = 35, alpha: float = 3.0, learning_rate: float = 0.001) -> CountModel:
    """A neural network with one hidden layer."""

    def make(_: int, seed: int) -> Any:
        from sklearn.neural_network import MLPClassifier
        from sklearn.pipeline import make_pipeline

        net = MLPClassifier(
            (hidden,),
            alpha=alpha,
            learning_rate_init=learning_rate,
            max_iter=20,
            random_state=seed,
        )
        return make_pipeline(FlooredScaler(), net)

    told = {"hidden": hidden, "alpha": alpha, "learning_rate": learning_rate}
    return CountModel(NETWORK, make, told)


FEW_ROWS: dict[str, Any] = {
    "n_estimators": 100,
    "num_leaves": 8,
    "learning_rate": 0.05,
    "min_child_samples": 50,
    "reg_lambda": 10.0,
    "subsample": 0.5,
    "subsample_freq": 1,
    "colsample_bytree": 0.5,
}
"""Boosted trees for hot rows, which are few: small and many, each of half of rows and columns."""


def trees(**parameters: Any) -> CountModel:
    """Boosted trees that know: who clicked more before does not click less now."""
    chosen = FEW_ROWS | parameters

    def make(columns: int, seed: int) -> Any:
        from lightgbm import LGBMClassifier

        monotone = [1] * columns
        return LGBMClassifier(
            **chosen, monotone_constraints=monotone, random_state=seed, n_jobs=2, verbose=-1
        )

    return CountModel(TREES, make, chosen)


def vowpal(passes: int = 10, learning_rate: float = 0.05) -> CountModel:
    """Vowpal Wabbit's linear model."""

    def make(_: int, seed: int) -> Any:
        from pyramidion.learn.vowpal import VowpalClassifier

        return VowpalClassifier(passes=passes, learning_rate=learning_rate, random_state=seed)

    return CountModel(VOWPAL, make, {"passes": passes, "learning_rate": learning_rate})


MODELS: dict[str, Sequence[CountModel]] = {
    "movielens": (
        logistic(0.01, scaled=False),
        network(),
        trees(),
        vowpal(passes=3, learning_rate=0.02),
    ),
    "movielens-people": (
        logistic(0.01, scaled=False),
        network(),
        trees(n_estimators=300, num_leaves=2, colsample_bytree=1.0),
        vowpal(passes=3, learning_rate=0.02),
    ),
    "criteo": (logistic(0.01), network(), trees(), vowpal(passes=3, learning_rate=0.02)),
    "clicks": (
        logistic(0.03),
        network(alpha=1.0),
        trees(n_estimators=600, colsample_bytree=0.2),
        vowpal(),
    ),
}
"""By data set or kind of data set, what was chosen for it."""

Chosen = TypeVar("Chosen")


def _chosen(known: Mapping[str, Chosen], data: DataSet, otherwise: Chosen) -> Chosen:
    """What was chosen for a data set, or for its kind."""
    return known.get(data.name, known.get(kind(data.name), otherwise))


def models(data: DataSet, *, quick: bool = False) -> Sequence[CountModel]:
    """The models on counts of a data set; in a quick run two of them."""
    found = _chosen(MODELS, data, (logistic(), network(), trees(), vowpal()))
    return [model for model in found if model.name in (LOGISTIC, TREES)] if quick else found


MECHANISM: dict[str, Literal["laplace", "gaussian"]] = {"movielens": "laplace"}
"""The noise of each kind of data set; Gaussian where it is not named.

Laplace noise grows with the sum of shares, Gaussian noise with its root. MovieLens has two
tables that need a budget, Criteo more than twenty.
"""


def mechanism(data: DataSet) -> Literal["laplace", "gaussian"]:
    """The noise that was chosen for a data set."""
    return MECHANISM.get(kind(data.name), "gaussian")


FEW = 64
"""Values of a feature whose counts are large whatever the data."""

LITTLE = {"movielens": 0.003, "movielens-people": 0.01, "criteo": 0.1, "clicks": 0.1}
"""What a feature of few values gets of the budget, beside 1 for the others."""


def shares(data: DataSet) -> dict[str, float]:
    """Shares of the budget by hand: little for features of few values."""
    little = _chosen(LITTLE, data, 0.1)
    return dict.fromkeys(few_valued(data.schema), little)


def few_valued(schema: Schema) -> list[str]:
    """The features of few values, as the schema declares them."""
    sizes = {f.name: getattr(f, "codes", None) for f in schema.features}
    return [name for name, codes in sizes.items() if codes is not None and codes <= FEW]
