"""Where things go on a figure's axes: logarithms, ∞ and 0, outliers, names moved apart.

Places across are logarithms where the figure says so. ∞ has a place of its own behind the
largest number, as has 0, of which there is no logarithm, before the smallest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import quantiles

MOST_TICKS = 12
FAR = 2.5
"""Above the third quartile by so many times its distance from the least is an outlier."""
ROOM = 2.0
"""Lines that matter less may take the axis up to so many times the range of the others."""
WIDE = 30.0
"""Where values differ by so many times, they are shown as logarithms."""


def number(value: float) -> str:
    """A number no longer than it needs to be.

    >>> [number(value) for value in (1.0, 1.0405, 0.01, 100_000.0, 12.34, math.inf)]
    ['1', '1.04', '0.01', '100,000', '12.3', '∞']
    """
    if math.isinf(value):
        return "∞"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 3
    told = f"{value:,.{digits}f}" if abs(value) >= 0.1 or value == 0 else f"{value:.3g}"
    return told.rstrip("0").rstrip(".") if "." in told and "e" not in told else told


@dataclass
class Across:
    """The x axis: where a number goes.

    >>> across = Across([1, 10, math.inf])
    >>> across(10) - across(1), across(math.inf) > across(10), across.plain(math.inf)
    (1.0, True, False)
    """

    measured: Sequence[float]
    beside: Sequence[float] = ()
    log: bool = True
    _ends: tuple[float, float] = field(init=False)

    def __post_init__(self) -> None:
        places = [self(x) for x in (*self.measured, *self.beside) if self.plain(x)] or [0.0]
        self._ends = min(places), max(places)

    def plain(self, x: float) -> bool:
        """Whether a number has its place by its size."""
        return math.isfinite(x) and (x > 0 or not self.log)

    def __call__(self, x: float) -> float:
        """Where a number goes."""
        if self.plain(x):
            return math.log10(x) if self.log else float(x)
        low, high = self._ends
        return high + self._step if x > 0 else low - self._step

    @property
    def _step(self) -> float:
        return 0.13 * (self._ends[1] - self._ends[0]) or 0.5

    @property
    def limits(self) -> tuple[float, float]:
        """From where to where, with a little room."""
        places = [self(x) for x in (*self.measured, *self.beside)] or [0.0]
        room = 0.035 * (max(places) - min(places)) or 0.5
        return min(places) - room, max(places) + room

    def share(self, place: float) -> float:
        """A place as a share of the axis."""
        low, high = self.limits
        return (place - low) / (high - low)

    def ticks(self) -> tuple[list[float], list[str]]:
        """Where something was measured, as far as names have room."""
        shown: dict[float, str] = {}
        given = sorted(set(self.measured))
        for x in given if self.log or len(given) <= MOST_TICKS else given[:: len(given) // 6]:
            place = self(x)
            if all(abs(self.share(place) - self.share(other)) > 0.045 for other in shown):
                shown[place] = number(x)
        return list(shown), list(shown.values())


class Upright:
    """The y axis: all heights but those far above the others, which would flatten them.

    ``wanted`` are the heights of those lines that matter most; others may be cut at ``ROOM``
    times their range. Where heights differ widely and that is the point, ``wide`` says so.

    >>> Upright([1.0, 1.02, 1.03, 1.04, 1.05, 3.0]).limits[1] < 1.2
    True
    """

    def __init__(
        self,
        heights: Sequence[float],
        wanted: Sequence[float] = (),
        bands: Sequence[float] = (),
        *,
        wide: bool = False,
    ) -> None:
        there = _there(heights) or [0.0, 1.0]
        low = there[0]
        self.log = wide and low > 0 and there[-1] > WIDE * low
        top = there[-1] if wide else min(there[-1], _top(low, _there(wanted) or there))
        shown = [height for height in there if height <= top]
        edges = [edge for edge in _there(bands) if low * 0.9 <= edge <= top + 0.1 * (top - low)]
        self.limits = _roomy(min([*edges, low]), max([*edges, *shown]), self.log)

    def share(self, height: float) -> float:
        """A height as a share of the axis, at most all of it."""
        low, high = self.limits
        if self.log:
            low, high, height = (math.log10(max(edge, low)) for edge in (low, high, height))
        return min((height - low) / (high - low), 1.0)


def _there(heights: Sequence[float]) -> list[float]:
    return sorted(height for height in heights if math.isfinite(height))


def _top(low: float, wanted: Sequence[float]) -> float:
    """Up to where heights are shown: the wanted ones that are no outliers, and room above."""
    third = quantiles(wanted, n=4, method="inclusive")[2] if len(wanted) > 3 else wanted[-1]
    edge = third + FAR * (third - wanted[0]) + 1e-9
    high = max(height for height in wanted if height <= edge)
    return low + max(ROOM * (high - low), 0.02 * abs(low))


def _roomy(low: float, high: float, log: bool) -> tuple[float, float]:
    if log:
        return low / 1.3, high * 1.3
    room = max(high - low, 0.002 * (abs(high) or 1.0))  # also where all are as good as equal
    return low - 0.1 * room, high + 0.1 * room


def spread_out(wanted: Sequence[float], tall: Sequence[float]) -> list[float]:
    """Heights of names near those wanted, so that none touches another.

    >>> [round(height, 3) for height in spread_out([0.5, 0.5, 0.9], [0.1, 0.1, 0.1])]
    [0.45, 0.55, 0.9]
    """
    blocks: list[tuple[list[int], float]] = []  # names that touch, and where the lowest begins
    for name in sorted(range(len(wanted)), key=lambda name: wanted[name]):
        blocks.append(([name], wanted[name] - tall[name] / 2))
        while len(blocks) > 1 and _end(blocks[-2], tall) > blocks[-1][1]:
            together = blocks[-2][0] + blocks[-1][0]
            del blocks[-2:]
            blocks.append((together, _start(together, wanted, tall)))
    places = [0.0] * len(wanted)
    for names, start in blocks:
        for name in names:
            places[name] = start + tall[name] / 2
            start += tall[name]
    return places


def _end(block: tuple[list[int], float], tall: Sequence[float]) -> float:
    return block[1] + sum(tall[name] for name in block[0])


def _start(names: Sequence[int], wanted: Sequence[float], tall: Sequence[float]) -> float:
    """Where a block begins that leaves its names nearest to where they should be."""
    below, starts = 0.0, []
    for name in names:
        starts.append(wanted[name] - tall[name] / 2 - below)
        below += tall[name]
    return sum(starts) / len(starts)
