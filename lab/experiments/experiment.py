"""What an experiment is, and the jobs that experiments are made of: a raw model, or a store."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from lab.count_models import CountModel, mechanism
from lab.datasets import DataSet
from lab.points import Figure, Job, Point
from lab.raw_models import BASELINE, HASHED, RawModel, best_model
from lab.stores import (
    Lesson,
    Lost,
    Setup,
    counted,
    feature_columns,
    kept_columns,
    lesson,
    lost,
    tested,
)
from pyramidion.config.schema import Categorical

LARGE = 5_000_000
"""Rows from which a store is filled once for several hot windows: it takes minutes."""


QUICK: dict[str, Any] = {"buckets": 16_384}
"""Settings of quick runs: most of the time of a small store goes into drawing noise."""


class Plan(Protocol):
    """Plans a figure for a data set; None where it does not concern that."""

    def __call__(
        self, data: DataSet, *, quick: bool, seeds: int
    ) -> tuple[Figure, list[Job]] | None:
        """The figure and its jobs."""


@dataclass(frozen=True)
class Experiment:
    """A question, by the name that the command line knows."""

    name: str
    help: str
    plan: Plan


def lead(data: DataSet) -> str:
    """The name of the raw model that losses are divided by."""
    return BASELINE.get(data.name, "logistic regression")


def baseline(data: DataSet) -> Job:
    """The raw model on all of the past. All figures of a data set share it."""
    return raw("baseline", data, best_model(data.name, lead(data)), 1.0, 100, leads=True)


def raw(
    figure: str,
    data: DataSet,
    model: RawModel,
    share: float,
    x: float,
    *,
    leads: bool = False,
    more: bool = False,
) -> Job:
    """A raw model, trained on the newest share of the past."""
    rows = max(1, round(share * data.past))
    about = {"raw": model.name, "rows": rows, "parameters": dict(model.parameters)}

    def run() -> list[Point]:
        found = model.losses(data, data.past - rows, data.past, tested(data))
        detail = {"rows": rows, "baseline": leads, "parameters": dict(model.parameters)}
        took = found.seconds_to_train
        return [Point(f"raw: {model.name}", x, loss=found.loss, seconds=took, detail=detail)]

    cost = 2 + rows / (20_000 if model.name == HASHED else 200_000)
    return Job(figure, data.fingerprint, about, run, cost, more=more)


def store(
    figure: str,
    data: DataSet,
    setup: Setup,
    models: Sequence[CountModel],
    x: float,
    *,
    seed: int = 0,
    variant: str = "",
    more: bool = False,
) -> Job:
    """A store of the past, and every model trained from it."""
    about = {"store": setup.told(), "models": told(models), "seed": seed}

    def run() -> list[Point]:
        with counted(data, setup) as filled:
            given = lesson(data, filled)
            if setup.judged:
                given = given.only(kept_columns(filled))
            alone = given.only(feature_columns(filled)) if setup.compared else None
        found = points(data, given, models, x, seed=seed, variant=variant)
        return found if alone is None else _beside(found, lost(data, alone, models, seed))

    return Job(figure, data.fingerprint, about, run, cost(data, setup, len(models)), more=more)


def cost(data: DataSet, setup: Setup, trained: int) -> float:
    """Guessed seconds: rows are counted, sketches have noise drawn, models learn the hot rows.

    By what stores of MovieLens, Criteo and a million clicks took, in seconds of processors.
    """
    columns = len(data.schema.features)
    sketches = sum(isinstance(f, Categorical) and f.domain is None for f in data.schema.features)
    hashed = int(
        setup.knobs.get("rows", 1 if (setup.mechanism or mechanism(data)) == "laplace" else 5)
    )
    buckets = int(setup.knobs.get("buckets", 65_536)) / 65_536
    noise = 0.03 * sketches * hashed * setup.windows * buckets if setup.epsilon < math.inf else 0.0
    hot = setup.hot * data.past * columns
    sealed = 0.07 * setup.windows
    return 0.5 + data.past * columns / 2e7 + noise + sealed + trained * (0.3 + hot / 3.5e5)


def _beside(found: Sequence[Point], alone: Sequence[Lost]) -> list[Point]:
    """Points that also say what the same models lose on the same tables without their groups."""
    return [
        replace(point, detail={**point.detail, "loss without columns of groups": other.loss})
        for point, other in zip(found, alone, strict=True)
    ]


def points(
    data: DataSet,
    given: Lesson,
    models: Sequence[CountModel],
    x: float,
    *,
    seed: int,
    variant: str = "",
) -> list[Point]:
    """What models lose, trained on one lesson."""
    named = f", {variant}" if variant else ""
    return [
        Point(
            f"counts: {found.model}{named}",
            x,
            loss=found.loss,
            seed=seed,
            seconds=found.seconds,
            detail={"rows": found.rows, "seconds to featurize": given.seconds},
        )
        for found in lost(data, given, models, seed)
    ]


def told(models: Sequence[CountModel]) -> dict[str, dict[str, Any]]:
    """Models as a job tells them."""
    return {model.name: dict(model.parameters) for model in models}
