"""A figure as a picture: one line for each series, beside the paper's numbers and our targets.

Lines are means over seeds in a band from the least to the most. Models on counts have colours
that are told apart also by people who see fewer of them (Okabe and Ito), raw models are grey and
dashed. Lines are named where they end. What lies far above all else is marked at the upper edge
with its number, so that it does not flatten the rest.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from lab import bars
from lab.axes import Across, Upright, number, spread_out
from lab.points import OF_SEEDS, Figure, Point, Reference
from lab.runner import Mean, means
from pyramidion.demo.plots import INK, PALE, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Page

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
GREYS = ("#1A1A1A", "#6B7280", "#9AA1AB")
DASHES: tuple[Any, ...] = ((0, (5, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)))
GREY = ("raw", "best possible", "class rate", "editors")
"""How the names of series begin that are no models on counts."""
EDGE = 0.9
"""From this share of the x axis on, words stand left of their mark."""
BASELINE = "raw baseline on all rows"

Lines = Mapping[str, Sequence[Mean]]
Look = dict[str, Any]

PALETTE = 256
"""Colours of a file: edges of lines are softened, so they are more than those above."""


def draw(figure: Figure, points: Sequence[Point], folder: Path) -> Path:
    """Draw a figure as a PNG file in a folder; where it is.

    Lines on white need few colours. With a palette a file is a third as large, so that a page with
    all figures inside stays below 2 MB.
    """
    from matplotlib import rc_context
    from PIL import Image

    path, drawn = folder / f"{figure.slug}.png", io.BytesIO()
    with rc_context(STYLE):
        _drawn(figure, means(points, figure.shows)).savefig(drawn)
    with Image.open(drawn) as picture:
        few = picture.convert("RGB").quantize(PALETTE, dither=Image.Dither.NONE)
        few.save(path, optimize=True)
    return path


def _drawn(figure: Figure, found: Lines) -> Page:
    if figure.bars:
        return bars.drawn(figure, found)
    plain = [known for known in figure.references if known.of == figure.shows and not known.by]
    figure = replace(figure, references=plain)
    lines = {series: line for series, line in found.items() if _is_shown(figure, series)}
    page, axes = _page(figure)
    across, upright = _scales(figure, lines)
    axes.set(xlim=across.limits, ylim=upright.limits)
    if upright.log:
        axes.set_yscale("log")
    _ticks(axes, across, upright)
    looks = _looks(lines)
    if figure.shows == "ratio":
        _baseline(axes)
    for series, line in lines.items():
        _line(axes, across, line, looks[series])
    _clipped(axes, across, upright, lines, looks)
    _references(axes, across, upright, figure.references, looks)
    _names(axes, across, upright, lines, looks, figure.drawn)
    _key(page, figure, lines)
    return page


def _scales(figure: Figure, lines: Lines) -> tuple[Across, Upright]:
    """Both axes, wide enough for all lines and for what stands beside them."""
    found = [mean for line in lines.values() for mean in line]
    beside = [reference.x for reference in figure.references if reference.x is not None]
    fixed = [known.ratio for known in figure.references] + [1.0] * (figure.shows == "ratio")
    wanted = [mean.mean for name in lines if not _is_grey(name) for mean in lines[name]] + fixed
    bands = [edge for mean in found for edge in (mean.low, mean.high)]
    if figure.band != OF_SEEDS:  # intervals are the point, to their ends
        wanted += [edge for edge in bands if math.isfinite(edge)]
    heights = [mean.mean for mean in found] + fixed + (wanted if figure.band != OF_SEEDS else [])
    across = Across([mean.x for mean in found], beside, log=figure.log_x)
    return across, Upright(heights, wanted, bands, wide=figure.shows == "value")


def _is_shown(figure: Figure, series: str) -> bool:
    chosen = all(word in series for word in figure.drawn)
    return _is_grey(series) or (chosen and not series.endswith(tuple(figure.undrawn)))


def _is_grey(series: str) -> bool:
    return series.lower().startswith(GREY)


# --- the page ------------------------------------------------------------------------------


def _page(figure: Figure) -> tuple[Page, Axes]:
    """An empty page with its heading, and room for names on the right."""
    from matplotlib.figure import Figure as Page

    title = fill(figure.title, 76)
    height = 5.6 + 0.25 * title.count("\n")
    page = Page(figsize=(10, height), facecolor="white")
    page.text(0.035, 1 - 0.22 / height, title, fontsize=15, fontweight="bold", va="top")
    below = 0.58 + 0.25 * title.count("\n")
    lower = "" if figure.shows == "value" else "; lower is better"
    shared = f" ({', '.join(figure.drawn)})" if figure.drawn else ""
    page.text(0.035, 1 - below / height, figure.y_label + shared + lower, color=PALE, va="top")
    top = 1 - (below + 0.42) / height
    axes = page.add_axes((0.075, 0.92 / height, 0.645, top - 0.92 / height))
    axes.set_xlabel(figure.x_label)
    return page, axes


def _ticks(axes: Axes, across: Across, upright: Upright) -> None:
    places, names = across.ticks()
    axes.set_xticks(places, names)
    axes.grid(axis="y", color=PALE, alpha=0.18, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=3)
    if upright.log:
        axes.yaxis.set_major_formatter(lambda value, _: number(value))
    else:
        axes.ticklabel_format(axis="y", useOffset=False)


def _baseline(axes: Axes) -> None:
    axes.axhline(1.0, color=INK, linewidth=0.9, zorder=1)
    _words(axes, (0.004, 1.0), BASELINE, INK, (0, -3), va="top", across=True)


def _key(page: Page, figure: Figure, lines: Lines) -> None:
    """One row at the foot that says what marks and bands mean."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    sources = {reference.source for reference in figure.references if reference.x is not None}
    told: list[Any] = []
    if any(mean.low < mean.high for line in lines.values() for mean in line):
        told.append(Patch(facecolor=PALE, alpha=0.25, label=figure.band))
    for source, name in (("paper", "the paper"), ("target", "our target")):
        if source in sources:
            told.append(Line2D([], [], linestyle="", label=name, **_mark(source, PALE)))
    if told:
        page.legend(
            handles=told,
            loc="lower left",
            bbox_to_anchor=(0.065, 0.0),
            ncols=len(told),
            frameon=False,
            fontsize=9.5,
            labelcolor=PALE,
        )


# --- lines ---------------------------------------------------------------------------------


def _looks(lines: Lines) -> dict[str, Look]:
    """How each series is drawn; colours go around when they are used up, with other marks."""
    looks, counted, raw = {}, 0, 0
    for series in lines:
        if _is_grey(series):
            looks[series] = _look(GREYS[raw % 3], DASHES[(raw + raw // 3) % 3])
            raw += 1
        else:
            marker = MARKERS[(counted + counted // len(COLOURS)) % len(MARKERS)]
            style = "-" if counted < len(COLOURS) else "-."
            looks[series] = _look(COLOURS[counted % len(COLOURS)], style, marker)
            counted += 1
    return looks


def _look(color: str, linestyle: Any = "-", marker: str = ".") -> Look:
    return {"color": color, "linestyle": linestyle, "marker": marker}


def _line(axes: Axes, across: Across, line: Sequence[Mean], look: Look) -> None:
    """A line in its band. Where the axis is broken, towards ∞, it is dotted."""
    there = [mean for mean in line if not math.isnan(mean.mean)]
    known = [mean for mean in there if across.plain(mean.x)]
    weight = 2.2 if look["marker"] != "." else 1.6
    shown = look | {"linewidth": weight, "markersize": 5, "zorder": 3}
    for part in (known, *_broken(there, across)):
        x, y = [across(mean.x) for mean in part], [mean.mean for mean in part]
        apart = {} if part is known else {"linewidth": 1.3, "linestyle": ":"}
        axes.plot(x, y, **shown | apart)
    low, high = [mean.low for mean in known], [mean.high for mean in known]
    x, color = [across(mean.x) for mean in known], look["color"]
    axes.fill_between(x, low, high, color=color, alpha=0.16, linewidth=0, zorder=1.5)
    for mean in there:
        if len(known) < 2 or not across.plain(mean.x):  # no band there
            place = across(mean.x)
            axes.plot([place, place], [mean.low, mean.high], color=color, linewidth=4, alpha=0.3)


def _broken(line: Sequence[Mean], across: Across) -> list[Sequence[Mean]]:
    """The steps of a line from or to where the axis is broken; alone, a place is a step."""
    steps = [line[place : place + 2] for place in range(max(len(line) - 1, 1))]
    return [step for step in steps if not all(across.plain(mean.x) for mean in step)]


def _clipped(
    axes: Axes, across: Across, upright: Upright, lines: Lines, looks: Mapping[str, Look]
) -> None:
    """What lies above the upper edge: an arrow there, and for the first of several the number."""
    deep: dict[float, int] = {}
    for series, line in lines.items():
        before = False
        for mean in line:
            above, place = mean.mean > upright.limits[1], across(mean.x)
            if above:
                row = deep[place] = deep.get(place, -1) + 1
                told = "↑" if before else f"↑ {number(mean.mean)}"
                start = (place, upright.limits[1])
                _words(axes, start, told, looks[series]["color"], (-3, 1 - 11 * row), va="top")
            before = above


def _names(
    axes: Axes,
    across: Across,
    upright: Upright,
    lines: Lines,
    looks: Mapping[str, Look],
    shared: Sequence[str],
) -> None:
    """Each line's name on the right at the height of its end, moved apart where they touch."""
    ends = {}
    for series, line in lines.items():
        there = [mean for mean in line if not math.isnan(mean.mean)]
        if there:
            ends[series] = (across(there[-1].x), upright.share(there[-1].mean))
    named = {series: fill(_less(series, shared), 32) for series in ends}
    tall = [0.052 * (1 + named[series].count("\n")) for series in ends]
    places = spread_out([end[1] for end in ends.values()], tall)
    for (series, (x, share)), y in zip(ends.items(), places, strict=True):
        color = looks[series]["color"]
        start = (across.share(x) + 0.008, share)
        axes.annotate(
            named[series],
            start,
            (1.035, y),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=color,
            va="center",
            fontsize=10.5,
            linespacing=1.05,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": color,
                "linewidth": 0.7,
                "alpha": 0.5,
                "relpos": (0, 0.5),
                "shrinkA": 1,
                "shrinkB": 0,
            },
        )


def _less(series: str, shared: Sequence[str]) -> str:
    """A name without what all names share, which stands above.

    >>> _less("counts: boosted trees, half, noise-aware", ["boosted trees", "noise-aware"])
    'counts: half'
    """
    for words in shared:
        series = series.replace(f"{words}, ", "").replace(f", {words}", "")
    return series


# --- what stands beside --------------------------------------------------------------------


def _references(
    axes: Axes,
    across: Across,
    upright: Upright,
    references: Sequence[Reference],
    looks: Mapping[str, Look],
) -> None:
    """Marks at their places with the paper's numbers, or dotted lines over all of the axis."""
    taken: dict[tuple[str, float, float], int] = {}
    for reference in references:
        color = looks.get(reference.series, _look(GREYS[1]))["color"]
        if reference.x is None:
            _level(axes, reference, color)
            continue
        place = (across(reference.x), min(reference.ratio, upright.limits[1]))
        rings = taken[reference.source, *place] = taken.get((reference.source, *place), -1) + 1
        mark = _mark(reference.source, color)
        axes.plot(*place, clip_on=False, **mark | {"markersize": mark["markersize"] + 5 * rings})
        if reference.source == "paper" and not rings:
            told = f"paper {number(reference.ratio)}"
            at_edge = across.share(place[0]) > EDGE  # names of lines are beyond it
            shift, ha = ((-11, 1), "right") if at_edge else ((11, 1), "left")
            _words(axes, place, told, color, shift, ha=ha, va="center")


def _level(axes: Axes, reference: Reference, color: str) -> None:
    axes.axhline(reference.ratio, color=color, linestyle=":", linewidth=1.4)
    told = f"{reference.series}, {reference.source} {number(reference.ratio)}"
    _words(axes, (0.995, reference.ratio), told, color, (0, 3), ha="right", across=True)


def _mark(source: str, color: str) -> Look:
    look: Look = {"color": color, "zorder": 4}
    if source == "paper":
        hollow = {"marker": "o", "markersize": 10, "markeredgewidth": 1.8}
        return look | hollow | {"markerfacecolor": "none"}
    return look | {"marker": "v", "markersize": 6.5, "markeredgecolor": "white"}


def _words(
    axes: Axes,
    place: tuple[float, float],
    told: str,
    color: str,
    shift: tuple[float, float],
    *,
    ha: str = "left",
    va: str = "bottom",
    across: bool = False,
) -> None:
    """Small words on a white edge, so that lines below do not spoil them."""
    from matplotlib.patheffects import withStroke

    axes.annotate(
        told,
        place,
        shift,
        xycoords=axes.get_yaxis_transform() if across else "data",
        textcoords="offset points",
        color=color,
        fontsize=9,
        ha=ha,
        va=va,
        zorder=5,
        annotation_clip=False,
        path_effects=[withStroke(linewidth=2.5, foreground="white")],
    )
