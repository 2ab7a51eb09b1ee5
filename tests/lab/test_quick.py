"""``python -m lab all --quick``, as a person runs it: generated clicks, and real data."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import DATA, ROOT

FIGURES = (
    *("q1", "q2", "noise", "shares", "values", "q3"),
    *("sketches", "bias", "windows", "retraining", "exposure", "evolution"),
)
THEIRS = {
    "tables": {"window-noise"},
    "clicks-pairs": {"recall"},
    "bandit": {"bandit"},
    "open-bandit": {"bandit"},
    "wide": {"wide", "width"},
    "service": {"latency"},
    "movielens-ratings": {"regression", "evolution"},
}
"""Figures of data sets that are made for them."""


LONG = "25m"
"""Five minutes are for a machine that does nothing else, which one that tests is not."""


def evaluated(output: Path, *words: str) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", "-m", "lab", "all", "--quick"]
    done = subprocess.run(
        [*command, "--json", "--within", LONG, "--output", str(output), *words],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def check(told: dict[str, Any], names: list[str]) -> None:
    """Every figure is there, whole, drawn, reported, and its numbers are numbers."""
    found = {(figure["name"], figure["data"]): figure for figure in told["figures"]}
    wanted = {(figure, name) for name in names for figure in THEIRS.get(name, FIGURES)}
    slow = {(figure, name) for figure in ("shares", "q3") for name in ("criteo", "clicks")}
    assert set(found) == wanted - slow
    report = Path(told["report"]).read_text()
    for figure in found.values():
        assert figure["missing"] == 0
        assert Path(figure["plot"]).read_bytes().startswith(b"\x89PNG")
        assert Path(figure["results"]).exists()
        assert figure["title"] in report
        shown = [mean["mean"] for line in figure["series"].values() for mean in line]
        assert shown
        assert all(number is not None and math.isfinite(number) for number in shown)


def ratio(told: dict[str, Any], name: str, data: str, series: str, x: float) -> float:
    (figure,) = (f for f in told["figures"] if (f["name"], f["data"]) == (name, data))
    (mean,) = (m["mean"] for m in figure["series"][series] if m["x"] == x)
    return float(mean)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_on_generated_clicks(tmp_path: Path) -> None:
    told = evaluated(tmp_path)  # as without real data
    check(told, ["clicks", "clicks-pairs", "bandit", "wide", "service", "tables"])
    assert ratio(told, "q1", "clicks", "counts: logistic regression", 10) < 1.03
    assert ratio(told, "q2", "clicks", "counts: logistic regression", 1) < 1.08
    assert ratio(told, "latency", "service", "a row, no cache", 39) < 283.69  # the paper's
    assert ratio(told, "bias", "clicks", "count-min", 1) < -50
    assert abs(ratio(told, "bias", "clicks", "count-median", 1)) < 20


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_on_movielens_and_criteo(
    tmp_path: Path,
    movielens: Path,
    criteo: Path,
    open_bandit: Path,
) -> None:
    names = ["movielens", "criteo", "movielens-ratings", "open-bandit"]
    words = [word for name in names for word in ("--on", name)]
    told = evaluated(tmp_path, "--data", str(DATA), *words)
    check(told, names)
    trees = ratio(told, "regression", "movielens-ratings", "counts: boosted trees, ε = 1", 3)
    assert trees < 1.06
    assert ratio(told, "q2", "movielens", "counts: boosted trees", 1) < 1.05
    assert ratio(told, "q1", "movielens", "counts: logistic regression", 0.8) < 1.03
    assert ratio(told, "q1", "criteo", "counts: logistic regression", 10) < 1.03
