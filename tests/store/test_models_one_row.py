"""One row at a time: the answer of many, without what many need."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pyramidion import ObservationError, Pyramid, SchemaError, StateError
from pyramidion.errors import ExpiredError
from tests.store.stores import DAY, START, Stand
from tests.store.test_exports import store

__all__ = ["store"]

pytestmark = pytest.mark.usefixtures("trainer")

ROW = {"a": "3", "b": "y"}
MODELS = [
    LogisticRegression(),
    make_pipeline(StandardScaler(), LogisticRegression()),
    GaussianNB(),
]


@pytest.mark.parametrize("estimator", MODELS, ids=str)
def test_a_row_as_a_dict_is_answered_as_among_many(store: Pyramid, estimator: Any) -> None:
    model = store.register("model", estimator, label="mood")
    many = store.predict_proba("model", {name: [value] * 2 for name, value in ROW.items()})
    one = store.predict_proba("model", ROW)
    assert one.shape == (1, 4)
    assert one.guarantee.level == "P1"
    np.testing.assert_allclose(one[0], many[1], atol=1e-4)  # in 32 bits
    assert store.predict("model", ROW).tolist() == [model.classes[int(one.argmax())]]


@pytest.mark.parametrize("estimator", MODELS, ids=str)
def test_one_row_of_features_is_answered_as_the_row_is(store: Pyramid, estimator: Any) -> None:
    model, snapshot = store.register("model", estimator, label="bit"), store.snapshot()
    features = snapshot.featurize_one(ROW)
    found = model.proba_one(features)
    assert np.array_equal(found, model.predict_proba(snapshot, ROW)[0])
    assert found.sum() == pytest.approx(1, abs=1e-4)  # in 32 bits


@pytest.mark.parametrize("only", [None, ["b"]])
@pytest.mark.parametrize("estimator", MODELS, ids=str)
def test_one_row_is_answered_as_its_features_are(store: Pyramid, estimator: Any, only: Any) -> None:
    model, snapshot = store.register("m", estimator, label="bit", only=only), store.snapshot()
    wanted = model.proba_one(snapshot.featurize_one(ROW), snapshot)
    for row in (ROW, {"b": "y", "a": 3, "other": [1]}):
        assert np.array_equal(model.proba_one(snapshot.featurize_one(row), snapshot), wanted)
    assert np.array_equal(model.predict_proba(snapshot, ROW)[0], wanted)
    with pytest.raises(ObservationError):
        snapshot.featurize_one({"a": "3"})
    snapshot.expire("it is over")
    with pytest.raises(ExpiredError):
        snapshot.featurize_one(ROW)


def test_with_the_snapshot_a_model_picks_its_own_features(store: Pyramid) -> None:
    model = store.register("model", LogisticRegression(), label="bit", only=["b"])
    snapshot = store.snapshot()
    found = model.proba_one(snapshot.featurize_one(ROW), snapshot)
    assert np.array_equal(found, model.predict_proba(snapshot, ROW)[0])
    with pytest.raises(StateError, match=r"takes .* features; give them as the snapshot has them"):
        model.proba_one(snapshot.featurize_one(ROW))


def test_one_row_of_a_number_has_no_probabilities(store: Pyramid) -> None:
    model = store.register("model", Ridge(), label="size")
    with pytest.raises(SchemaError, match="predicts a number"):
        model.proba_one(np.zeros(3))
    assert store.predict("model", ROW).shape == (1,)


def test_features_that_are_no_numbers_are_refused(store: Pyramid) -> None:
    model = store.register("model", LogisticRegression(), label="bit")
    names = len(store.snapshot().names)
    with pytest.raises(StateError, match="finds no number for these features"):
        model.proba_one(np.full(names, np.nan, dtype=np.float32))


def test_what_is_quick_goes_with_what_was_learned(stand: Stand, store: Pyramid) -> None:
    model = store.register("model", LogisticRegression(), label="bit")
    features = store.snapshot().featurize_one(ROW)
    assert model.fitted is not None
    assert model.fitted.quick is not None
    stand.clock.now = START + 13 * DAY
    assert store.advance().steps == 1
    assert model.fitted.quick is None
    with pytest.raises(StateError, match="is unavailable"):
        model.proba_one(features)
