"""Four ways to make features for training, and what each does to the predictions.

A store seals two windows of generated visits. Models are trained on its hot rows and asked
about later visits, whose features come from the complete tables. Only how the features for
*training* are made differs:

    all hot rows off     the complete tables less all hot rows in them: `training_set`
    each row off alone   the complete tables less that one row: leave-one-out
    earlier tables       the tables as they were before the window that the row is in
    nothing off          the complete tables as they are: each row meets its own label

Noise is never the same twice, so figures differ a little from run to run.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from pyramidion import Categorical, Label, Pyramid, Schema, Settings, Snapshot
from pyramidion.rows.observations import Observations

DAY, START = 86_400.0, 20_000 * 86_400.0
WINDOW, WINDOWS, HOT = 10, 2, 4  # days of a window, windows, days that rows are hot
BORDER = START + WINDOWS * WINDOW * DAY
ROWS, LATER = 1_000, 20_000  # visits a day, and visits to predict
SEEDS = 5
VALUES = {
    "weekday": 7, "device": 10, "system": 12, "browser": 20, "hour": 24, "channel": 30,
    "language": 40, "country": 60, "format": 80, "topic": 100, "region": 150, "partner": 200,
    "campaign": 300, "city": 500, "site": 1_000, "advert": 3_000,
}  # fmt: skip

SCHEMA = Schema(
    time="time",
    label=Label("click", classes=[0, 1]),
    features=[
        Categorical(name, domain=[str(value) for value in range(values)])
        for name, values in VALUES.items()
    ],
)
SETTINGS = Settings(
    epsilon=1.0,
    count_window=f"{WINDOW}d",
    retention="365d",
    hot_window=f"{HOT}d",
    hot_step="1d",
    origin=START,
)

RIGHT, ALONE, EARLIER, AS_IS = WAYS = (
    "all hot rows off",
    "each row off alone",
    "earlier tables",
    "nothing off",
)
TREES, LINEAR = MODELS = ("boosted trees", "logistic regression")
Array = NDArray[Any]
Losses = dict[tuple[str, str], float]
"""Log loss by way and model."""


class Visits:
    """A world in which a few values are frequent and most are rare; each has an effect."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.effects = {name: self.random.normal(0, 0.35, size) for name, size in VALUES.items()}

    def at(self, when: float, rows: int) -> pa.Table:
        """Visits of one moment, with their labels."""
        columns, log_odds = {}, np.full(rows, -1.0)
        for name, effects in self.effects.items():
            often = 1.0 / np.arange(1, effects.size + 1)
            chosen = self.random.choice(effects.size, rows, p=often / often.sum())
            log_odds += effects[chosen]
            columns[name] = chosen.astype(str)
        clicks = self.random.random(rows) < 1 / (1 + np.exp(-log_odds))
        return pa.table({"time": np.full(rows, when), "click": clicks.astype(int), **columns})


# --- features for training, in four ways ----------------------------------------------------


def ways(store: Pyramid, earlier: Snapshot, border: float) -> dict[str, Array]:
    """Features of the hot rows; those from before the border are in a sealed window."""
    training, complete = store.training_set(), store.snapshot()
    batches = [hot.observations.under(complete.encoder) for hot, _ in training.reduced.features()]
    sealed = sum(rows.times[0] < border * 1e6 for rows in batches)
    alone = [each_alone(complete, rows) for rows in batches[:sealed]]
    before = [np.asarray(earlier.array(rows)) for rows in batches[:sealed]]
    as_is = [np.asarray(complete.array(rows)) for rows in batches]
    return {
        RIGHT: np.asarray(training.X),
        ALONE: np.concatenate(alone + as_is[sealed:]),
        EARLIER: np.concatenate(before + as_is[sealed:]),
        AS_IS: np.concatenate(as_is),
    }


def each_alone(complete: Snapshot, rows: Observations) -> Array:
    """Features of each row by the complete tables less that row alone.

    Each value has a cell of its own here. So rows of one label are done together: every
    value that they have is taken off once, and each of them finds its own count missing.
    """
    X = np.empty((len(rows), len(complete.names)), dtype=np.float32)
    for label in np.unique(rows.labels):
        at = np.flatnonzero(rows.labels == label)
        some, off = rows.take(at), []
        for table, shape in enumerate(some.shapes):
            _, firsts = np.unique(some.keys(table, 0, len(some)), return_index=True)
            off.append((some.take(firsts), [shape.name]))
        X[at] = complete.without_all(off).array(some)
    return X


# --- models ---------------------------------------------------------------------------------


def losses(made: Mapping[str, Array], y: Array, new: Array, truth: Array) -> Losses:
    """What each model loses on new rows, trained on features made in each way."""
    found: Losses = {}
    for way, X in made.items():
        found[way, TREES] = log_loss(truth, boosted_trees(X, y, new))
        found[way, LINEAR] = log_loss(truth, logistic_regression(X, y, new))
    return found


def boosted_trees(X: Array, y: Array, new: Array) -> Array:
    """The chances that LightGBM gives new rows."""
    trees: Any = lightgbm.LGBMClassifier(num_leaves=8, n_jobs=1, random_state=0, verbose=-1)
    return np.asarray(trees.fit(X, y).booster_.predict(new))


def logistic_regression(X: Array, y: Array, new: Array) -> Array:
    """The chances that a linear model gives new rows; no feature is stretched without limit."""
    mean, deviation = X.mean(axis=0), np.maximum(X.std(axis=0), 0.01)
    linear = LogisticRegression(max_iter=1_000).fit((X - mean) / deviation, y)
    return np.asarray(linear.predict_proba((new - mean) / deviation)[:, 1])


# --- stores ---------------------------------------------------------------------------------


def lived(seed: int, epsilon: float, moments: Sequence[int]) -> dict[int, Losses]:
    """One store's life; the losses on some days after its last window was sealed."""
    now, visits, found = [START + DAY / 2], Visits(seed), {}
    settings = replace(SETTINGS, epsilon=epsilon)
    with tempfile.TemporaryDirectory() as name:
        path, keys = Path(name) / "visits", f"file:{Path(name) / 'elsewhere' / 'visits.key'}"
        with Pyramid.create(path, SCHEMA, settings, keys=keys, clock=lambda: now[0]) as store:
            for day, earlier in days(store, now, visits):
                if day in moments:
                    made, y = ways(store, earlier, BORDER), store.training_set().y
                    later = visits.at(now[0], LATER)
                    new = np.asarray(store.snapshot().array(later))
                    found[day] = losses(made, y, new, later["click"].to_numpy())
                if day == max(moments):
                    break
    return found


def days(store: Pyramid, now: list[float], visits: Visits) -> Iterator[tuple[int, Snapshot]]:
    """Each day since the last window was sealed, and the tables from before it was."""
    day = -WINDOW * WINDOWS
    while True:
        if WINDOWS - 1 in store.advance().sealed:
            earlier = store.snapshot()
        if day >= 0:
            yield day, earlier
        store.observe(visits.at(now[0], ROWS))
        now[0] += DAY
        day += 1


# --- a table --------------------------------------------------------------------------------


def show(what: str, found: Sequence[Losses]) -> None:
    """Mean losses, and how many times those of the right way they are."""
    print(f"\n  {what:<36}" + "".join(f"{model:>22}" for model in MODELS))
    for way in WAYS:
        line = f"    {way:<34}"
        for model in MODELS:
            loss, right = (np.mean([one[w, model] for one in found]) for w in (way, RIGHT))
            line += f"{loss:15.3f}{loss / right:7.2f}"
        print(line)


def main() -> None:
    """Live with noise and without, and show both."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    begun = time.perf_counter()
    print(f"\n  Log loss on later visits, mean of {SEEDS} stores; 1.00: as the training set")
    for epsilon, moments in ((1.0, (0, HOT // 2)), (math.inf, (0,))):
        found = [lived(seed, epsilon, moments) for seed in range(SEEDS)]
        for day in moments:
            when = f"{day} days after that" if day else "just sealed"
            show(f"ε = {epsilon:g}, {when}", [one[day] for one in found])
    taken = time.perf_counter() - begun
    print(f"\n  {taken:.1f} s in all; docs/learning.md says what this means\n")


if __name__ == "__main__":
    main()
