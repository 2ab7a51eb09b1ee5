"""No model, training matrix or learning curve outlives a row it saw, on whatever path.

Parrots remember each row; who still holds one, a table of models or an exception included,
has nothing once a row leaves. That is looked at just before keys are destroyed, not after.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sklearn.linear_model import Ridge

from pyramidion import Pyramid, StateError
from pyramidion.errors import FormatError, StorageError
from pyramidion.learn import fitting
from tests.learn.parrots import Timer
from tests.store import inspect
from tests.store.stores import DAY, START, Stand, failing_once, observed
from tests.store.teaching import (
    LEAVES,
    SHARED,
    Learner,
    Old,
    Parrot,
    days_of,
    fitted,
    go_on,
    lived,
    marked,
    nothing_left,
    stepped,
    two_parrots,
)
from tests.vault.vaults import refusing

pytestmark = pytest.mark.usefixtures("trainer")


@pytest.fixture
def note(tmp_path: Path) -> Path:
    """What the parrot does next."""
    (tmp_path / "note").touch()
    return tmp_path / "note"


@pytest.fixture
def store(stand: Stand, note: Path) -> Pyramid:
    return two_parrots(stand, note)


# --- rows leave ------------------------------------------------


@pytest.mark.slow
def test_at_a_step_the_old_models_are_gone_before_the_rows_and_new_ones_serve(
    stand: Stand, store: Pyramid
) -> None:
    held, handed = dict(store.models.items()), store.register("other", Parrot())
    with nothing_left(*LEAVES):
        stepped(stand, store)
    for model in (*held.values(), handed):
        assert not model.available
        with pytest.raises(StateError, match="what it learned from has left"):
            model.predict(store.snapshot(), marked(12))
    assert all(model.available for model in store.models.values())
    for name in store.models:
        assert days_of(fitted(store, name).y_) == [10, 11]


@pytest.mark.slow
def test_when_the_last_rows_leave_no_model_is_left(stand: Stand, store: Pyramid) -> None:
    with nothing_left(*LEAVES):
        stepped(stand, store, 16)
    with pytest.raises(StateError, match="unavailable: the hot window is empty"):
        store.predict("parrot", marked(16))


@pytest.mark.slow
def test_a_step_that_is_due_behind_the_scenes_is_no_exception(stand: Stand, store: Pyramid) -> None:
    stand.clock.now = START + 12 * DAY
    with nothing_left(*LEAVES):
        observed(store, marked(12))
    assert days_of(fitted(store, "learner").y_) == [10, 11, 12]


@pytest.mark.slow
def test_a_window_that_retires_takes_models_along_also_where_no_row_leaves(stand: Stand) -> None:
    store = lived(stand, hot_window="45d", retention="50d")
    go_on(stand, store, 21)
    stepped(stand, store, 41)
    store.register("parrot", Parrot())
    store.register("learner", Learner())
    hot, names = store.status().hot_rows, store.snapshot().guarantee.windows
    assert names == 3
    with nothing_left("step.before", *LEAVES):
        stepped(stand, store, 50.5)
    assert store.status().hot_rows == hot
    assert days_of(fitted(store, "parrot").y_) == days_of(fitted(store, "learner").y_)


@pytest.mark.slow
def test_a_feature_that_is_withdrawn_takes_along_the_models_that_used_it(
    stand: Stand, store: Pyramid
) -> None:
    store.register("other", Ridge(), without=["a"])
    held = dict(store.models.items())
    with nothing_left("erase.committed", "erase.truncated"):
        store.groups.withdraw("a", why="a test")
        assert not held["parrot"].available
        assert held["other"].available
    store.advance()
    assert fitted(store, "parrot").X_.shape[1] == fitted(store, "other").n_features_in_


# --- training fails ------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("told", "why"),
    [
        ("raise", "it failed with ValueError"),
        ("die", "the training process died"),
        ("sleep", "it took longer than `train_within` allows"),
        ("unpicklable", "it failed with"),
    ],
)
def test_when_training_fails_the_rows_leave_and_the_model_says_why(
    stand: Stand, store: Pyramid, note: Path, monkeypatch: Any, told: str, why: str
) -> None:
    if told == "sleep":
        Timer.asleep = note.with_name("note.asleep")
        monkeypatch.setattr(fitting.threading, "Timer", Timer)
    held = dict(store.models.items())
    store.register("other", Ridge())
    note.write_text(told)
    with nothing_left(*LEAVES):
        stepped(stand, store)
    assert store.status().hot_rows == 18
    assert not held["parrot"].available
    with pytest.raises(StateError, match=f"unavailable: Parrot could not be trained: {why}"):
        store.predict("parrot", marked(12))
    assert len(store.predict("other", marked(12))) == 6  # it is not the fault of this one
    note.write_text("")
    stepped(stand, store, 13)
    assert days_of(fitted(store, "parrot").y_) == [11]


@pytest.mark.slow
def test_where_no_process_can_be_started_the_rows_leave(
    stand: Stand, store: Pyramid, monkeypatch: Any
) -> None:
    SHARED.stop()

    def refusing(*_: object, **__: object) -> None:
        raise OSError(errno.EAGAIN, "no more processes")

    with monkeypatch.context() as patch, nothing_left(*LEAVES):
        patch.setattr(fitting.subprocess, "Popen", refusing)
        stepped(stand, store)
    assert [model.available for model in store.models.values()] == [False, False]
    assert store.status().hot_rows == 18


@pytest.mark.slow
def test_what_nobody_thought_of_keeps_no_model(
    stand: Stand, store: Pyramid, monkeypatch: Any
) -> None:
    failing_once(monkeypatch, inspect.parts(store).training, "lesson", MemoryError())
    held = dict(store.models.items())
    with nothing_left(*LEAVES), pytest.raises(MemoryError) as problem:  # whose frames are held
        stepped(stand, store)
    assert store.status().hot_rows == 18
    assert not held["parrot"].available
    assert problem.value.__traceback__ is not None


@pytest.mark.slow
def test_one_model_that_cannot_catch_up_does_not_keep_the_others(
    stand: Stand, store: Pyramid, monkeypatch: Any
) -> None:
    store.register("zebra", Parrot())
    monkeypatch.setattr(SHARED, "before", lambda: observed_once(store, marked(11.5)))
    real, broken = inspect.hot(store).batches, FormatError("a damaged segment")

    def batches(wanted: Callable[..., bool]) -> Any:
        if not wanted(1, []) and inspect.hot(store).stored(lambda n: wanted(n, [])):
            raise broken
        return real(wanted)

    monkeypatch.setattr(inspect.hot(store), "batches", batches)
    with nothing_left("erase.before"):
        stepped(stand, store)


def observed_once(store: Pyramid, batch: pa.Table) -> None:
    SHARED.before = lambda: None
    beside = threading.Thread(target=store.observe, args=[batch])
    beside.start()
    beside.join()


# --- the disk, the vault and the keys fail ------------------------------------------------


@pytest.mark.slow
def test_a_damaged_segment_of_rows_that_stay_keeps_no_model(stand: Stand, store: Pyramid) -> None:
    file = stand.path / "hot" / inspect.hot(store).steps[-1].file
    file.write_bytes(bytes(file.stat().st_size))
    with nothing_left(*LEAVES):
        stepped(stand, store)
    assert not store.models["parrot"].available
    assert "restore it from a backup" in store.models["parrot"].why
    assert not inspect.parts(store).training.due  # or every batch that comes would try in vain


@pytest.mark.slow
def test_a_damaged_table_file_of_a_window_past_retention_keeps_no_model(stand: Stand) -> None:
    store = lived(stand, retention="12d")
    store.register("parrot", Parrot())
    for file in (stand.path / "tables").iterdir():
        file.write_bytes(bytes(file.stat().st_size))
    with nothing_left(*LEAVES):
        stepped(stand, store, 12.5)
    assert store.status().hot_rows == 12


@pytest.mark.slow
def test_rows_that_a_full_disk_keeps_from_leaving_take_the_models_along_when_they_do(
    stand: Stand, store: Pyramid, monkeypatch: Any
) -> None:
    go_on(stand, store, 11.7)
    old, writes = Old(), os.write

    def full(file: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StorageError):
        stepped(stand, store)
    monkeypatch.setattr(os, "write", writes)
    assert old.left() == []
    with nothing_left(*LEAVES):
        store.advance()
    assert days_of(fitted(store, "parrot").y_) == [10, 11]


@pytest.mark.slow
def test_rows_that_cannot_be_sealed_keep_no_model(stand: Stand, monkeypatch: Any) -> None:
    stand.vault = stand.folder / "vault"
    store = lived(stand)
    store.register("parrot", Parrot())
    store.vault._sealer.vaulted = store.vault._sealer._taken = 0  # as if nothing was sealed
    refusing(monkeypatch, 1)
    with nothing_left(*LEAVES), pytest.raises(OSError, match="the disk refuses"):
        stepped(stand, store)
    assert days_of(fitted(store, "parrot").y_) == [10, 11]


@pytest.mark.slow
def test_an_erasure_that_breaks_off_has_taken_the_models_along(
    stand: Stand, store: Pyramid, monkeypatch: Any
) -> None:
    holder = inspect.keys(store).holder
    failing_once(monkeypatch, holder, "drop", OSError(errno.EIO, "gone"))
    with nothing_left(*LEAVES), pytest.raises(OSError, match="gone"):
        stepped(stand, store)
    store.advance()
    assert days_of(fitted(store, "parrot").y_) == [10, 11]


@pytest.mark.slow
def test_ctrl_c_stops_who_waits_and_not_what_is_begun(
    stand: Stand, store: Pyramid, monkeypatch: Any
) -> None:
    def interrupted(_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, nothing_left(*LEAVES):
        patch.setattr("concurrent.futures.Future.result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            stepped(stand, store)
        patch.undo()
        assert not store.advance()
    assert days_of(fitted(store, "parrot").y_) == [10, 11]
