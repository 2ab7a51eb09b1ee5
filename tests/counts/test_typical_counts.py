"""Typical counts: told by noisy cells alone, and right on average."""

from __future__ import annotations

import numpy as np
import pytest

from pyramidion import CountFeaturizer
from pyramidion.counts.arena import Arena
from pyramidion.counts.layout import PRIOR, Layout, Table
from pyramidion.counts.snapshot import typical_counts


def arena_of(kind: str, cells: np.ndarray, variance: float, rows: int = 1) -> Arena:
    width, labels = cells.shape[-2:]
    table = Table("t", kind, rows, width, 1 << 20, variance)  # type: ignore[arg-type]
    layout = Layout((Table(PRIOR, "dense", 1, 1, 1 << 20), table), labels=labels, secret=b"s")

    def fill(number: int, flat: np.ndarray) -> None:
        flat[:] = [600, 400] if number == 0 else cells.ravel()

    arena = Arena.noisy(layout, 1 << 20, fill)
    arena.seal()
    return arena


def test_without_noise_it_is_the_mean_count_over_rows() -> None:
    cells = np.array([[500, 100], [100, 300]])
    expected = (500**2 + 100**2 + 100**2 + 300**2) / 1_000
    assert typical_counts(arena_of("dense", cells, 0.0))["t"] == expected


def test_hash_rows_are_averaged() -> None:
    cells = np.array([[[500, 100], [100, 300]], [[600, 400], [0, 0]]])
    first, second = (float(np.square(row).sum()) for row in cells)
    told = typical_counts(arena_of("count-min", cells, 0.0, rows=2))["t"]
    assert told == (first + second) / 2 / 1_000


def test_the_noise_is_taken_off_and_nothing_is_below_zero() -> None:
    random = np.random.default_rng(7)
    counts = random.integers(0, 3, (4_096, 2))
    noise = np.rint(random.normal(0, 50, counts.shape)).astype(np.int64)
    expected = float(np.square(counts).sum()) / 1_000
    told = typical_counts(arena_of("dense", counts + noise, 2_500.0))["t"]
    spread = 2_500 * (2 * counts.size) ** 0.5 / 1_000
    assert told == pytest.approx(expected, abs=5 * spread)
    assert typical_counts(arena_of("dense", counts * 0, 2_500.0))["t"] == 0.0


def test_it_is_what_a_stream_counted_as_far_as_the_noise_lets_one_tell() -> None:
    random = np.random.default_rng(3)
    values, labels = random.integers(0, 5, 5_000).astype(str), random.integers(0, 2, 5_000)
    made = CountFeaturizer(epsilon=float("inf"), delta=0, buckets=1 << 20)  # none collide
    made.fit(values[:, None], labels)
    told = made.snapshot_.typical_counts()
    _, counts = np.unique(np.char.add(values, labels.astype(str)), return_counts=True)
    expected = float(np.square(counts).sum()) / 5_000
    assert list(told.values())[1] == pytest.approx(expected, rel=0.05)
