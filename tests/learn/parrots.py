"""Estimators that remember what they saw and do what a note says; light, so they start fast."""

from __future__ import annotations

import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin

from pyramidion.learn import fitting, recipes


class Parrot(RegressorMixin, BaseEstimator):
    """Remembers every row it saw. Before it learns it does what stands in the file ``note``."""

    alive: ClassVar[weakref.WeakSet[Parrot]] = weakref.WeakSet()

    def __new__(cls, *_: object, **__: object) -> Parrot:
        made = super().__new__(cls)
        cls.alive.add(made)
        return made

    def __init__(self, note: str = "") -> None:
        self.note = note

    def fit(self, X: Any, y: Any) -> Parrot | None:
        self.X_, self.y_ = np.array(X), np.array(y)
        told = Path(self.note).read_text() if self.note else ""
        return troubles(self, told) if told else self

    def predict(self, X: Any) -> Any:
        return np.full(len(X), self.y_.mean())


class Learner(Parrot):
    """Learns online, after ``pause`` has returned."""

    pause: Callable[[], object] = staticmethod(lambda: None)

    def partial_fit(self, X: Any, y: Any) -> Learner:
        type(self).pause()
        self.X_, self.y_ = np.concatenate([self.X_, X]), np.concatenate([self.y_, y])
        return self


class Timer(threading.Timer):
    """Its time is over when a parrot sleeps: how long the others take decides nothing."""

    asleep: ClassVar[Path]

    def run(self) -> None:
        while not self.finished.wait(0.01):
            if self.asleep.exists():
                self.asleep.unlink()
                self.function()
                return


def ranks(within: float) -> set[int]:
    """In which classes this process's threads run, once it takes turns or the time is over."""
    until = time.monotonic() + within
    while os.sched_getscheduler(0) != os.SCHED_BATCH and time.monotonic() < until:
        pass
    return {os.sched_getscheduler(int(task)) for task in os.listdir("/proc/self/task")}


def frozen(file: Path, _: int) -> None:
    """Stop in place of ending."""
    file.write_text(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)


def troubles(parrot: Parrot, told: str) -> Parrot | None:
    """All that can become of a training."""
    if told == "raise":
        raise ValueError(f"a value of a row: {parrot.y_[0]}")
    if told == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if told == "sleep":
        Path(f"{parrot.note}.asleep").touch()
        time.sleep(600)
    if told == "freeze":  # once all has been answered
        os._exit = partial(frozen, Path(f"{parrot.note}.frozen"))
    if told == "exit":
        raise SystemExit(3)
    if told == "print":
        print(f"a value of a row: {parrot.y_[0]}", flush=True)
        os.write(1, b"a value of a row\n")
        os.write(2, b"a value of a row\n")
    if told == "unpicklable":
        parrot.held_ = lambda: 0
    if told == "huge":
        parrot.held_ = np.ones(4_000_000)
    return None if told == "nothing" else parrot


@contextmanager
def parrots() -> Iterator[None]:
    """Have parrots allowed, here and in training processes that are started from here on."""
    more = "import pyramidion.learn.recipes as r; r.PACKAGES += ('tests',); f.main()"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipes, "PACKAGES", (*recipes.PACKAGES, "tests"))
        patch.setattr(fitting, "BEGIN", fitting.BEGIN.replace("f.main()", more))
        yield
