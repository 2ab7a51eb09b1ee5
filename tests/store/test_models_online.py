"""Models that learn between trainings: each row once, and none after it has left.

Each interleaving of intake and keeper is forced, none is waited for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier, SGDRegressor
from sklearn.naive_bayes import GaussianNB

from pyramidion import Pyramid
from pyramidion.rows.files import DataFile
from pyramidion.rows.history import in_order
from tests.store import inspect, stores
from tests.store.inspect import settled
from tests.store.stores import DAY, START, Stand, observed
from tests.store.teaching import (
    SCHEMA,
    SHARED,
    Learner,
    Parrot,
    days_of,
    fitted,
    go_on,
    lived,
    marked,
    nothing_left,
)
from tests.waiting import PATIENCE as LONG

pytestmark = pytest.mark.usefixtures("trainer")


@pytest.fixture
def beside() -> Iterator[Callable[..., Future[Any]]]:
    """Does something in another thread."""
    with ThreadPoolExecutor(2) as threads:
        yield threads.submit


@pytest.fixture
def store(stand: Stand) -> Pyramid:
    """A store with hot rows of days 9, 10 and 11, and a model that goes on learning."""
    made = lived(stand)
    made.register("learner", Learner())
    return made


def labels(store: Pyramid) -> list[float]:
    """The labels of the rows that the model has learned from, each as often as it has."""
    found: list[float] = fitted(store, "learner").y_.tolist()
    return found


def expected(*days: float) -> list[float]:
    return [label for day in days for label in marked(day)["y"].to_pylist()]


# --- between trainings -----------------------------------------------------------------------


def test_new_observations_are_learned_at_once_by_who_can(stand: Stand, store: Pyramid) -> None:
    store.register("ridge", Ridge())
    before = dict(store.models.items())
    go_on(stand, store, 11.5)
    assert labels(store) == expected(9, 10, 11, 11.5)
    assert store.models["learner"].online
    assert not store.models["ridge"].online
    assert (before["learner"].rows, before["ridge"].rows) == (18, 18)
    assert (store.models["learner"].rows, store.models["ridge"].rows) == (24, 18)
    assert store.models["learner"].trained == before["learner"].trained


def test_a_batch_that_is_sent_again_is_not_learned_again(stand: Stand, store: Pyramid) -> None:
    for _ in range(2):
        observed(store, marked(11), key="once")
    assert labels(store) == expected(9, 10, 11, 11)


def test_rows_that_are_refused_are_not_learned(stand: Stand, store: Pyramid) -> None:
    bad = marked(11).set_column(1, "y", pa.array([11.9, None, 11.8, None, None, None]))
    observed(store, bad, errors="skip")
    assert labels(store) == [*expected(9, 10, 11), 11.9, 11.8]


@pytest.mark.parametrize(
    "estimator",
    [SGDClassifier(loss="log_loss", random_state=3), GaussianNB(), SGDRegressor(random_state=1)],
    ids=lambda estimator: type(estimator).__name__,
)
def test_what_is_learned_is_what_fit_and_then_partial_fit_learn(
    stand: Stand, estimator: Any
) -> None:
    store = stand.create(hot_window="6d")
    for day in (7, 9, 10):
        stand.clock.now = START + day * DAY
        store.advance()
        observed(store, stores.rows(60, stand.clock.now, seed=day))
    training = store.training_set()
    twin = clone(estimator).fit(np.array(training.X), training.y)
    store.register("model", estimator)
    more = stores.rows(40, stand.clock.now, seed=99)
    observed(store, more)
    twin.partial_fit(np.array(store.snapshot().array(more)), more["y"].to_numpy())
    found = fitted(store, "model")
    for learned in ("coef_", "intercept_", "theta_", "var_"):
        assert hasattr(found, learned) == hasattr(twin, learned)
        if hasattr(twin, learned):
            np.testing.assert_allclose(getattr(found, learned), getattr(twin, learned), rtol=1e-12)
    assert store.models["model"].rows == 220


def test_a_batch_that_cannot_be_learned_is_observed_all_the_same(
    stand: Stand, store: Pyramid
) -> None:
    def pause() -> None:
        raise ArithmeticError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "pause", staticmethod(pause))
        assert observed(store, marked(11)).accepted == 6
    assert store.status().hot_rows == 24
    assert store.models["learner"].rows == len(labels(store)) == 18
    assert len(store.predict("learner", marked(11))) == 6
    go_on(stand, store, 11.5)  # what was missed is learned with the next training
    assert sorted(labels(store)) == sorted(expected(9, 10, 11, 11.5))
    assert store.models.retrain("learner").rows == 30


def test_what_is_half_learned_is_not_served(stand: Stand, store: Pyramid) -> None:
    def bad(self: Learner, X: Any, y: Any) -> None:
        self.y_ += 1_000
        raise ValueError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "partial_fit", bad)
        observed(store, marked(11))
    assert max(labels(store)) < 12


def test_after_a_replay_its_rows_are_learned_also_where_nothing_left(
    stand: Stand, store: Pyramid, tmp_path: Path
) -> None:
    pq.write_table(marked(11), tmp_path / "h.parquet")
    assert list(store.replay(in_order([DataFile(tmp_path / "h.parquet")], SCHEMA)))
    assert labels(store) == expected(9, 10, 11, 11)


def test_a_model_is_not_taught_columns_it_does_not_know(stand: Stand) -> None:
    """A group is counted from the next window on; until the model knows it, it goes without."""
    schema = stores.Schema(time="t", label=SCHEMA.label, features=SCHEMA.features)
    store = stand.create(schema, hot_window="40d", retention="90d")
    for day in (7, 9, 10):
        go_on(stand, store, day)
    store.register("learner", Learner())
    store.groups.add(("a", "b"))
    for day in (11, 21):
        go_on(stand, store, day)
    width = fitted(store, "learner").X_.shape[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inspect.parts(store).training, "catch_up", lambda now: None)
        stand.clock.now = START + 30.5 * DAY
        store.advance()
        assert len(store.snapshot().names) > width
        observed(store, marked(30.5))
    assert fitted(store, "learner").X_.shape[1] == width
    assert 30.5 in labels(store)
    store.advance()
    assert fitted(store, "learner").X_.shape[1] > width


# --- while a model is trained --------------------------------------------------------------------


def test_rows_that_come_while_it_is_trained_are_learned_once(
    stand: Stand, store: Pyramid, monkeypatch: Any, beside: Callable[..., Future[Any]]
) -> None:
    def arrive() -> None:
        monkeypatch.setattr(SHARED, "before", lambda: None)
        beside(store.observe, marked(11.5)).result(LONG)

    stand.clock.now = START + 11.5 * DAY
    monkeypatch.setattr(SHARED, "before", arrive)
    store.register("learner", Learner())
    assert labels(store) == expected(9, 10, 11, 11.5)
    assert store.models["learner"].rows == 24


@pytest.mark.parametrize("when", ["before the rows are read", "before the lesson begins"])
def test_a_batch_that_comes_while_the_rows_are_read_is_learned_once(
    stand: Stand, store: Pyramid, monkeypatch: Any, beside: Callable[..., Future[Any]], when: str
) -> None:
    serving = inspect.parts(store).serving
    name = "reduced" if when == "before the rows are read" else "staying"
    real = getattr(serving, name)

    def arriving(*given: Any) -> Any:
        monkeypatch.setattr(serving, name, real)
        beside(store.observe, marked(11.5)).result(LONG)
        return real(*given)

    stand.clock.now = START + 11.5 * DAY
    monkeypatch.setattr(serving, name, arriving)
    store.register("learner", Learner())
    assert labels(store) == expected(9, 10, 11, 11.5)


def test_a_batch_that_is_being_acknowledged_when_training_begins_is_not_missed(
    stand: Stand, store: Pyramid, monkeypatch: Any, beside: Callable[..., Future[Any]]
) -> None:
    hot, training = inspect.hot(store), inspect.parts(store).training
    acknowledged = hot.acknowledged
    committed, asked = threading.Event(), threading.Event()

    def slow(*given: Any) -> None:
        committed.set()
        asked.wait(0.3)  # the lesson must wait for this one, or not know of it
        acknowledged(*given)

    def lesson(*given: Any) -> Any:
        assert committed.wait(LONG)
        return real(*given)

    real = training.lesson
    monkeypatch.setattr(hot, "acknowledged", slow)
    monkeypatch.setattr(training, "lesson", lesson)
    stand.clock.now = START + 11.5 * DAY
    observing = beside(store.observe, marked(11.5))
    store.register("learner", Learner())
    observing.result(LONG)
    assert inspect.last_batch(store) == 6
    assert labels(store) == expected(9, 10, 11, 11.5)


# --- an update against a step ------------------------------------------------


@pytest.mark.slow
def test_an_update_that_is_under_way_at_a_step_brings_no_old_model_back(
    stand: Stand, store: Pyramid, monkeypatch: Any, beside: Callable[..., Future[Any]]
) -> None:
    going, go = threading.Event(), threading.Event()

    def pause() -> None:
        monkeypatch.setattr(Learner, "pause", staticmethod(lambda: None))
        going.set()
        assert go.wait(LONG)

    stand.clock.now = START + 11.9 * DAY
    with nothing_left("step.checkpointed", "erase.before"):
        monkeypatch.setattr(Learner, "pause", staticmethod(pause))
        observing = beside(store.observe, marked(11.9))
        assert going.wait(LONG)
        stand.clock.now = START + 12 * DAY
        trained, real = threading.Event(), SHARED._some

        def told(*given: Any) -> Any:
            found = real(*given)
            trained.set()
            return found

        monkeypatch.setattr(SHARED, "_some", told)
        stepping = beside(store.advance)
        assert trained.wait(LONG)
        assert not stepping.done()
        time.sleep(0.3)  # in which the new model would be put in place, were it not for the update
        go.set()
        observing.result(LONG)
        stepping.result(LONG)
    assert labels(store) == expected(10, 11, 11.9)


def test_a_batch_that_a_training_has_seen_is_not_learned_again(
    stand: Stand, store: Pyramid, monkeypatch: Any, beside: Callable[..., Future[Any]]
) -> None:
    learn = inspect.parts(store).arrivals.taken
    going, go = threading.Event(), threading.Event()

    def late(*given: Any) -> None:
        going.set()
        assert go.wait(LONG)
        learn(*given)

    monkeypatch.setattr(inspect.parts(store).arrivals, "taken", late)
    stand.clock.now = START + 11.5 * DAY
    observing = beside(store.observe, marked(11.5))
    assert going.wait(LONG)
    store.register("learner", Learner())
    assert labels(store) == expected(9, 10, 11, 11.5)
    go.set()
    observing.result(LONG)
    assert labels(store) == expected(9, 10, 11, 11.5)


@pytest.mark.parametrize("well", [True, False], ids=["trained", "not trained"])
def test_a_batch_whose_rows_have_left_is_learned_no_more(
    stand: Stand,
    store: Pyramid,
    monkeypatch: Any,
    beside: Callable[..., Future[Any]],
    well: bool,
) -> None:
    """It was acknowledged, and before its model was told, three days passed and it left."""
    learn = inspect.parts(store).arrivals.taken
    going, go = threading.Event(), threading.Event()

    def late(*given: Any) -> None:
        going.set()
        assert go.wait(LONG)
        learn(*given)

    monkeypatch.setattr(inspect.parts(store).arrivals, "taken", late)
    stand.clock.now = START + 11.5 * DAY
    observing = beside(store.observe, marked(11.5))
    assert going.wait(LONG)
    assert inspect.last_batch(store) == 6
    if not well:
        monkeypatch.setattr(SHARED, "limit", 1e-6)
    stand.clock.now = START + 14.2 * DAY
    store.advance()
    assert store.status().hot_rows == 0
    go.set()
    observing.result(LONG)
    assert not store.models["learner"].available
    monkeypatch.setattr(SHARED, "limit", None)
    monkeypatch.setattr(inspect.parts(store).arrivals, "taken", learn)
    observed(store, marked(14.2))
    store.advance()
    assert days_of(labels(store)) == [14]


@pytest.mark.slow
def test_each_row_is_learned_once_while_rows_arrive_and_models_come_and_go(
    stand: Stand, store: Pyramid, beside: Callable[..., Future[Any]]
) -> None:
    done = threading.Event()

    def observing() -> None:
        for _ in range(2_000):  # on a slow machine the window would be full before the models are
            if not done.is_set():
                store.observe(marked(11, 1))

    work = beside(observing)
    for n in range(5):
        store.register(f"model {n}", Parrot())
    for n in range(5):
        store.models.unregister(f"model {n}")
    done.set()
    work.result(LONG)
    settled(store)
    assert len(labels(store)) == store.status().hot_rows
    assert len(set(labels(store))) == 18


# --- the old one serves ---------------------------------------------------------------------------


def test_at_a_roll_the_old_model_serves_until_the_new_one_is_trained(
    stand: Stand, monkeypatch: Any, beside: Callable[..., Future[Any]]
) -> None:
    store = stand.create(hot_window="30d", hot_step="5d")
    for day in (4, 9, 11, 16):
        stand.clock.now = START + day * DAY
        store.advance()
        observed(store, stores.rows(40, stand.clock.now, seed=day))
    store.register("model", LogisticRegression())
    old, some = fitted(store, "model"), stores.rows(5)
    going, go = threading.Event(), threading.Event()

    def blocked() -> None:
        going.set()
        assert go.wait(LONG)

    monkeypatch.setattr(SHARED, "before", blocked)
    stand.clock.now = START + 20.1 * DAY
    rolling = beside(store.advance)
    assert going.wait(LONG)
    assert len(store.predict_proba("model", some)) == 5
    assert store.observe(stores.rows(3, stand.clock.now)).accepted == 3
    assert fitted(store, "model") is old
    assert store.models["model"].available
    monkeypatch.setattr(SHARED, "before", lambda: None)
    go.set()
    done = rolling.result(LONG)
    assert (done.sealed, done.trained, done.steps) == ([2], ["model"], 0)
    assert fitted(store, "model") is not old
