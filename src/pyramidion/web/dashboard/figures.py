"""Plots, as values that the plot library draws in the browser.

A colour is the name of one in the style, so that a plot is light or dark with its page. What a
plot shows also stands beside it in a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

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
