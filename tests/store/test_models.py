"""Registered models: what they learn from, what they answer, and that nothing learned is kept."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from lightgbm import LGBMClassifier
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from pyramidion import Categorical, Label, Pyramid, Schema, SchemaError, StateError
from pyramidion.learn import reduced as reduced_tables
from tests.store import inspect
from tests.store.archive import Archive, watched
from tests.store.stores import DAY, START, Stand, cells, exact, observed
from tests.store.teaching import (
    Parrot,
    days_of,
    fitted,
    go_on,
    lived,
    marked,
    stepped,
)

pytestmark = pytest.mark.usefixtures("trainer")


def ready(stand: Stand, schema: Schema, table: Callable[[int], pa.Table], **given: Any) -> Pyramid:
    """A store with a sealed window, of which some rows are hot, and hot rows after it."""
    store = stand.create(schema, **{"hot_window": "6d"} | given)
    for day in (2, 9, 11):
        stand.clock.now = START + day * DAY
        store.advance()
        at = pa.array(np.full(table(day).num_rows, stand.clock.now))
        observed(store, table(day).append_column("t", at))
    return store


# --- what they learn from ------------------------------------------------


def test_at_a_step_only_rows_that_stay_are_sent_by_tables_less_exactly_these(
    stand: Stand, monkeypatch: Any
) -> None:
    store = lived(stand, (6, 7, 8, 9), hot_window="4d")
    go_on(stand, store, 10)
    go_on(stand, store, 11)
    assert store.status().hot_rows == 24
    store.register("parrot", Parrot())
    assert days_of(fitted(store, "parrot").y_) == [8, 9, 10, 11]
    reduced: list[Any] = []
    without = inspect.parts(store).serving.reduced

    def spy(*given: Any) -> Any:
        reduced.append(without(*given)._all)
        return without(*given)

    monkeypatch.setattr(reduced_tables, "LARGEST", 1)  # all of them at once
    monkeypatch.setattr(inspect.parts(store).serving, "reduced", spy)
    stepped(stand, store)  # day 8 leaves, and stays counted
    parrot = fitted(store, "parrot")
    assert parrot.y_.tolist() == [y for d in (9, 10, 11) for y in marked(d)["y"].to_pylist()]
    complete, raw = inspect.served(store), reduced[0]._arena
    gone = exact(store, complete, [marked(9)])  # those of days 10 and 11 are not sealed yet
    for name, found in cells(complete).items():
        assert np.array_equal(found - gone[name], cells(raw)[name])
    staying = pa.concat_tables([marked(day) for day in (9, 10, 11)]).select(["a", "b"])
    assert np.array_equal(parrot.X_, np.array(reduced[0].array(staying)))
    assert not np.array_equal(parrot.X_, np.array(store.snapshot().array(staying)))


def test_after_a_step_a_model_is_what_its_training_set_gives(stand: Stand) -> None:
    store = lived(stand, (7, 8, 9, 10, 11))
    store.register("ridge", Ridge())
    stepped(stand, store)
    X, y = store.training_set()
    twin = Ridge().fit(np.array(X), y)
    np.testing.assert_allclose(fitted(store, "ridge").coef_, twin.coef_)
    some = marked(12)
    given = np.array(store.snapshot().array(some.select(["a", "b"])))
    np.testing.assert_allclose(store.predict("ridge", some), twin.predict(given))


def test_a_model_is_trained_at_registration_and_at_every_step_roll_and_retirement(
    stand: Stand,
) -> None:
    store = lived(stand, (7, 8, 9), hot_window="5d", retention="25d")
    model = store.register("ridge", Ridge())
    assert (model.available, model.rows) == (False, 0)
    assert "no window is sealed" in model.why
    done = []
    for day in (10.1, 11.1, 12.1, 25.3):
        stand.clock.now = START + day * DAY
        done.append(store.advance())
        observed(store, marked(day))
    assert [bool(each.sealed) for each in done] == [True, False, False, True]
    assert [each.steps for each in done] == [0, 0, 1, 5]
    assert [each.trained for each in done] == [["ridge"], [], ["ridge"], []]
    assert [each.retired for each in done] == [[], [], [], [1]]
    assert store.models["ridge"].rows == 6  # trained as soon as there was something
    stand.clock.now = START + 35.5 * DAY
    assert store.advance().retired == [2]
    assert not store.models["ridge"].available


# --- what they answer ------------------------------------------------


COLOURS = Schema(
    time="t",
    features=[Categorical("a", domain=["0", "1", "2"])],
    label=Label("colour", classes=["red", "green", "blue", "grey"]),
)


def colours(day: int) -> pa.Table:
    names = np.array(["blue", "red", "green"])[np.arange(60) % 3]
    return pa.table({"a": (np.arange(60) % 3).astype(str), "colour": names})


@pytest.mark.parametrize(
    "estimator",
    [
        make_pipeline(StandardScaler(), LogisticRegression()),
        DecisionTreeClassifier(max_depth=3),
        LGBMClassifier(n_estimators=5, min_child_samples=2, verbose=-1),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_probabilities_stand_in_the_order_of_the_declared_classes(
    stand: Stand, estimator: Any
) -> None:
    store = ready(stand, COLOURS, colours, epsilon=float("inf"))
    model = store.register("colour", estimator)
    assert model.classes == ("red", "green", "blue", "grey")
    found = store.predict_proba("colour", [{"a": "0"}, {"a": "1"}, {"a": "2"}])
    assert found.shape == (3, 4)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert found.argmax(axis=1).tolist() == [2, 0, 1]
    assert found[:, 3].tolist() == [0.0, 0.0, 0.0]  # no hot row was grey
    given = store.predict("colour", [{"a": "0"}, {"a": "1"}, {"a": "2"}])
    assert given.tolist() == ["blue", "red", "green"]
    assert found.guarantee.level == given.guarantee.level == "P1"
    assert found[:1].guarantee.level == "P1"


def test_rows_may_come_as_they_do_for_featurizing(stand: Stand) -> None:
    store = ready(stand, COLOURS, colours)
    store.register("colour", LogisticRegression())
    table = colours(0).select(["a"]).slice(0, 5)
    wanted = store.predict_proba("colour", table)
    assert (store.snapshot().guarantee.level, wanted.guarantee.level) == ("P2", "P1")
    assert store.predict("colour", table).guarantee.level == "P1"
    for given in (
        table.to_pandas(),
        pl.from_arrow(table),
        pd.DataFrame({"a": list("01201"), "unknown": 1}),
        table.to_pylist(),
        table.to_pydict(),
        table.to_batches()[0],
    ):
        assert np.array_equal(store.predict_proba("colour", given), wanted)


TWO = Schema(
    time="t",
    features=[Categorical("a", domain=["0", "1", "2", "3"]), Categorical("b")],
    label=[Label("late", classes=["no", "yes"]), Label("minutes", edges=[0.0, 10.0])],
)


def delays(day: int) -> pa.Table:
    a = np.arange(40) % 4
    late = np.where(a < 2, "no", "yes")
    return pa.table({"a": a.astype(str), "b": ["b"] * 40, "late": late, "minutes": a * 10.0 - 5})


def test_of_several_labels_each_model_names_one_and_numbers_have_regressors(stand: Stand) -> None:
    store = ready(stand, TWO, delays, epsilon=float("inf"))
    with pytest.raises(SchemaError, match="several labels; name one of late, minutes"):
        store.register("model", LogisticRegression())
    store.register("late", LogisticRegression(), label="late")
    tree = store.register("minutes", DecisionTreeRegressor(), label="minutes")
    assert (tree.classes, tree.label, store.models["late"].label) == ((), "minutes", "late")
    some = [{"a": str(a), "b": "b"} for a in range(4)]
    assert store.predict("late", some).tolist() == ["no", "no", "yes", "yes"]
    np.testing.assert_allclose(store.predict("minutes", some), [-5, 5, 20, 20])
    with pytest.raises(SchemaError, match="'minutes' predicts a number and has no probabilities"):
        store.predict_proba("minutes", some)
    with pytest.raises(SchemaError, match="predicts classes; register a regressor, or merge"):
        store.register("model", LogisticRegression(), label="minutes")
    with pytest.raises(SchemaError, match="classes that are not numbers"):
        store.register("model", Ridge(), label="late")
    assert set(store.models) == {"late", "minutes"}


def test_a_regressor_may_learn_classes_that_are_numbers(stand: Stand) -> None:
    a, y = Categorical("a", domain=list("012")), Label("y", classes=[0, 1, 2])
    schema = Schema(time="t", features=[a], label=y)
    table = pa.table({"a": list("012") * 10, "y": [0, 1, 2] * 10})
    store = ready(stand, schema, lambda day: table, epsilon=float("inf"))
    store.register("number", LinearRegression())
    found = store.predict("number", [{"a": "0"}, {"a": "1"}, {"a": "2"}])
    np.testing.assert_allclose(found, [0, 1, 2], atol=0.05)
    with pytest.raises(SchemaError, match="gives no probabilities"):
        store.predict_proba("number", [{"a": "0"}])


def test_answers_are_found_by_threads_and_not_by_processes_that_would_stay(stand: Stand) -> None:
    store = ready(stand, COLOURS, colours)
    bagging = BaggingClassifier(LogisticRegression(), n_estimators=2, n_jobs=2)
    store.register("colour", bagging)
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text().split()
    assert len(store.predict_proba("colour", colours(0))) == 60
    assert len(store.predict("colour", colours(0))) == 60
    assert set(children.read_text().split()) <= set(before)


def test_a_model_without_probabilities_says_so(stand: Stand) -> None:
    store = ready(stand, COLOURS, colours)
    store.register("colour", RidgeClassifier())
    with pytest.raises(SchemaError, match="gives no probabilities; use predict"):
        store.predict_proba("colour", [{"a": "0"}])
    with pytest.raises(SchemaError, match="there is no model 'color'; did you mean 'colour'"):
        store.predict("color", [{"a": "0"}])


# --- registering ------------------------------------------------


def test_what_cannot_be_trained_is_not_registered_and_what_was_there_serves(stand: Stand) -> None:
    store = ready(stand, COLOURS, colours)
    store.register("colour", DecisionTreeClassifier())
    old = fitted(store, "colour")
    with pytest.raises(SchemaError, match="The 'C' parameter of LogisticRegression must be"):
        store.register("colour", LogisticRegression(C=-1.0))
    with pytest.raises(StateError, match="was not registered: BaggingClassifier could not be"):
        store.register("colour", BaggingClassifier(LogisticRegression(C=-1.0)))
    with pytest.raises(SchemaError, match="does not predict"):
        store.register("colour", StandardScaler())
    with pytest.raises(SchemaError, match="the name of a model is empty"):
        store.register(" ", LogisticRegression())
    assert fitted(store, "colour") is old
    assert store.models["colour"].estimator == "DecisionTreeClassifier()"


def test_no_value_of_a_row_is_told_when_training_fails(stand: Stand, tmp_path: Path) -> None:
    store = lived(stand)
    (tmp_path / "note").write_text("raise")
    with pytest.raises(StateError) as problem:
        store.register("parrot", Parrot(str(tmp_path / "note")))
    assert str(problem.value).endswith("could not be trained: it failed with ValueError")
    assert problem.value.__cause__ is problem.value.__context__ is None


# --- nothing learned is kept ------------------------------------------------


def test_only_the_recipe_is_stored_and_no_file_is_written(stand: Stand) -> None:
    store = lived(stand)
    archive = Archive(stand.folder)
    with watched(archive):
        before = set(archive._now)
        store.register("parrot", Parrot())
        store.register("ridge", Ridge(alpha=2.0), without=["b"])
        store.models.unregister("parrot")
        assert set(archive.image()) == before
    archive.close()
    told = inspect.catalogue(store).all("SELECT name, recipe FROM models ORDER BY name")
    assert [row["name"] for row in told] == ["ridge"]
    assert json.loads(told[0]["recipe"]) == {
        "estimator": {"class": "sklearn.linear_model.Ridge", "params": {"alpha": 2.0}},
        "workload": {"label": "y", "only": None, "without": ["b"], "merge": []},
    }


def test_of_no_rows_nothing_is_predicted(stand: Stand) -> None:
    store = ready(stand, TWO, delays)
    store.register("kind", LogisticRegression(), label="late")
    store.register("number", Ridge(), label="minutes")
    none = delays(0).select(["a", "b"]).slice(0, 0)
    assert store.predict_proba("kind", none).shape == (0, 2)
    assert store.predict("kind", none).shape == store.predict("number", none).shape == (0,)
    assert store.predict("number", none).guarantee.level == "P1"


def test_a_model_can_be_trained_again_when_what_kept_it_is_gone(
    stand: Stand, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    note.write_text("")
    store = lived(stand, (6, 9, 11))
    store.register("parrot", Parrot(str(note)))
    note.write_text("raise")
    assert "ValueError" in store.models.retrain("parrot").why
    assert store.models["parrot"].available  # no row has left: what it learned may serve
    before = fitted(store, "parrot")
    note.write_text("")
    assert store.models.retrain("parrot").why == ""
    assert fitted(store, "parrot") is not before
    with pytest.raises(SchemaError, match="no model 'parot'; did you mean 'parrot'"):
        store.models.retrain("parot")
