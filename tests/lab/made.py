"""Figures and jobs for tests, quick and of known numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lab.points import Figure, Job, Point, Reference
from lab.result_files import Measured, Plan, ResultFile, Run, measured

RUN = Run({"pyramidion": "1.2.3", "numpy": "2"}, "2 cores, 8 GB memory", "1970-01-02", "some words")
TREES = "counts: boosted trees"
REFERENCES = (
    Reference(TREES, 1.04, 0.8, "paper", "section one"),
    Reference(TREES, 1.02, 0.8, "target"),
    Reference("counts: never measured", 1.05, 1.0, "paper"),
)


def figure(**given: Any) -> Figure:
    """A figure called q1-tiny."""
    known: dict[str, Any] = {"name": "q1", "data": "tiny", "title": "Less data", "x_label": "hot %"}
    return Figure(**known | {"references": REFERENCES} | given)


def job(number: int, run: Callable[[], Sequence[Point]] | None = None, **about: Any) -> Job:
    """A job with a point for each of two seeds."""
    return Job("q1", "rows=1", {"number": number} | about, run or (lambda: points_of(number)))


def points_of(number: int) -> list[Point]:
    """What such a job measures."""
    return [
        Point(TREES, float(number), 0.5 * ratio, ratio, 7.0, seed, 2.5, detail={"k": [1]})
        for seed, ratio in enumerate((1 + number / 100, 1 + number / 100 + 0.01))
    ]


class Told:
    """A progress bar that remembers."""

    def __init__(self) -> None:
        self.done: list[float] = []
        self.names: list[str] = []

    def update(self, n: float) -> None:
        self.done.append(n)

    def set_postfix_str(self, s: str) -> None:
        self.names.append(s)


def kept(folder: Path, jobs: Sequence[Job], **given: Any) -> ResultFile:
    """The results of the figure."""
    keys = [job.key for job in jobs]
    return ResultFile(folder, Plan(given.pop("figure", figure()), keys, "again this"), RUN, **given)


def made(folder: Path, points: Sequence[Point], **given: Any) -> Measured:
    """A figure as if it had been measured."""
    only = job(1)
    results = kept(folder, [only], figure=figure(**given))
    results.put(only, points)
    return measured(results.path)


def same(one: float, other: float) -> bool:
    """Equal, or both NaN."""
    return one == other or (math.isnan(one) and math.isnan(other))
