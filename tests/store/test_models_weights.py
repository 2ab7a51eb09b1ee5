"""Models of a store whose rows have propensities learn them with 1/p, as one does by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import log_loss
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pyramidion import Pyramid, Schema
from tests.store.stores import DAY, SCHEMA, START, Stand, observed, rows
from tests.store.teaching import fitted

pytestmark = pytest.mark.usefixtures("trainer")

SHOWN = Schema(time="t", label=SCHEMA.label, features=SCHEMA.features, weight="p")


def shown(number: int, when: float, seed: int) -> pa.Table:
    """Rows that were shown with one probability or another."""
    odds = np.random.default_rng(seed).choice([1.0, 0.5, 0.1], number)
    return rows(number, when, seed=seed).append_column("p", pa.array(odds))


@pytest.fixture
def store(stand: Stand) -> Pyramid:
    """A store of 260 hot rows."""
    made = stand.create(SHOWN, hot_window="6d", p_min=0.1)
    for day in (1, 9, 10):
        stand.clock.now = START + day * DAY
        made.advance()
        observed(made, shown(130, stand.clock.now, seed=day))
    assert made.status().hot_rows == 260
    assert set(made.training_set().weights) == {1.0, 2.0, 10.0}
    return made


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(),
        GaussianNB(),
        make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), LogisticRegression())),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_rows_are_learned_with_their_weights(store: Pyramid, estimator: Any) -> None:
    training = store.training_set()
    X, y = np.array(training.X), training.y
    store.register("model", estimator)
    found = fitted(store, "model").predict_proba(X)
    nested = "pipeline__logisticregression__sample_weight"
    name = nested if hasattr(estimator, "steps") else "sample_weight"
    twin = clone(estimator).fit(X, y, **{name: training.weights})
    np.testing.assert_allclose(found, twin.predict_proba(X), rtol=1e-9)
    assert not np.allclose(found, clone(estimator).fit(X, y).predict_proba(X))


def test_who_takes_no_weights_learns_all_rows_alike(store: Pyramid) -> None:
    X, y = map(np.array, store.training_set())
    store.register("model", KNeighborsClassifier())
    twin = KNeighborsClassifier().fit(X, y)
    np.testing.assert_array_equal(fitted(store, "model").predict_proba(X), twin.predict_proba(X))


def test_new_rows_are_learned_with_their_weights(stand: Stand, store: Pyramid) -> None:
    training, estimator = store.training_set(), SGDClassifier(loss="log_loss", random_state=3)
    twin = clone(estimator).fit(np.array(training.X), training.y, sample_weight=training.weights)
    store.register("model", estimator)
    more = shown(40, stand.clock.now, seed=99)
    observed(store, more)
    X = np.array(store.snapshot().array(more.drop_columns(["p"])))
    twin.partial_fit(X, more["y"].to_numpy(), sample_weight=1 / more["p"].to_numpy())
    np.testing.assert_allclose(fitted(store, "model").coef_, twin.coef_, rtol=1e-9)


def test_losses_are_measured_with_weights(store: Pyramid) -> None:
    training = store.training_set()
    X, y, weights = np.array(training.X), training.y, training.weights
    old, new = slice(208), slice(208, None)
    twin = LogisticRegression().fit(X[old], y[old], sample_weight=weights[old])
    store.register("model", LogisticRegression())
    found = store.models.loss("model")
    own = log_loss(y[new], twin.predict_proba(X[new]), sample_weight=weights[new])
    rate = np.average(y[old], weights=weights[old])
    prior = log_loss(y[new], np.full(52, rate), sample_weight=weights[new])
    assert found.model == pytest.approx(own)
    assert found.prior == pytest.approx(prior)
    (last,) = store.models.learning_curve("model", sizes=[208]).losses
    assert last == pytest.approx(own)
