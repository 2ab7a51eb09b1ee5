"""Q3: are groups worth counting? Loss with and without groups that were chosen from rows.

Who counts no groups pays for no choice: the line to beat counts *all* rows with all of their
budget. Groups are chosen from all rows, for a share of their budget; or by the store itself from
its first window, to be compared with a store of as many windows that chooses none; or from the
oldest rows, which are set aside for that with all of their budget and not counted (see
`lab.holdout`). Lines of the last kind all count the same rest, without groups, too.
Every line learns from the same hot rows. Generated clicks have
planted interactions under the name ``clicks-pairs``; ``recall`` shows how many of them each way to
choose finds, by ε and rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lab import clicks
from lab.count_models import LOGISTIC, TREES, models
from lab.datasets import DataSet
from lab.experiments.experiment import LARGE, QUICK, Experiment, baseline, store
from lab.experiments.q2 import hot
from lab.holdout import chosen_groups, coded_rows
from lab.paper import references
from lab.points import Figure, Job, Point
from lab.stores import DELTA, Setup
from pyramidion.config.settings import Settings
from pyramidion.privacy.selection import LEAKY, Method

PAIRS = "clicks-pairs"
PLANTED = 8
"""Pairs of columns of generated clicks that have weights of their own."""

ROWS, QUICK_ROWS = 1_000_000, 60_000
HOT = {"movielens": 0.1, "movielens-people": 0.1}
"""The share of the past that is hot: columns of groups need more rows than those of features."""
ASIDE = {PAIRS: 0.4, "movielens-people": 0.4}
"""From fewer rows than 40 % of MovieLens 1M groups are chosen by chance at ε = 1."""
ASIDE_OTHERWISE = 0.1
NOT_QUICK = ("criteo", "clicks")
"""Data sets of so many sketches that a quick run leaves them out."""
EPSILONS = (1.0, 0.33, 3.0, math.inf)

NONE = "no groups, all rows counted"
NONE_IN_WINDOWS = "no groups, a store of two windows"
NUMBER = {PAIRS: PLANTED}
"""How many groups are asked for where all rows are counted; otherwise one: they divide what is
paid for the choice, and on MovieLens the second is worth less than its noise."""
PAYING, PAYING_MANY = 0.1, 0.3
"""What is paid for a choice of one group and of more, of the budget of all rows."""
GROUP_SHARE = 0.2
"""What the tables of these groups have of the rest."""
CHOOSING = 0.2
"""What windows of a store keep back for choosing, and then for tables of what was chosen."""
WINDOWS = 2
"""Of such a store: it chooses from the first, and counts groups in the second."""

ASIDE_EPSILONS = (1.0, math.inf)
ASIDE_LINES: dict[str, dict[str, Any]] = {
    "no groups": {"groups": 0},
    "3 groups by top-k": {"groups": 3},
    "8 groups by top-k": {"groups": 8},
    "8 groups by top-k, judged": {"groups": 8, "judged": True},
    "35 groups by top-k": {"groups": 35},
    "35 groups by mutual information, which leaks": {"groups": 35, "selection": LEAKY},
}
"""Lines that count no rows aside; tables of groups share a tenth of the budget, as in the paper."""


RECALL_ROWS = (25_000, 100_000, 400_000)
RECALL_EPSILONS = (0.1, 0.33, 1.0, 3.0, math.inf)
CENTER_EPSILONS = (1.0, 3.0)


def with_planted(quick: bool) -> DataSet:
    """Generated clicks with planted interactions."""
    made = clicks.generate(QUICK_ROWS if quick else ROWS, interactions=PLANTED)
    return replace(made, name=PAIRS, title=f"{made.title}, {PLANTED} planted pairs")


def plan(data: DataSet, *, quick: bool, seeds: int) -> tuple[Figure, list[Job]] | None:
    """Two models with and without groups, with and without noise."""
    if data.rows >= LARGE or (quick and data.name in NOT_QUICK):
        return None
    aside = ASIDE.get(data.name, ASIDE_OTHERWISE)
    named = (TREES,) if quick else (LOGISTIC, TREES)
    chosen = [model for model in models(data) if model.name in named]
    figure = Figure(
        name="q3",
        data=data.name,
        title=f"Q3: loss with and without chosen groups, {data.title}",
        x_label="ε",
        drawn=(TREES,),
        undrawn=tuple(f", {name}" for name in ASIDE_LINES),
        references=references("q3", data.name),
        text=f"Groups are chosen by top-k: from all rows of the past for "
        f"{100 * _paying(data):g} % of their budget, of what is left their tables have "
        f"{100 * GROUP_SHARE:g} %; or by a store, from the first of two windows for "
        f"{100 * CHOOSING:g} % of its budget, counted from then on for as much; or from its oldest "
        f"{100 * aside:g} %, which are not counted, their tables having 10 % of the budget of the "
        f"rest. Where groups are judged, models see those alone whose sealed tables tell more "
        f"than their parts, as after a store's trial. Drawn are the lines that count all rows. All "
        f"models learn from the same {100 * _hot(data) * (1 - aside):.3g} % of the past. At ∞ "
        f"there is no noise.",
    )
    jobs = [
        store("q3", data, setup.but(epsilon=epsilon), chosen, epsilon, seed=seed, variant=name)
        for lines, epsilons in _setups(data, aside, quick)
        for epsilon in epsilons
        for seed in range(seeds if epsilon < math.inf else 1)  # all lines of a seed: a run that
        for name, setup in lines.items()  # is stopped can be compared
    ]
    return figure, [baseline(data), *jobs]


Setups = dict[str, Setup]


def _setups(data: DataSet, aside: float, quick: bool) -> list[tuple[Setups, Sequence[float]]]:
    """The lines, all with as many hot rows, and at which ε: those that count all rows first."""
    usual = Setup(_hot(data) * (1 - aside), knobs=QUICK if quick else {})
    rest = usual.but(hot=_hot(data), aside=aside)
    lines = {name: usual.but(**changed) for name, changed in _lines(data).items()}
    if quick:
        return [(lines, EPSILONS[:1])]
    others = {name: rest.but(**changed) for name, changed in ASIDE_LINES.items()}
    return [(lines, EPSILONS), (others, ASIDE_EPSILONS)]


def _lines(data: DataSet) -> dict[str, dict[str, Any]]:
    """Lines that count all rows."""
    number = NUMBER.get(data.name, 1)
    groups = f"{number} group{'s' if number > 1 else ''}"
    paying = {"paying": _paying(data), "group_share": GROUP_SHARE}
    return {
        NONE: {},
        f"{groups} from all rows": {"groups": number, **paying},
        NONE_IN_WINDOWS: {"windows": WINDOWS},
        f"{groups} by the store itself": {
            "groups": number,
            "choosing": CHOOSING,
            "windows": WINDOWS,
        },
    }


def _paying(data: DataSet) -> float:
    return PAYING if NUMBER.get(data.name, 1) == 1 else PAYING_MANY


def _hot(data: DataSet) -> float:
    return HOT.get(data.name, hot(data))


def plan_recall(data: DataSet, *, quick: bool, seeds: int) -> tuple[Figure, list[Job]] | None:
    """The share of planted pairs among as many that were chosen, by ε."""
    if data.name != PAIRS:
        return None
    figure = Figure(
        name="recall",
        data=data.name,
        title=f"Q3: planted pairs that are found, of {PLANTED} among 741",
        x_label="ε",
        y_label=f"share of the {PLANTED} planted pairs among {PLANTED} chosen",
        shows="value",
        text=f"By how groups are chosen and from how many rows; all of their budget is spent on "
        f"it (δ = {DELTA:g}). By chance {PLANTED / 741:.1%} are found. At ∞ the choice is exact.",
    )
    jobs = [
        _recall(data, "top-k", rows, RECALL_EPSILONS, seeds)
        for rows in (RECALL_ROWS[:1] if quick else RECALL_ROWS)
    ]
    if not quick:
        jobs += [_recall(data, "center", rows, CENTER_EPSILONS, seeds) for rows in RECALL_ROWS[:2]]
    return figure, jobs


def _recall(data: DataSet, method: Method, rows: int, epsilons: Sequence[float], seeds: int) -> Job:
    about = {"selection": method, "rows": rows, "epsilons": list(map(str, epsilons))}

    def run() -> list[Point]:
        true = set(map(frozenset, clicks.planted(PLANTED)))
        settings = [Settings(epsilon=epsilon, delta=DELTA) for epsilon in epsilons]
        coded = coded_rows(data.read(0, rows), data.schema, settings[0])
        found = []
        for epsilon, each in zip(epsilons, settings, strict=True):
            for seed in range(seeds if epsilon < math.inf else 1):
                asked: dict[str, Any] = {"number": PLANTED, "method": method}
                groups = chosen_groups(coded, data.schema, each, **asked)
                value = len(true & set(map(frozenset, groups))) / PLANTED
                found.append(Point(f"{method}, {rows:,} rows", epsilon, value=value, seed=seed))
        return found

    return Job("recall", data.fingerprint, about | {"seeds": seeds}, run, cost=1 + rows / 4_000)


Q3 = Experiment("q3", "loss with and without chosen groups", plan)
RECALL = Experiment(
    "recall", "planted groups that are found, by ε and how they are chosen", plan_recall
)
