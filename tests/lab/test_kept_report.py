"""The full report that is kept in the documents: it is whole, where it is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab import report, result_files
from lab.plots import draw
from pyramidion.demo.plots import STYLE
from tests.conftest import ROOT
from tests.lab.made import made, points_of

PLACE = ROOT / "docs" / "report"
MOST = 5_000_000
"""Bytes of a page that is kept."""


def flaws(folder: Path) -> list[str]:
    """What is missing of a report, or too much."""
    text = (folder / "report.md").read_text(encoding="utf-8")
    found = result_files.all_measured(folder)
    pictures = set(re.findall(r"!\[[^\n]*\]\(([^)]+)\)", text))
    wanted = {f"{measured.figure.slug}.png" for measured in found}
    told = [f"{name} is not shown" for name in wanted - pictures]
    told += [f"{name} has no numbers" for name in pictures - wanted]
    for name in pictures:
        path = folder / name
        if not path.exists() or not path.read_bytes().startswith(b"\x89PNG"):
            told.append(f"{name} is no picture")
    told += [f"{f.figure.slug} has no points" for f in found if not f.points]
    titles = [f.figure.title for f in found]
    told += [
        f"{title} has no part" for title in titles if f"## {report.plain(title)}\n" not in text
    ]
    page = folder / "report.html"
    told += ["report.html is too large"] if page.exists() and page.stat().st_size > MOST else []
    return told


def test_the_report_in_the_documents_is_whole() -> None:
    if not (PLACE / "report.md").exists():
        pytest.skip("there is no report in docs/report; `make report` makes it, in an hour")
    assert flaws(PLACE) == []
    names = {measured.figure.name for measured in result_files.all_measured(PLACE)}
    from lab.experiments import ALONE, EXPERIMENTS

    assert names == set(EXPERIMENTS) - set(ALONE)


def test_a_report_without_a_picture_or_with_one_too_many_is_not_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STYLE, "savefig.dpi", 20)
    found = made(tmp_path, points_of(1))
    picture = draw(found.figure, found.points, tmp_path)
    report.write(tmp_path, [found])
    assert flaws(tmp_path) == []
    (tmp_path / "report.html").write_bytes(b"x" * (MOST + 1))
    assert flaws(tmp_path) == ["report.html is too large"]
    (tmp_path / "report.html").unlink()
    picture.unlink()
    assert flaws(tmp_path) == ["q1-tiny.png is no picture"]
    result_files.place(tmp_path, "q1-tiny").unlink()
    assert "q1-tiny.png has no numbers" in flaws(tmp_path)
