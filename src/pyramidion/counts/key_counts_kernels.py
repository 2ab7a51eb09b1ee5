"""The loop that counts rows per key: open addressing, arrays in and out.

A slot is free where its count is 0. Keys are spread as in `pyramidion.counts.kernels`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from pyramidion.counts.kernels import SPREAD


@njit(cache=True, nogil=True)
def count_keys(
    keys: Any, amounts: Any, start: Any, slot_keys: Any, slot_counts: Any, used: Any
) -> Any:
    """Add ``amounts`` (one for all, or one each) to the counts of keys[start:].

    Stops before a key for which the slots, a power of two of at least 2, would be more than
    half full; gives the place of that key (or the end) and the number of slots in use.
    """
    slots = np.uint64(slot_keys.size)
    mask, shift = slots - np.uint64(1), np.uint64(64)
    while slots > np.uint64(1):
        slots >>= np.uint64(1)
        shift -= np.uint64(1)
    most, each = slot_keys.size // 2, amounts.size > 1
    for i in range(start, keys.size):
        amount = amounts[i] if each else amounts[0]
        if amount == 0:
            continue
        key = keys[i]
        slot = (key * SPREAD) >> shift
        while slot_counts[slot] and slot_keys[slot] != key:
            slot = (slot + np.uint64(1)) & mask
        if slot_counts[slot] == 0:
            if used == most:
                return i, used
            slot_keys[slot] = key
            used += 1
        slot_counts[slot] += amount
    return keys.size, used
