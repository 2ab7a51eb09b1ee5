"""The two threads of a store: rows come in by one, windows are moved by the other.

A verb is done in its thread while the caller waits, so that Ctrl-C stops who waits and not
what is begun, and so that nothing moves while something else does.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Self, TypeVar

from pyramidion.errors import StateError

T = TypeVar("T")

INTAKE, KEEPER, ASIDE = "pyramidion intake", "pyramidion keeper", "pyramidion aside"
CLOSED = "this store is closed; open it again"


BEHIND = 15
"""How far the keeper stands back, as `nice` counts it."""
PATIENCE = 60.0
"""Seconds that work may stand aside altogether before it goes on in the keeper's own rank."""


def step_back(by: int = BEHIND) -> None:
    """Let this thread, and those that it starts, wait for others who want its processor.

    Sealing computes for seconds, mostly past Python's lock. Who comes with one row meanwhile is not
    to wait until the system's scheduler takes turns, which is after milliseconds.
    """
    me = threading.get_native_id()
    with suppress(OSError):  # where that is not allowed, it is done in the same rank
        os.setpriority(os.PRIO_PROCESS, me, os.getpriority(os.PRIO_PROCESS, me) + by)


class Aside:
    """A thread of the keeper's for long computing past Python's lock: it gives way at once.

    A system's scheduler lets who runs finish a turn of milliseconds, however low its rank; only
    its idle class makes room whenever somebody else wakes. That class may be starved where others
    want all processors, and nobody may leave it again: so each piece is handed over alone, Python's
    own work stays in the keeper, and so does everything once this lasted for ``patience``.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        kept = threading.current_thread().name.startswith(KEEPER)
        self._pool = ThreadPoolExecutor(1, ASIDE, _give_way) if kept else None
        self._until = time.monotonic() + patience

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def do(self, verb: Callable[[], T]) -> T:
        """Do a piece aside, or here: who is not the keeper waits for nobody."""
        if self._pool is None or time.monotonic() >= self._until:
            return verb()
        return self._pool.submit(emptied, verb).result()


def _give_way() -> None:
    with suppress(OSError, AttributeError):  # not allowed, or another system
        os.sched_setscheduler(threading.get_native_id(), os.SCHED_IDLE, os.sched_param(0))


class Threads:
    """Intake and keeper."""

    def __init__(self) -> None:
        self._intake = ThreadPoolExecutor(1, INTAKE)
        self._keeper = ThreadPoolExecutor(1, KEEPER, step_back)
        self.kept: Future[object] | None = None
        """What the keeper does, or did, and nobody waits for."""

    def close(self) -> None:
        """Finish what is being done."""
        self._intake.shutdown()
        self._keeper.shutdown()

    def take(self, verb: Callable[[], T]) -> T:
        """Do a verb in the intake."""
        return self._do(self._intake, verb)

    def move(self, verb: Callable[[], T]) -> T:
        """Do a verb in the keeper."""
        return self._do(self._keeper, verb)

    def _do(self, thread: ThreadPoolExecutor, verb: Callable[[], T]) -> T:
        if threading.current_thread().name.startswith((INTAKE, KEEPER)):
            raise StateError(
                "the store was called from within its own threads, which would wait for itself "
                "for ever; note what to do there and do it later"
            )
        try:
            doing = thread.submit(emptied, verb)
        except RuntimeError:  # closed meanwhile
            raise StateError(CLOSED) from None
        return doing.result()

    # --- behind the scenes -------------------------------------------------------------------

    def keep(self, verb: Callable[[], object]) -> None:
        """Have the keeper do something that nobody waits for, unless it is busy with such."""
        if not self.keeping:
            self.kept = self._keeper.submit(emptied, verb)

    @property
    def keeping(self) -> bool:
        """Whether the keeper does something that nobody waits for."""
        return self.kept is not None and not self.kept.done()

    def failed(self) -> bool:
        """Whether what nobody waited for failed; told once."""
        kept = self.kept
        if kept is None or not kept.done():
            return False
        self.kept = None
        return kept.exception() is not None

    def expect_nothing(self) -> None:
        """Forget what failed: it is done again by who asks."""
        self.kept = None


def emptied(verb: Callable[[], T]) -> T:
    """Do a verb; what it raises keeps no rows alive: the frames it came through are emptied."""
    try:
        return verb()
    except BaseException as problem:
        each: BaseException | None = problem
        while each is not None:
            traceback.clear_frames(each.__traceback__)
            each = each.__context__
        raise
