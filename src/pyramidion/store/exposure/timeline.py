"""The timeline of an exposure report, drawn as SVG: what was there when, and the interval.

    hot steps    from the first arrival in them until nothing opened them any more
    models       while they were registered
    windows      populating, then sealed, until they were erased
    the shaded   interval goes through all of them

Colours come from the page's style, so that it is light, dark or printed with the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from html import escape

from pyramidion.config.durations import EPOCH, UNITS
from pyramidion.store.exposure.exposed import Exposure, HotExposed
from pyramidion.store.exposure.text import SHOWN, moment, several

WIDTH, LEFT, RIGHT = 960, 118, 842
"""Of the picture, and where the time begins and ends in it; names stand left, numbers right."""
BAR, GAP, TOP, BOTTOM = 13, 5, 46, 34
"""Heights: of a bar, between bars, above the first lane and below the last."""
LEAST = 3.0  # a bar that is shorter would not be seen
TICKS = [
    n * UNITS[unit]
    for n, unit in (
        *((1, "s"), (5, "s"), (15, "s"), (1, "m"), (5, "m"), (15, "m"), (1, "h"), (3, "h")),
        *((6, "h"), (12, "h"), (1, "d"), (2, "d"), (7, "d"), (14, "d"), (28, "d"), (91, "d")),
        *((182, "d"), (365, "d"), (3_650, "d")),
    )
]


@dataclass(frozen=True)
class Bar:
    """A stretch of time in a lane. Without an end it goes on."""

    kind: str
    start: int
    stop: int | None
    told: str


@dataclass(frozen=True)
class Row:
    """Bars on one line, what they are called, and a number beside them."""

    name: str
    bars: Sequence[Bar]
    number: str = ""


@dataclass(frozen=True)
class Scale:
    """Where a moment lies in the picture."""

    first: int
    last: int

    def __call__(self, time: int) -> float:
        """The horizontal place; what is outside lies on the border.

        >>> scale = Scale(0, 100)
        >>> scale(0), scale(100), scale(-5), scale(50)
        (118.0, 842.0, 118.0, 480.0)
        """
        inside = min(max(time, self.first), self.last)
        return LEFT + (inside - self.first) * (RIGHT - LEFT) / (self.last - self.first)


# --- what is drawn -------------------------------------------------------------------------


def lanes(found: Exposure) -> list[tuple[str, list[Row]]]:
    """Each lane with its rows; those alone that have some."""
    told = [("hot steps", _steps(found)), ("models", _models(found)), ("windows", _windows(found))]
    return [(name, rows) for name, rows in told if rows]


def _steps(found: Exposure) -> list[Row]:
    """The newest steps one by one, and those before them as one."""
    older = found.hot[:-SHOWN]
    rows = [_row(f"{len(older)} older", older)] if older else []
    return [*rows, *(_row(f"step {part.step}", [part]) for part in found.hot[-SHOWN:])]


def _row(name: str, of: Sequence[HotExposed]) -> Row:
    gone = [part.gone for part in of if part.gone is not None]
    stop = max(gone) if len(gone) == len(of) else None
    bar = Bar("hot", min(part.first for part in of), stop, f"hot, {name}")
    return Row(name, [bar], several(sum(part.rows for part in of), "row"))


def _models(found: Exposure) -> list[Row]:
    return [
        Row(_short(model.name or "any"), [Bar("model", model.since, model.until, "registered")])
        for model in found.models.registered[:SHOWN]
    ]


def _windows(found: Exposure) -> list[Row]:
    rows = []
    for window in found.windows[-SHOWN:]:
        ends = window.sealed if "sealed" in window.states else window.frozen
        bars = [Bar("sealed", ends, window.erased, "sealed")] if window.sealed and ends else []
        name = f"window {window.number}"
        rows.append(Row(name, [Bar("populating", window.born, ends, "populating"), *bars]))
    return rows


def _short(name: str) -> str:
    return name if len(name) <= 16 else f"{name[:15]}…"


def _scale(found: Exposure) -> Scale:
    """All hot steps and the interval are seen whole; of windows and models, what fits."""
    ends = [found.at if part.gone is None else part.gone for part in found.hot]
    first = min([found.start, *(part.first for part in found.hot)])
    last = max([found.stop, *ends])
    margin = max((last - first) // 12, (found.stop - found.start) // 2, UNITS["m"])
    return Scale(first - margin, last + margin)


# --- the drawing ----------------------------------------------------------------------------


def drawn(found: Exposure) -> str:
    """The picture, as an element for a page."""
    scale, shown = _scale(found), lanes(found)
    number = sum(len(rows) for _, rows in shown)
    height = TOP + number * (BAR + GAP) + max(len(shown) - 1, 0) * 2 * GAP + BOTTOM
    lines = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="what how">',
        '<title id="what">What was there when</title>',
        f'<desc id="how">{escape(_described(found))}</desc>',
        *_ticks(scale, height),
        *_shade(found, scale, height),
        *_bars(shown, scale, found.at),
        *_edges(found, scale, height),
        "</svg>",
    ]
    return "\n".join(lines)


def _described(found: Exposure) -> str:
    told = [f"{len(rows)} {name}" for name, rows in lanes(found)] or ["nothing"]
    between = f"{moment(found.start)} to {moment(found.stop)}"
    return f"Bars for {', '.join(told)}; the interval from {between} is shaded."


def _shade(found: Exposure, scale: Scale, height: int) -> Iterator[str]:
    left, right = scale(found.start), scale(found.stop)
    width = max(right - left, LEAST)
    size = f'y="{TOP - 12}" width="{width:.1f}" height="{height - TOP - BOTTOM + 18}"'
    yield f'<rect class="shade" x="{left:.1f}" {size}/>'
    middle = min(max(left + width / 2, LEFT + 60), RIGHT - 60)
    yield f'<text class="attack" x="{middle:.1f}" y="{TOP - 32}">the interval</text>'
    told = f"{moment(found.start)} – {moment(found.stop)}"
    middle = min(max(middle, LEFT + 130), RIGHT - 130)
    yield f'<text class="when" x="{middle:.1f}" y="{TOP - 18}">{told}</text>'


def _edges(found: Exposure, scale: Scale, height: int) -> Iterator[str]:
    """Where the interval begins and ends, over the bars."""
    left, foot = scale(found.start), height - BOTTOM + 6
    for x in (left, max(scale(found.stop), left + LEAST)):
        yield f'<line class="edge" x1="{x:.1f}" y1="{TOP - 12}" x2="{x:.1f}" y2="{foot}"/>'
    if scale.first < found.at < scale.last and scale(found.at) > scale(found.stop) + 110:
        yield f'<text class="when" x="{scale(found.at):.1f}" y="{TOP - 18}">now</text>'


def _ticks(scale: Scale, height: int) -> Iterator[str]:
    span = scale.last - scale.first
    step = next((tick for tick in TICKS if span / tick <= 8), TICKS[-1])
    pattern = "%Y-%m-%d" if step >= UNITS["d"] else "%m-%d %H:%M"
    pattern = pattern if step >= UNITS["m"] else "%H:%M:%S"
    foot = height - BOTTOM + 6
    for time in range(-(-scale.first // step) * step, scale.last + 1, step):
        x = scale(time)
        yield f'<line class="grid" x1="{x:.1f}" y1="{TOP - 12}" x2="{x:.1f}" y2="{foot}"/>'
        told = (EPOCH + timedelta(microseconds=time)).strftime(pattern)
        if LEFT + 24 <= x <= RIGHT - 24:
            yield f'<text class="tick" x="{x:.1f}" y="{foot + 16}">{told}</text>'


def _bars(shown: Sequence[tuple[str, Sequence[Row]]], scale: Scale, now: int) -> Iterator[str]:
    top = TOP
    for _, rows in shown:
        for row in rows:
            line = top + BAR - 3
            yield f'<text class="name" x="{LEFT - 10}" y="{line}">{escape(row.name)}</text>'
            for bar in row.bars:
                yield from _bar(bar, scale, top, now)
            if row.number:
                yield f'<text class="number" x="{RIGHT + 10}" y="{line}">{row.number}</text>'
            top += BAR + GAP
        top += 2 * GAP


def _bar(bar: Bar, scale: Scale, top: int, now: int) -> Iterator[str]:
    stop = now if bar.stop is None else bar.stop
    if stop < scale.first or bar.start > scale.last:
        return
    left = scale(bar.start)
    width = max(scale(stop) - left, LEAST)
    until = "now" if bar.stop is None else moment(bar.stop)
    told = escape(f"{bar.told}, {moment(bar.start)} to {until}")
    size = f'x="{left:.1f}" y="{top}" width="{width:.1f}" height="{BAR}" rx="2.5"'
    yield f'<rect class="{bar.kind}" {size}><title>{told}</title></rect>'
    if bar.start < scale.first and width > BAR:  # it began before what is drawn
        yield f'<text class="cut" x="{left + 3:.1f}" y="{top + BAR - 3}">◂</text>'
