"""Children by fork that find no lock held by a thread which they do not have.

A thread that Python has joined is still ending: OpenSSL's share of that is done under a lock of
its own, which a child that is forked meanwhile finds locked for ever. So a fork waits until
every other thread of the process sleeps.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pyramidion.cli.program import main
from tests.clocked import go_by
from tests.waiting import PATIENCE


def forked() -> int:
    """Fork: 0 in the child, in the parent its process id."""
    until = time.monotonic() + PATIENCE  # then it forks all the same
    while _busy() and time.monotonic() < until:
        time.sleep(0.001)
    return os.fork()


def output_of(
    words: Sequence[str], folder: Path, environment: Mapping[str, str], clock: Path
) -> str:
    """What a command of ours prints, run by a child: it need not import everything anew.

    It runs in a folder and an environment of its own, and goes by the clock of a file.
    """
    reading, writing = os.pipe()
    child = forked()
    if child == 0:
        status = 1
        try:
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for here, there in ((nothing, 0), (writing, 1), (writing, 2)):
                os.dup2(here, there)
            os.closerange(3, 1024)
            sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115
            sys.stdout = sys.stderr = open(1, "w", 1, encoding="utf-8")  # noqa: SIM115
            go_by(str(clock))
            status = main(words)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        printed = pipe.read()
    os.waitpid(child, 0)
    return printed


def _busy() -> bool:
    """Whether another thread of this process runs, or is about to."""
    own = str(threading.get_native_id())
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            if task.name != own and state != "S":
                return True
    return False
