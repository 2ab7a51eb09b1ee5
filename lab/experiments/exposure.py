"""Exposure: how many rows could an intruder read, while a stream is replayed?

The store's own report is asked, again and again: raw rows that are in reach at that moment, beside
all that was collected so far. What is not hot any more is in tables under noise.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab.datasets import DataSet
from lab.experiments.experiment import LARGE, QUICK, Experiment
from lab.experiments.q2 import hot
from lab.paper import references
from lab.points import Figure, Job, Point
from lab.stores import Setup, beginning, time_of

PLACES, QUICK_PLACES = 20, 4
WINDOWS, QUICK_WINDOWS = 10, 3
STEPS = 4
"""Steps of the hot window."""
EPSILON = 1.0
MOMENT = 0.01
"""Seconds after a step, when what left with it is out of reach."""
COLLECTED = "raw store: all that was collected"
HOT = "this store: hot rows"


def plan(
    data: DataSet,
    *,
    quick: bool,
    seeds: int,  # noqa: ARG001
) -> tuple[Figure, list[Job]] | None:
    """Rows within reach against rows collected."""
    if data.rows >= LARGE or data.schema.labels[0].continuous:
        return None
    windows = QUICK_WINDOWS if quick else WINDOWS
    figure = Figure(
        name="exposure",
        data=data.name,
        title=f"What an intruder could read, {data.title}",
        x_label="thousands of rows collected",
        y_label="thousands of raw rows that an intruder could read",
        log_x=False,
        shows="value",
        references=references("exposure", data.name),
        text=f"At each moment what the store's own exposure report says of raw rows within reach. "
        f"{100 * hot(data):g} % of the past is hot; of the rest there are tables alone, under "
        f"noise at ε = {EPSILON:g}, in {windows} windows.",
    )
    setup = Setup(hot(data), EPSILON, windows=windows, knobs=QUICK if quick else {})
    return figure, [_replayed(data, setup, QUICK_PLACES if quick else PLACES)]


def _replayed(data: DataSet, setup: Setup, places: int) -> Job:
    about = {"store": setup.told(), "places": places}

    def run() -> list[Point]:
        return [point for found in _told(data, setup, places) for point in found]

    return Job("exposure", data.fingerprint, about, run, cost=2 + data.past / 80_000)


def _told(data: DataSet, setup: Setup, places: int) -> Iterator[list[Point]]:
    rows = data.past - data.past % setup.windows
    step = max(1, round(setup.hot * rows) // STEPS)
    with beginning(data, setup, rows, step) as (store, clock, batches):
        collected, due = 0, 1
        for batch in batches:
            clock.now = max(clock.now, time_of(batch))
            store.observe(batch)
            store.advance()
            collected += len(batch)
            if collected * places < due * rows:
                continue
            due = collected * places // rows + 1
            clock.now += MOMENT
            seen = store.exposure(clock.now, clock.now)
            heights = {COLLECTED: collected, HOT: seen.rows}
            x = round(collected / 1_000, 1)
            yield [Point(name, x, value=height / 1_000) for name, height in heights.items()]


EXPOSURE = Experiment("exposure", "rows an intruder could read against rows collected", plan)
