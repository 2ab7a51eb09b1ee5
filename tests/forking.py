"""Children by fork that find no lock held by a thread which they do not have.

A thread that Python has joined is still ending: OpenSSL's share of that is done under a lock of
its own, which a child that is forked meanwhile finds locked for ever. So a fork waits until
every other thread of the process sleeps.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from tests.waiting import PATIENCE


def forked() -> int:
    """Fork: 0 in the child, in the parent its process id."""
    until = time.monotonic() + PATIENCE  # then it forks all the same
    while _busy() and time.monotonic() < until:
        time.sleep(0.001)
    return os.fork()


def _busy() -> bool:
    """Whether another thread of this process runs, or is about to."""
    own = str(threading.get_native_id())
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            if task.name != own and state != "S":
                return True
    return False
