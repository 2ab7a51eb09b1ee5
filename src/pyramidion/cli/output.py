"""What commands print: numbers, times, tables, progress bars; and Ctrl-C during long work."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from pyramidion.config.durations import EPOCH

if TYPE_CHECKING:
    from pyramidion.store.schedule import Due


def date(micros: int | None) -> str:
    """A time in UTC, no longer than it needs to be.

    >>> date(86_400_000_000), date(86_460_000_000), date(1_500_000), date(None)
    ('1970-01-02', '1970-01-02 00:01', '1970-01-01 00:00:01', '-')
    """
    if micros is None:
        return "-"
    told = (EPOCH + timedelta(microseconds=micros)).strftime("%Y-%m-%d %H:%M:%S")
    return told.removesuffix(":00").removesuffix(" 00:00")


def size(length: int) -> str:
    """Bytes as people say them.

    >>> size(900), size(123_456), size(7_000_000_000)
    ('900 bytes', '123.5 kB', '7.0 GB')
    """
    if length < 1_000:
        return f"{length} bytes"
    told = float(length)
    for unit in ("kB", "MB", "GB"):
        told /= 1_000
        if told < 1_000:
            return f"{told:.1f} {unit}"
    return f"{told / 1_000:.1f} TB"


def several(number: int, noun: str) -> str:
    """A number and its noun.

    >>> several(1, "row"), several(2_000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def past_its_time(due: Due) -> str:
    """What is past its time at a moment.

    >>> from pyramidion.store.schedule import Due
    >>> past_its_time(Due(86_400_000_000, sealed=(), retired=(1, 2), steps=1, rows=30))
    'by 1970-01-02 UTC all that is in 2 windows and 1 hot step (30 rows) is past its time'
    """
    windows = [several(len(due.retired), "window")] if due.retired else []
    steps = [f"{several(due.steps, 'hot step')} ({several(due.rows, 'row')})"] if due.steps else []
    what = " and ".join([*windows, *steps])
    return f"by {date(due.at)} UTC all that is in {what} is past its time"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns under their names; numbers to the right, text to the left.

    >>> print(table(["name", "rows"], [["a", 12], ["long", 3_000]]))
    name   rows
    a        12
    long  3,000
    """
    told = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *told, strict=True)]
    right = [all(isinstance(row[place], int | float) for row in rows) for place in range(len(head))]
    lines = []
    for cells in [list(head), *told]:
        placed = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(cells, widths, right, strict=True)
        ]
        lines.append("  ".join(placed).rstrip())
    return "\n".join(lines)


# --- progress ------------------------------------------------------------------------------------


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
