"""Compile the kernels once, into numba's cache: ``python -m pyramidion.cli.warm``.

Counts and featurizes a few rows in every way there is, so that the first user
does not wait for the compiler.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pyramidion.config.schema import Categorical, Label, Schema
from pyramidion.config.settings import Settings
from pyramidion.counts.key_counts import KeyCounts
from pyramidion.counts.selection import Coded
from pyramidion.learn.counting import Counting
from pyramidion.learn.warming import (
    KINDS,
    plain_schema,
    predict,
    sample_rows,
    sample_schema,
    sample_settings,
)
from pyramidion.rows.observations import Door
from pyramidion.store.contributions import LEAST, People


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
    rows = sample_rows(100)
    for delta, weight, most in KINDS:
        settings = sample_settings(delta, most)
        counting = Counting(sample_schema(weight), settings)
        counting.add(counting.door.observations(rows), threads=2)
        snapshot = counting.snapshot()
        snapshot.array(rows, threads=2)
        one = rows.slice(0, 1)
        narrow = one.drop_columns(["view", "coded", "exact", "day", "time"]).to_batches()[0]
        snapshot.featurize_one(one.to_pylist()[0])
        snapshot.featurize_one(one.to_batches()[0])
        snapshot.without(counting.door.observations(rows))
        snapshot.estimates.counts(1, np.arange(3, dtype=np.uint64))
        fresh = Counting(plain_schema(), settings)
        fresh.add(fresh.door.observations(rows), threads=1)
        fresh.snapshot().featurize_one(narrow)
        fresh.snapshot().featurize_one({"text": "a", "whole": "b", "binned": 1})
    predict(snapshot)
    KeyCounts().add(np.arange(3, dtype=np.uint64), np.ones(1, dtype=np.int64))
    coded = Coded(np.zeros((3, 4), np.uint32), np.zeros(4, np.int64), np.array([512, 512]))
    coded.scores([((0, 1), (2,))])
    _count_people(rows)


if __name__ == "__main__":
    warm()
