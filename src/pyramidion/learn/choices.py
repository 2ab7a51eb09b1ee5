"""Estimators to begin with, and what each is for. Any other of their packages will do as well."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, NamedTuple


class Choice(NamedTuple):
    """An estimator that is worth a try on count features."""

    estimator: str
    params: dict[str, Any]
    predicts: str
    """Probabilities of classes, or expected numbers."""
    about: str
    needs: str = "sklearn"
    """The package that it comes from."""

    @property
    def installed(self) -> bool:
        """Whether it can be made here."""
        return find_spec(self.needs) is not None

    def to_dict(self) -> dict[str, object]:
        """Plain values."""
        told = {"estimator": self.estimator, "params": self.params, "predicts": self.predicts}
        return told | {"about": self.about, "installed": self.installed}


CHOICES = (
    Choice(
        "LogisticRegression",
        {},
        "probabilities",
        "The one to begin with: a weight for each table. Trained in a moment, answers in "
        "microseconds, and count features are nearly additive.",
    ),
    Choice(
        "LGBMClassifier",
        {"n_estimators": 50},
        "probabilities",
        "Boosted trees: find which features matter together. Want thousands of hot rows.",
        "lightgbm",
    ),
    Choice(
        "HistGradientBoostingClassifier",
        {},
        "probabilities",
        "Boosted trees as well, without another package.",
    ),
    Choice(
        "RandomForestClassifier",
        {"min_samples_leaf": 5},
        "probabilities",
        "Many trees, averaged: hard to misuse, slower to answer and larger in memory.",
    ),
    Choice(
        "SGDClassifier",
        {"loss": "log_loss"},
        "probabilities",
        "A linear model that goes on learning from each batch, between two trainings.",
    ),
    Choice(
        "VowpalClassifier",
        {},
        "probabilities",
        "A linear model, or a small network with hidden=10, that goes on learning as well.",
        "vowpalwabbit",
    ),
    Choice(
        "DummyClassifier",
        {},
        "probabilities",
        "The label's rates and nothing else: what every other model has to beat.",
    ),
    Choice(
        "Ridge",
        {},
        "numbers",
        "For a label of numbers: a linear model of its expected value.",
    ),
    Choice(
        "LGBMRegressor",
        {"n_estimators": 50},
        "numbers",
        "For a label of numbers: boosted trees. Want thousands of hot rows.",
        "lightgbm",
    ),
    Choice(
        "VowpalRegressor",
        {},
        "numbers",
        "For a label of numbers: a linear model that goes on learning from each batch.",
        "vowpalwabbit",
    ),
)
"""The simplest first."""
