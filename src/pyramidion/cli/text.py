"""Numbers, times and tables for people to read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

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
