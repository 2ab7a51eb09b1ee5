"""Bundles: many arrays as one argument of a kernel."""

from __future__ import annotations

import copy
import gc
import pickle

import numpy as np
import pytest
from numba import njit

from pyramidion.rows.packed_kernels import Bundle, matrix, vector

LINE = np.array([1.5, 2.5, 3.5])
SQUARE = np.arange(6, dtype=np.uint64).reshape(2, 3)


@njit
def read(places):
    line, square = vector(places, 0, np.float64), matrix(places, 1, np.uint64)
    return line.sum(), square[1, 0], line.size, square.shape


@pytest.mark.parametrize(
    "made",
    [
        Bundle(LINE, SQUARE),
        pickle.loads(pickle.dumps(Bundle(LINE, SQUARE))),  # noqa: S301
        copy.deepcopy(Bundle(LINE, SQUARE)),
        Bundle(np.repeat(LINE, 2)[::2], np.asfortranarray(SQUARE)),
    ],
    ids=["made", "pickled", "copied", "strided"],
)
def test_a_kernel_finds_the_arrays_of_a_bundle(made):
    assert read(made.places) == (7.5, 3, 3, (2, 3))


def test_a_bundle_keeps_its_arrays_alive():
    made = Bundle(LINE.copy(), SQUARE + np.uint64(0))
    gc.collect()
    assert [array.ctypes.data for array in made.arrays] == made.places[:, 0].tolist()
    assert read(made.places) == (7.5, 3, 3, (2, 3))


def test_a_copy_has_addresses_of_its_own():
    made = Bundle(LINE, SQUARE)
    twin = pickle.loads(pickle.dumps(made))  # noqa: S301
    assert not set(twin.places[:, 0]) & set(made.places[:, 0])
