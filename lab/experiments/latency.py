"""Q4: how long a prediction takes, with the tables in memory and with the tables elsewhere.

A service answers over HTTP: a row, which it featurizes from tables in memory (the paper's cache);
and a ready-made vector of the same width, which nobody protects (the paper's Velox). Both are
asked in turns on one kept connection. Without a cache, a reader that has none of the tables fetches
the cells of each row from where they are shared, and asks the service with the vector.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab import clicks
from lab.datasets import DataSet
from lab.experiments.experiment import QUICK, Experiment
from lab.paper import LATENCIES, references
from lab.points import Figure, Job, Point
from lab.service_process import Line, filled, redis, serving
from pyramidion.counts.snapshot import Snapshot
from pyramidion.errors import StateError

ROWS = 10_000
"""Counted, and hot."""
ASKED = 200
"""Different rows that are asked for, by turns."""
TIMES, QUICK_TIMES = 2_000, 300
WARMED = 200
VECTOR, CACHED, UNCACHED = (
    "a vector, no featurization",
    "a row, tables in memory",
    "a row, no cache",
)


SERVICE = "service"


def rows_to_serve() -> DataSet:
    """Generated clicks, as many as are needed."""
    made = clicks.generate(3 * ROWS)
    return replace(made, name=SERVICE, title="39 features", made_for=("latency",))


def plan(data: DataSet, *, quick: bool, seeds: int) -> tuple[Figure, list[Job]] | None:
    """Milliseconds of a prediction, beside the paper's."""
    if data.name != SERVICE or find_spec("uvicorn") is None:  # of the extra `serve`
        return None
    figure = Figure(
        name="latency",
        data=data.name,
        title="Q4: one prediction over HTTP, with and without cache",
        x_label="features of a row",
        y_label="milliseconds, median (logarithmic)",
        shows="value",
        bars=True,
        references=references("latency", data.name),
        text="A row of 39 features, logistic regression, a service of one process on this machine. "
        "Ratios are to a vector, which is not featurized. Without cache, the cells of each row are "
        "fetched from Redis in one round trip (from files where there is no redis-server). The "
        "paper's machines and networks were others: its ratios tell more than its milliseconds.",
    )
    times = QUICK_TIMES if quick else TIMES
    knobs = QUICK if quick else {}
    return figure, [_job(data, times, knobs, seed) for seed in range(seeds)]


def _job(data: DataSet, times: int, knobs: dict[str, Any], seed: int) -> Job:
    about = {"rows": ROWS, "times": times, "knobs": knobs, "seed": seed}

    def run() -> list[Point]:
        with tempfile.TemporaryDirectory(prefix="pyramidion-") as name:
            folder = Path(name)
            with redis(folder) as url:
                tables = url or f"file:{folder / 'shared'}"
                shared = filled(data, folder, ROWS, tables, **knobs)
                with shared, serving(folder) as line:
                    found = _timed(line, shared.snapshot(cached=False), _rows(data), times)
        width = len(data.schema.features)
        papers = [Point(f"paper: {told}", width, value=took) for told, took in LATENCIES.items()]
        least = float(np.median(found[VECTOR]))
        return papers * (not seed) + [
            Point(told, width, value=1e3 * float(np.median(took)), seed=seed, ratio=ratio)
            for told, took in found.items()
            for ratio in [1 + float(np.median(took - found[VECTOR])) / least]
        ]

    return Job("latency", data.fingerprint, about, run, cost=15 + times / 100)


def _rows(data: DataSet) -> Sequence[dict[str, Any]]:
    """Rows that were not counted."""
    table = data.table(2 * ROWS, 2 * ROWS + ASKED).drop_columns(["time", data.label])
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _timed(line: Line, far: Snapshot, rows: Sequence[Any], times: int) -> dict[str, NDArray[Any]]:
    """Seconds of each way: with a cache and without featurization in turns, then without cache."""
    ways = _ways(line, far, rows)
    pair = _in_turns([ways[VECTOR], ways[CACHED]], times)
    (alone,) = _in_turns([ways[UNCACHED]], times)
    return {UNCACHED: alone, CACHED: pair[1], VECTOR: pair[0]}


def _ways(line: Line, far: Snapshot, rows: Sequence[Any]) -> dict[str, Callable[[int], object]]:
    """How a prediction of a row, told by its number, is asked for."""
    vectors = line.ask("POST", "/features", rows)["rows"]
    by_row = [line.prediction(row) for row in rows]
    by_vector = [line.prediction({"features": vector}) for vector in vectors]

    def uncached(number: int) -> bytes:
        vector = far.featurize_one(rows[number]).tolist()
        return line.send(line.prediction({"features": vector}))

    for asked in (by_row[0], by_vector[0]):
        if json.loads(line.send(asked)) != json.loads(uncached(0)):
            raise StateError("the predictions of a row differ by how they are asked for")
    return {
        VECTOR: lambda number: line.send(by_vector[number]),
        CACHED: lambda number: line.send(by_row[number]),
        UNCACHED: uncached,
    }


def _in_turns(ways: Sequence[Callable[[int], object]], times: int) -> list[NDArray[Any]]:
    """Seconds of ways that take turns, so that all meet the same machine."""
    for number in range(WARMED):
        for ask in ways:
            ask(number % ASKED)
    took = [np.empty(times) for _ in ways]
    for number in range(times):
        order = range(len(ways)) if number % 2 else reversed(range(len(ways)))
        for way in order:  # who comes first must not matter
            took[way][number] = _seconds(ways[way], number % ASKED)
    return took


def _seconds(ask: Callable[[int], object], number: int) -> float:
    began = time.perf_counter()
    ask(number)
    return time.perf_counter() - began


LATENCY = Experiment("latency", "time of a prediction, with and without cache", plan)
