"""Shares: where the noise goes. Loss against ε by how the tables share the budget.

Equal shares, or shares by weights that are read privately (the paper's ``proportional``,
``least-error``, and ``half`` of that and half of the equal shares), under Laplace and Gaussian
noise, with the paper's ratio and with estimates that know the noise.

The past is one window, so weights come from its oldest rows, which are set aside for them with
all of their budget and not counted, as in the paper: see `lab.holdout`. (A store
of many windows does the same by itself: a window in so many pays for the weights of later ones.)
All lines, those of equal shares too, count the same rest of the past.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, Literal

from lab.count_models import TREES
from lab.datasets import DataSet, kind
from lab.experiments.experiment import LARGE, QUICK, Experiment, baseline, store
from lab.experiments.q2 import TELLING, chosen, hot
from lab.paper import references
from lab.points import Figure, Job
from lab.stores import Setup

Shares = Literal["equal", "proportional", "least-error", "half"]
Mechanism = Literal["laplace", "gaussian"]

SHARES: tuple[Shares, ...] = ("equal", "proportional", "least-error", "half")
MECHANISMS: tuple[Mechanism, ...] = ("laplace", "gaussian")
ESTIMATES = {"ratio": "ratio", "shrinkage": "noise-aware"}
EPSILONS = (0.1, 0.33, 1.0)

QUICK_SHARES: tuple[Shares, ...] = ("equal", "half")
QUICK_EPSILON = 1.0
NOT_QUICK = ("criteo", "clicks")
"""Data sets of so many sketches that a quick run leaves them out."""

ASIDE = {"movielens": 0.05}
"""The share of the past that weights are read from; of few rows more is needed."""

ASIDE_OTHERWISE = 0.1

Choice = tuple[float, Shares, str, Mechanism]

EXACT: tuple[tuple[Shares, str, Mechanism], ...] = (
    ("proportional", "ratio", "laplace"),
    ("half", "shrinkage", "gaussian"),
)
"""The paper's way and the default one, which are also shown with weights read without privacy."""

TOLD = (*EXACT, *(("equal", *how) for _, *how in EXACT))
"""These, and the same with equal shares: what is measured among all figures, and of Criteo's neural
network at few places."""


def plan(data: DataSet, *, quick: bool, seeds: int) -> tuple[Figure, list[Job]] | None:
    """Two models against ε, a line for every way to put the noise."""
    if data.rows >= LARGE or (quick and kind(data.name) in NOT_QUICK):
        return None
    figure = Figure(
        name="shares",
        data=data.name,
        title=f"Where the noise goes: shares of the budget, {data.title}",
        x_label="ε",
        references=references("shares", data.name),
        text=f"As in q2. Weights are read privately from the oldest {100 * aside(data):g} % of the "
        f"past, with all of these rows' budget; the rest is counted, in every line.",
        drawn=() if quick else (TREES, ESTIMATES["shrinkage"]),
    )
    lines = [(choice, False) for choice in choices(quick)]
    lines += [] if quick else [((e, *how), True) for how in EXACT for e in EPSILONS[::-1]]
    lines.sort(key=lambda line: line[0][1:] not in EXACT)  # what the paper says, first
    jobs = [
        store("shares", data, setup, asked, choice[0], seed=seed, variant=named, more=more)
        for choice, leaky in lines
        for named in [told(choice, leaky)]
        for few in [choice[1:] in TOLD and choice[0] in TELLING]
        for more in [not few and not (choice[1:] in TOLD and kind(data.name) == "movielens")]
        for asked in [chosen(data, quick=quick, network=few)]
        for setup in [_setup(data, choice, quick).but(leaky=leaky)]
        for seed in range(seeds)
    ]
    return figure, [baseline(data), *jobs]


def aside(data: DataSet) -> float:
    """The share of the past that is set aside for weights."""
    return ASIDE.get(data.name, ASIDE_OTHERWISE)


def choices(quick: bool) -> Iterator[Choice]:
    """All ways to put the noise; in a quick run two of them."""
    if quick:
        yield from product([QUICK_EPSILON], QUICK_SHARES, ["shrinkage"], MECHANISMS[-1:])
    else:
        yield from product(EPSILONS[::-1], SHARES, ESTIMATES, MECHANISMS)


def told(choice: Choice, leaky: bool = False) -> str:
    """A choice but for its ε.

    >>> told((1.0, "half", "shrinkage", "gaussian"))
    'Gaussian, half, noise-aware'
    """
    _, shares, estimate, mechanism = choice
    leaks = f", {LEAKS}" if leaky else ""
    return f"{mechanism.capitalize()}, {shares}, {ESTIMATES[estimate]}{leaks}"


LEAKS = "weights read exactly, which leaks"


def _setup(data: DataSet, choice: Choice, quick: bool) -> Setup:
    epsilon, shares, estimate, mechanism = choice
    knobs: dict[str, Any] = {"estimate": estimate, **(QUICK if quick else {})}
    return Setup(
        hot(data),
        epsilon=epsilon,
        mechanism=mechanism,
        shares=shares,
        aside=aside(data),
        knobs=knobs,
    )


SHARING = Experiment("shares", "loss against ε by how tables share the budget", plan)
