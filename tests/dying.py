"""Children that are killed at a chosen moment, which is the same in every run.

A child is forked from this process, so it starts in milliseconds. It dies by SIGKILL at a point of
`pyramidion.storage.fault_points`, or before one of its calls into the operating system or SQLite,
by number.
Files change by these calls alone: a kill at another moment leaves what one before the next leaves.
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

from pyramidion.storage import fault_points as killpoints
from tests.forking import forked
from tests.waiting import PATIENCE

CHANGES = {
    "posix": {
        *("open", "write", "pwrite", "writev", "ftruncate", "truncate", "fsync", "fdatasync"),
        *("close", "mkdir", "rmdir", "link", "unlink", "remove", "rename", "replace", "chmod"),
    },
    "_io": {"open", "write", "flush", "close", "__exit__", "truncate"},
    "fcntl": {"flock", "lockf"},
    "sqlite3": {"execute", "executemany", "executescript", "commit", "close"},
    "_socket": {"connect", "send", "sendall"},
}
"""Calls into the operating system and SQLite that may change what others see, by module."""


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
                _die_before(call)
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
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


def _die_before(call: int) -> None:
    """Count the calls of this thread and of those that it starts, and die before one of them."""
    made, lock = [0], threading.Lock()

    def hook(frame: FrameType, event: str, what: Any) -> None:
        if event == "c_call" and what.__name__ in CHANGES.get(_module(what) or "", ()):
            with lock:
                made[0] += 1
                if made[0] == call:
                    os.kill(os.getpid(), signal.SIGKILL)

    threading.setprofile(hook)
    sys.setprofile(hook)


def _module(what: Any) -> str | None:
    """Where a function is defined, or the class that a method is of."""
    module: str | None = getattr(what, "__module__", None)
    if module is None:
        held = getattr(what, "__self__", None)
        module = (held if isinstance(held, type) else type(held)).__module__
    return module
