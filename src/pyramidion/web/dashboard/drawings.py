"""Pictures that the server draws: the data pyramid to scale, and the windows in time.

No text is in them, which would shrink with the picture on a phone; it stands beside, as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from typing import Any

from markupsafe import Markup

WIDTH, HEIGHT = 360.0, 300.0
"""Of the pyramid."""
LONG, TALL = 1_000.0, 44.0
"""Of the timeline."""
MANY = 400
"""Windows that are drawn, the newest."""


def pyramid(layers: Mapping[str, Any]) -> Markup:
    """Areas that are to each other as the rows are: raw, in noisy counts alone, in the vault."""
    rows = [("hot", layers["exposed"]), ("sealed", layers["summarised"])]
    rows.append(("vault", layers["locked_away"] or 0))
    whole = sum(number for _, number in rows)
    return Markup('<svg class="pyramid" viewBox="0 0 360 300" aria-hidden="true">{}</svg>').format(
        Markup("").join(_bands(rows, whole) if whole else [_empty()])
    )


def _bands(rows: Sequence[tuple[str, int]], whole: int) -> Iterator[Markup]:
    """The area above a height grows with its square, so heights are roots of shares."""
    above = 0
    for kind, number in rows:
        top, bottom = (HEIGHT * sqrt(n / whole) for n in (above, above + number))
        above += number
        if number:
            yield Markup('<path class="{}" d="{}"/>').format(kind, _band(top, bottom))


def _band(top: float, bottom: float) -> str:
    left, right = (WIDTH / 2 * (1 - y / HEIGHT) for y in (top, bottom))
    corners = (left, top), (WIDTH - left, top), (WIDTH - right, bottom), (right, bottom)
    return "M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in corners) + "Z"


def _empty() -> Markup:
    return Markup('<path class="none" d="{}"/>').format(_band(0, HEIGHT))


def timeline(windows: Sequence[Mapping[str, Any]], oldest_hot: int | None, now: int) -> Markup:
    """The windows in time, each in the colour of its state, and over them what is hot."""
    shown = list(windows)[-MANY:]
    if not shown:
        return Markup("")
    timed = all(window["start"] is not None and window["stop"] is not None for window in shown)
    spans = [
        (window["start"], window["stop"]) if timed else (number, number + 1)
        for number, window in enumerate(shown)
    ]
    first, last = spans[0][0], max(stop for _, stop in spans)
    scale = LONG / max(last - first, 1)
    parts = []
    for window, (start, stop) in zip(shown, spans, strict=True):
        left, wide = (start - first) * scale, max((stop - start) * scale, 1.0)
        gap = min(1.5, wide * 0.15)
        parts.append(_bar(window["state"], left, wide - gap, 14, TALL - 14))
    if timed and oldest_hot is not None:
        left, right = ((min(max(t, first), last) - first) * scale for t in (oldest_hot, now))
        parts.append(_bar("hot", left, max(right - left, 3.0), 2, 8))
    return Markup(
        '<svg class="timeline" viewBox="0 0 1000 44" preserveAspectRatio="none" '
        'aria-hidden="true">{}</svg>'
    ).format(Markup("").join(parts))


def _bar(kind: str, left: float, wide: float, top: float, tall: float) -> Markup:
    return Markup('<rect class="{}" x="{:.2f}" y="{}" width="{:.2f}" height="{}"/>').format(
        kind, left, top, wide, tall
    )
