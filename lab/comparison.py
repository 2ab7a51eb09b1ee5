"""Our numbers compared with the paper's and with our targets: met or missed.

>>> figure = Figure("q1", "d", "", "", references=(Reference("a", 1.02, 0.8, "target"),))
>>> [beside] = compared(figure, [Point("a", 1.0, ratio=1.01)])
>>> beside.ours.mean, beside.verdict
(1.01, 'met')
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from lab.points import Figure, Point, Reference
from lab.runner import Mean, means

NEAR = 1.3
"""Our nearest measurement stands beside a number if its x differs by no more times than this:
0.8 % and 1 % of the rows may be compared, ε = 0.1 and 0.2 may not."""


NOT_HERE = "not measured here"


@dataclass(frozen=True)
class Comparison:
    """One comparison: a series at a place, or anywhere on the axis (``x`` None: at its best).

    Or of two series, one by the other, at a place or on average (``x`` None).
    """

    series: str
    x: float | None
    paper: float | None
    target: float | None
    ours: Mean | None
    note: str
    of: str = "ratio"
    aim: bool = True

    @property
    def verdict(self) -> str:
        """Met or missed, against the target; or else beside the paper's number of its own rows."""
        if self.ours is None or math.isnan(self.ours.mean):
            return NOT_HERE
        if self.target is not None:
            return _met(self.ours.mean, self.target, "met", "missed")
        if self.paper is None or not self.aim:
            return "no aim"
        return _met(self.ours.mean, self.paper, "as the paper or better", "behind the paper")


def _met(ours: float, aim: float, well: str, badly: str) -> str:
    return well if ours <= aim else f"{badly} by {ours / aim - 1:.1%}"


Place = tuple[str, float | None, str, str, float | None]


def compared(figure: Figure, points: Sequence[Point]) -> list[Comparison]:
    """The figure's references, those of the same series and place together, beside ours."""
    places: dict[Place, list[Reference]] = {}
    for known in figure.references:
        place = (known.series, known.x, known.of, known.by, known.by_x)
        places.setdefault(place, []).append(known)
    lines = {known.of: means(points, known.of) for known in figure.references}
    return [_beside(figure, found, lines[found[0].of]) for found in places.values()]


def _beside(figure: Figure, found: Sequence[Reference], lines: Lines) -> Comparison:
    first, least = found[0], max(known.rows for known in found)
    few = 0 < figure.rows < least
    notes = [known.note for known in found if known.note and known.source == "paper"]
    notes += [f"judged from {least:,} rows on, here are {figure.rows:,}"] * few
    return Comparison(
        series=first.series + (f", by {first.by}" if first.by not in ("", first.series) else ""),
        x=first.x,
        paper=_ratio(found, "paper"),
        target=_ratio(found, "target"),
        ours=None if few else _found(first, lines, log=figure.log_x),
        note="; ".join(notes),
        of="" if first.by else first.of,
        aim=all(known.aim for known in found),
    )


Lines = Mapping[str, Sequence[Mean]]


def _found(known: Reference, lines: Lines, *, log: bool) -> Mean | None:
    """Our number: of one series, or of one by another."""
    line, other = lines.get(known.series, []), lines.get(known.by, [])
    if not known.by:
        return _ours(line, known.x, log=log)
    if known.x is None:
        others = {mean.x: mean.mean for mean in other}
        each = [mean.mean / others[mean.x] for mean in line if mean.x in others]
        return Mean(math.nan, fmean(each), min(each), max(each), len(each)) if each else None
    ours = _ours(line, known.x, log=log)
    by = _ours(other, known.x if known.by_x is None else known.by_x, log=log)
    if ours is None or by is None:
        return None
    return Mean(ours.x, ours.mean / by.mean, ours.low / by.high, ours.high / by.low, ours.seeds)


def times(points: Sequence[Point]) -> str:
    """How many times as fast as the raw baseline models on counts are trained again.

    >>> print(times([Point("raw: a", 100, value=6.0), Point("counts: b", 1, value=0.5)]))
    The raw baseline takes 12 times as long as b.
    """
    lines = {name: fmean(mean.mean for mean in line) for name, line in _values(points)}
    raw = [took for name, took in lines.items() if name.startswith("raw: ")]
    counts = {name: took for name, took in lines.items() if name.startswith("counts: ")}
    if not raw or not counts:
        return ""
    told = [f"{raw[0] / took:.3g} times as long as {name[8:]}" for name, took in counts.items()]
    return f"The raw baseline takes {', '.join(told)}."


def _values(points: Sequence[Point]) -> Iterable[tuple[str, list[Mean]]]:
    return means(points, "value").items()


def _ratio(references: Sequence[Reference], source: str) -> float | None:
    return next((known.ratio for known in references if known.source == source), None)


def _ours(line: Sequence[Mean], x: float | None, *, log: bool) -> Mean | None:
    """Our mean nearest to a place, or the best of all."""
    there = [mean for mean in line if not math.isnan(mean.mean)]
    if x is None:
        return min(there, key=lambda mean: mean.mean, default=None)
    near = [(mean, _apart(mean.x, x, log)) for mean in there]
    near = [(mean, far) for mean, far in near if far <= (math.log(NEAR) if log else 0)]
    return min(near, key=lambda found: found[1], default=(None, 0.0))[0]


def _apart(one: float, other: float, log: bool) -> float:
    if one == other:
        return 0.0
    plain = all(math.isfinite(x) and x > 0 for x in (one, other))
    if not plain:
        return math.inf
    return abs(math.log(one / other)) if log else abs(one - other)
