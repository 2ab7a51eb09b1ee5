"""The loops over the arena: place keys, add counts. Arrays in, arrays out.

A table is a row of the *plan*, a matrix of 64-bit words (`PLAN_*`), and its
cells are ``cells[offset + (row * width + bucket) * labels + label]`` in the
32-bit or the 64-bit view of one buffer: all labels of a bucket share a cache
line. A key falls in bucket ``(multiplier * key + addend) >> shift`` of a hash
row; a count-median sketch multiplies by a sign, one bit of a second, unrelated
mix of the key.

A batch is first summed by key in a small open-addressing table (`SLOTS`), then
added: in skewed columns most rows never reach the arena.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from pyramidion.rows.hashing_kernels import finalise

DENSE, COUNT_MIN, COUNT_MEDIAN = range(3)
MAX_ROWS = 16
# Words of a plan's row: what a kernel must know of one table.
PLAN_KIND, PLAN_ROWS, PLAN_WIDTH, PLAN_SHIFT, PLAN_OFFSET, PLAN_WIDE, PLAN_SALT = range(7)
PLAN_MULTIPLIER = 8
PLAN_ADDEND = PLAN_MULTIPLIER + MAX_ROWS
PLAN_WORDS = PLAN_ADDEND + MAX_ROWS

# 65,536 slots of 8 + 1 + 8 * 2 bytes are 1.6 MB, in the third-level cache like the sketch
# itself; fewer slots empty more often, more slots miss more often (16,384: 1.3 times slower).
SLOTS = 65_536

SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: spreads keys over slots."""


@njit(inline="always", cache=True)
def place(plan: Any, table: Any, row: Any, key: Any) -> Any:
    """The bucket of a key in one hash row."""
    if plan[table, PLAN_KIND] == DENSE:
        return key
    mixed = plan[table, PLAN_MULTIPLIER + row] * key + plan[table, PLAN_ADDEND + row]
    return mixed >> plan[table, PLAN_SHIFT]


@njit(inline="always", cache=True)
def sign_bits(plan: Any, table: Any, key: Any) -> Any:
    """64 sign bits of a key, one for each hash row; zero where a table has no signs."""
    if plan[table, PLAN_KIND] == COUNT_MEDIAN:
        return finalise(key ^ plan[table, PLAN_SALT])
    return np.uint64(0)


@njit(inline="always", cache=True)
def _deposit(
    plan: Any, table: Any, cells: Any, labels: Any, key: Any, counts: Any, first: Any
) -> None:
    """Add counts[first:first + labels] to a key's cells; signs without a branch to mispredict."""
    signs = sign_bits(plan, table, key)
    offset, width = plan[table, PLAN_OFFSET], plan[table, PLAN_WIDTH]
    for row in range(plan[table, PLAN_ROWS]):
        at = offset + (row * width + place(plan, table, row, key)) * labels
        sign = np.int64(1) - (np.int64((signs >> row) & np.uint64(1)) << 1)
        for label in range(labels):
            cells[at + label] += sign * counts[first + label]


@njit(cache=True, nogil=True)
def add_dense(
    plan: Any, table: Any, cells: Any, labels: Any, keys: Any, codes: Any, weights: Any
) -> None:
    """Add observations to a dense table; its few cells are a cache of their own."""
    offset, each = plan[table, PLAN_OFFSET], weights.size > 1
    one = weights[0]
    for i in range(np.uint64(keys.size)):
        cells[offset + keys[i] * labels + np.uint64(codes[i])] += weights[i] if each else one


@njit(cache=True, nogil=True)
def add_sketch(
    plan: Any,
    table: Any,
    cells: Any,
    labels: Any,
    keys: Any,
    codes: Any,
    weights: Any,
    slot_keys: Any,
    slot_used: Any,
    slot_counts: Any,
    filled: Any,
) -> None:
    """Sum a batch by key in the slots, then add the sums to the sketch.

    ``slot_used`` and ``slot_counts`` (``labels`` a slot) are all zero on entry and
    on return. A nearly full slot table is emptied into the sketch and used again,
    so memory does not grow with the batch.
    """
    slots = np.uint64(slot_keys.size)
    mask = slots - np.uint64(1)
    shift = np.uint64(64)
    while slots > np.uint64(1):
        slots >>= np.uint64(1)
        shift -= np.uint64(1)
    most = (mask + np.uint64(1)) * np.uint64(3) // np.uint64(4)
    each, one = weights.size > 1, weights[0]
    count = np.uint64(0)
    for i in range(np.uint64(keys.size)):
        key = keys[i]
        slot = (key * SPREAD) >> shift
        while slot_used[slot] and slot_keys[slot] != key:
            slot = (slot + np.uint64(1)) & mask
        if not slot_used[slot]:
            if count == most:
                _empty(plan, table, cells, labels, slot_keys, slot_used, slot_counts, filled, count)
                count = np.uint64(0)
                slot = (key * SPREAD) >> shift
            slot_used[slot] = 1
            slot_keys[slot] = key
            filled[count] = slot
            count += np.uint64(1)
        slot_counts[slot * labels + np.uint64(codes[i])] += weights[i] if each else one
    _empty(plan, table, cells, labels, slot_keys, slot_used, slot_counts, filled, count)


@njit(cache=True, nogil=True)
def _empty(
    plan: Any,
    table: Any,
    cells: Any,
    labels: Any,
    slot_keys: Any,
    slot_used: Any,
    slot_counts: Any,
    filled: Any,
    count: Any,
) -> None:
    for j in range(count):
        slot = np.uint64(filled[j])
        _deposit(plan, table, cells, labels, slot_keys[slot], slot_counts, slot * labels)
        slot_used[slot] = 0
        for label in range(labels):
            slot_counts[slot * labels + label] = 0


@njit(cache=True, nogil=True)
def count_keys(
    keys: Any, amounts: Any, start: Any, slot_keys: Any, slot_counts: Any, used: Any
) -> Any:
    """Add ``amounts`` (one for all, or one each) to the counts of keys[start:].

    Open addressing: a slot is free if its count is 0.

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
