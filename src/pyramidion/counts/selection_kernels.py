"""The loop that scores pairs of coded columns: open addressing, arrays in and out.

A row's key is the pair of its codes. Slots are not cleared between pairs: each carries the
number of the pair that wrote it last. How often a key has a label is kept in a second table,
under the key's slot and the label, so many labels take no more room than rows do; and so is
how often it has one in the present stretch of time.
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
    stretches: Any,
    classes: Any,
    prior: Any,
    scores: Any,
    met: Any,
    told: Any,
) -> None:
    """Q of each pair of rows of ``codes`` and M, both in units of 1/UNIT, and n times the mutual
    information.

    With n rows of a key, n_t of them in stretch t, π = ``prior`` / WEIGHT, A = Σ(e_y - π) over
    the rows of a key and A_t over those in stretch t:
    Q = Σ_key ⌊(‖A‖² - Σ_t ‖A_t‖²) UNIT / 2 n⌋ / UNIT, M = Σ_key ⌊(n² - Σ_t n_t²) UNIT / n⌋ / UNIT.
    ``stretches`` never falls.
    """
    rows = labels.size
    slots, shift = _size(rows)
    mask = slots - np.uint64(1)
    keys = np.zeros(slots, dtype=np.uint64)
    stamps = np.full(slots, -1, dtype=np.int32)
    counts = np.zeros(slots, dtype=np.int64)
    firsts = np.zeros(slots, dtype=np.int64)  # Σ π_y, in units of WEIGHT
    squares = np.zeros(slots, dtype=np.int64)  # Σ_l c²
    own_counts = np.zeros(slots, dtype=np.int64)  # Σ_t n_t², and as above, by stretch
    own_firsts = np.zeros(slots, dtype=np.int64)
    own_squares = np.zeros(slots, dtype=np.int64)
    used = np.zeros(rows, dtype=np.int64)
    cell_keys = np.zeros(slots, dtype=np.uint64)
    cell_stamps = np.full(slots, -1, dtype=np.int32)
    cells = np.zeros(slots, dtype=np.int64)
    cells_used = np.zeros(rows, dtype=np.int64)
    now_stamps = np.full(slots, -1, dtype=np.int32)  # of the present stretch alone
    now_counts = np.zeros(slots, dtype=np.int64)
    now_firsts = np.zeros(slots, dtype=np.int64)
    now_keys = np.zeros(slots, dtype=np.uint64)
    now_cell_stamps = np.full(slots, -1, dtype=np.int32)
    now_cells = np.zeros(slots, dtype=np.int64)
    totals = np.zeros(classes, dtype=np.int64)
    norm = np.int64(0)
    for label in range(classes):
        norm += prior[label] * prior[label]
    for i in range(rows):
        totals[labels[i]] += 1
    now = -1
    for pair in range(ones.size):
        one, other = codes[ones[pair]], codes[others[pair]]
        held, held_cells = 0, 0
        for i in range(rows):
            if i == 0 or stretches[i] != stretches[i - 1]:
                now += 1
            key = np.uint64(one[i]) << np.uint64(32) | np.uint64(other[i])
            slot = _slot(key, shift, mask, keys, stamps, pair)
            if stamps[slot] != pair:
                stamps[slot], keys[slot] = pair, key
                counts[slot] = firsts[slot] = squares[slot] = 0
                own_counts[slot] = own_firsts[slot] = own_squares[slot] = 0
                used[held] = slot
                held += 1
            label = labels[i]
            cell_key = slot * np.uint64(classes) + np.uint64(label)
            cell = _slot(cell_key, shift, mask, cell_keys, cell_stamps, pair)
            if cell_stamps[cell] != pair:
                cell_stamps[cell], cell_keys[cell], cells[cell] = pair, cell_key, 0
                cells_used[held_cells] = cell
                held_cells += 1
            if now_stamps[slot] != now:
                now_stamps[slot], now_counts[slot], now_firsts[slot] = now, 0, 0
            now_cell = _slot(cell_key, shift, mask, now_keys, now_cell_stamps, now)
            if now_cell_stamps[now_cell] != now:
                now_cell_stamps[now_cell], now_keys[now_cell] = now, cell_key
                now_cells[now_cell] = 0
            first = prior[label]
            own_counts[slot] += 2 * now_counts[slot] + 1
            own_firsts[slot] += (now_counts[slot] + 1) * first + now_firsts[slot]
            own_squares[slot] += 2 * now_cells[now_cell] + 1
            squares[slot] += 2 * cells[cell] + 1
            cells[cell] += 1
            now_cells[now_cell] += 1
            counts[slot] += 1
            now_counts[slot] += 1
            firsts[slot] += first
            now_firsts[slot] += first
        score, meeting, information = np.int64(0), np.int64(0), 0.0
        for j in range(held):
            at = used[j]
            n, first = counts[at], firsts[at]
            whole = UNIT * squares[at] - 2 * WEIGHT * n * first + n * n * norm
            own = UNIT * own_squares[at] - 2 * WEIGHT * own_firsts[at] + own_counts[at] * norm
            score += (whole - own) // (2 * n)
            meeting += UNIT * (n * n - own_counts[at]) // n
            information -= n * math.log(n)
        for j in range(held_cells):
            c = cells[cells_used[j]]
            information += c * math.log(c)
        for label in range(classes):
            if totals[label]:
                information -= totals[label] * math.log(totals[label])
        if rows:
            information += rows * math.log(rows)
        scores[pair], met[pair], told[pair] = score, meeting, information


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
