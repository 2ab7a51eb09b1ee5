"""Rows per key: the kernel against np.unique, whatever keys, batches and blanked rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pyramidion.counts.key_counts import KeyCounts

ONE = np.ones(1, dtype=np.int64)


def twin(keys: NDArray[np.uint64], weights: NDArray[np.int64]) -> list[int]:
    kept = keys[np.broadcast_to(weights, keys.shape) != 0]
    return sorted(np.unique(kept, return_counts=True)[1].tolist())


def counted(keys: NDArray[np.uint64], weights: NDArray[np.int64], step: int) -> list[int]:
    seen = KeyCounts()
    for start in range(0, len(keys), step):
        stop = start + step
        seen.add(keys[start:stop], weights if weights.size == 1 else weights[start:stop])
    return sorted(seen.counts.tolist())


keys_and_weights = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 1), st.just(2**64 - 1)),
        st.integers(0, 3),
    ),
    max_size=60,
)


@given(keys_and_weights, st.integers(1, 60))
def test_rows_of_weight_zero_are_left_out_and_others_count_one_each(
    rows: list[tuple[int, int]], step: int
) -> None:
    keys = np.array([key for key, _ in rows], dtype=np.uint64)
    weights = np.array([weight for _, weight in rows], dtype=np.int64)
    step = max(step, 2)  # of a batch of one row, one weight is that row's
    assert counted(keys, weights, step) == twin(keys, weights)


@pytest.mark.parametrize("distinct", [1, 511, 512, 513, 5_000, 2**40])
@pytest.mark.parametrize("step", [1_000, 10**6])
def test_slots_grow_with_the_keys(distinct: int, step: int) -> None:
    keys = np.random.default_rng(3).integers(0, distinct, 20_000, dtype=np.uint64)
    assert counted(keys, ONE, step) == twin(keys, ONE)
    assert counted(keys * np.uint64(2**24), 7 * ONE, step) == twin(keys, ONE)


def test_a_single_weight_of_zero_blanks_all_rows() -> None:
    keys = np.arange(10, dtype=np.uint64)
    assert counted(keys, 0 * ONE, 5) == []


def test_no_rows_have_no_counts() -> None:
    assert KeyCounts().counts.tolist() == []
