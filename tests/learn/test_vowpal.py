from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, r2_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from pyramidion import SchemaError
from pyramidion.learn import vowpal_network, vowpal_rows
from pyramidion.learn.vowpal import VowpalClassifier, VowpalRegressor
from tests.learn.lessons import crossed, linear, shifted, three

pytest.importorskip("pylibvw")


@parametrize_with_checks(
    [VowpalClassifier(), VowpalRegressor(hidden=2)],
    expected_failed_checks=lambda _: {
        "check_sample_weight_equivalence_on_dense_data": "a row of weight 2 is learnt at once, "
        "the same row twice is learnt in two places of a shuffled order"
    },
)
def test_scikit_learns_checks_pass(estimator: Any, check: Any) -> None:
    check(estimator)


# --- what is learnt ---------------------------------------------------------------------


def test_it_learns_a_planted_linear_model_about_as_well_as_logistic_regression() -> None:
    (X, y), (T, t) = linear(), linear(4_000, seed=1)
    peer = log_loss(t, LogisticRegression(C=1e3).fit(X, y).predict_proba(T))
    loss = log_loss(t, VowpalClassifier(random_state=0).fit(X, y).predict_proba(T))
    assert loss < 1.01 * peer


def test_a_hidden_layer_learns_what_no_linear_model_can() -> None:
    (X, y), (T, t) = crossed(), crossed(seed=1)
    network = VowpalClassifier(hidden=10, learning_rate=0.2, random_state=0).fit(X, y)
    assert network.score(T, t) > 0.85
    assert VowpalClassifier(random_state=0).fit(X, y).score(T, t) < 0.65


def test_rows_sorted_by_label_teach_as_well_as_any_order() -> None:
    (X, y), (T, t) = linear(), linear(4_000, seed=1)
    model = VowpalClassifier(passes=1, learning_rate=0.5, random_state=0)
    loss = log_loss(t, model.fit(X, y).predict_proba(T))
    order = np.argsort(y, kind="stable")
    assert log_loss(t, model.fit(X[order], y[order]).predict_proba(T)) < 1.05 * loss


def test_probabilities_of_several_classes_sum_to_one_and_are_calibrated() -> None:
    (X, y), (T, t) = three(), three(seed=1)
    model = VowpalClassifier(random_state=0).fit(X, y)
    chances = model.predict_proba(T)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert list(model.classes_) == ["early", "late", "never"]
    for place, name in enumerate(model.classes_):
        for part in np.array_split(np.argsort(chances[:, place]), 4):
            assert chances[part, place].mean() == pytest.approx((t[part] == name).mean(), abs=0.07)


def test_a_network_tells_several_classes_apart() -> None:
    X, y = crossed()
    corners = np.where(y, np.where(X[:, 0] > 0, "north", "south"), "else")
    model = VowpalClassifier(hidden=10, learning_rate=0.2, random_state=0).fit(X, corners)
    assert model.score(X, corners) > 0.85


@pytest.mark.parametrize("hidden", [0, 5])
def test_a_regressor_learns_numbers_of_any_size(hidden: int) -> None:
    X, _ = three()
    model = VowpalRegressor(hidden=hidden, learning_rate=0.2, random_state=0).fit(X, shifted(X))
    T, _ = three(seed=1)
    assert r2_score(shifted(T), model.predict(T)) > 0.97


def test_a_regressor_predicts_nothing_beyond_the_labels_it_saw() -> None:
    X, _ = three()
    model = VowpalRegressor(random_state=0).fit(X, shifted(X))
    low, high = shifted(X).min(), shifted(X).max()
    np.testing.assert_allclose(model.predict([[-99, 0, 0], [99, 0, 0]]), [low, high])
    model.partial_fit(X[:1], [high + 50]).partial_fit(X[:1], [high])
    assert model.predict([[99, 0, 0]])[0] == pytest.approx(high + 50)


def test_before_it_knows_more_it_says_how_frequent_a_class_is() -> None:
    X, y = np.zeros((300, 2)), np.arange(300) % 3 == 0
    model = VowpalClassifier().partial_fit(X, y)
    assert model.predict_proba(X[:1])[0, 1] == pytest.approx(1 / 3, abs=0.03)


@pytest.mark.parametrize("labels", [("no", "yes"), (3, 7), (False, True), (1.0, 2.0)])
def test_labels_are_of_any_type(labels: tuple[Any, Any]) -> None:
    X, y = linear()
    named = np.array(labels)[y.astype(int)]
    model = VowpalClassifier(random_state=0).fit(X, named)
    assert model.classes_.tolist() == list(labels)
    assert (model.predict(X) == named).mean() > 0.7


def test_a_row_of_weight_0_is_no_row() -> None:
    X, y = linear()
    weights = (np.arange(len(X)) % 2).astype(float)
    model = VowpalClassifier(random_state=0).fit(X, y, sample_weight=weights)
    half = VowpalClassifier(random_state=0).fit(X[1::2], y[1::2], sample_weight=np.ones(750))
    np.testing.assert_array_equal(model.predict_proba(X), half.predict_proba(X))


def test_weights_shift_probabilities_to_the_weighted_frequency() -> None:
    X, y = linear()
    weights = np.where(y, 3.0, 1.0)
    model = VowpalClassifier(random_state=0).fit(X, y, sample_weight=weights)
    chance = np.average(model.predict_proba(X)[:, 1], weights=weights)
    assert chance == pytest.approx(np.average(y, weights=weights), abs=0.02)


def test_weights_of_0_for_all_rows_are_refused() -> None:
    X, y = linear(10)
    with pytest.raises(ValueError, match=r"(?i)sample.weight"):
        VowpalClassifier().fit(X, y, sample_weight=np.zeros(10))


# --- going on -------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [VowpalClassifier(), VowpalClassifier(hidden=4, l2=1e-6)])
def test_a_pickle_predicts_the_same_and_learns_on_the_same(model: VowpalClassifier) -> None:
    X, y = three()
    model = clone(model).set_params(random_state=0).fit(X[:2_000], y[:2_000])
    twin = pickle.loads(pickle.dumps(model))  # noqa: S301
    np.testing.assert_array_equal(twin.predict_proba(X), model.predict_proba(X))
    for one in (model, twin):
        one.partial_fit(X[2_000:], y[2_000:])
    np.testing.assert_array_equal(twin.predict_proba(X), model.predict_proba(X))


def test_a_copy_that_learns_leaves_the_original_alone() -> None:
    X, y = linear()
    model = VowpalClassifier(random_state=0).fit(X, y)
    before = model.predict_proba(X)
    twin = copy.deepcopy(model).partial_fit(X, ~y)
    np.testing.assert_array_equal(model.predict_proba(X), before)
    assert np.abs(twin.predict_proba(X) - before).max() > 0.01


def test_rows_in_two_parts_teach_what_they_teach_at_once() -> None:
    X, y = three()
    model = VowpalClassifier(hidden=3, random_state=0).partial_fit(X[:500], y[:500])
    twin = copy.deepcopy(model)
    model.partial_fit(X[500:], y[500:])
    twin.partial_fit(X[500:1_200], y[500:1_200]).partial_fit(X[1_200:], y[1_200:])
    np.testing.assert_array_equal(model.network_.weights, twin.network_.weights)


def test_rows_in_many_blocks_and_files_teach_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = linear(600)
    model = VowpalClassifier().partial_fit(X, y)
    monkeypatch.setattr(vowpal_rows, "BLOCK", 250)
    monkeypatch.setattr(vowpal_rows, "TEXT", 5_000)
    twin = VowpalClassifier().partial_fit(X, y)
    np.testing.assert_array_equal(model.network_.weights, twin.network_.weights)
    assert VowpalClassifier(random_state=0).fit(X, y).score(X, y) > 0.75


def test_scoring_in_parts_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = linear()
    model = VowpalClassifier(hidden=3, random_state=0).fit(X, y)
    before = model.predict_proba(X)
    monkeypatch.setattr(vowpal_network, "MANY", 7)
    np.testing.assert_allclose(model.predict_proba(X), before, atol=1e-6)


def test_partial_fit_adapts_to_what_changed() -> None:
    X, y = linear(6_000)
    model = VowpalClassifier(random_state=0).fit(X[:1_000], y[:1_000])
    for start in range(1_000, 6_000, 500):
        model.partial_fit(X[start : start + 500], ~y[start : start + 500])
    assert model.score(X[:1_000], y[:1_000]) < 0.4


def test_partial_fit_may_name_classes_that_come_later() -> None:
    X, y = three()
    model = VowpalClassifier().partial_fit(X[y == "early"], y[y == "early"], np.unique(y))
    for _ in range(5):
        model.partial_fit(X, y)
    assert (model.predict(X) == y).mean() > 0.6


def test_a_class_that_comes_unannounced_is_refused_and_not_named() -> None:
    X, y = linear()
    model = VowpalClassifier().partial_fit(X, np.where(y, "yes", "no"))
    with pytest.raises(SchemaError, match="not there at first") as caught:
        model.partial_fit(X[:1], ["perhaps"])
    assert "perhaps" not in str(caught.value)


def test_a_single_class_is_refused() -> None:
    with pytest.raises(SchemaError, match="only one class"):
        VowpalClassifier().fit([[1.0], [2.0]], [1, 1])


def test_fit_forgets_what_was_there() -> None:
    X, y = linear()
    model = VowpalClassifier(random_state=0).fit(X, ~y)
    twin = VowpalClassifier(random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.fit(X, y).predict_proba(X), twin.predict_proba(X))


def test_a_fit_that_fails_leaves_no_model() -> None:
    X, y = linear()
    model = VowpalClassifier().fit(X, y)
    with pytest.raises(SchemaError):
        model.fit(X, np.ones(len(X)))
    assert not hasattr(model, "network_")


def test_a_random_state_settles_everything() -> None:
    X, y = linear()
    first, again, other = (
        VowpalClassifier(hidden=3, random_state=seed).fit(X, y).predict_proba(X)
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-4


def test_threads_may_predict_at_once() -> None:
    X, y = three()
    model = VowpalClassifier(hidden=5, random_state=0).fit(X, y)
    expected = model.predict_proba(X)
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: model.predict_proba(X), range(32)):
            np.testing.assert_array_equal(found, expected)
