"""One page for people: each figure beside the paper's numbers, and how to make it again.

The page is made of a few kinds of blocks and written twice: as ``report.html``, which needs
nothing but itself (pictures are inside, nothing is fetched, no script runs), and as ``report.md``.
"""

from __future__ import annotations

import base64
import html
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import caveats, paper, paper_tables
from lab.axes import number
from lab.comparison import Comparison, compared, times
from lab.points import Point
from lab.result_files import Measured, Run
from lab.runner import Mean, means

TITLE = "Pyramidion: the paper's questions, measured"
STYLE = """\
:root { color-scheme: light dark; --page: #fff; --ink: #222; --pale: #5b6470; --line: #d9dde2;
  --soft: #f4f6f8 }
@media (prefers-color-scheme: dark) {
  :root { --page: #16191d; --ink: #e6e8ea; --pale: #a3abb5; --line: #3a4048; --soft: #21262c } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; background: var(--page);
  color: var(--ink); font: 16px/1.55 system-ui, sans-serif }
h1 { font-size: 1.7rem } h2 { margin-top: 3rem; border-top: 1px solid var(--line);
  padding-top: 1.5rem }
img { max-width: 100%; height: auto; border-radius: 6px; background: #fff }
div { overflow-x: auto }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }
th, td { padding: .3rem .9rem .3rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line) }
th { color: var(--pale); font-weight: 600 }
pre { background: var(--soft); padding: .8rem 1rem; border-radius: 6px; overflow-x: auto }
summary { cursor: pointer; color: var(--pale) }
"""


# --- blocks --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Heading:
    """The title of a part; the page's own is of level 1."""

    text: str
    level: int = 2

    def html(self) -> str:
        """As HTML."""
        return f"<h{self.level}>{html.escape(self.text)}</h{self.level}>"

    def markdown(self) -> str:
        """As Markdown."""
        return f"{'#' * self.level} {plain(self.text)}"


@dataclass(frozen=True)
class Words:
    """A paragraph."""

    text: str

    def html(self) -> str:
        """As HTML."""
        return f"<p>{html.escape(self.text)}</p>"

    def markdown(self) -> str:
        """As Markdown."""
        return plain(self.text)


@dataclass(frozen=True)
class Table:
    """Rows under a head. A long one is folded away under its name."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    name: str = ""

    def html(self) -> str:
        """As HTML."""
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in self.head)
        rows = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in self.rows]
        lines = "\n".join(f"<tr>{cells}</tr>" for cells in [head, *rows])
        table = f"<div><table>\n{lines}\n</table></div>"
        named = f"<summary>{html.escape(self.name)}</summary>"
        return f"<details>{named}\n{table}\n</details>" if self.name else table

    def markdown(self) -> str:
        """As Markdown."""
        rule = ["---"] * len(self.head)
        cells = [[plain(cell) for cell in row] for row in [self.head, *self.rows]]
        cells.insert(1, rule)
        lines = "\n".join(f"| {' | '.join(row)} |" for row in cells)
        return f"{plain(self.name)}:\n\n{lines}" if self.name else lines


@dataclass(frozen=True)
class Picture:
    """A PNG file of the same folder; HTML has it inside."""

    path: Path
    alt: str

    def html(self) -> str:
        """As HTML."""
        data = base64.b64encode(self.path.read_bytes()).decode()
        return f'<p><img alt="{html.escape(self.alt)}" src="data:image/png;base64,{data}"></p>'

    def markdown(self) -> str:
        """As Markdown."""
        return f"![{plain(self.alt)}]({self.path.name})"


@dataclass(frozen=True)
class Command:
    """What to type."""

    text: str

    def html(self) -> str:
        """As HTML."""
        return f"<pre>{html.escape(self.text)}</pre>"

    def markdown(self) -> str:
        """As Markdown."""
        return "\n".join(f"    {line}" for line in self.text.splitlines())


Block = Heading | Words | Table | Picture | Command


def plain(text: str) -> str:
    r"""Text that Markdown shows as it is, on one line.

    >>> print(plain("a|b <i> *c*"))
    a\|b \<i\> \*c\*
    """
    return re.sub(r"([\\`*_\[\]<>|#~&$])", r"\\\1", " ".join(text.split()))


# --- the page ------------------------------------------------------------------------------


def write(folder: Path, figures: Sequence[Measured]) -> tuple[Path, Path]:
    """Write ``report.html`` and ``report.md`` of figures that were drawn into this folder."""
    blocks: list[Block] = [Heading(TITLE, 1), Words(_introduced(figures))]
    for measured in figures:
        blocks += section(measured, folder)
    blocks += _methods()
    page, text = folder / "report.html", folder / "report.md"
    body = "\n".join(block.html() for block in blocks)
    page.write_text(
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{html.escape(TITLE)}</title>'
        f"\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n",
        encoding="utf-8",
    )
    text.write_text("\n\n".join(block.markdown() for block in blocks) + "\n", encoding="utf-8")
    return page, text


def _methods() -> list[Block]:
    """What the paper measured on and with, and what is here instead."""
    return [
        Heading("Workloads and parameters"),
        Words("The paper's tables of them, with ours beside."),
        Table(paper_tables.WORKLOAD, paper_tables.WORKLOADS),
        Table(paper_tables.PARAMETER, paper_tables.parameters()),
    ]


def _introduced(figures: Sequence[Measured]) -> str:
    judged = [
        beside.verdict
        for measured in figures
        for beside in compared(measured.figure, measured.points)
        if beside.target is not None
    ]
    met = sum(verdict == "met" for verdict in judged)
    missed = sum(verdict.startswith("missed") for verdict in judged)
    return (
        "Losses on the future, divided by that of the raw baseline on all rows of the past: below "
        f"1 beats it. Of {len(judged)} targets {met} were met and {missed} missed; "
        f"{len(judged) - met - missed} were not measured here: targets of 45 million rows are "
        "judged on as many. Where there is no target our number stands beside the paper's, which "
        "had other rows, and more of them."
    )


def section(measured: Measured, folder: Path) -> list[Block]:
    """What is told of one figure."""
    figure = measured.figure
    blocks: list[Block] = [Heading(figure.title)]
    if measured.missing:
        blocks.append(Words(f"Unfinished: {measured.missing} of its jobs are still to be done."))
    finding = paper.FINDINGS.get(figure.name, "")
    blocks += [Words(text) for text in (figure.text, finding and f"The paper: {finding}") if text]
    short = caveats.SHORTFALLS.get(figure.name, "")
    blocks += [Words(f"Where it falls short: {short}")] if short else []
    blocks += [Words(told) for told in [_baselines(measured)] if told]
    beside = compared(figure, measured.points)
    if beside:
        blocks.append(Table(BESIDE, [_told(found) for found in beside]))
    blocks += _further(measured)
    blocks.append(Picture(folder / f"{figure.slug}.png", figure.title))
    lines = means(measured.points, figure.shows)
    head = ["series", figure.x_label, "mean", "least", "most", "seeds"]
    rows = [_row(series, mean) for series, line in lines.items() for mean in line]
    blocks.append(Table(head, rows, f"All numbers ({figure.y_label})"))
    return blocks + _provenance(measured)


def _further(measured: Measured) -> list[Block]:
    """What some figures tell beside their points."""
    if measured.figure.name == "retraining":
        return [Words(told) for told in [times(measured.points)] if told]
    if measured.figure.name == "latency":
        return [Table(paper_tables.PART, paper_tables.PARTS), Words(paper_tables.PARTS_OF_OURS)]
    return []


BESIDE = ("series", "at", "paper", "ours", "target", "verdict", "where in the paper")


def _told(beside: Comparison) -> list[str]:
    return [
        beside.series,
        _place(beside),
        _ratio(beside.paper),
        ours(beside),
        _ratio(beside.target),
        beside.verdict,
        beside.note or "-",
    ]


def _place(beside: Comparison) -> str:
    if beside.x is not None:
        return number(beside.x)
    return "its best" if beside.of else "on average"


def ours(beside: Comparison) -> str:
    """Our number, and where it was measured if that is not the same place."""
    if beside.ours is None:
        return "-"
    there = beside.ours.x == beside.x or math.isnan(beside.ours.x)
    elsewhere = "" if there else f" at {number(beside.ours.x)}"
    return f"{shown(beside.ours.mean)}{elsewhere}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else number(value)


def shown(value: float) -> str:
    """A measured number with four decimals, or four digits if it is small.

    >>> shown(1.02044), shown(0.000123456), shown(math.nan)
    ('1.0204', '0.0001235', '-')
    """
    if math.isnan(value):
        return "-"
    return f"{value:.4f}" if abs(value) >= 0.1 or value == 0 else f"{value:.4g}"


def _row(series: str, mean: Mean) -> list[str]:
    heights = [shown(value) for value in (mean.mean, mean.low, mean.high)]
    return [series, number(mean.x), *heights, str(mean.seeds)]


def _baselines(measured: Measured) -> str:
    """The losses by which ours are divided, and the paper's."""
    known = paper.BASELINES.get(measured.figure.data)
    found = baseline(measured.points)
    told = [f"The raw baseline on all rows loses {shown(found)}."] if found is not None else []
    return " ".join(told + ([f"The paper's lost {known} on its rows."] if known else []))


def baseline(points: Sequence[Point]) -> float | None:
    """What the baseline lost: a loss by its ratio."""
    found = (point.loss / point.ratio for point in points if point.ratio)
    return next((loss for loss in found if math.isfinite(loss)), None)


def _provenance(measured: Measured) -> list[Block]:
    """The command that makes the figure again, the seeds, and what measured it."""
    seeds = sorted({point.seed for point in measured.points})
    rows = [[run.date, run.machine, _versions(run), run.command] for run in measured.runs]
    again: list[Block] = [
        Words("To measure it again:"),
        Command(f"{measured.plan.command} --again"),
    ]
    told = Words(f"Seeds: {', '.join(map(str, seeds)) or 'none'}.")
    return [*again, told, Table(("measured", "machine", "versions", "by"), rows, "Where and when")]


def _versions(run: Run) -> str:
    return ", ".join(f"{name} {version}" for name, version in run.versions.items())
