"""Figures of single numbers as bars, by logarithm: the paper's grey, ours in colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lab.axes import number
from lab.points import Figure
from lab.runner import Mean
from pyramidion.demo.plots import INK, PALE

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Page

OURS, THEIRS = "#0072B2", "#9AA1AB"
PAPER = "paper"
"""How the names of the paper's numbers begin."""


def drawn(figure: Figure, found: Mapping[str, Sequence[Mean]]) -> Page:
    """A bar for each series, its number at the end of it."""
    from matplotlib.figure import Figure as Page

    bars = {series: line[-1].mean for series, line in found.items()}
    height = 1.5 + 0.5 * len(bars)
    page = Page(figsize=(10, height), facecolor="white")
    page.text(0.035, 1 - 0.22 / height, figure.title, fontsize=15, fontweight="bold", va="top")
    axes = page.add_axes((0.3, 0.55 / height, 0.6, 1 - 1.25 / height))
    colours = [THEIRS if series.startswith(PAPER) else OURS for series in bars]
    axes.barh(list(bars), list(bars.values()), color=colours, height=0.62)
    axes.set_xscale("log")
    axes.set_xlim(min(bars.values()) / 3, max(bars.values()) * 3)
    axes.invert_yaxis()
    for place, height_of in enumerate(bars.values()):
        axes.annotate(
            number(height_of),
            (height_of, place),
            (5, 0),
            textcoords="offset points",
            va="center",
            color=INK,
        )
    axes.xaxis.set_major_formatter(lambda value, _: number(value))
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(axis="x", color=PALE, alpha=0.18, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(figure.y_label)
    return page
