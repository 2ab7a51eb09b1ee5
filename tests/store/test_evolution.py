"""Workloads change, and the raw history is gone: hot rows and count tables are enough."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lightgbm import LGBMClassifier
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from pyramidion import Categorical, Label, Pyramid, Schema, SchemaError, StateError
from tests.store import inspect
from tests.store.inspect import settled
from tests.store.stores import DAY, START, Stand, observed
from tests.store.teaching import fitted

pytestmark = pytest.mark.usefixtures("trainer")

SCHEMA = Schema(
    time="t",
    label=[Label("mood", classes=["sad", "flat", "glad"]), Label("score", edges=[1.0, 2.0])],
    features=[Categorical("a", domain=list("012")), Categorical("b"), Categorical("c")],
    groups=[("a", "b"), ("b", "c")],
)
OLDEST = 2  # days: whose rows nobody has any more


def rows(day: float, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    a = random.integers(0, 3, 60)
    return pa.table(
        {
            "t": np.full(60, START + day * DAY),
            "mood": np.array(["sad", "flat", "glad"])[a],
            "score": a + 0.5,
            "a": a.astype(str),
            "b": random.integers(0, 3, 60).astype(str),
            "c": random.integers(0, 3, 60).astype(str),
        }
    )


@pytest.fixture
def store(stand: Stand) -> Pyramid:
    """A store whose tables count rows that are gone; ten times more than those that are hot."""
    made = stand.create(SCHEMA, epsilon=float("inf"), retention="90d")
    for seed, day in enumerate((OLDEST, 4, 12, 14, 22, 24, 31, 32)):
        stand.clock.now = START + day * DAY
        made.advance()
        observed(made, rows(day, seed))
    assert (made.status().hot_rows, made.status().summarised_rows) == (120, 360)
    return made


def some() -> list[dict[str, str]]:
    return [{"a": a, "b": "0", "c": "0"} for a in "012"]


def columns(store: Pyramid, name: str) -> set[str]:
    """The tables whose columns a model takes."""
    model = store.models[name]
    assert model.fitted is not None
    return set(model.fitted.tables)


def test_another_algorithm_takes_the_place_of_the_old_one(stand: Stand, store: Pyramid) -> None:
    for estimator in (
        LogisticRegression(),
        GaussianNB(),
        DecisionTreeClassifier(),
        LGBMClassifier(n_estimators=5, verbose=-1),
    ):
        store.register("mood", estimator, label="mood")
        assert type(fitted(store, "mood")) is type(estimator)
        assert store.predict("mood", some()).tolist() == ["sad", "flat", "glad"]
    store = stand.reopen()
    assert store.predict("mood", some()).tolist() == ["sad", "flat", "glad"]
    assert store.models["mood"].estimator == "LGBMClassifier(n_estimators=5)"


def test_other_hyperparameters_are_learned_with_and_kept(stand: Stand, store: Pyramid) -> None:
    weak = store.register("mood", LogisticRegression(C=1e-9), label="mood")
    flat = store.predict_proba("mood", some())
    np.testing.assert_allclose(flat, flat[:1].repeat(3, axis=0), atol=1e-3)
    assert weak.estimator == "LogisticRegression(C=1e-09)"
    store.register("mood", LogisticRegression(C=100.0), label="mood")
    assert store.predict_proba("mood", some()).max() > 0.9
    store = stand.reopen()
    assert store.predict_proba("mood", some()).max() > 0.9
    assert fitted(store, "mood").C == 100.0


@pytest.mark.parametrize(
    ("given", "tables"),
    [
        ({}, {"a", "b", "c", "a,b", "b,c"}),
        ({"without": ["a"]}, {"b", "c", "b,c"}),
        ({"without": ["c", ("a", "b")]}, {"a", "b"}),
        ({"only": ["a", ("a", "b")]}, {"a", "a,b"}),
        ({"only": [("b", "c")]}, {"b,c"}),
    ],
)
def test_features_and_groups_are_left_out(
    stand: Stand, store: Pyramid, given: dict[str, Any], tables: set[str]
) -> None:
    store.register("mood", SGDClassifier(loss="log_loss", random_state=1), label="mood", **given)
    training = store.training_set("mood", **given)
    assert columns(store, "mood") == tables
    twin = SGDClassifier(loss="log_loss", random_state=1).fit(np.array(training.X), training.y)
    np.testing.assert_allclose(fitted(store, "mood").coef_, twin.coef_)
    observed(store, rows(32, 99))  # learned online, by the same columns
    assert store.models["mood"].rows == 180
    store = stand.reopen()
    assert len(store.predict_proba("mood", some())) == 3
    assert columns(store, "mood") == tables


def test_without_the_feature_that_tells_it_a_model_cannot_know(store: Pyramid) -> None:
    tree = DecisionTreeClassifier(max_depth=2)
    store.register("mood", tree, label="mood")
    assert store.predict_proba("mood", some()).max(axis=1).tolist() == [1.0, 1.0, 1.0]
    store.register("mood", tree, label="mood", without=["a"])
    found = store.predict_proba("mood", some())
    assert np.array_equal(found[0], found[1])
    assert found.max() < 0.8


def test_classes_are_merged_into_coarser_ones(stand: Stand, store: Pyramid) -> None:
    merge = {"up": ["flat", "glad"]}
    model = store.register("mood", LogisticRegression(), label="mood", merge=merge)
    assert model.classes == ("sad", "up")
    assert store.predict("mood", some()).tolist() == ["sad", "up", "up"]
    found = store.predict_proba("mood", some())
    assert found.shape == (3, 2)
    assert found.argmax(axis=1).tolist() == [0, 1, 1]
    store = stand.reopen()
    assert np.array_equal(store.predict_proba("mood", some()), found)
    assert set(store.training_set("mood", merge=merge).y) == {"sad", "up"}


def test_a_number_becomes_classes(stand: Stand, store: Pyramid) -> None:
    low, middle, high = store.schema.labels[1].class_names
    store.register("score", DecisionTreeRegressor(), label="score")
    np.testing.assert_allclose(store.predict("score", some()), [0.5, 1.5, 2.5])
    merge = {"low": [low], "high": [middle, high]}
    with pytest.raises(SchemaError, match="merges classes, and Ridge predicts numbers"):
        store.register("score", Ridge(), label="score", merge=merge)
    store.register("score", DecisionTreeClassifier(), label="score", merge=merge)
    store = stand.reopen()
    assert store.predict("score", some()).tolist() == ["low", "high", "high"]


def test_a_group_that_was_added_is_learned_from_when_a_window_has_it(
    stand: Stand, store: Pyramid
) -> None:
    store.groups.add(("a", "c"))
    model = store.register("mood", LogisticRegression(), label="mood", only=[("a", "c")])
    assert not model.available
    assert model.why.startswith("no sealed window has a table that it uses")
    with pytest.raises(StateError, match="unavailable: no sealed window"):
        store.predict("mood", some())
    for seed, day in enumerate((42, 51)):
        stand.clock.now = START + day * DAY
        store.advance()
        observed(store, rows(day, seed))
    assert columns(store, "mood") == {"a,c"}
    assert len(store.predict("mood", some())) == 3


# --- what is withdrawn ------------------------------------------------


def test_a_feature_that_is_withdrawn_leaves_the_workloads_that_named_it(
    stand: Stand, store: Pyramid
) -> None:
    tree = DecisionTreeClassifier(max_depth=2)
    store.register("all", tree, label="mood")
    store.register("some", tree, label="mood", only=["a", "b", ("b", "c")])
    store.register("none", tree, label="mood", only=["b", ("a", "b")])
    store.register("other", tree, label="mood", without=["b"])
    store.groups.withdraw("b", why="a test")
    settled(store)
    store.advance()
    for _ in range(2):
        assert len(store.predict("all", some())) == 3
        assert columns(store, "all") == columns(store, "other") == {"a", "c"}
        assert columns(store, "some") == {"a"}
        assert not store.models["none"].available
        with pytest.raises(StateError, match="'none' is unavailable: no sealed window has"):
            store.predict("none", some())
        with pytest.raises(StateError, match="no learning curve of model 'none': no sealed"):
            store.models.learning_curve("none")
        store = stand.reopen()
    store.register("none", tree, label="mood")
    assert store.models["none"].available


def test_columns_that_change_their_name_with_a_withdrawal_are_not_mistaken(stand: Stand) -> None:
    """The columns of feature 'a*b' and of the group of a and b have the same name, but one."""
    schema = Schema(
        time="t",
        label=Label("y", classes=[0, 1]),
        features=[Categorical("a*b"), Categorical("a"), Categorical("b")],
        groups=[("a", "b")],
    )
    store = stand.create(schema, hot_window="6d")
    for day in (2, 9, 11):
        stand.clock.now = START + day * DAY
        store.advance()
        table = {"t": [stand.clock.now] * 4, "y": [0, 1, 0, 1], "a*b": list("xyzw")}
        observed(store, pa.table(table | {"a": list("xyxy"), "b": list("xxyy")}))
    store.register("one", DecisionTreeClassifier(), only=["a*b"])
    held = store.register("other", DecisionTreeClassifier(), only=[("a", "b")])
    one = store.models["one"]
    inspect.parts(store).training.asleep += 1  # so that none is trained again
    store.groups.withdraw("a*b", why="a test")
    assert not one.available
    assert not store.models["one"].available
    assert store.models["one"].why == "a feature or group that it used was withdrawn"
    assert held.available
    with pytest.raises(StateError, match="features of this model were withdrawn; ask again"):
        store.predict("other", [{"a": "x", "b": "x"}])
    inspect.parts(store).training.asleep -= 1
    store.advance()
    assert len(store.predict("other", [{"a": "x", "b": "x"}])) == 1


def test_a_store_that_was_tampered_with_imports_nothing_and_opens(
    stand: Stand, store: Pyramid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "canary_module.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass X: 0")
    monkeypatch.syspath_prepend(tmp_path)
    store.register("mood", LogisticRegression(), label="mood")
    workload = store.models["mood"].workload.to_dict()
    told = {"estimator": {"class": "canary_module.X", "params": {}}, "workload": workload}
    with inspect.catalogue(store).transaction():
        run = inspect.catalogue(store).run
        run("INSERT OR REPLACE INTO models VALUES ('evil', ?)", json.dumps(told))
    store = stand.reopen()
    assert len(store.predict("mood", some())) == 3
    with pytest.raises(StateError, match="X could not be trained: it failed with SchemaError"):
        store.predict("evil", some())
    assert not (tmp_path / "ran").exists()
    store.models.unregister("evil")
    assert list(stand.reopen().models) == ["mood"]
