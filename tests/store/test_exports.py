"""Exported models predict as the store's do, end when those do, and bring no code along."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.ensemble import (
    BaggingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pyramidion import (
    Categorical,
    FlooredScaler,
    FormatError,
    Label,
    Model,
    PrivacyError,
    Pyramid,
    Schema,
    SchemaError,
    StateError,
    VowpalClassifier,
    VowpalRegressor,
)
from pyramidion.learn.exports import Revived
from tests.store.archive import Archive, watched
from tests.store.inspect import settled
from tests.store.stores import DAY, SECOND, START, Stand, observed

pytestmark = pytest.mark.usefixtures("trainer")

SCHEMA = Schema(
    time="t",
    label=[
        Label("mood", classes=["sad", "glad", "dead", "calm"]),
        Label("bit", classes=[1, 0]),
        Label("size", edges=[0.5, 1.0]),
    ],
    features=[Categorical("a"), Categorical("b", domain=["x", "y"])],
    groups=[("a", "b")],
)


def rows(day: float, size: int = 100) -> pa.Table:
    random = np.random.default_rng(int(day * 10))
    a = random.integers(0, 8, size)
    glad = random.random(size) < np.where(a % 2, 0.8, 0.3)
    return pa.table(
        {
            "t": np.full(size, START + day * DAY),
            "mood": np.where(random.random(size) < 0.1, "calm", np.where(glad, "glad", "sad")),
            "bit": glad.astype(int),
            "size": glad * random.random(size),
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
    return made


ASKED = rows(12, 57).select(["a", "b"])


def revived(stand: Stand, store: Pyramid, name: str = "model") -> Revived:
    """The model, after its header and its bytes went over a network."""
    header, payload = store.models.export(name)
    return Revived.from_parts(json.loads(json.dumps(header)), bytes(payload), stand.clock)


CLASSIFIERS = [
    LogisticRegression(),
    make_pipeline(StandardScaler(), LogisticRegression()),
    make_pipeline(FlooredScaler(), LogisticRegression()),
    SGDClassifier(loss="log_loss", random_state=0),
    MLPClassifier(hidden_layer_sizes=(8,), max_iter=20, random_state=0),
    MLPClassifier(solver="sgd", hidden_layer_sizes=(4,), max_iter=5, random_state=0),
    HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=5),
    RandomForestClassifier(n_estimators=5, random_state=0),
    BaggingClassifier(LogisticRegression(), n_estimators=3, random_state=0),
    GaussianNB(),
    LGBMClassifier(n_estimators=5, min_child_samples=5),
    VowpalClassifier(random_state=0, passes=2),
    VowpalClassifier(hidden=3, random_state=0, passes=2),
    make_pipeline(StandardScaler(), VowpalClassifier(random_state=0, passes=2)),
]
REGRESSORS = [
    Ridge(),
    make_pipeline(StandardScaler(), Ridge()),
    MLPRegressor(hidden_layer_sizes=(8,), max_iter=20, random_state=0),
    HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=5),
    GradientBoostingRegressor(n_estimators=5, random_state=0),
    RandomForestRegressor(n_estimators=5, random_state=0),
    LGBMRegressor(n_estimators=5, min_child_samples=5),
    VowpalRegressor(random_state=0, passes=2),
    VowpalRegressor(hidden=3, random_state=0, passes=2),
]


def told(estimator: Any) -> str:
    return " ".join(repr(estimator).split())


@pytest.mark.slow
@pytest.mark.parametrize("label", ["mood", "bit"])
@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=told)
def test_a_revived_classifier_predicts_as_the_store_does(
    stand: Stand, store: Pyramid, estimator: Any, label: str
) -> None:
    model = store.register("model", estimator, label=label)
    away, snapshot = revived(stand, store), store.snapshot()
    assert away.classes == model.classes
    chances = away.predict_proba(snapshot, ASKED)
    assert np.array_equal(chances, store.predict_proba("model", ASKED))
    assert len(np.unique(chances)) > 2
    assert away.predict(snapshot, ASKED).tolist() == store.predict("model", ASKED).tolist()
    assert chances.guarantee.level == "P1"


@pytest.mark.parametrize("estimator", REGRESSORS, ids=told)
def test_a_revived_regressor_predicts_as_the_store_does(
    stand: Stand, store: Pyramid, estimator: Any
) -> None:
    store.register("model", estimator, label="size")
    found = revived(stand, store).predict(store.snapshot(), ASKED)
    assert np.array_equal(found, store.predict("model", ASKED))
    assert len(np.unique(found)) > 2


def test_a_revived_model_of_some_tables_finds_them(stand: Stand, store: Pyramid) -> None:
    store.register("model", LogisticRegression(), label="bit", only=["b"])
    away = revived(stand, store)
    found = away.predict_proba(store.snapshot(), ASKED)
    assert np.array_equal(found, store.predict_proba("model", ASKED))
    assert away.tables == {"b"}


# --- what stands in the header ------------------------------------------------


def test_the_header_says_what_the_model_is(stand: Stand, store: Pyramid) -> None:
    model = store.register("model", GaussianNB(), label="mood")
    header, _ = store.models.export("model")
    assert header["format"] == "skops"
    assert (header["name"], header["version"]) == ("model", model.version)
    assert (header["label"], header["classes"]) == ("mood", ["sad", "glad", "dead", "calm"])
    assert header["features"] == store.snapshot().names
    assert header["tables"] == ["a", "a,b", "b"]
    assert header["made"] == int(stand.clock.now * SECOND)
    assert header["guarantee"]["level"] == "P1"
    assert revived(stand, store).guarantee == store.snapshot().guarantee.raw()


def test_an_export_ends_with_the_model(stand: Stand, store: Pyramid) -> None:
    store.register("model", GaussianNB(), label="mood")
    stand.clock.now = START + 12.5 * DAY  # the rows of day 9 leave half a day later
    header, _ = store.models.export("model")
    assert header["expires"] == store.models["model"].expires == int((START + 13 * DAY) * SECOND)


@pytest.mark.parametrize(
    ("given", "life"),
    [
        ({"hot_window": None, "hot_rows": 1_000, "hot_step": "6h"}, 300),
        ({"hot_window": "3d", "hot_rows": 1_000, "hot_step": "6h"}, 300),
        ({"hot_window": None, "hot_rows": 1_000, "hot_step": "1m"}, 60),
        ({"hot_window": "3d", "hot_step": "6h"}, 6 * 3_600),
    ],
)
def test_an_export_is_brief_where_rows_bound_the_window(
    stand: Stand, given: dict[str, Any], life: int
) -> None:
    store = stand.create(SCHEMA, **given)
    for day in (5, 11):
        stand.clock.now = START + day * DAY
        store.advance()
        observed(store, rows(day))
    model = store.register("model", GaussianNB(), label="mood")
    header, _ = store.models.export("model")
    assert header["expires"] == int((stand.clock.now + life) * SECOND) < (model.expires or 0)


def test_an_export_is_brief_where_a_person_may_be_erased(stand: Stand) -> None:
    store = stand.create(replace(SCHEMA, unit="who"), hot_window="3d", hot_step="1d")
    for day in (9.5, 10.5):
        stand.clock.now = START + day * DAY
        store.advance()
        people = pa.array([str(n % 7) for n in range(len(rows(day)))])
        observed(store, rows(day).append_column("who", people))
    store.register("model", LogisticRegression(), label="mood")
    away, snapshot = revived(stand, store), store.snapshot()
    store.erase_person("3")
    stand.clock.now += 300
    with pytest.raises(StateError, match="has expired"):
        away.predict(snapshot, ASKED)


def test_an_export_outlives_rows_that_others_drove_out_by_minutes_and_not_by_a_step(
    stand: Stand,
) -> None:
    store = stand.create(SCHEMA, hot_window=None, hot_rows=200, hot_step="1d")
    for day in (5, 11):
        stand.clock.now = START + day * DAY
        store.advance()
        observed(store, rows(day))
    store.register("model", LogisticRegression(), label="mood")
    away, snapshot, learned = revived(stand, store), store.snapshot(), store.models["model"].version
    for _ in range(3):
        observed(store, rows(11))
        settled(store).advance()  # the rows that it learned from have left
    assert store.status().hot_rows <= 200
    assert store.models["model"].version > learned
    assert not away.expired
    stand.clock.now += 300
    with pytest.raises(StateError, match="has expired"):
        away.predict(snapshot, ASKED)


# --- when it ends ------------------------------------------------


def test_a_revived_model_answers_until_it_expires_and_drops_what_it_learned(
    stand: Stand, store: Pyramid
) -> None:
    store.register("model", GaussianNB(), label="mood")
    away, snapshot = revived(stand, store), store.snapshot()
    assert away._answers is not None
    learned = weakref.ref(away._answers.estimator)
    assert away.expires == int((START + 12 * DAY) * SECOND)
    stand.clock.now = START + 12 * DAY - 600  # of which the test may take some
    away.predict(snapshot, ASKED)
    assert not away.expired
    stand.clock.now = START + 12 * DAY
    with pytest.raises(StateError, match="model 'model', version 1, has expired"):
        away.predict_proba(snapshot, ASKED)
    gc.collect()
    assert learned() is None
    stand.clock.now = START  # set back
    with pytest.raises(StateError, match="has expired"):
        away.predict(snapshot, ASKED)
    with pytest.raises(StateError, match="has expired"):
        away.proba_one(np.zeros(len(away.names)))


def test_a_model_that_has_expired_is_not_revived(stand: Stand, store: Pyramid) -> None:
    store.register("model", GaussianNB(), label="mood")
    header, payload = store.models.export("model")
    with pytest.raises(StateError, match="has expired"):
        Revived.from_parts(header, payload, lambda: START + 13 * DAY)


def test_a_clock_that_is_behind_does_not_make_it_live_longer(stand: Stand, store: Pyramid) -> None:
    store.register("model", GaussianNB(), label="mood")
    header, payload = store.models.export("model")
    away = Revived.from_parts(header, payload, lambda: 0.0)
    assert away._deadline.now() >= header["made"]


def test_a_revived_model_is_not_copied(stand: Stand, store: Pyramid) -> None:
    store.register("model", GaussianNB(), label="mood")
    away = revived(stand, store)
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(PrivacyError, match="is not copied or pickled"):
            copied(away)  # type: ignore[operator]


# --- what the store does ------------------------------------------------


def test_each_export_stands_in_the_audit_log(store: Pyramid) -> None:
    model = store.register("model", GaussianNB(), label="mood")
    store.models.export("model")
    entry = list(store.audit_log.entries())[-1]
    assert (entry.kind, entry.facts) == (
        "model.exported",
        {"name": "model", "version": model.version},
    )


@pytest.mark.slow
def test_an_export_that_is_refused_stands_not(store: Pyramid) -> None:
    store.register("model", KNeighborsClassifier(algorithm="kd_tree"), label="mood")
    before = len(list(store.audit_log.entries()))
    with pytest.raises(PrivacyError, match="cannot be exported: KNeighborsClassifier keeps"):
        store.models.export("model")
    assert len(list(store.audit_log.entries())) == before


def test_classes_that_are_bytes_cannot_be_exported(
    store: Pyramid, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.register("model", GaussianNB(), label="bit")
    monkeypatch.setattr(Model, "classes", (b"a", b"b"))
    with pytest.raises(SchemaError, match="cannot be exported: its classes are bytes; use text"):
        store.models.export("model")


def test_a_pipeline_around_lightgbm_says_why_it_cannot_be_exported(store: Pyramid) -> None:
    store.register(
        "model", make_pipeline(StandardScaler(), LGBMClassifier(n_estimators=2)), label="bit"
    )
    with pytest.raises(SchemaError, match="Pipeline cannot be exported: it holds"):
        store.models.export("model")


def test_an_export_leaves_the_model_as_it_was(store: Pyramid) -> None:
    store.register("model", MLPClassifier(max_iter=5, random_state=0), label="mood")
    before = store.predict_proba("model", ASKED)
    store.models.export("model")
    assert np.array_equal(store.predict_proba("model", ASKED), before)
    store.observe(rows(11))  # it goes on learning
    assert store.models["model"].rows == 400


def test_an_export_writes_nothing_of_it_to_the_disk(
    stand: Stand, store: Pyramid, tmp_path: Path
) -> None:
    store.register("model", LGBMClassifier(n_estimators=5), label="bit")
    before = {path: path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()}
    with watched(Archive(tmp_path)):
        _, payload = store.models.export("model")
    after = {path: path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()}
    grown = {path.name for path in after if after[path] != before.get(path)}
    assert grown <= {"audit.db", "audit.db-wal", "audit.db-shm"}
    piece = payload[len(payload) // 2 :][:64]
    assert not [path for path in after if piece in path.read_bytes()]


def test_a_model_that_is_not_available_is_not_exported(stand: Stand) -> None:
    store = stand.create(SCHEMA)
    store.register("model", GaussianNB(), label="mood")
    with pytest.raises(StateError, match="no window is sealed"):
        store.models.export("model")


def test_a_model_without_probabilities_says_so_away_too(stand: Stand, store: Pyramid) -> None:
    store.register("model", RidgeClassifier(), label="mood")
    away = revived(stand, store)
    with pytest.raises(SchemaError, match="gives no probabilities"):
        away.predict_proba(store.snapshot(), ASKED)
    assert away.predict(store.snapshot(), ASKED).tolist() == store.predict("model", ASKED).tolist()


# --- headers that are wrong ------------------------------------------------


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"edition": 2}, "newer version"),
        ({"format": "pickle"}, "newer version"),
        ({"format": ["skops"]}, "lacks 'format'"),
        ({"expires": "never"}, "lacks 'expires'"),
        ({"expires": True}, "lacks 'expires'"),
        ({"expires": None}, "lacks 'expires'"),
        ({"features": ["a"]}, "takes other features than it says"),
        ({"features": [1]}, "is damaged"),
        ({"classes": [{}]}, "is damaged"),
        ({"guarantee": {"level": "P1"}}, "is damaged"),
        ({"packages": {"scikit-learn": "0.1"}}, "made by another scikit-learn"),
        ({"packages": {}}, "made by another scikit-learn"),
    ],
    ids=str,
)
def test_a_header_that_is_wrong_is_refused(
    stand: Stand, store: Pyramid, change: dict[str, Any], sentence: str
) -> None:
    store.register("model", GaussianNB(), label="mood")
    header, payload = store.models.export("model")
    with pytest.raises(FormatError, match=sentence):
        Revived.from_parts(header | change, payload, stand.clock)
