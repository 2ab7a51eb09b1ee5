"""Temporary directories that are always removed, however the work in them ends.

SIGTERM and a closed terminal count as Ctrl-C. Further signals are ignored, so that nothing
interrupts the removal. Only SIGKILL leaves something behind. A directory is locked while its
process lives, so the next run can tell which ones are no longer in use, and removes them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

PREFIX = "pyramidion-demo-"
STOPS = (signal.SIGINT, signal.SIGTERM)
YOUNG = 60.0  # seconds: an empty directory may belong to a run that is about to lock it


@contextmanager
def scratch(number: int, say: Callable[[str], object]) -> Iterator[list[Path]]:
    """So many temporary directories; what dead runs left is removed first, and said."""
    heard: dict[signal.Signals, Any] = {}
    asked = list[int]()
    made = list[Path]()
    locks = list[int]()
    if threading.current_thread() is threading.main_thread():
        noting = lambda number, _: asked.append(number)  # noqa: E731
        heard = {each: signal.signal(each, noting) for each in STOPS}
        heard[signal.SIGHUP] = signal.signal(signal.SIGHUP, _as_terminated)
    try:
        for _ in range(number):
            made.append(Path(tempfile.mkdtemp(prefix=PREFIX)))
            locks.append(_locked(made[-1]))
        for each, before in heard.items():
            if before is signal.SIG_IGN:  # as behind `&` or nohup
                signal.signal(each, signal.SIG_IGN)
            elif each in STOPS:
                signal.signal(each, _stop)
        if asked:
            raise KeyboardInterrupt
        _remove_left(say)
        yield made
    finally:
        if heard:
            hear_nothing()
        for place in made:
            _remove(place)
        for lock in locks:
            os.close(lock)
        for each, before in heard.items():
            signal.signal(each, before)


def hear_nothing() -> None:
    """Let no signal that can be caught break off what is done from here on."""
    for each in (*STOPS, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)


def _stop(_: int, __: FrameType | None) -> None:
    hear_nothing()
    raise KeyboardInterrupt


def _as_terminated(_: int, __: FrameType | None) -> None:
    signal.raise_signal(signal.SIGTERM)


def _locked(place: Path, wait: int = 0) -> int:
    """A lock on a directory, which goes with the process; who looks for old ones does not wait."""
    found = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(found, fcntl.LOCK_EX | wait)
    except BaseException:
        os.close(found)
        raise
    return found


def _remove_left(say: Callable[[str], object]) -> None:
    """Remove directories of ours whose process is gone."""
    removed = 0
    for place in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")):
        with suppress(OSError):  # another's, in use, or gone meanwhile
            lock = _locked(place, fcntl.LOCK_NB)
            try:
                seen = os.fstat(lock)
                used = time.time() - seen.st_mtime < YOUNG and not any(place.iterdir())
                if seen.st_uid == os.getuid() and not used:
                    _remove(place)
                    removed += not place.exists()
            finally:
                os.close(lock)
    if removed:
        left = "a directory" if removed == 1 else f"{removed} directories"
        say(f"removed {left} that an earlier run left when it was killed")


def _remove(place: Path) -> None:
    for _ in range(10):
        shutil.rmtree(place, ignore_errors=True)
        if not place.exists():
            return
        time.sleep(0.1)  # something is being written there yet
    shutil.rmtree(place)  # says what is wrong
