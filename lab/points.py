"""What is measured: points of a figure, and the jobs that measure them.

A job is one piece of work, a store or a raw model, told by plain parameters. Its points are
kept under these, so a run that broke off goes on, and one figure can be made again alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Point:
    """One measurement: where on the x axis, which line, what was lost.

    ``loss`` is the log loss (or squared loss) on the future; ``ratio`` is that in units of the
    baseline's, and what figures show. ``value`` is for figures of something else, as seconds.
    """

    series: str
    x: float
    loss: float = float("nan")
    ratio: float = float("nan")
    value: float = float("nan")
    seed: int = 0
    seconds: float = 0.0
    detail: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else is worth keeping: parameters chosen, rows, ε, mechanism."""


@dataclass(frozen=True)
class Job:
    """A piece of work of a figure, told by plain parameters.

    ``cost`` is a guess at its seconds on a machine that does nothing else, for the progress bar
    and for what all figures take together. What tells ``more`` than the figure needs is measured
    where that figure is asked for, and not among all.
    """

    figure: str
    data: str
    """The data set's fingerprint."""
    about: Mapping[str, Any]
    run: Callable[[], Sequence[Point]] = field(compare=False, repr=False)
    cost: float = 1.0
    more: bool = False

    @property
    def key(self) -> str:
        """Names what was measured: other parameters or rows have another key."""
        told = json.dumps([self.figure, self.data, dict(self.about)], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Reference:
    """A number of the paper (or a target of ours) to stand beside our lines."""

    series: str
    ratio: float
    x: float | None = None
    """Where on the x axis; None: a line over all of it, or the mean over all of it where it is of
    two lines."""
    source: str = "paper"
    note: str = ""
    of: str = "ratio"
    """Which field of the points it is a number of."""
    by: str = ""
    """The series that ours is divided by: what one choice is worth beside another."""
    by_x: float | None = None
    """Where that is, if it is somewhere else."""
    rows: int = 0
    """With fewer rows than these it is not judged."""
    aim: bool = True
    """Whether it is to be reached: what the paper loses by a poor choice is not."""


OF_SEEDS = "least to most of several seeds"


@dataclass(frozen=True)
class Figure:
    """One picture of the report: how its points are drawn and what they are beside."""

    name: str
    """As the command line knows it: ``q1``."""
    data: str
    """The data set's name."""
    title: str
    x_label: str
    y_label: str = "loss / loss of the raw baseline"
    log_x: bool = True
    shows: str = "ratio"
    """Which field of the points is drawn: ``ratio``, ``loss`` or ``value``."""
    baseline_at: float | None = None
    """Where on the x axis the baseline's own point is; None: it is a line alone."""
    references: Sequence[Reference] = ()
    text: str = ""
    """A plain paragraph: what is shown."""
    drawn: Sequence[str] = ()
    """Words that the names of all drawn lines hold, where there are too many lines to draw."""
    undrawn: Sequence[str] = ()
    """How the names of lines end that are in the table alone."""
    bars: bool = False
    """Whether each series is one number, drawn as a bar."""
    band: str = OF_SEEDS
    """What the band around a line is."""
    rows: int = 0
    """Of the data set; 0: nobody told."""

    @property
    def slug(self) -> str:
        """The stem of its files."""
        return f"{self.name}-{self.data}"
