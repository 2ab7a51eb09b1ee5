"""Runs the jobs of a figure that are not done yet, in order, and averages their points.

>>> points = [Point("a", 1, ratio=1.0, seed=0), Point("a", 1, ratio=1.5, seed=1)]
>>> means(points, "ratio")
{'a': [Mean(x=1, mean=1.25, low=1.0, high=1.5, seeds=2)]}
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol

from lab.points import Job, Point
from lab.result_files import ResultFile


class Progress(Protocol):
    """What a run needs of a progress bar."""

    def update(self, n: float) -> object:
        """So much more is done."""

    def set_postfix_str(self, s: str) -> object:
        """This is being done."""


def waiting(jobs: Sequence[Job], results: ResultFile) -> list[Job]:
    """The jobs that were not done yet, each once."""
    return list({job.key: job for job in jobs if results.get(job) is None}.values())


def run(
    jobs: Sequence[Job],
    results: ResultFile,
    progress: Progress,
    going: Callable[[], bool] = lambda: True,
) -> list[Point]:
    """Return the points of all jobs; run and store missing ones, one by one, while ``going()``."""
    for job in waiting(jobs, results):
        if not going():
            break
        progress.set_postfix_str(told(job))
        results.put(job, job.run())
        progress.update(job.cost)
    done = {job.key: results.get(job) or [] for job in jobs}
    return [point for points in done.values() for point in points]


def told(job: Job) -> str:
    """A job in a few words.

    >>> told(Job("q1", "", {"model": "trees", "hot": 0.01}, list))
    'model trees, hot 0.01'
    """
    return ", ".join(f"{name} {value}" for name, value in job.about.items())


@dataclass(frozen=True)
class Mean:
    """What several seeds measured at the same place: their mean, the least and the most."""

    x: float
    mean: float
    low: float
    high: float
    seeds: int


def means(points: Iterable[Point], shows: str) -> dict[str, list[Mean]]:
    """The lines of a figure: for each series its places from left to right.

    Where a seed measured nothing (NaN), the others count; where none did, the mean is NaN. What is
    an estimate has an ``interval`` in its detail, and that is its least and most.
    """
    found: dict[str, dict[float, list[Point]]] = defaultdict(lambda: defaultdict(list))
    for point in points:
        found[point.series][point.x].append(point)
    return {
        series: [_mean(x, some, shows) for x, some in sorted(places.items())]
        for series, places in found.items()
    }


def _mean(x: float, points: Sequence[Point], shows: str) -> Mean:
    there = [point for point in points if not math.isnan(getattr(point, shows))]
    if not there:
        return Mean(x, math.nan, math.nan, math.nan, 0)
    values = [getattr(point, shows) for point in there]
    ends = [end for point in there for end in point.detail.get("interval", ())]
    return Mean(x, fmean(values), min(ends or values), max(ends or values), len(there))
