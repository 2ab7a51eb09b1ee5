"""Children that are killed at a chosen moment, which is the same in every run.

A child is forked from this process, so it starts in milliseconds. It dies by SIGKILL at a point of
`pyramidion.killpoints`, or before one of its calls into the operating system or SQLite, by number.
What a process leaves behind changes by these calls alone: a kill at any other moment leaves what a
kill before the next call leaves.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

from pyramidion import killpoints
from tests.forking import forked

PATIENCE = 300.0  # seconds until a child that does not end is taken to hang
OUTWARD = {"posix", "fcntl", "_io", "sqlite3", "_socket"}
"""Modules whose functions and methods are calls into the operating system or SQLite."""


def died(work: Callable[[], object], *, at: str = "", call: int = 0) -> bool:
    """Do some work in a child, which dies at a point or before a call; whether it came there."""
    return ended(started(work, at=at, call=call))


def started(work: Callable[[], object], *, at: str = "", call: int = 0) -> int:
    """Have a child begin some work, to die at a point or before a call; its process id."""
    child = forked()
    if child == 0:
        status = 1
        try:
            killpoints.arm(at)
            if call:
                _count(call, lambda: os.kill(os.getpid(), signal.SIGKILL))
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return child


def ended(child: int) -> bool:
    """Wait for a child; whether it was killed. It fails the test if it raised, or hangs."""
    handle = os.pidfd_open(child)
    try:
        if not select.select([handle], [], [], PATIENCE)[0]:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError("a child did not end")
    finally:
        os.close(handle)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), f"a child failed with status {code}, see above"
    return code != 0


def calls_of(work: Callable[[], object]) -> int:
    """How many calls into the operating system or SQLite some work makes, in this process."""
    made = _count(0, lambda: None)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return made[0]


def _count(call: int, then: Callable[[], None]) -> list[int]:
    """Count calls from now on, of threads that start later, too; before one of them do this."""
    made, lock = [0], threading.Lock()

    def hook(frame: FrameType, event: str, what: Any) -> None:
        if event == "c_call" and _module(what) in OUTWARD:
            with lock:
                made[0] += 1
                if made[0] == call:
                    then()

    threading.setprofile(hook)
    sys.setprofile(hook)
    return made


def _module(what: Any) -> str | None:
    """Where a function is defined, or the class that a method is of."""
    module: str | None = getattr(what, "__module__", None)
    if module is None:
        held = getattr(what, "__self__", None)
        module = (held if isinstance(held, type) else type(held)).__module__
    return module
