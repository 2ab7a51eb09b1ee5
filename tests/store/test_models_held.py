"""What somebody holds, prints or waits for keeps nothing that a model learned."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import SGDRegressor

from pyramidion import ObservationError, PrivacyError, Pyramid, StateError
from pyramidion.learn import training_set
from pyramidion.store.snapshots import Serving
from tests.store import inspect
from tests.store.stores import DAY, START, Stand
from tests.store.teaching import (
    SHARED,
    Learner,
    Parrot,
    fitted,
    go_on,
    lived,
    marked,
    stepped,
)
from tests.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.usefixtures("trainer")


def test_a_training_set_that_is_made_while_its_rows_leave_keeps_none(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = lived(stand)
    training, real = store.training_set(), np.concatenate

    def slow(parts: Any) -> Any:
        stepped(stand, store)
        return real(parts)

    with monkeypatch.context() as patch:
        patch.setattr(training_set.np, "concatenate", slow)
        with pytest.raises(StateError, match="expired"):
            training.X  # noqa: B018
    assert "_made" not in vars(training)


@pytest.mark.slow
def test_an_error_of_a_prediction_keeps_no_model(stand: Stand) -> None:
    store = lived(stand)
    store.register("number", Learner())
    held = weakref.ref(fitted(store, "number"))
    with pytest.raises(ObservationError) as caught:
        store.predict("number", {"a": ["1"]})
    stepped(stand, store)
    gc.collect()
    assert caught.value.__traceback__ is not None
    assert held() is None


def test_what_a_model_learned_is_not_pickled_or_copied(stand: Stand) -> None:
    store = lived(stand)
    model = store.register("number", SGDRegressor())
    for way in (pickle.dumps, copy.deepcopy):
        with pytest.raises(PrivacyError, match="as raw as its rows"):
            way(model)


def test_a_model_that_learns_online_prints_nothing(
    stand: Stand, capfd: pytest.CaptureFixture[str]
) -> None:
    store = lived(stand)
    store.register("number", SGDRegressor(verbose=1))
    go_on(stand, store, 11.5)
    assert store.models["number"].rows == 24
    assert capfd.readouterr() == ("", "")


def test_rows_are_erased_while_a_batch_is_still_being_learned(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = lived(stand, train_within="1s")
    monkeypatch.setattr(SHARED, "limit", PATIENCE)  # training itself takes as long as it takes
    store.register("slow", Learner())
    began, goes = threading.Event(), threading.Event()

    def pause() -> None:
        began.set()
        assert goes.wait(PATIENCE)

    monkeypatch.setattr(Learner, "pause", staticmethod(pause))
    stand.clock.now = START + 11.6 * DAY
    batch = threading.Thread(target=store.observe, args=[marked(11.6)])
    batch.start()
    assert began.wait(PATIENCE)
    stepped(stand, store)  # it would wait for ever
    assert store.status().deletions[-1].done is not None
    monkeypatch.setattr(Learner, "pause", staticmethod(lambda: None))
    goes.set()
    batch.join()
    assert sorted({int(day) for day in fitted(store, "slow").y_}) == [10, 11]


def test_a_snapshot_that_cannot_be_made_at_a_retirement_leaves_none_of_before(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = lived(stand, (2, 12, 22), retention="25d")
    old = store.snapshot()
    real = Serving._renew

    def broken(self: Serving, why: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("pyramidion.store.snapshots.snapshot", lambda _: 1 / 0)
            real(self, why)

    stand.clock.now = START + 27 * DAY
    with monkeypatch.context() as patch:
        patch.setattr(Serving, "_renew", broken)
        with pytest.raises(ZeroDivisionError):
            store.advance()
    assert old.expired
    store.advance()
    assert store.snapshot().holds(inspect.served(store))


def test_a_store_whose_recipe_is_damaged_opens_and_erases(stand: Stand) -> None:
    store = lived(stand)
    store.register("number", SGDRegressor())
    inspect.catalogue(store).run("UPDATE models SET recipe = '{}'")
    store = stand.reopen()
    with pytest.raises(StateError, match=r"recipe of model 'number' is damaged; register it"):
        store.predict("number", marked(1))
    stepped(stand, store)
    assert store.register("number", SGDRegressor()).available


@pytest.mark.slow
def test_a_child_that_is_stopped_after_its_answer_is_ended(
    stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyramidion.learn.fitting.SOON", 0.5)
    store = lived(stand)
    note = tmp_path / "note"
    note.write_text("freeze")
    assert store.register("parrot", Parrot(str(note))).available
    child = int((tmp_path / "note.frozen").read_text())
    wait_for(lambda: not Path(f"/proc/{child}").exists())


def test_a_store_that_is_interrupted_while_it_closes_can_be_closed_again(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create()

    def interrupted() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(inspect.parts(store).threads, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.close()
    store.close()
    assert isinstance(stand.open(), Pyramid)
