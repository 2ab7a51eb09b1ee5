"""The loop that scores pairs of coded columns: open addressing, arrays in and out.

A row's key is the pair of its codes. Slots are not cleared between pairs: each carries the
number of the pair that wrote it last. How often a key has a label is kept in a second table,
under the key's slot and the label, so many labels take no more room than rows do.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from pyramidion.counts.kernels import SPREAD

WEIGHT = 1024
"""Units of a prior: its parts are whole numbers that sum to this."""

UNIT = WEIGHT * WEIGHT
"""Units of a score."""

MOST_ROWS = 1 << 20
"""Of more rows, squares of sums could pass 64 bits."""


@njit(inline="always", cache=True)
def _slot(key: Any, shift: Any, mask: Any, keys: Any, stamps: Any, stamp: Any) -> Any:
    slot = (key * SPREAD) >> shift
    while stamps[slot] == stamp and keys[slot] != key:
        slot = (slot + np.uint64(1)) & mask
    return slot


@njit(cache=True, nogil=True, inline="always")
def _size(rows: Any) -> Any:
    """Slots of a table for so many keys, half of them empty; and how far a hash is shifted."""
    slots, shift = np.uint64(2), np.uint64(63)
    while slots < np.uint64(2 * rows):
        slots <<= np.uint64(1)
        shift -= np.uint64(1)
    return slots, shift


@njit(cache=True, nogil=True)
def score_pairs(
    codes: Any,
    ones: Any,
    others: Any,
    labels: Any,
    classes: Any,
    prior: Any,
    scores: Any,
    found: Any,
    told: Any,
) -> None:
    """Q of each pair of rows of ``codes`` in units of 1/UNIT, how many keys there are, and n times
    the mutual information.

    With n_key rows of a key, c of them with label l, and π = ``prior`` / WEIGHT,
    Q = Σ_key ⌊(‖A‖² - B) UNIT / 2 n_key⌋ / UNIT with A = Σ(e_y - π) and B = Σ‖e_y - π‖².
    """
    rows = labels.size
    slots, shift = _size(rows)
    mask = slots - np.uint64(1)
    keys = np.zeros(slots, dtype=np.uint64)
    stamps = np.full(slots, -1, dtype=np.int32)
    counts = np.zeros(slots, dtype=np.int64)
    firsts = np.zeros(slots, dtype=np.int64)  # Σ π_y, in units of WEIGHT
    squares = np.zeros(slots, dtype=np.int64)  # Σ_l c²
    used = np.zeros(rows, dtype=np.int64)
    cell_keys = np.zeros(slots, dtype=np.uint64)
    cell_stamps = np.full(slots, -1, dtype=np.int32)
    cells = np.zeros(slots, dtype=np.int64)
    cells_used = np.zeros(rows, dtype=np.int64)
    totals = np.zeros(classes, dtype=np.int64)
    norm = np.int64(0)
    for label in range(classes):
        norm += prior[label] * prior[label]
    for i in range(rows):
        totals[labels[i]] += 1
    for pair in range(ones.size):
        one, other = codes[ones[pair]], codes[others[pair]]
        held, held_cells = 0, 0
        for i in range(rows):
            key = np.uint64(one[i]) << np.uint64(32) | np.uint64(other[i])
            slot = _slot(key, shift, mask, keys, stamps, pair)
            if stamps[slot] != pair:
                stamps[slot], keys[slot] = pair, key
                counts[slot] = firsts[slot] = squares[slot] = 0
                used[held] = slot
                held += 1
            label = labels[i]
            cell_key = slot * np.uint64(classes) + np.uint64(label)
            cell = _slot(cell_key, shift, mask, cell_keys, cell_stamps, pair)
            if cell_stamps[cell] != pair:
                cell_stamps[cell], cell_keys[cell], cells[cell] = pair, cell_key, 0
                cells_used[held_cells] = cell
                held_cells += 1
            squares[slot] += 2 * cells[cell] + 1
            cells[cell] += 1
            counts[slot] += 1
            firsts[slot] += prior[label]
        score, information = np.int64(0), 0.0
        for j in range(held):
            n, first = counts[used[j]], firsts[used[j]]
            whole = UNIT * squares[used[j]] - 2 * WEIGHT * n * first + n * n * norm
            own = UNIT * n - 2 * WEIGHT * first + n * norm
            score += (whole - own) // (2 * n)
            information -= n * math.log(n)
        for j in range(held_cells):
            c = cells[cells_used[j]]
            information += c * math.log(c)
        for label in range(classes):
            if totals[label]:
                information -= totals[label] * math.log(totals[label])
        if rows:
            information += rows * math.log(rows)
        scores[pair], found[pair], told[pair] = score, held, information


@njit(cache=True, nogil=True)
def join_codes(one: Any, other: Any, joined: Any) -> Any:
    """Codes of pairs of codes, in the order they first occur; gives how many there are."""
    rows = one.size
    slots, shift = _size(rows)
    mask = slots - np.uint64(1)
    keys = np.zeros(slots, dtype=np.uint64)
    stamps = np.full(slots, -1, dtype=np.int32)
    numbers = np.zeros(slots, dtype=np.uint32)
    held = 0
    for i in range(rows):
        key = np.uint64(one[i]) << np.uint64(32) | np.uint64(other[i])
        slot = _slot(key, shift, mask, keys, stamps, 0)
        if stamps[slot] != 0:
            stamps[slot], keys[slot], numbers[slot] = 0, key, held
            held += 1
        joined[i] = numbers[slot]
    return held
