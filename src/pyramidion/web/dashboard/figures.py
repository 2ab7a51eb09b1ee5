"""Pictures of a stream: drawings that the server makes, and plots that the browser draws.

Drawings (the data pyramid to scale, the windows in time) hold no text, which would shrink on a
phone. Plots are values for the plot library; a colour is the name of one in the style, so that a
plot is light or dark with its page. What a picture shows is also beside it, as text or a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import sqrt
from typing import Any

from markupsafe import Markup

# --- drawings -----------------------------------------------------------------------------

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


# --- plots --------------------------------------------------------------------------------

Figure = dict[str, Any]

ROW = 24
"""Pixels for each table."""
AXIS: dict[str, Any] = {
    "gridcolor": "--line",
    "linecolor": "--line",
    "zerolinecolor": "--line",
    "automargin": True,
    "fixedrange": True,
}
_KINDS = ("--model", "--vault", "--populating", "--hot")


def _layout(height: int, x: Mapping[str, Any], y: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "height": height,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": "--ink", "size": 13},
        "margin": {"l": 10, "r": 10, "t": 30, "b": 40},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "hoverlabel": {"bgcolor": "--card", "bordercolor": "--line", "font": {"color": "--ink"}},
        "xaxis": {**AXIS, **x},
        "yaxis": {**AXIS, **y},
        "barmode": "stack",
        "bargap": 0.15,
    }


def spent(windows: Sequence[Mapping[str, Any]]) -> Figure:
    """Each window's budget: what tables and reserves took, and what is left."""
    numbers = [window["number"] for window in windows]
    purposes = list(dict.fromkeys(r["purpose"] for w in windows for r in w["reserves"]))
    data = [_bars("tables", numbers, [w["tables"] for w in windows], "--sealed")]
    for at, purpose in enumerate(purposes):
        used = [_used(window, purpose) for window in windows]
        data.append(_bars(purpose, numbers, used, _KINDS[at % len(_KINDS)]))
    data.append(_bars("left", numbers, [w["left"] for w in windows], "--line"))
    unit = windows[0]["unit"] if windows else ""
    return {
        "data": data,
        "layout": _layout(300, {"title": {"text": "window"}}, {"title": {"text": unit}}),
    }


def _used(window: Mapping[str, Any], purpose: str) -> float:
    return float(sum(r["used"] for r in window["reserves"] if r["purpose"] == purpose))


def _bars(name: str, x: Sequence[Any], y: Sequence[float], colour: str) -> Figure:
    return {"type": "bar", "name": name, "x": x, "y": y, "marker": {"color": colour}}


def noise(tables: Sequence[Mapping[str, Any]]) -> Figure:
    """The noise in a cell of each table, against the counts that are in its cells."""
    names = [escape(table["name"], quote=False) or "(prior)" for table in tables]
    return {
        "data": [
            _dots("noise (deviation)", names, [t["deviation"] for t in tables], "--gone", "x"),
            _dots("typical count", names, [t["typical"] for t in tables], "--sealed", "circle"),
        ],
        "layout": _layout(
            110 + ROW * len(tables),
            {"type": "log", "dtick": "D2", "title": {"text": "rows"}},
            {"autorange": "reversed", "type": "category"},
        ),
    }


def _dots(
    name: str, names: Sequence[str], values: Sequence[float | None], colour: str, symbol: str
) -> Figure:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "y": names,
        "x": [value or None for value in values],
        "marker": {"color": colour, "size": 11, "symbol": symbol},
    }


def loss(told: Mapping[str, Any]) -> Figure:
    """A model's loss beside that of knowing the label's rates alone."""
    names = [escape(told["model"], quote=False), "prior"]
    bars = _bars("loss", [told["loss"], told["prior"]], [0, 0], "--model")
    bars |= {"orientation": "h", "y": names, "marker": {"color": ["--model", "--gone"]}}
    layout = _layout(170, {"title": {"text": told["kind"]}, "rangemode": "tozero"}, {})
    return {"data": [bars], "layout": layout | {"showlegend": False}}
