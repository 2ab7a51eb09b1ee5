"""Models on counts: what they learn, what they say of themselves, and that a store takes them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import log_loss
from sklearn.pipeline import Pipeline

from lab import clicks, count_models
from lab.count_models import (
    FEW,
    MODELS,
    CountModel,
    few_valued,
    kind,
    mechanism,
    models,
    network,
    shares,
    trees,
)
from pyramidion.config.schema import Categorical, Continuous, Label, Schema
from pyramidion.learn.recipes import estimator_of, recipe_of
from tests.lab.small import small

NAMES = ("logistic regression", "neural network", "boosted trees", "Vowpal Wabbit")
KINDS = (*MODELS, "others")


EVERY = [
    pytest.param(model, id=f"{name}: {model.name}")
    for name in KINDS
    for model in models(small(10, name=name))
]


def parameters(estimator: Any) -> dict[str, Any]:
    """What an estimator has, under the names that models tell."""
    scaled = isinstance(estimator, Pipeline)
    plain = estimator[-1] if scaled else estimator
    found: dict[str, Any] = plain.get_params() | {"scaled": scaled}
    if "hidden_layer_sizes" in found:
        (found["hidden"],) = found["hidden_layer_sizes"]
        found["learning_rate"] = found["learning_rate_init"]
    return found


# --- models --------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", EVERY)
def test_every_model_beats_the_class_rate(model: CountModel) -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(4_000, 5)).astype(np.float32)  # columns as log-odds are
    y = (random.random(4_000) < expit(1.5 * X[:, 0] + X[:, 1] - 1)).astype(np.int64)
    estimator = model.make(5, 0).fit(X[:3_000], y[:3_000])
    told = estimator.predict_proba(X[3_000:])[:, 1]
    rate = np.full(1_000, y[:3_000].mean())
    assert log_loss(y[3_000:], told) < 0.85 * log_loss(y[3_000:], rate)


@pytest.mark.parametrize("model", EVERY)
def test_a_model_tells_the_parameters_that_its_estimator_has(model: CountModel) -> None:
    found = parameters(model.make(3, 0))
    assert {name: found[name] for name in model.parameters} == dict(model.parameters)
    assert json.loads(json.dumps(dict(model.parameters))) == dict(model.parameters)


@pytest.mark.parametrize("model", EVERY)
def test_a_store_can_train_every_model(model: CountModel) -> None:
    made = model.make(3, 7)
    again = estimator_of(json.loads(json.dumps(recipe_of(made))))
    assert type(again) is type(made)
    ours, theirs = parameters(again), parameters(made)
    assert {name: ours[name] for name in model.parameters} == dict(model.parameters)
    assert ours.get("random_state") == theirs.get("random_state")


@pytest.mark.parametrize("model", EVERY)
def test_seeds_reach_all_estimators_that_draw(model: CountModel) -> None:
    drawn = None if model.name == "logistic regression" else 7
    assert parameters(model.make(3, 7))["random_state"] == drawn


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_data_set_has_one_model_of_each_name(name: str) -> None:
    assert tuple(model.name for model in models(small(10, name=name))) == NAMES


def test_parameters_that_are_asked_for_are_used() -> None:
    assert trees(num_leaves=3).parameters["num_leaves"] == 3
    assert trees(num_leaves=3).parameters["n_estimators"] == trees().parameters["n_estimators"]
    assert parameters(network(hidden=4, alpha=0.5, learning_rate=0.1).make(1, 0))["hidden"] == 4


def test_trees_never_fall_with_a_column() -> None:
    random = np.random.default_rng(1)
    X = random.normal(size=(3_000, 2))
    y = (random.random(3_000) < expit(X[:, 0] - X[:, 1])).astype(np.int64)
    model = trees().make(2, 0).fit(X, y)
    along = np.linspace(-3, 3, 50)
    for column in (0, 1):
        asked = np.zeros((50, 2))
        asked[:, column] = along
        assert (np.diff(model.predict_proba(asked)[:, 1]) >= 0).all()


# --- kinds of data sets --------------------------------------------------------------------------


def test_rare_clicks_are_clicks() -> None:
    assert [kind(name) for name in ("clicks-rare", "clicks", "criteo")] == [
        "clicks",
        "clicks",
        "criteo",
    ]
    assert models(small(10, name="clicks-rare")) is models(small(10, name="clicks"))


def test_each_kind_of_data_set_has_its_noise() -> None:
    found = {name: mechanism(small(10, name=name)) for name in (*MODELS, "clicks-rare", "others")}
    laplace = {name for name, noise in found.items() if noise == "laplace"}
    assert laplace == {"movielens", "movielens-people"}
    assert set(found.values()) == {"laplace", "gaussian"}


# --- shares --------------------------------------------------------------------------------------


def test_features_of_few_declared_values_get_little() -> None:
    assert shares(small(10)) == {"colour": 0.1, "size": 0.1}


def test_how_little_is_the_data_sets() -> None:
    found = {name: set(shares(small(10, name=name)).values()) for name in count_models.LITTLE}
    assert found == {name: {little} for name, little in count_models.LITTLE.items()}
    assert shares(small(10, name="clicks-rare")) == shares(small(10, name="clicks"))


def test_generated_clicks_have_little_for_what_is_public_alone() -> None:
    data = clicks.generate(1_000)
    public = [name for name, about in clicks.CATEGORIES.items() if about.values <= clicks.PUBLIC]
    assert set(shares(data)) == {*clicks.COUNTS, *public}


def test_few_is_counted_in_codes_and_open_features_are_never_few() -> None:
    sizes = {"open": Categorical("open")}
    for values in (2, FEW - 2, FEW - 1, FEW, 1_000):
        sizes[f"of {values}"] = Categorical(f"of {values}", domain=range(values))
    numbers = [Continuous("bins", edges=[0, 1]), Continuous("fine", edges=range(100))]
    label = Label("y", classes=[0, 1])
    schema = Schema(features=[*sizes.values(), *numbers], label=label)
    few = few_valued(schema)
    assert few == [name for name in schema.feature_names if (schema.codes([name]) or 999) <= FEW]
    assert few == ["of 2", f"of {FEW - 2}", "bins"]
