"""Compile the kernels once, into numba's cache: ``python -m pyramidion.warm``.

Counts and featurizes a few rows in every way there is, so that the first user
does not wait for the compiler.
"""

from __future__ import annotations

import datetime as dt
import json

import numpy as np
import pyarrow as pa
from sklearn.linear_model import LogisticRegression

from pyramidion.counts.key_counts import KeyCounts
from pyramidion.counts.selection import Coded
from pyramidion.counts.snapshot import Snapshot
from pyramidion.evaluate import clicks
from pyramidion.learn.counting import Counting
from pyramidion.learn.linear import Linear
from pyramidion.observations import Door
from pyramidion.people import LEAST, People
from pyramidion.schema import Categorical, Continuous, Label, Schema
from pyramidion.settings import Settings


def _rows(length: int) -> pa.Table:
    numbers = np.arange(length)
    text = [str(i % 7) for i in numbers]
    stamp = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    return pa.table(
        {
            "text": pa.array([*text[:-1], None]),
            "large": pa.array(text, pa.large_string()),
            "view": pa.array(text, pa.string_view()),
            "coded": pa.array([*text[:-1], None]).dictionary_encode(),
            "exact": pa.array(numbers).cast(pa.decimal128(21, 2)),
            "whole": pa.array(numbers),
            "real": pa.array(numbers / 4),
            "time": pa.array([stamp] * length),
            "known": pa.array(numbers % 3),
            "binned": pa.array(numbers / length),
            "count": pa.array(numbers),
            "p": pa.array(np.full(length, 0.5)),
            "y": pa.array(numbers % 2),
        }
    )


def _schema(weight: str | None) -> Schema:
    names = ("text", "large", "view", "coded", "exact", "whole", "real", "time")
    return Schema(
        features=[
            *map(Categorical, names),
            Categorical("known", domain=[0, 1]),
            Continuous("binned", edges=[0.25, 0.5]),
            Continuous("count", edges=[3, 9]),
        ],
        label=Label("y", classes=[0, 1]),
        groups=[("text", "known"), ("known", "binned"), ("text", "whole")],
        weight=weight,
    )


def _predict(snapshot: Snapshot) -> None:
    """One row through a linear model, from its features and from JSON."""
    width = len(snapshot.names)
    X = np.arange(2 * width, dtype=np.float32).reshape(2, width)
    model = Linear.of(LogisticRegression().fit(X, [0, 1]), (0, 1))
    if model is not None:
        model.chances(X[0])
        model.chances_of_json(snapshot, b"{}")


def _count_people(rows: pa.Table) -> None:
    schema = Schema(
        features=[Categorical("text")], label=Label("y", classes=[0, 1]), unit="whole", time="time"
    )
    settings = Settings(epsilon=1.0)
    people, door = People(schema, settings), Door(schema, settings, b"nobody's")
    found = door.observations(pa.concat_tables([rows] * (LEAST // len(rows))))
    people.take_back(found, people.count(found, 0))


def warm() -> None:
    """Run every kernel once."""
    rows = _rows(100)
    for delta, weight, most in ((1e-9, None, 1000), (0.0, "p", 1 << 32)):
        settings = Settings(
            epsilon=1.0, delta=delta, buckets=1024, max_rows_per_window=most, p_min=0.1
        )
        counting = Counting(_schema(weight), settings)
        counting.add(counting.door.observations(rows), threads=2)
        snapshot = counting.snapshot()
        snapshot.array(rows, threads=2)
        one = rows.slice(0, 1)
        narrow = one.drop_columns(["view", "coded", "exact", "time"]).to_batches()[0]
        snapshot.featurize_one(one.to_pylist()[0])
        snapshot.featurize_one(one.to_batches()[0])
        snapshot.featurize_json(json.dumps(one.to_pylist()[0], default=str).encode())
        snapshot.without(counting.door.observations(rows))
        snapshot.estimates.counts(1, np.arange(3, dtype=np.uint64))
        plain = Schema(
            features=[Categorical("text"), Categorical("whole"), Continuous("binned", edges=[0.5])],
            label=Label("y", classes=[0, 1]),
        )
        fresh = Counting(plain, settings)
        fresh.add(fresh.door.observations(rows), threads=1)
        fresh.snapshot().featurize_one(narrow)
        fresh.snapshot().featurize_one({"text": "a", "whole": "b", "binned": 1})
    _predict(snapshot)
    KeyCounts().add(np.arange(3, dtype=np.uint64), np.ones(1, dtype=np.int64))
    coded = Coded(np.zeros((3, 4), np.uint32), np.zeros(4, np.int64), np.array([512, 512]))
    coded.scores([((0, 1), (2,))])
    _count_people(rows)
    clicks.generate(1_000, drift=1.0, interactions=1).table(0, 10)


if __name__ == "__main__":
    warm()
