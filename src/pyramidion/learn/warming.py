"""Load the kernels that answer requests before anybody asks.

numba compiles a kernel when it is first called, which takes seconds, or loads what it compiled
earlier, which takes a moment. A service does neither while it answers: it calls every such kernel
once, in a thread, with a few rows that are nobody's.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from sklearn.linear_model import LogisticRegression

from pyramidion.config.schema import Categorical, Continuous, Label, Schema
from pyramidion.config.settings import Settings
from pyramidion.counts.snapshot import Snapshot
from pyramidion.learn.counting import Counting
from pyramidion.learn.linear import Linear

KINDS = ((1e-9, None, 1000), (0.0, "p", 1 << 32))
"""δ, the weight and the most rows of a window, so that every kind of cell is made."""


def sample_rows(length: int) -> pa.Table:
    """Rows with a column of every type."""
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
            "day": pa.array([stamp.date()] * length),
            "time": pa.array([stamp] * length),
            "known": pa.array(numbers % 3),
            "binned": pa.array(numbers / length),
            "count": pa.array(numbers),
            "p": pa.array(np.full(length, 0.5)),
            "y": pa.array(numbers % 2),
        }
    )


def sample_schema(weight: str | None) -> Schema:
    """A schema with a feature of every kind."""
    names = ("text", "large", "view", "coded", "exact", "whole", "real", "day")
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


def plain_schema() -> Schema:
    """A schema of text and numbers, whose rows are packed at once."""
    return Schema(
        features=[Categorical("text"), Categorical("whole"), Continuous("binned", edges=[0.5])],
        label=Label("y", classes=[0, 1]),
    )


def sample_settings(delta: float, most: int) -> Settings:
    """Settings of a small table."""
    return Settings(epsilon=1.0, delta=delta, buckets=1024, max_rows_per_window=most, p_min=0.1)


def predict(snapshot: Snapshot) -> None:
    """The features of one row through a linear model."""
    width = len(snapshot.names)
    X = np.arange(2 * width, dtype=np.float32).reshape(2, width)
    model = Linear.of(LogisticRegression().fit(X, [0, 1]), (0, 1))
    if model is not None:
        model.chances(X[0])


def warm_answers() -> Iterator[None]:
    """Call every kernel that answers requests; pauses now and then for whoever wants to stop."""
    rows = sample_rows(100)
    one = rows.slice(0, 1).to_pylist()[0]
    for delta, weight, most in KINDS:
        counting = Counting(sample_schema(weight), sample_settings(delta, most))
        yield
        counting.add(counting.door.observations(rows), threads=1)
        yield
        snapshot = counting.snapshot()
        yield
        snapshot.array([one])
        yield
        snapshot.featurize_one(one)
        yield
        predict(snapshot)
        yield
    plain = Counting(plain_schema(), sample_settings(*KINDS[0][::2]))
    yield
    plain.add(plain.door.observations(rows), threads=1)
    plain.snapshot().featurize_one({"text": "a", "whole": "b", "binned": 1})
    yield
