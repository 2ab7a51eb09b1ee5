"""Models at the end of a store and at its beginning, and what else is raw: all goes in time."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyramidion import Pyramid, StateError
from pyramidion.errors import PyramidionError
from pyramidion.learn.fitting import Trainer
from pyramidion.rows.files import DataFile
from pyramidion.rows.history import in_order
from tests.store import inspect
from tests.store.archive import on_reach
from tests.store.stores import DAY, START, Stand
from tests.store.teaching import (
    LEAVES,
    SCHEMA,
    SHARED,
    Learner,
    days_of,
    fitted,
    go_on,
    marked,
    nothing_left,
    stepped,
    two_parrots,
)
from tests.waiting import PATIENCE as LONG

pytestmark = pytest.mark.usefixtures("trainer")


@pytest.fixture
def note(tmp_path: Path) -> Path:
    """What the parrot does next."""
    (tmp_path / "note").touch()
    return tmp_path / "note"


@pytest.fixture
def store(stand: Stand, note: Path) -> Pyramid:
    return two_parrots(stand, note)


# --- the store ends, and begins again ------------------------------------------------


@pytest.mark.slow
def test_when_a_store_is_closed_its_models_are_gone_whoever_holds_it(
    stand: Stand, store: Pyramid
) -> None:
    held, training = dict(store.models.items()), store.training_set()
    assert len(training.y) == 24
    with nothing_left():
        store.close()
    assert not held["learner"].available
    with pytest.raises(StateError, match="expired"):
        training.X  # noqa: B018
    assert {model.why for model in store.models.values()} == {"the store is closed"}


@pytest.mark.slow
def test_a_store_that_is_closed_while_it_trains_has_no_model(
    stand: Stand, store: Pyramid, note: Path, monkeypatch: Any
) -> None:
    trainer, going = Trainer(), threading.Event()
    monkeypatch.setattr(inspect.parts(store).training, "_trainer", trainer)
    monkeypatch.setattr(trainer, "_timed", lambda *_: nullcontext(going.set()))
    note.write_text("sleep")
    stand.clock.now = START + 12 * DAY
    with nothing_left():
        inspect.keep(store)
        assert going.wait(LONG)
        store.close()
    assert trainer._process is None
    assert not any(model.available for model in store.models.values())


@pytest.mark.slow
def test_a_store_that_is_opened_trains_again_from_what_stays(stand: Stand, store: Pyramid) -> None:
    with nothing_left():
        store.close()
        stand.clock.now = START + 12 * DAY
        store = stand.open()
        assert len(store.predict("parrot", marked(12))) == 6
        assert days_of(fitted(store, "parrot").y_) == days_of(fitted(store, "learner").y_)
    assert days_of(fitted(store, "learner").y_) == [10, 11]


def test_a_store_that_is_restored_trains_again_from_what_stays(
    stand: Stand, store: Pyramid, tmp_path: Path
) -> None:
    store.admin.backup(tmp_path / "backup")
    store.close()
    stand.clock.now = START + 12 * DAY
    store = stand.held(Pyramid.restore(tmp_path / "backup", tmp_path / "new", **stand.given))
    assert len(store.predict("learner", marked(12))) == 6
    assert days_of(fitted(store, "learner").y_) == [10, 11]


@pytest.mark.slow
def test_while_a_history_is_replayed_models_go_with_their_rows(
    stand: Stand, store: Pyramid, tmp_path: Path
) -> None:
    pq.write_table(
        pa.concat_tables([marked(11.8), marked(12.5), marked(13.5)]), tmp_path / "h.parquet"
    )
    history = in_order([DataFile(tmp_path / "h.parquet")], SCHEMA)
    stand.clock.now = START + 13.6 * DAY
    with nothing_left(*LEAVES):
        receipts = store.replay(history)
        next(receipts)
        next(receipts)
        with pytest.raises(StateError, match="a history is being replayed"):
            store.predict("parrot", marked(12))
        assert len(list(receipts)) == 1
    assert days_of(fitted(store, "parrot").y_) == [11, 12, 13]


@pytest.mark.slow
def test_a_name_that_is_registered_again_or_no_more_leaves_nothing_to_the_next_step(
    stand: Stand, store: Pyramid
) -> None:
    held = dict(store.models.items())
    store.register("parrot", Learner())
    store.models.unregister("learner")
    assert not held["learner"].available
    with nothing_left(*LEAVES):
        stepped(stand, store)
    assert list(store.models) == ["parrot"]
    assert not held["parrot"].available


def test_an_answer_that_is_begun_is_finished_by_the_model_it_was_begun_with(
    stand: Stand, store: Pyramid, monkeypatch: Any
) -> None:
    snapshot = store.snapshot

    def slow() -> Any:
        monkeypatch.setattr(store, "snapshot", snapshot)
        stepped(stand, store)
        return snapshot()

    before = store.predict("parrot", marked(11))
    monkeypatch.setattr(store, "snapshot", slow)
    assert store.predict("parrot", marked(11)).tolist() == before.tolist()
    assert store.predict("parrot", marked(11)).tolist() != before.tolist()


# --- what else is raw ------------------------------------------------


@pytest.mark.parametrize("path", ["step", "withdraw", "close"])
def test_training_sets_and_learning_curves_are_empty_before_the_rows_go(
    stand: Stand, store: Pyramid, path: str
) -> None:
    go_on(stand, store, 11.7, size=300)
    training, curve = store.training_set(), store.models.learning_curve("parrot", sizes=[50, 100])
    assert len(training.X) == len(training.y) > curve.tested > 0
    emptied: list[bool] = []

    def look(point: str) -> None:
        if point in ("step.checkpointed", "erase.truncated"):
            emptied.append("_all" not in vars(training) and not curve._losses)

    with on_reach(look):
        if path == "step":
            stepped(stand, store)
        elif path == "withdraw":
            store.groups.withdraw("a", why="a test")
        else:
            store.close()
    assert all(emptied)
    assert emptied or path == "close"
    for ask in (lambda: training.X, lambda: list(curve), lambda: curve.smallest):
        with pytest.raises(PyramidionError, match="expired"):
            ask()
    assert repr(curve).endswith("expired)")


def test_what_is_raised_holds_no_row(store: Pyramid, note: Path, stand: Stand) -> None:
    go_on(stand, store, 11.7, size=300)
    note.write_text("raise")
    with pytest.raises(StateError, match="no learning curve of model 'parrot'") as problem:
        store.models.learning_curve("parrot")
    assert problem.value.__traceback__ is not None
    assert [held for ref in SHARED.sent if (held := ref()) is not None] == []
