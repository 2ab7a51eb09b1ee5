"""What long work shows on stderr, and how it is stopped."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any, Self


def bar(
    arguments: argparse.Namespace,
    what: str,
    total: int | None,
    done: int = 0,
    *,
    shown: bool = True,
) -> Any:
    """A progress bar over rows; nothing where nobody would see it."""
    from tqdm import tqdm

    return tqdm(
        total=total,
        initial=done,
        desc=what,
        unit=" rows",
        unit_scale=True,
        file=sys.stderr,
        disable=not shown or arguments.json or arguments.quiet or not sys.stderr.isatty(),
    )


def remark(arguments: argparse.Namespace, sentence: str) -> None:
    """Say something that is not the result."""
    if not (arguments.json or arguments.quiet):
        print(sentence, file=sys.stderr)


def warn(sentence: str) -> None:
    """Say something that nobody should miss."""
    print(f"pyramidion: note: {sentence}", file=sys.stderr)


class Pace:
    """How fast rows go by."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def told(self, rows: int) -> str:
        """Rows, seconds and rows per second."""
        seconds = time.perf_counter() - self._start
        return f"{rows:,} rows in {seconds:.1f} s, {rows / max(seconds, 1e-9):,.0f} rows/s"


class Stop:
    """Ctrl-C ends the work after the piece at hand; a second one ends it at once.

    Either loses nothing: the store is as safe as against a crash. The first is
    merely quicker to open again.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Self:
        here = threading.current_thread() is threading.main_thread()
        if here and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, _: int, __: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
