"""Learning curves: the loss of a model against the hot rows it learns from, by hand as well."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from pyramidion import Categorical, Label, Pyramid, Schema, SchemaError, StateError
from pyramidion.counts.guarantee import Guarantee
from pyramidion.learn.curves import LearningCurve
from tests.learn.parrots import Parrot
from tests.store.stores import DAY, START, Stand, observed

pytestmark = pytest.mark.usefixtures("trainer")

SCHEMA = Schema(
    time="t",
    label=[Label("mood", classes=["sad", "glad", "dead"]), Label("stars", classes=[3, 1, 2])],
    features=[Categorical("a"), Categorical("b", domain=["x", "y"])],
)
SIZES = [20, 60, 160]


def rows(day: float, size: int = 100) -> pa.Table:
    random = np.random.default_rng(int(day * 10))
    a = random.integers(0, 8, size)
    glad = random.random(size) < np.where(a % 2, 0.8, 0.3)
    return pa.table(
        {
            "t": np.full(size, START + day * DAY),
            "mood": np.where(glad, "glad", "sad"),
            "stars": 1 + glad + (random.random(size) < 0.2),
            "a": a.astype(str),
            "b": random.choice(["x", "y"], size),
        }
    )


@pytest.fixture
def store(stand: Stand) -> Pyramid:
    made = stand.create(SCHEMA, hot_window="4d")
    for day in (5, 9, 10, 11):
        stand.clock.now = START + day * DAY
        made.advance()
        observed(made, rows(day))
    assert made.status().hot_rows == 300
    return made


def twin(store: Pyramid, estimator: Any, label: str, loss: Any) -> list[float]:
    """The same by hand: fit on the rows just before the newest fifth, measure on that."""
    training = store.training_set(label)
    X, y = np.array(training.X), training.y
    start, found = len(y) - len(y) // 5, []
    for size in SIZES:
        model = clone(estimator).fit(X[start - size : start], y[start - size : start])
        found.append(loss(model, X[start:], y[start:]))
    return found


def log_loss(model: Any, X: Any, y: Any) -> float:
    places = {each: place for place, each in enumerate(model.classes_)}
    given = model.predict_proba(X)
    return -np.mean([math.log(max(p[places[each]], 1e-15)) for p, each in zip(given, y)])  # noqa: B905


def error_rate(model: Any, X: Any, y: Any) -> float:
    return sum(one != other for one, other in zip(model.predict(X), y, strict=True)) / len(y)


def squared(model: Any, X: Any, y: Any) -> float:
    return sum((one - other) ** 2 for one, other in zip(model.predict(X), y, strict=True)) / len(y)


@pytest.mark.parametrize(
    ("estimator", "label", "kind", "loss"),
    [
        (LogisticRegression(), "mood", "log loss", log_loss),
        (DecisionTreeClassifier(min_samples_leaf=5, random_state=0), "mood", "log loss", log_loss),
        (GaussianNB(), "stars", "log loss", log_loss),
        (RidgeClassifier(), "mood", "error rate", error_rate),
        (Ridge(), "stars", "squared loss", squared),
        (DecisionTreeRegressor(max_depth=3, random_state=0), "stars", "squared loss", squared),
    ],
    ids=lambda each: type(each).__name__ if hasattr(each, "fit") else "",
)
def test_losses_are_those_that_one_measures_by_hand(
    store: Pyramid, estimator: Any, label: str, kind: str, loss: Any
) -> None:
    store.register("model", estimator, label=label)
    curve = store.models.learning_curve("model", sizes=SIZES[::-1])
    assert (curve.loss, curve.sizes, curve.tested) == (kind, SIZES, 60)
    np.testing.assert_allclose(curve.losses, twin(store, estimator, label, loss), rtol=1e-6)
    assert list(curve) == list(zip(curve.sizes, curve.losses, strict=True))
    assert curve.guarantee.level == "P1"


def test_by_default_sizes_double_up_to_all_but_the_newest_fifth(store: Pyramid) -> None:
    store.register("model", GaussianNB(), label="mood")
    curve = store.models.learning_curve("model", within=0.5)
    assert (curve.sizes, curve.within) == ([50, 100, 240], 0.5)


def test_sizes_too_small_to_learn_from_do_not_spoil_the_others(stand: Stand) -> None:
    label, a = Label("y", classes=[0, 1]), Categorical("a")
    store = stand.create(Schema(label=label, features=[a]), hot_window="4d")
    for day in (5, 11):
        stand.clock.now = START + day * DAY
        store.advance()
        rare = (np.arange(300) % 60 == 0).astype(int)
        observed(store, pa.table({"y": rare, "a": (np.arange(300) % 5).astype(str)}))
    store.register("model", LogisticRegression())
    curve = store.models.learning_curve("model", sizes=[30, 120, 240])
    assert curve.losses[0] == math.inf
    assert max(curve.losses[1:]) < 1.0
    assert curve.smallest > 30
    with pytest.raises(StateError, match="no learning curve of model 'model': it failed with"):
        store.models.learning_curve("model", sizes=[30])


def curve(losses: list[float], within: float) -> LearningCurve:
    promise = Guarantee(level="P1", epsilon=math.inf, delta=1.0, k=1, windows=1)
    sizes = [10 * 2**place for place in range(len(losses))]
    return LearningCurve(sizes, losses, loss="log loss", tested=9, within=within, guarantee=promise)


@pytest.mark.parametrize(
    ("losses", "within", "smallest"),
    [
        ([1.2, 1.06, 1.05, 1.0], 0.05, 40),
        ([1.2, 1.06, 1.05, 1.0], 0.06, 20),
        ([1.2, 1.06, 1.05, 1.0], 0.0, 80),
        ([1.2, 1.0, 1.3, 1.0], 0.0, 20),
        ([math.inf, 2.0, 1.0, 1.5], 0.5, 40),
        ([0.0, 0.0, 0.1], 0.05, 10),
        ([1.0], 0.0, 10),
    ],
)
def test_the_smallest_is_the_first_within_the_bound_of_the_best(
    losses: list[float], within: float, smallest: int
) -> None:
    assert curve(losses, within).smallest == smallest


def test_what_it_cannot_do_it_says(stand: Stand, store: Pyramid, tmp_path: Path) -> None:
    store.register("model", GaussianNB(), label="mood")
    for given, kind, why in (
        ({"within": -0.1}, SchemaError, "`within` must be at least 0, not -0.1"),
        ({"within": math.nan}, SchemaError, "`within`"),
        ({"sizes": []}, SchemaError, "the learning curve has no sizes"),
        ({"sizes": [241]}, SchemaError, "a size of the curve is out of range; .*from 1 to 240"),
        ({"sizes": [0]}, SchemaError, "a size of the curve"),
        ({"sizes": [2.5]}, SchemaError, "a size of the curve"),
    ):
        with pytest.raises(kind, match=why):
            store.models.learning_curve("model", **given)
    with pytest.raises(SchemaError, match="there is no model 'mode'; did you mean 'model'"):
        store.models.learning_curve("mode")
    stand.clock.now = START + 13.5 * DAY  # two thirds leave
    store.advance()
    with pytest.raises(StateError, match="needs 250 hot rows and there are 200; observe more"):
        store.models.learning_curve("model")
    stand.clock.now = START + 20 * DAY
    store.advance()
    with pytest.raises(StateError, match="the hot window is empty"):
        store.models.learning_curve("model")


def test_it_expires_when_a_window_retires_and_not_when_one_is_sealed(stand: Stand) -> None:
    store = stand.create(SCHEMA, hot_window="40d", retention="45d")
    for day in (5, 11):
        stand.clock.now = START + day * DAY
        store.advance()
        observed(store, rows(day, 200))
    store.register("model", GaussianNB(), label="mood")
    found = store.models.learning_curve("model")
    stand.clock.now = START + 20.5 * DAY
    assert store.advance().sealed
    assert found.smallest in found.sizes  # its rows are as hot as they were
    stand.clock.now = START + 45 * DAY  # the first window is past, and the rows of day five
    assert store.advance().retired == [1]
    with pytest.raises(StateError, match=r"this learning curve has expired: hot rows .* leave"):
        found.losses  # noqa: B018
    assert found._losses == []


def test_of_an_error_only_the_kind_is_told(stand: Stand, store: Pyramid, tmp_path: Path) -> None:
    (tmp_path / "note").write_text("")
    store.register("parrot", Parrot(str(tmp_path / "note")), label="stars")
    (tmp_path / "note").write_text("raise")
    with pytest.raises(StateError) as problem:
        store.models.learning_curve("parrot")
    assert str(problem.value) == "no learning curve of model 'parrot': it failed with ValueError"
