"""The loss of a model on the newest hot rows, beside its prior's; by hand as well."""

from __future__ import annotations

import gc
import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier, SGDClassifier
from sklearn.naive_bayes import GaussianNB

from pyramidion import Loss, Pyramid, SchemaError, StateError
from tests.store import inspect
from tests.store.stores import DAY, SECOND, START, Stand, observed
from tests.store.teaching import SHARED
from tests.store.test_learning_curve import SCHEMA, error_rate, log_loss, rows, squared

pytestmark = pytest.mark.usefixtures("trainer")


@pytest.fixture
def store(stand: Stand) -> Pyramid:
    made = stand.create(SCHEMA, hot_window="4d")
    for day in (5, 9, 10, 11):
        stand.clock.now = START + day * DAY
        made.advance()
        observed(made, rows(day))
    assert made.status().hot_rows == 300
    return made


def split(store: Pyramid, label: str) -> tuple[Any, Any, Any, Any]:
    """The older hot rows and the newest fifth."""
    training = store.training_set(label)
    X, y = np.array(training.X), training.y
    return X[:240], y[:240], X[240:], y[240:]


def prior_log_loss(before: Any, y: Any) -> float:
    counts = Counter(before.tolist())
    return -sum(math.log(counts[each] / len(before)) for each in y.tolist()) / len(y)


def prior_errors(before: Any, y: Any) -> float:
    ((likeliest, _),) = Counter(before.tolist()).most_common(1)
    return sum(each != likeliest for each in y.tolist()) / len(y)


def prior_squares(before: Any, y: Any) -> float:
    mean = sum(before.tolist()) / len(before)
    return sum((each - mean) ** 2 for each in y.tolist()) / len(y)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "label", "kind", "loss", "prior"),
    [
        (LogisticRegression(), "mood", "log loss", log_loss, prior_log_loss),
        (GaussianNB(), "stars", "log loss", log_loss, prior_log_loss),
        (RidgeClassifier(), "mood", "error rate", error_rate, prior_errors),
        (Ridge(), "stars", "squared loss", squared, prior_squares),
    ],
    ids=lambda each: type(each).__name__ if hasattr(each, "fit") else "",
)
def test_a_loss_is_what_one_measures_by_hand(
    store: Pyramid, estimator: Any, label: str, kind: str, loss: Any, prior: Any
) -> None:
    store.register("model", estimator, label=label)
    found = store.models.loss("model")
    X, y, newest, truth = split(store, label)
    assert (found.kind, found.tested, found.at) == (kind, 60, int((START + 11 * DAY) * SECOND))
    assert found.model == pytest.approx(loss(clone(estimator).fit(X, y), newest, truth), rel=1e-6)
    assert found.prior == pytest.approx(prior(y, truth), rel=1e-9)
    assert found.gain == pytest.approx(1 - found.model / found.prior)
    assert found.guarantee.level == "P1"


def test_a_loss_is_measured_once_for_each_version(store: Pyramid) -> None:
    store.register("model", GaussianNB(), label="mood")
    before, found = len(SHARED.sent), store.models.loss("model")
    once = len(SHARED.sent)
    assert store.models.loss("model") is found
    assert len(SHARED.sent) == once > before
    store.models.retrain("model")
    assert store.models.loss("model") is not found


def test_losses_of_two_models_do_not_mix(store: Pyramid) -> None:
    store.register("one", GaussianNB(), label="mood")
    store.register("two", GaussianNB(), label="stars")
    one, two = store.models.loss("one"), store.models.loss("two")
    assert one.model != two.model
    assert store.models.loss("one") is one


def test_one_that_learned_a_batch_since_is_measured_anew(store: Pyramid) -> None:
    store.register("model", SGDClassifier(loss="log_loss", random_state=0), label="mood")
    found = store.models.loss("model")
    store.observe(rows(11))
    assert store.models.loss("model").tested == 80 > found.tested


def left(store: Pyramid) -> int:
    """How many losses are in memory."""
    gc.collect()
    held = [each for each in gc.get_objects() if type(each) is Loss]
    assert len(held) >= len(inspect.parts(store).measures._losses)
    return len(held)


@pytest.mark.slow
def test_the_store_forgets_a_loss_when_its_rows_leave(stand: Stand, store: Pyramid) -> None:
    before = left(store)
    store.register("model", GaussianNB(), label="mood")
    store.models.loss("model")
    assert left(store) == before + 1
    stand.clock.now = START + 13 * DAY
    assert store.advance().steps == 1
    assert left(store) == before


@pytest.mark.slow
def test_the_store_forgets_a_loss_when_it_is_closed(store: Pyramid) -> None:
    before = left(store)
    store.register("model", GaussianNB(), label="mood")
    store.models.loss("model")
    store.close()
    assert left(store) == before


@pytest.mark.slow
def test_the_store_forgets_a_loss_when_a_feature_of_its_rows_is_withdrawn(store: Pyramid) -> None:
    before = left(store)
    store.register("model", GaussianNB(), label="mood")
    store.models.loss("model")
    store.groups.withdraw("a", why="regulation")
    assert left(store) == before


def test_few_rows_have_no_loss(stand: Stand) -> None:
    store = stand.create(SCHEMA, hot_window="4d")
    for day in (5, 11):
        stand.clock.now = START + day * DAY
        store.advance()
        observed(store, rows(day, 49))
    store.register("model", GaussianNB(), label="mood")
    with pytest.raises(StateError, match="a loss needs 50 hot rows and there are 49; observe more"):
        store.models.loss("model")


def test_a_model_that_cannot_be_trained_has_no_loss_and_no_row_is_quoted(stand: Stand) -> None:
    store = stand.create(SCHEMA, hot_window="4d")
    stand.clock.now = START + 5 * DAY
    observed(store, rows(5))
    stand.clock.now = START + 11 * DAY
    store.advance()
    same = rows(11).set_column(1, "mood", pa.array(["sad"] * 99 + ["glad"]))
    observed(store, same)
    store.register("model", LogisticRegression(), label="mood")
    with pytest.raises(StateError, match=r"no loss of model 'model': it failed with ValueError$"):
        store.models.loss("model")


def test_there_is_no_loss_of_a_model_that_is_not_there(store: Pyramid) -> None:
    with pytest.raises(SchemaError, match="there is no model 'model'"):
        store.models.loss("model")
