"""A wide stream: generated rows of 507 features, as many as the paper's news had.

Most features say nothing: 60 of them, spread over all, have weights of their own, and the label is
drawn by the sigmoid of their sum. So the best possible loss is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import expit

from lab.datasets import DataSet
from pyramidion.config.schema import Categorical, Label, Schema

NAME = "wide"
FEATURES, TELLING = 507, 60
SIZES = (2, 3, 5, 8, 12, 20)
"""Values of features, in turn."""
BASE, SPREAD = -1.5, 0.3
BLOCK = 8_192
SEED = 7

NAMES = tuple(f"f{number:03}" for number in range(FEATURES))
DOMAINS = tuple(SIZES[number % len(SIZES)] for number in range(FEATURES))


def schema(features: int = FEATURES) -> Schema:
    """The first so many features, and a click."""
    return Schema(
        time="time",
        label=Label("click", classes=[0, 1]),
        features=[
            Categorical(name, domain=range(size))
            for name, size in zip(NAMES[:features], DOMAINS, strict=False)
        ],
    )


@lru_cache(maxsize=1)
def _weights() -> dict[int, NDArray[np.float64]]:
    random = np.random.default_rng([SEED, 0])
    telling = np.linspace(0, FEATURES - 1, TELLING).astype(int)
    return {int(f): SPREAD * random.normal(size=DOMAINS[f]) for f in telling}


@lru_cache(maxsize=16)
def _block(number: int) -> tuple[pa.RecordBatch, NDArray[np.float64]]:
    """So many rows, and their true chances."""
    random = np.random.default_rng([SEED, 1, number])
    values = [random.integers(0, size, BLOCK, dtype=np.int16) for size in DOMAINS]
    chance = expit(BASE + sum(weights[values[f]] for f, weights in _weights().items()))
    columns = {
        "time": number * BLOCK + np.arange(BLOCK),
        **dict(zip(NAMES, values, strict=True)),
        "click": (random.random(BLOCK) < chance).astype(np.int64),
    }
    return pa.record_batch(columns), chance


def generate(rows: int) -> DataSet:
    """So many rows, a second apart."""

    def read(start: int, stop: int) -> Iterator[pa.RecordBatch]:
        for number in range(start // BLOCK, -(-stop // BLOCK)):
            first = number * BLOCK
            low, high = max(start, first), min(stop, first + BLOCK)
            yield _block(number)[0].slice(low - first, high - low)

    def truth(start: int, stop: int) -> NDArray[np.float64]:
        blocks = range(start // BLOCK, -(-stop // BLOCK))
        chances = np.concatenate([_block(number)[1] for number in blocks])
        skipped = start // BLOCK * BLOCK
        return chances[start - skipped : stop - skipped]

    title = f"{FEATURES} features ({rows:,} generated rows)"
    about = ("wide", "width")
    return DataSet(NAME, title, schema(), rows, read, f"wide:1:{rows}", truth, about)
