from __future__ import annotations

import base64
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from lab import caveats, paper, report
from lab.comparison import compared
from lab.plots import draw
from lab.points import Point, Reference
from lab.result_files import Measured
from pyramidion.demo.plots import STYLE
from tests.lab.made import TREES, figure, job, kept, made, points_of

NASTY = "a <script>alert(1)</script> & \"b\" | `c` *d* 'e'"


class Reader(HTMLParser):
    """Reads a page as a browser would, and notes what does not fit."""

    VOID = ("meta", "img", "br", "!doctype")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.cells: list[list[str]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1][-1] += data


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STYLE, "savefig.dpi", 20)


@pytest.fixture
def measured(tmp_path: Path) -> Measured:
    found = made(tmp_path, [*points_of(1), Point("raw: trees", math.inf, 0.45, 0.9)])
    draw(found.figure, found.points, tmp_path)
    return found


def written(folder: Path, *figures: Measured) -> tuple[str, str]:
    page, text = report.write(folder, figures)
    return page.read_text(), text.read_text()


def test_the_page_is_whole_and_fetches_and_runs_nothing(tmp_path: Path, measured: Measured) -> None:
    page, _ = written(tmp_path, measured)
    reader = Reader(page)
    assert not re.search("https?:|//[a-z]", re.sub('base64,[^"]*', "", page))
    tags = {tag for tag, _ in reader.tags}
    assert not tags & {"script", "link", "iframe", "object", "a"}
    assert not [name for _, given in reader.tags for name in given if name.startswith("on")]


def test_the_picture_is_inside_the_page(tmp_path: Path, measured: Measured) -> None:
    page, text = written(tmp_path, measured)
    [source] = [given["src"] for tag, given in Reader(page).tags if tag == "img"]
    assert source is not None
    data = base64.b64decode(source.removeprefix("data:image/png;base64,"))
    assert data == (tmp_path / "q1-tiny.png").read_bytes()
    assert "![Less data](q1-tiny.png)" in text


def test_numbers_are_those_of_the_points(tmp_path: Path, measured: Measured) -> None:
    page, text = written(tmp_path, measured)
    trees = [TREES, "1", "1.0150", "1.0100", "1.0200", "2"]
    raw = ["raw: trees", "∞", "0.9000", "0.9000", "0.9000", "1"]
    cells = Reader(page).cells
    assert trees in cells
    assert raw in cells
    for row in (trees, raw):
        assert f"\n| {' | '.join(row)} |\n" in text


def test_the_paper_ours_and_the_target_stand_side_by_side(
    tmp_path: Path, measured: Measured
) -> None:
    page, text = written(tmp_path, measured)
    row = [TREES, "0.8", "1.04", "1.0150 at 1", "1.02", "met", "section one"]
    assert row in Reader(page).cells
    assert f"| {' | '.join(row)} |" in text
    never = ["counts: never measured", "1", "1.05", "-", "-", "not measured here", "-"]
    assert never in Reader(page).cells
    assert "Of 1 targets 1 were met and 0 missed" in text


def test_all_tables_of_the_markdown_have_cells_for_every_column(
    tmp_path: Path, measured: Measured
) -> None:
    _, text = written(tmp_path, measured)
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(tables) == 5  # those of a figure, and the paper's of workloads and parameters
    for lines in tables:
        assert set(lines[1]) == set("| -")
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
        assert len(widths) == 1


def test_both_tell_the_same(tmp_path: Path, measured: Measured) -> None:
    page, text = written(tmp_path, measured)
    for row in Reader(page).cells:
        assert f"| {' | '.join(report.plain(cell) for cell in row)} |" in text
    for sentence in ("The paper: ", "Seeds: 0, 1.", "again this --again", "some words"):
        assert sentence in page
        assert sentence in text


def test_everything_is_escaped(tmp_path: Path) -> None:
    reference = Reference(NASTY, 1.0, 1.0, "paper", NASTY)
    given = {"title": NASTY, "text": NASTY, "x_label": NASTY, "y_label": NASTY}
    point = Point(NASTY, 1.0, ratio=1.0)
    found = made(tmp_path, [point], references=(reference,), **given)
    draw(figure(), [point], tmp_path)
    page, text = written(tmp_path, found)
    reader = Reader(page)
    assert "script" not in {tag for tag, _ in reader.tags}
    assert NASTY in reader.text
    assert [given["alt"] for tag, given in reader.tags if tag == "img"] == [NASTY]
    assert "<script>" not in text
    assert report.plain(NASTY) in text
    widths = {
        len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("| a")
    }
    assert widths == {7, 8}


def test_an_unfinished_figure_says_so(tmp_path: Path) -> None:
    from lab import result_files as module

    results = kept(tmp_path, [job(1), job(2)])
    results.put(job(1), points_of(1))
    draw(figure(), points_of(1), tmp_path)
    _, text = written(tmp_path, module.measured(results.path))
    assert "Unfinished: 1 of its jobs" in text


def test_the_baselines_loss_is_told_beside_the_papers(tmp_path: Path) -> None:
    found = made(tmp_path, points_of(1), data="movielens")
    draw(found.figure, found.points, tmp_path)
    _, text = written(tmp_path, found)
    assert "The raw baseline on all rows loses 0.5000. The paper's lost 0.537 on its rows." in text


def test_versions_machine_and_date_are_told(tmp_path: Path, measured: Measured) -> None:
    page, _ = written(tmp_path, measured)
    row = ["1970-01-02", "2 cores, 8 GB memory", "numpy 2, pyramidion 1.2.3", "some words"]
    assert row in Reader(page).cells


# --- comparisons -----------------------------------------------------------------------------


def verdict(*references: Reference, ratio: float = 1.03, x: float = 1.0) -> str:
    told = figure(references=references)
    return compared(told, [Point("a", x, ratio=ratio)])[0].verdict


def test_the_target_decides_before_the_paper() -> None:
    beside = Reference("a", 1.05, 1.0), Reference("a", 1.02, 1.0, "target")
    assert verdict(*beside) == "missed by 1.0%"
    assert verdict(*beside, ratio=1.02) == "met"


def test_without_a_target_the_paper_decides() -> None:
    assert verdict(Reference("a", 1.03, 1.0)) == "as the paper or better"
    assert verdict(Reference("a", 1.01, 1.0)) == "behind the paper by 2.0%"


@pytest.mark.parametrize(("x", "near"), [(0.8, True), (1.25, True), (1.35, False), (0.7, False)])
def test_only_a_near_place_is_compared(x: float, near: bool) -> None:
    assert (verdict(Reference("a", 1.05, 1.0), x=x) == "as the paper or better") is near


def test_the_nearest_place_is_compared() -> None:
    told = figure(references=(Reference("a", 1.0, 1.0),))
    points = [Point("a", x, ratio=x) for x in (0.8, 1.1, 1.25)]
    [beside] = compared(told, points)
    assert beside.ours is not None
    assert beside.ours.x == 1.1


def test_endless_is_near_to_itself_alone() -> None:
    assert verdict(Reference("a", 1.05, math.inf), x=math.inf) == "as the paper or better"
    assert verdict(Reference("a", 1.05, math.inf), x=1e9) == "not measured here"


def test_a_number_without_a_place_is_compared_with_our_best() -> None:
    told = figure(references=(Reference("a", 1.0),))
    [beside] = compared(told, [Point("a", x, ratio=1 / x) for x in (1.0, 2.0, 4.0)])
    assert beside.ours is not None
    assert beside.ours.mean == 0.25


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    assert verdict(Reference("a", 1.05, 1.0), ratio=math.nan) == "not measured here"
    assert verdict(Reference("b", 1.05, 1.0)) == "not measured here"


# --- the paper's numbers ---------------------------------------------------------------------


def test_the_papers_numbers_say_where_they_stand() -> None:
    for (name, _), references in paper.REFERENCES.items():
        assert name in paper.FINDINGS
        for reference in references:
            assert reference.source in ("paper", "target")
            assert reference.note
            if reference.of == "ratio":
                assert (0.98 if reference.by else 1) < reference.ratio < 1.2


def test_every_target_is_better_than_the_papers_number() -> None:
    for references in paper.REFERENCES.values():
        known = {(r.series, r.x): r.ratio for r in references if r.source == "paper"}
        for target in (r for r in references if r.source == "target" and not r.by):
            assert target.ratio < known.get((target.series, target.x), math.inf)


def test_what_45_million_rows_are_aimed_for_is_judged_on_as_many() -> None:
    beside = Reference("a", 1.01, 1.0, "target", rows=paper.AS_MANY)
    for rows, told in ((1_000_000, "not measured here"), (45_000_000, "missed by 2.0%")):
        [found] = compared(figure(references=[beside], rows=rows), [Point("a", 1.0, ratio=1.03)])
        assert found.verdict == told
    assert "here are 1,000,000" in compared(figure(references=[beside], rows=1_000_000), [])[0].note
    for name in ("clicks", "clicks-rare"):
        for known in ("q1", "q2", "values"):
            assert {r.rows for r in paper.references(known, name)} == {paper.AS_MANY}


def test_what_the_paper_loses_by_a_poor_choice_is_no_aim() -> None:
    assert verdict(Reference("a", 1.15, 1.0, aim=False), ratio=1.04) == "no aim"
    poor = [r for r in paper.references("noise", "movielens") if "equal" in r.series]
    assert not any(r.aim for r in poor)


def test_one_choice_is_compared_with_another() -> None:
    points = [Point(name, 1.0, ratio=ratio) for name, ratio in (("a", 1.01), ("b", 1.02))]
    told = figure(references=[Reference("a", 0.995, 1.0, "target", by="b")])
    [found] = compared(told, points)
    assert found.series == "a, by b"
    assert found.ours is not None
    assert found.ours.mean == pytest.approx(1.01 / 1.02)
    assert found.verdict == "met"
    assert compared(told, points[:1])[0].verdict == "not measured here"


def test_without_a_place_one_line_is_compared_with_another_on_average() -> None:
    days = {"a": (1.2, 1.1), "b": (1.1, 1.0)}
    points = [Point(name, x, ratio=r) for name, line in days.items() for x, r in enumerate(line, 1)]
    [found] = compared(figure(references=[Reference("a", 1.1, by="b")], log_x=False), points)
    assert found.ours is not None
    assert found.ours.mean == pytest.approx((1.2 / 1.1 + 1.1) / 2)


def test_a_number_may_be_of_something_else_than_a_ratio() -> None:
    known = Reference("a", 3.0, 39.0, "target", of="value")
    point = Point("a", 39.0, ratio=10.0, value=2.0)
    assert compared(figure(references=[known]), [point])[0].verdict == "met"


def test_every_figure_says_where_it_falls_short_and_what_the_paper_found() -> None:
    from lab.experiments import EXPERIMENTS

    assert set(caveats.SHORTFALLS) == set(EXPERIMENTS)
    assert set(paper.FINDINGS) == set(EXPERIMENTS)


def test_a_report_has_the_papers_tables_and_where_each_figure_falls_short(
    tmp_path: Path, measured: Measured
) -> None:
    page, text = written(tmp_path, measured)
    for sentence in (caveats.SHORTFALLS["q1"], "1.2B", "L2 1.5e-8, learning rate 0.5, 26 bits"):
        assert report.plain(sentence) in text
        assert sentence in page


def test_the_time_to_retrain_is_told_as_a_ratio(tmp_path: Path) -> None:
    points = [Point("raw: a", 100.0, value=6.0), Point("counts: b", 1.0, value=0.5)]
    found = made(tmp_path, points, name="retraining", shows="value", references=())
    draw(found.figure, found.points, tmp_path)
    _, text = written(tmp_path, found)
    assert "The raw baseline takes 12 times as long as b." in text


def test_where_the_time_of_a_prediction_goes_is_told_beside_its_figure(tmp_path: Path) -> None:
    found = made(tmp_path, [Point("a", 39.0, value=0.2)], name="latency", shows="value")
    draw(found.figure, found.points, tmp_path)
    _, text = written(tmp_path, found)
    assert "| network and framework | 0.73 % | 88.68 % | 92.31 % |" in text
