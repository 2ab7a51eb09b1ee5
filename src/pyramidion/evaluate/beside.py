"""Our numbers beside the paper's and beside what we aim for: met or missed.

>>> figure = Figure("q1", "d", "", "", references=(Reference("a", 1.02, 0.8, "target"),))
>>> [beside] = compared(figure, [Point("a", 1.0, ratio=1.01)])
>>> beside.ours.mean, beside.verdict
(1.01, 'met')
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pyramidion.evaluate.points import Figure, Point, Reference
from pyramidion.evaluate.running import Mean, means

NEAR = 1.3
"""Our nearest measurement stands beside a number if its x differs by no more times than this:
0.8 % and 1 % of the rows may be compared, ε = 0.1 and 0.2 may not."""


@dataclass(frozen=True)
class Beside:
    """One comparison: a series at a place, or anywhere on the axis (``x`` None: at its best)."""

    series: str
    x: float | None
    paper: float | None
    target: float | None
    ours: Mean | None
    note: str

    @property
    def verdict(self) -> str:
        """Met or missed, against the target, or else against the paper."""
        aim, name = (self.paper, "paper ") if self.target is None else (self.target, "")
        if self.ours is None or aim is None or math.isnan(self.ours.mean):
            return "not measured"
        if self.ours.mean <= aim:
            return f"{name}met"
        return f"{name}missed by {self.ours.mean / aim - 1:.1%}"


def compared(figure: Figure, points: Sequence[Point]) -> list[Beside]:
    """The figure's references, those of the same series and place together, beside ours.

    References are ratios, so ours are too, whatever the figure shows.
    """
    lines = means(points, "ratio")
    places: dict[tuple[str, float | None], list[Reference]] = {}
    for reference in figure.references:
        places.setdefault((reference.series, reference.x), []).append(reference)
    return [
        Beside(
            series=series,
            x=x,
            paper=_ratio(found, "paper"),
            target=_ratio(found, "target"),
            ours=_ours(lines.get(series, []), x, log=figure.log_x),
            note="; ".join(known.note for known in found if known.note and known.source == "paper"),
        )
        for (series, x), found in places.items()
    ]


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
