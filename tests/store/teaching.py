"""Estimators that say what they saw, a trainer for many stores, and a look into memory."""

from __future__ import annotations

import atexit
import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyramidion import Categorical, Label, Pyramid, Schema
from pyramidion.learn.fitting import Trainer
from pyramidion.store import training
from tests.learn.parrots import Learner, Parrot, parrots
from tests.store.archive import on_reach
from tests.store.stores import DAY, START, Stand, observed
from tests.waiting import PATIENCE

SCHEMA = Schema(
    time="t",
    label=Label("y", edges=[0.5]),
    features=[Categorical("a"), Categorical("b", domain=["x", "y"])],
    groups=[("a", "b")],
)
LEAVES = ("step.checkpointed", "erase.before")
"""After the last call and before the keys of leaving rows are destroyed."""

AHEAD = {
    "lightgbm",
    "sklearn.ensemble",
    "sklearn.linear_model",
    "sklearn.naive_bayes",
    "sklearn.pipeline",
    "sklearn.preprocessing",
    "sklearn.tree",
    "tests.learn.parrots",
}


# --- one trainer for many stores ------------------------------------------------


class Shared(Trainer):
    """A trainer that is not closed with a store: starting one takes seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Any] = []
        """Weak references to features and labels that were sent, in order."""
        self.before: Callable[[], object] = lambda: None
        """Called before a training begins."""
        self.limit: float | None = None
        """Seconds for each training, in place of what the settings say."""

    def run(self, work: Sequence[Any], modules: set[str], within: float) -> list[Any]:
        self.before()
        for piece in work:
            _, X, _, y, *_ = piece.args
            self.sent += [weakref.ref(X), weakref.ref(y)]
        return super().run(work, modules | AHEAD, self.limit or max(within, PATIENCE))

    def close(self) -> None:
        """Go on for the next store."""


SHARED = Shared()
atexit.register(SHARED.stop)


@contextmanager
def one_trainer() -> Iterator[Shared]:
    """All stores train in one process, also parrots."""
    with parrots(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "Trainer", lambda: SHARED)
        yield SHARED


# --- a store to train on ------------------------------------------------


def marked(day: float, size: int = 6) -> pa.Table:
    """Rows of a day; the labels tell the day and the row."""
    numbers = np.arange(size)
    return pa.table(
        {
            "t": np.full(size, START + day * DAY),
            "y": day + numbers / 1_000,
            "a": [f"{i % 4}" for i in numbers],
            "b": [["x", "y", "z"][i % 3] for i in numbers],
        }
    )


def lived(stand: Stand, days: Sequence[float] = (7, 8, 9, 10, 11), **given: Any) -> Pyramid:
    """A store with a sealed window, whose hot rows are of the last three days."""
    store = stand.create(SCHEMA, **given)
    for day in days:
        go_on(stand, store, day)
    return store


def go_on(stand: Stand, store: Pyramid, day: float, size: int = 6) -> None:
    """Advance to a day, then observe its rows."""
    stand.clock.now = START + day * DAY
    store.advance()
    observed(store, marked(day, size))


def two_parrots(stand: Stand, note: Path) -> Pyramid:
    """A store with hot rows of days 9, 10 and 11, and two parrots on them, one of which goes on."""
    store = lived(stand)
    store.register("parrot", Parrot(str(note)))
    store.register("learner", Learner())
    go_on(stand, store, 11.5)
    assert days_of(fitted(store, "learner").y_) == [9, 10, 11]
    return store


def stepped(stand: Stand, store: Pyramid, day: float = 12) -> None:
    """Advance to a day; at the twelfth the rows of the ninth leave."""
    stand.clock.now = START + day * DAY
    store.advance()


def days_of(labels: Any) -> list[int]:
    """The days that rows are of, by their labels."""
    return sorted({int(label) for label in np.asarray(labels)})


def fitted(store: Pyramid, name: str) -> Any:
    """The estimator that serves."""
    found = store.models[name].fitted
    assert found is not None
    return found.estimator


# --- what is left in memory ------------------------------------------------


class Old:
    """All that has learned by now, to be looked at again."""

    def __init__(self) -> None:
        gc.collect()
        self._things = [weakref.ref(each) for each in Parrot.alive if hasattr(each, "y_")]
        assert self._things

    def left(self) -> list[Any]:
        """What of it can still be reached."""
        gc.collect()
        sent = [ref() for ref in SHARED.sent]
        held = [each for each in sent if each is not None]
        return held + [ref() for ref in self._things if ref() is not None]


@contextmanager
def nothing_left(*points: str) -> Iterator[None]:
    """At these kill points, and in the end, nothing that has learned by now may be left."""
    old, seen = Old(), dict[str, list[Any]]()

    def look(point: str) -> None:
        if point in points:
            seen.setdefault(point, []).extend(map(type, old.left()))

    with on_reach(look):
        yield
    assert seen == {point: [] for point in points}
    assert old.left() == []
