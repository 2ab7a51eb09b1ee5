"""Contextual bandits: clicks of a policy on counts beside those of one on raw rows.

On the generated bandit the value of a policy is exact: the mean true click rate of what it
chooses in contexts that are in no log. On Open Bandit it is estimated from what was shown at random
the day after, three ways, with intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lab import policies
from lab.bandits import NAME, Bandit, World, asked
from lab.datasets import DataSet
from lab.experiments.experiment import Experiment
from lab.paper import references
from lab.points import Figure, Job, Point
from lab.policies import CountPolicy, Policy, RawPolicy
from pyramidion.learn.bandit import Estimate, doubly_robust, ips, snips

EPSILON = 1.0
CLIPPED = 0.1
"""A p_min at which, of ten articles, a row weighs no more than 10: half the noise, some bias."""

RAW, RAW_IPS = "raw: Vowpal Wabbit", "raw: Vowpal Wabbit, the paper's parameters"
COUNTS, PRIVATE = "counts", f"counts, ε = {EPSILON:g}"
CLIPPING = f"{PRIVATE}, weights up to {1 / CLIPPED:g}"
QUICK_DAYS = 3

Floats = NDArray[np.float64]
Make = Callable[[], Policy]


def plan(data: DataSet, *, quick: bool, seeds: int) -> tuple[Figure, list[Job]] | None:
    """Policies that learn day by day."""
    if not isinstance(data, Bandit):
        return None
    if quick:
        data = replace(data, days=data.days[:QUICK_DAYS])
    if data.world is None:
        return _estimated(data, quick, seeds)
    return _exact(data, data.world, quick, seeds)


def _makers(data: Bandit, quick: bool, seeds: int) -> Iterator[tuple[str, dict[str, Any], Make]]:
    """The policies: a name, what is told of each, and how it is made."""
    yield RAW, {"raw": dict(policies.RAW)}, lambda: RawPolicy(data)
    if not quick and data.world is not None:
        own = {"cb_type": "ips", "learning_rate": 0.02, "bit_precision": 18}  # the paper's
        yield RAW_IPS, {"raw": own}, lambda: RawPolicy(data, **own)
    told = {"counts": dict(policies.COUNTS), "p_min": data.p_min}
    yield COUNTS, told, lambda: CountPolicy(data)
    for seed in range(seeds):
        noisy = told | {"epsilon": EPSILON, "seed": seed}
        yield PRIVATE, noisy, lambda seed=seed: CountPolicy(data, EPSILON, seed)  # type: ignore[misc]
        if data.p_min < CLIPPED and data.world is not None:
            less = replace(data, p_min=CLIPPED)
            yield (
                CLIPPING,
                noisy | {"p_min": CLIPPED},
                lambda less=less, seed=seed: CountPolicy(less, EPSILON, seed),  # type: ignore[misc]
            )


# --- where the truth is known --------------------------------------------------------------------


def _exact(data: Bandit, world: World, quick: bool, seeds: int) -> tuple[Figure, list[Job]]:
    figure = Figure(
        name=NAME,
        data=data.name,
        title=f"Clicks of policies that learn day by day, {data.title}",
        x_label="days learnt",
        y_label="clicks of the raw policy in the end / clicks of the policy",
        log_x=False,
        baseline_at=len(data.days),
        references=references(NAME, data.name),
        text="1.05: the raw policy has 5 % more clicks. Values are exact, by the true click rates "
        "of what a policy chooses in 20,000 contexts of no log. Counts are weighted by 1/p, of "
        "days that are count windows; models on them learn the last day alone, from scratch.",
    )
    jobs = [
        _job(data, told, _valued(data, world, name, told, make))
        for name, told, make in _makers(data, quick, seeds)
    ]
    return figure, [*jobs, _known(data, world)]


def _job(data: Bandit, told: Mapping[str, Any], run: Callable[[], list[Point]]) -> Job:
    about = {**told, "days": len(data.days)}
    return Job(NAME, data.fingerprint, about, run, cost=1 + data.days[-1][1] / 70_000)


def _valued(
    data: Bandit, world: World, name: str, told: Mapping[str, Any], make: Make
) -> Callable[[], list[Point]]:
    def run() -> list[Point]:
        choices, chance, _ = asked(world)
        found = []
        with make() as policy:
            for day, (start, stop) in enumerate(data.days, 1):
                policy.learn(data.table(start, stop))
                value = float(chance[choices.best(policy.scores(choices))].mean())
                leads = name == RAW and day == len(data.days)
                seed = int(told.get("seed", 0))
                detail = {"baseline": leads}
                found.append(Point(name, day, 1 / value, value=value, seed=seed, detail=detail))
        return found

    return run


def _known(data: Bandit, world: World) -> Job:
    """What the editors get, and what the best choice would."""

    def run() -> list[Point]:
        choices, chance, odds = asked(world)
        contexts = len(choices.sizes)
        best = float(np.maximum.reduceat(chance, choices.starts).mean())
        values = {"best possible": best, "editors": float((chance * odds).sum() / contexts)}
        days = (1, len(data.days))
        return [Point(n, day, 1 / v, value=v) for n, v in values.items() for day in days]

    return Job(NAME, data.fingerprint, {"known": len(data.days)}, run)


# --- where it is estimated -----------------------------------------------------------------------

DOUBLY = "doubly robust"


@dataclass
class _Judged:
    """What was shown at random, and what a policy would have: rows of all days so far."""

    reward: list[Floats]
    agreed: list[Floats]
    odds: list[Floats]
    guessed: list[Floats]
    expected: list[Floats]

    def add(self, data: Bandit, rows: pa.Table, policy: Policy) -> None:
        """A day's rows."""
        choices = data.choices(rows)
        scores = policy.scores(choices)
        best, taken = choices.best(scores), data.taken(rows, choices)
        self.reward.append(rows[data.label].to_numpy().astype(np.float64))
        self.agreed.append((best == taken).astype(np.float64))
        self.odds.append(rows[data.weight].to_numpy())
        self.guessed.append(scores[taken])
        self.expected.append(scores[best])

    def estimates(self, p_min: float) -> dict[str, Estimate]:
        """The policy's click rate, three ways."""
        log = [np.concatenate(part) for part in (self.reward, self.agreed, self.odds)]
        guessed, expected = np.concatenate(self.guessed), np.concatenate(self.expected)
        robust = doubly_robust(*log, guessed=guessed, expected=expected, p_min=p_min)
        return {
            "IPS": ips(*log, p_min=p_min),
            "SNIPS": snips(*log, p_min=p_min),
            DOUBLY: robust,
        }


def _estimated(data: Bandit, quick: bool, seeds: int) -> tuple[Figure, list[Job]]:
    figure = Figure(
        name=NAME,
        data=data.name,
        title=f"Click rates of policies, estimated, {data.title}",
        x_label="policies, side by side",
        y_label="clicks per item shown",
        log_x=False,
        shows="value",
        band="95 % intervals",
        drawn=(DOUBLY,),
        text="Policies learn day by day from both logs, and are judged on what was shown at random "
        "the day after, on all days together. Bars are intervals of 95 %: what few clicks tell. "
        "Drawn are doubly robust estimates; inverse propensity scores (IPS) and self-normalised "
        "ones (SNIPS) are among the numbers.",
    )
    jobs = [
        _job(data, told, _judging(data, name, told, make))
        for name, told, make in _makers(data, quick, seeds)
    ]
    return figure, [*jobs, _logs(data)]


PLACES = {RAW: ("policy on raw rows", 1), COUNTS: (f"policy on {COUNTS}", 2)}
PLACES[PRIVATE] = f"policy on {PRIVATE}", 3
RANDOM, OTHER, TOLD = 4, 5, 6
"""Where each policy stands."""


def _judging(
    data: Bandit, name: str, told: Mapping[str, Any], make: Make
) -> Callable[[], list[Point]]:
    def run() -> list[Point]:
        judged, (named, place) = _Judged([], [], [], [], []), PLACES[name]
        with make() as policy:
            for day, (start, stop) in enumerate(data.days[:-1]):
                policy.learn(data.table(start, stop))
                judged.add(data, data.judged(data.table(*data.days[day + 1])), policy)
        seed, found = int(told.get("seed", 0)), judged.estimates(data.p_min)
        return [_point(f"{named}, {way}", place, each, seed) for way, each in found.items()]

    return run


def _logs(data: Bandit) -> Job:
    """What the logging policies got; and what ``random`` gets by the log of the other one."""

    def run() -> list[Point]:
        first, last = data.days[1][0], data.days[-1][1]
        rows = data.table(first, last)
        random = data.judged(rows)
        other = rows.filter(pa.compute.not_equal(rows["policy"], "random"))
        found = [
            _point(f"{name} itself, by its own log (as {DOUBLY})", place, _mean(some))
            for name, place, some in (("random", RANDOM, random), ("bts", OTHER, other))
        ]
        even = 1 / data.choices(other).sizes
        log = (other[data.label].to_numpy(), even, other[data.weight].to_numpy())
        told = {"IPS": ips(*log, p_min=data.p_min), "SNIPS": snips(*log, p_min=data.p_min)}
        return found + [_point(f"random by the log of bts, {w}", TOLD, e) for w, e in told.items()]

    return Job(NAME, data.fingerprint, {"logs": len(data.days), "p_min": data.p_min}, run)


def _mean(rows: pa.Table) -> Estimate:
    """The click rate of rows as they were shown."""
    sure = np.ones(rows.num_rows)
    return ips(rows["click"].to_numpy(), sure, sure, p_min=1.0)


def _point(name: str, place: int, estimate: Estimate, seed: int = 0) -> Point:
    detail = {"interval": [estimate.low, estimate.high], "rows": estimate.rows}
    return Point(name, place, value=estimate.value, seed=seed, detail=detail)


BANDIT = Experiment(NAME, "clicks of policies on weighted counts and on raw rows", plan)
