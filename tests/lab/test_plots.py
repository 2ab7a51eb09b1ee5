from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure as Page

from lab import plots
from lab.axes import Across, Upright, number, spread_out
from lab.plots import BASELINE, COLOURS, draw
from lab.points import Point, Reference
from lab.runner import means
from pyramidion.demo.plots import STYLE
from tests.lab.made import TREES, figure

MANY = [
    Point(f"{kind} {letter}", x, ratio=1 + place / 100, seed=seed)
    for kind in ("counts:", "raw:")
    for place, letter in enumerate("abcdefgh")
    for x in (0.1, 1.0, 100.0)
    for seed in range(2)
]
SHAPES = {
    "none": [],
    "one point": [Point(TREES, 1.0, ratio=1.01)],
    "one series": [Point(TREES, x, ratio=1 + x) for x in (0.01, 0.1)],
    "many series": MANY,
    "holes": [Point(TREES, x, ratio=y) for x, y in ((1, math.nan), (2, 1.1), (3, math.nan))],
    "only holes": [Point(TREES, 1.0)],
    "endless x": [Point(TREES, x, ratio=1.01) for x in (0.1, 1, math.inf)],
    "only endless x": [Point(TREES, math.inf, ratio=1.01)],
    "zero x": [Point(TREES, x, ratio=1.01) for x in (0, 1, 10)],
    "endless y": [Point(TREES, x, ratio=y) for x, y in ((1, math.inf), (2, 1.1))],
    "all the same": [Point(TREES, x, ratio=1.0) for x in (1, 2)],
}


def drawn(points: list[Point], **given: Any) -> Page:
    told = figure(**given)
    return plots._drawn(told, means(points, told.shows))


def words(page: Page) -> list[str]:
    [axes] = page.axes
    return [text.get_text().replace("\n", " ") for text in axes.texts]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STYLE, "savefig.dpi", 20)


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_all_shapes_of_points_are_drawn(shape: str, log: bool, tmp_path: Path) -> None:
    path = draw(figure(log_x=log), SHAPES[shape], tmp_path)
    assert path == tmp_path / "q1-tiny.png"
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("shows", ["loss", "value"])
def test_other_fields_are_drawn_without_the_baseline(shows: str) -> None:
    page = drawn([Point(TREES, 1.0, loss=0.5, value=3.0)], shows=shows, references=())
    assert BASELINE not in words(page)
    assert 1.0 not in [line.get_ydata()[0] for line in page.axes[0].lines]


def test_the_line_goes_through_the_means_and_the_band_from_least_to_most() -> None:
    points = [Point(TREES, x, ratio=y, seed=int(100 * y)) for x in (1, 10) for y in (1.0, 1.1)]
    [axes] = drawn(points, references=()).axes
    assert any(
        list(line.get_xdata()) == [0, 1] and list(line.get_ydata()) == pytest.approx([1.05] * 2)
        for line in axes.lines
    )
    [band] = axes.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert (min(heights), max(heights)) == (1.0, 1.1)


def test_every_line_is_named_and_the_baseline_too() -> None:
    told = words(drawn(MANY))
    assert BASELINE in told
    assert {point.series for point in MANY} <= set(told)


def test_of_many_lines_those_are_drawn_whose_names_hold_all_words() -> None:
    named = ["counts: trees, b, half", "counts: trees, b", "counts: linear, half", "raw: trees"]
    points = [Point(name, x, ratio=1.01) for name in named for x in (0.1, 1.0)]
    page = drawn(points, references=(), drawn=("trees", "half"))
    short = ["counts: b", "counts: linear, half", "counts: half"]
    assert set(short) & set(words(page)) == {"counts: b"}  # what all share stands above
    assert "raw: trees" in words(page)
    assert any("(trees, half)" in text.get_text() for text in page.texts)
    assert set(named) <= set(words(drawn(points, references=())))


def test_lines_whose_names_end_so_are_in_the_table_alone() -> None:
    named = ["counts: trees, none", "counts: trees, none, all rows", "counts: trees, 3 of them"]
    points = [Point(name, x, ratio=1.01) for name in named for x in (0.1, 1.0)]
    told = words(drawn(points, references=(), undrawn=(", none", ", 3 of them")))
    assert set(named) & set(told) == {named[1]}


def test_the_papers_number_at_the_edge_is_left_of_its_mark() -> None:
    points = [Point(TREES, x, ratio=1.01) for x in (0.1, 1.0)]
    [axes] = drawn(
        points, references=(Reference(TREES, 1.02, 0.1), Reference(TREES, 1.02, 1.0))
    ).axes
    told = [text for text in axes.texts if text.get_text() == "paper 1.02"]
    assert [text.get_ha() for text in told] == ["left", "right"]


def test_single_numbers_are_bars_by_logarithm() -> None:
    found = {"paper: a": 283.69, "b": 0.2}
    points = [Point(series, 39, value=height) for series, height in found.items()]
    [axes] = drawn(points, shows="value", bars=True, references=()).axes
    assert [bar.get_width() for bar in axes.patches] == list(found.values())  # type: ignore[attr-defined]
    assert len({bar.get_facecolor() for bar in axes.patches}) == 2  # the paper's is grey
    assert axes.get_xscale() == "log"
    assert [text.get_text() for text in axes.texts] == ["284", "0.2"]
    assert [name.get_text() for name in axes.get_yticklabels()] == list(found)


def test_models_on_counts_have_colours_and_raw_ones_are_grey_and_dashed() -> None:
    looks = plots._looks(means(MANY, "ratio"))
    assert looks["counts: a"]["color"] == COLOURS[0]
    for series, look in looks.items():
        red, green, blue = (int(look["color"][place : place + 2], 16) for place in (1, 3, 5))
        assert (max(red, green, blue) - min(red, green, blue) < 25) == series.startswith("raw")
    assert all(looks[f"raw: {letter}"]["linestyle"] != "-" for letter in "abcdefgh")


def test_no_two_series_look_the_same() -> None:
    looks = plots._looks(means(MANY, "ratio"))
    assert len({str(look) for look in looks.values()}) == len(looks)


def test_the_paper_and_the_target_have_marks_in_the_colour_of_their_series() -> None:
    [axes] = drawn([Point(TREES, 1.0, ratio=1.01)]).axes
    marks = {
        (line.get_marker(), line.get_markerfacecolor()): line.get_ydata()[0]
        for line in axes.lines
        if line.get_color() == COLOURS[0] and line.get_marker() in ("o", "v")
    }
    assert marks["o", "none"] == 1.04
    assert marks["v", COLOURS[0]] == 1.02
    assert "paper 1.04" in words(axes.figure)


def test_a_number_without_a_place_is_a_line_that_is_named() -> None:
    reference = Reference("best possible", 0.97, None, "target")
    page = drawn([Point(TREES, 1.0, ratio=1.01)], references=(reference,))
    assert "best possible, target 0.97" in words(page)
    assert any(line.get_linestyle() == ":" for line in page.axes[0].lines)


def test_what_lies_far_above_is_told_at_the_edge_instead_of_flattening_the_rest() -> None:
    points = [Point(TREES, x, ratio=1 + x / 100) for x in range(1, 6)]
    page = drawn([*points, Point(TREES, 6.0, ratio=9.5), Point(TREES, 7.0, ratio=8.5)])
    assert page.axes[0].get_ylim()[1] < 1.5
    assert "↑ 9.5" in words(page)
    assert "↑ 8.5" not in words(page)  # the first of several is enough


def test_endlessness_has_a_tick_of_its_own_on_the_right() -> None:
    [axes] = drawn(SHAPES["endless x"], references=()).axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.1", "1", "∞"]
    steps = [line for line in axes.lines if line.get_linestyle() == ":"]
    assert [len(line.get_xdata()) for line in steps] == [2]


def test_no_drawing_state_is_left_behind(tmp_path: Path) -> None:
    from matplotlib import rcParams

    before = dict(rcParams)
    draw(figure(), MANY, tmp_path)
    assert dict(rcParams) == before


# --- axes ----------------------------------------------------------------------------------

xs = st.lists(st.sampled_from([0.0, 0.01, 0.1, 1.0, 7.0, 1e6, math.inf]), min_size=1)


@given(xs, st.booleans())
def test_places_keep_the_order_of_numbers_within_the_limits(given: list[float], log: bool) -> None:
    across = Across(given, log=log)
    places = [across(x) for x in sorted(set(given))]
    assert places == sorted(set(places))
    assert all(0 < across.share(place) < 1 for place in places)
    ticks, names = across.ticks()
    assert set(ticks) <= set(places)
    assert len(names) == len(ticks) > 0


heights = st.lists(st.floats(0.5, 50), min_size=1, max_size=20)


@given(heights, heights)
def test_the_least_is_always_shown_and_most_of_the_wanted(
    one: list[float], two: list[float]
) -> None:
    low, high = Upright(one + two, one).limits
    assert low < min(one + two)
    assert sum(height <= high for height in one) >= 0.7 * len(one)


def test_widely_different_values_are_shown_as_logarithms() -> None:
    assert Upright([0.01, 10.0], wide=True).log
    assert not Upright([1.0, 10.0], wide=True).log
    assert not Upright([0.01, 10.0]).log


names = st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 0.1)), max_size=12)


@given(names)
def test_names_do_not_touch_and_keep_their_order(given: list[tuple[float, float]]) -> None:
    wanted, tall = [name[0] for name in given], [name[1] for name in given]
    places = spread_out(wanted, tall)
    order = sorted(range(len(given)), key=lambda name: places[name])
    assert [wanted[name] for name in order] == sorted(wanted)
    for one, other in pairwise(order):
        assert places[other] - places[one] >= (tall[one] + tall[other]) / 2 - 1e-9


def test_names_that_do_not_touch_stay_where_they_are() -> None:
    assert spread_out([0.1, 0.9], [0.1, 0.1]) == [0.1, 0.9]


@given(st.floats(1e-6, 1e9))
def test_short_numbers_are_near_the_long_ones(value: float) -> None:
    assert float(number(value).replace(",", "")) == pytest.approx(value, rel=0.006)
