"""The year in pictures: the data pyramid to scale, losses, and what an attacker would see.

What is drawn are totals of days and months, of a public data set. The colours are told apart
also by people who see fewer of them (Okabe and Ito), and lines are named where they end.
"""

from __future__ import annotations

import calendar
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pyramidion.demo.flights import BEGIN
from pyramidion.demo.models import NAMES
from pyramidion.demo.year import Exposure, Life, Month

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HOT, COUNTS, GONE, RAW = "#D55E00", "#0072B2", "#C9CDD2", "#1A1A1A"
INK, PALE = "#222222", "#6B7280"
STYLE: dict[Any, Any] = {
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": PALE,
    "axes.labelcolor": PALE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": PALE,
    "ytick.color": PALE,
    "savefig.dpi": 150,
}
WITHIN = 0.05
MONTHS = [calendar.month_abbr[number] for number in range(1, 13)]
STARTS = [(BEGIN.replace(month=number) - BEGIN).days for number in range(1, 13)]


def drawn(
    folder: Path,
    months: Sequence[Month],
    exposures: Sequence[Exposure],
    lives: Sequence[Life],
    *,
    retention: float,
) -> list[Path]:
    """Draw all plots as PNG files in a folder; where they are. Retention is in days."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        figures = {
            "pyramid": pyramid(exposures[-1], months[-1].epsilon),
            "loss": losses([month for month in months if month.losses]),
            "exposure": exposure(exposures, lives, retention),
        }
        paths = [folder / f"{name}.png" for name in figures]
        for path, figure in zip(paths, figures.values(), strict=True):
            figure.savefig(path, metadata={"Software": "pyramidion demo"})
    return paths


def _figure(size: tuple[float, float], title: str, subtitle: str) -> Figure:
    """An empty page with its heading."""
    from matplotlib.figure import Figure

    figure, height = Figure(figsize=size, facecolor="white"), size[1]
    figure.text(0.04, 1 - 0.36 / height, title, fontsize=15, fontweight="bold", va="center")
    figure.text(0.04, 1 - 0.72 / height, subtitle, fontsize=11, color=PALE, va="center")
    return figure


# --- the pyramid ---------------------------------------------------------------------------


def pyramid(found: Exposure, epsilon: float) -> Figure:
    """All flights as a triangle: areas are numbers of flights."""
    noise = f"noise in every cell, ε = {epsilon:g}" if epsilon < np.inf else "exact, no privacy"
    parts = (
        (found.hot, HOT, "raw flights", "the hot window, all that an attacker would see"),
        (found.counted, COUNTS, "flights as counts", noise),
        (found.gone, GONE, "flights gone", "past retention; counts, rows and keys erased"),
    )
    month = calendar.month_name[sum(start <= found.day for start in STARTS)]
    figure = _figure(
        (9, 5.4),
        "The data pyramid, drawn to scale",
        f"{found.collected:,} flights collected by the end of {month}; areas are numbers of them",
    )
    axes = figure.add_axes((0.04, 0.05, 0.92, 0.74))
    axes.set(xlim=(0, 2.12), ylim=(-0.02, 1.02))
    axes.axis("off")
    above = 0.0
    for rows, color, what, why in parts:
        share = rows / found.collected
        if rows:
            _layer(axes, above, above + share, color)
            _label(axes, above, above + share, f"{rows:,} {what}", f"{share:.1%} · {why}", color)
        above += share
    return figure


def _layer(axes: Axes, above: float, below: float, color: str) -> None:
    """A slice of the triangle between two shares of its area, from the top."""
    top, bottom = (share**0.5 for share in (above, min(below, 1.0)))  # areas grow by the square
    corners = [(0.5 - top / 2, 1 - top), (0.5 + top / 2, 1 - top)]
    corners += [(0.5 + bottom / 2, 1 - bottom), (0.5 - bottom / 2, 1 - bottom)]
    axes.fill(*zip(*corners, strict=True), facecolor=color, edgecolor="white", linewidth=2)


def _label(axes: Axes, above: float, below: float, what: str, why: str, color: str) -> None:
    """Beside its slice, with a line to it."""
    top, bottom = above**0.5, min(below, 1.0) ** 0.5
    middle = (top + bottom) / 2
    y = 1 - middle
    axes.plot([0.5 + middle / 2 + 0.01, 1.12], [y, y], color=color, linewidth=1.2)
    strong = PALE if color == GONE else color
    axes.text(1.14, y + 0.005, what, fontsize=13, fontweight="bold", color=strong, va="bottom")
    axes.text(1.14, y - 0.015, why, fontsize=10.5, color=INK, va="top")


# --- losses --------------------------------------------------------------------------------


def losses(months: Sequence[Month]) -> Figure:
    """Log loss of each month: private counts, all raw flights, and the prior."""
    figure = _figure(
        (10, 5.2),
        "Private counts against all raw flights",
        f"Log loss on each month before it is observed, lower is better; "
        f"shaded: within {WITHIN:.0%} of raw",
    )
    panels = figure.subplots(1, len(NAMES), sharey=True)
    figure.subplots_adjust(left=0.085, right=0.88, top=0.76, bottom=0.08, wspace=0.34)
    for axes, name in zip(panels, NAMES, strict=True):
        _panel(axes, months, name)
    panels[0].set_ylabel("log loss (nats)")
    return figure


def _panel(axes: Axes, months: Sequence[Month], name: str) -> None:
    """One model."""
    x = np.array([month.number for month in months])
    raw = np.array([month.losses[name].raw for month in months])
    private = np.array([month.losses[name].private for month in months])
    prior = np.array([month.prior or np.nan for month in months])
    axes.fill_between(x, raw * (1 - WITHIN), raw * (1 + WITHIN), color=RAW, alpha=0.08, linewidth=0)
    axes.plot(x, prior, color=PALE, linestyle=":", linewidth=2)
    axes.plot(x, raw, color=RAW, linewidth=2)
    axes.plot(x, private, color=COUNTS, linewidth=2.4)
    ends = {"class rate only": (prior, PALE), "raw": (raw, RAW), "private": (private, COUNTS)}
    _name_ends(axes, x[-1], {told: (y[-1], color) for told, (y, color) in ends.items()})
    above = np.mean([month.losses[name].ratio for month in months]) - 1
    axes.set_title(f"{name}: {above:+.1%} on average", loc="left", fontsize=12)
    axes.set_xticks(x, [MONTHS[number - 1][0] for number in x])
    axes.grid(axis="y", color=PALE, alpha=0.2)


def _name_ends(axes: Axes, x: float, ends: dict[str, tuple[float, str]]) -> None:
    """Names at the ends of lines, moved apart where they would touch."""
    low, high = axes.get_ylim()
    gap, last = 0.055 * (high - low), -np.inf
    for name, (y, color) in sorted(ends.items(), key=lambda end: end[1][0]):
        last = max(y, last + gap)
        axes.annotate(
            name,
            (x, last),
            xytext=(7, 0),
            textcoords="offset points",
            color=color,
            va="center",
            annotation_clip=False,
        )


# --- exposure ------------------------------------------------------------------------------


def exposure(exposures: Sequence[Exposure], lives: Sequence[Life], retention: float) -> Figure:
    """Flights collected, and what is left of them, day by day; below, the lives of windows."""
    found = exposures[-1]
    figure = _figure(
        (10, 6.6),
        "What an attacker would see, day by day",
        f"{found.hot:,} of {found.collected:,} flights at the end; "
        f"of the others there are noisy counts, or nothing",
    )
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    figure.subplots_adjust(left=0.12, right=0.8, top=0.83, bottom=0.06, hspace=0.12)
    _bands(upper, exposures)
    _lifelines(lower, lives, retention, found.day + 1)
    starts = [start for start in STARTS if start <= found.day]
    lower.set_xlim(0, found.day + 1)
    lower.set_xticks(starts, MONTHS[: len(starts)], ha="left")
    figure.align_ylabels()
    return figure


def _bands(axes: Axes, exposures: Sequence[Exposure]) -> None:
    """Hot, counted and gone flights on top of each other: together all that were collected."""
    days, last = [found.day + 1 for found in exposures], exposures[-1]
    layers = [[getattr(found, name) for found in exposures] for name in ("hot", "counted", "gone")]
    axes.stackplot(days, *layers, colors=(HOT, COUNTS, GONE), linewidth=0)
    told = (
        (last.hot, last.hot / 2, "raw, visible", HOT),
        (last.counted, last.hot + last.counted / 2, "only as counts", COUNTS),
        (last.gone, last.collected - last.gone / 2, "erased", PALE),
    )
    for rows, middle, what, color in told:
        if rows:
            _beside(axes, middle, f"{rows:,}\n{what}", color, weight="bold")
    axes.set_ylim(0, last.collected)
    axes.set_ylabel("flights")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _lifelines(axes: Axes, lives: Sequence[Life], retention: float, last: float) -> None:
    """Each window from its first day to its erasure."""
    for life in lives:
        stop, end = min(life.stop, last), min(life.start + retention, last)
        axes.barh(-life.number, stop - life.start, left=life.start, color=COUNTS, alpha=0.45)
        axes.barh(-life.number, end - stop, left=stop, color=COUNTS)
        if life.state == "erased":
            axes.plot(end, -life.number, marker="x", color=RAW, markersize=6, markeredgewidth=1.8)
    most = max(life.epsilon for life in lives)
    low, high = axes.get_ylim()
    told = f"pale: takes rows\nblue: answers\n×: erased\n\neach spends ε = {most:g}"
    _beside(axes, (low + high) / 2, told, INK)
    axes.set_yticks([])
    axes.set_ylabel("count windows")


def _beside(axes: Axes, y: float, told: str, color: str, weight: str = "normal") -> None:
    """Words to the right of a panel."""
    axes.annotate(
        told,
        (1, y),
        xycoords=axes.get_yaxis_transform(),
        xytext=(8, 0),
        textcoords="offset points",
        color=color,
        fontweight=weight,
        va="center",
        annotation_clip=False,
    )
