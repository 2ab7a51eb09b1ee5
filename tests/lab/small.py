"""Small data sets with an easy answer, and ones that watch what is read of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import expit

from lab.datasets import DataSet, of_table
from pyramidion.config.schema import Categorical, Continuous, Label, Schema

CLICK = Label("click", classes=[0, 1])
COLOURS = ("red", "green", "blue")
SCHEMA = Schema(
    time="time",
    features=[
        Categorical("user"),
        Categorical("colour", domain=COLOURS),
        Categorical("page", domain=range(100)),
        Continuous("size", edges=[-1, 0, 1]),
    ],
    label=CLICK,
)


def small(rows: int = 1_200, *, name: str = "made", batch: int = 100) -> DataSet:
    """Clicks that user, colour and size tell much of, in small batches, a second apart."""
    random = np.random.default_rng(0)
    user, page = random.integers(0, 20, rows), random.integers(0, 100, rows)
    colour, size = random.integers(0, 3, rows), random.normal(size=rows)
    chance = expit(np.where(user % 2, 2.0, -2.0) + 0.5 * size + (colour - 1))
    columns = {
        "time": np.arange(rows),
        "user": user,
        "colour": np.array(COLOURS)[colour],
        "page": page,
        "size": size,
        "click": (random.random(rows) < chance).astype(np.int64),
    }
    return in_batches(of_table(name, "made clicks", SCHEMA, pa.table(columns), "made"), batch)


def open_values(rows: int = 4_000, values: int = 400) -> DataSet:
    """Two columns of many values that nobody declared, and clicks that know nothing of them."""
    random = np.random.default_rng(1)
    features = {name: random.integers(0, values, rows) for name in ("one", "two")}
    click = random.integers(0, 2, rows)
    table = pa.table({"time": np.arange(rows), **features, "click": click})
    schema = Schema(time="time", features=[*map(Categorical, features)], label=CLICK)
    return of_table("open", "open values", schema, table, "open")


def in_batches(data: DataSet, size: int) -> DataSet:
    """The same rows in batches of at most this size."""

    def read(start: int, stop: int) -> Iterator[pa.RecordBatch]:
        for begin in range(start, stop, size):
            yield from data.read(begin, min(begin + size, stop))

    return replace(data, read=read)


def without_future(data: DataSet) -> DataSet:
    """The same rows; who asks for one of the future fails."""

    def read(start: int, stop: int) -> Iterator[pa.RecordBatch]:
        assert stop <= data.past, "the future was read"
        return data.read(start, stop)

    return replace(data, read=read)


def unread(name: str, rows: int) -> DataSet:
    """A data set of which nobody may read a row."""

    def read(start: int, stop: int) -> Iterator[pa.RecordBatch]:
        raise AssertionError("a row was read")

    return DataSet(name, name, SCHEMA, rows, read, f"{name}:{rows}")


def clicked(data: DataSet, start: int, stop: int) -> NDArray[np.int64]:
    """The labels of rows."""
    found: NDArray[np.int64] = data.table(start, stop)["click"].to_numpy()
    return found
