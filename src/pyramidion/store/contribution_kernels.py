"""The loops over the counter of people: an open-addressing table of keys and counts.

A table is a tuple: keys, whether a slot is used, counts, and how far a product is shifted to
give a slot. A count that is taken back to 0 keeps its slot, or keys behind it would be lost
and counted anew. There is always an unused slot.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: spreads keys over slots."""


@njit(inline="always", cache=True)
def _slot(table: Any, key: Any) -> Any:
    """Where a key is, or would be."""
    held, used, _, shift = table
    slot = (key * SPREAD) >> shift
    mask = np.uint64(held.size - 1)
    while used[slot] and held[slot] != key:
        slot = (slot + np.uint64(1)) & mask
    return slot


@njit(cache=True, nogil=True)
def count(table: Any, keys: Any, most: Any, counted: Any) -> Any:
    """Count each key as long as it has fewer than ``most``; how many keys are new.

    ``counted`` says which rows were.
    """
    held, used, counts, _ = table
    new = 0
    for i in range(keys.size):
        slot = _slot(table, keys[i])
        if not used[slot]:
            used[slot] = 1
            held[slot] = keys[i]
            new += 1
        counted[i] = counts[slot] < most
        counts[slot] += counted[i]
    return new


@njit(cache=True, nogil=True)
def take_back(table: Any, keys: Any, counted: Any) -> None:
    """Undo `count` of rows that were counted."""
    counts = table[2]
    for i in range(keys.size):
        if counted[i]:
            counts[_slot(table, keys[i])] -= 1


@njit(cache=True, nogil=True)
def fill(table: Any, keys: Any, most: Any) -> Any:
    """Have each key at ``most``, so that it is not counted any more; how many keys are new."""
    held, used, counts, _ = table
    new = 0
    for i in range(keys.size):
        slot = _slot(table, keys[i])
        if not used[slot]:
            used[slot] = 1
            held[slot] = keys[i]
            new += 1
        counts[slot] = most
    return new


@njit(cache=True, nogil=True)
def move(table: Any, larger: Any) -> None:
    """Bring all keys to a larger table, which is empty."""
    held, used, counts, _ = table
    new_held, new_used, new_counts, _ = larger
    for old in range(held.size):
        if used[old]:
            slot = _slot(larger, held[old])
            new_used[slot] = 1
            new_held[slot] = held[old]
            new_counts[slot] = counts[old]
