"""The loops from cells to features: middle of the hash rows, rates, columns. Arrays in and out.

A key's count is the median of its signed cells, or the mean of those near it, or
their least; see `pyramidion.counts.estimates` for what is made of it.

What a table gives stands in a row of the *makeup* (`MADE_*`): its first column, how many it has,
and the tables of its parts where it counts a group, 0 for none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from pyramidion.counts.kernels import (
    COUNT_MEDIAN,
    DENSE,
    MAX_ROWS,
    PLAN_KIND,
    PLAN_OFFSET,
    PLAN_ROWS,
    PLAN_WIDE,
    PLAN_WIDTH,
    SPREAD,
    place,
    sign_bits,
)
from pyramidion.counts.rate_kernels import column, ratio, shrink, shrink_group
from pyramidion.rows.packed_kernels import matrix, prefetch, vector

SHRINKAGE, RATIO = range(2)
MADE_FIRST, MADE_COLUMNS, MADE_PARTS = range(3)

# What `estimate_one` finds in its bundle; sizes are labels and method, scales limit and unit.
(
    ONE_PLAN,
    ONE_CELLS32,
    ONE_CELLS64,
    ONE_SIZES,
    ONE_SCALES,
    ONE_CLASSES,
    ONE_BORDERS,
    ONE_PRIOR,
    ONE_STRENGTH,
    ONE_SPREAD,
    ONE_SHIFT,
    ONE_DEVIATIONS,
    ONE_CENTERS,
    ONE_TEMPLATE,
    ONE_MAKEUP,
    ONE_RAW,
) = range(16)


@njit(inline="always", cache=True)
def _order(values: Any, at: Any, i: Any, j: Any) -> None:
    low, high = values[at, i], values[at, j]
    values[at, i], values[at, j] = min(low, high), max(low, high)


@njit(inline="always", cache=True)
def _middle(values: Any, at: Any, size: Any, deviation: Any) -> Any:
    """Median of values[at, :size], or the mean of those within 3 deviations of it.

    The mean of the good rows has less variance than their median; the bound
    keeps out rows hit by a heavy collision. Sorts in place.
    """
    for i in range(1, size):
        for j in range(i, 0, -1):
            _order(values, at, j - 1, j)
    half = size // 2
    median = values[at, half] if size % 2 else 0.5 * (values[at, half - 1] + values[at, half])
    if deviation <= 0.0:
        return median
    total, used = 0.0, 0.0
    for i in range(size):
        near = 1.0 if abs(values[at, i] - median) <= 3.0 * deviation else 0.0
        total += near * values[at, i]
        used += near
    return total / used if used > 0.0 else median


@njit(inline="always", cache=True)
def _middle_of_five(a: Any, b: Any, c: Any, d: Any, e: Any, deviation: Any) -> Any:
    """`_middle` of five values that stay in registers."""
    a, d = min(a, d), max(a, d)
    b, e = min(b, e), max(b, e)
    a, c = min(a, c), max(a, c)
    b, d = min(b, d), max(b, d)
    a, b = min(a, b), max(a, b)
    c, e = min(c, e), max(c, e)
    b, c = min(b, c), max(b, c)
    d, e = min(d, e), max(d, e)
    c, d = min(c, d), max(c, d)
    if deviation <= 0.0:
        return c
    low, high = c - 3.0 * deviation, c + 3.0 * deviation
    first, second = 1.0 if a >= low else 0.0, 1.0 if b >= low else 0.0
    fourth, fifth = 1.0 if d <= high else 0.0, 1.0 if e <= high else 0.0
    total = first * a + second * b + c + fourth * d + fifth * e
    return total / (first + second + 1.0 + fourth + fifth)


@njit(inline="always", cache=True)
def _count(
    plan: Any,
    table: Any,
    cells: Any,
    labels: Any,
    key: Any,
    classes: Any,
    deviations: Any,
    at: Any,
    signs: Any,
    by_row: Any,
    counts: Any,
) -> None:
    """Estimated counts of a key per class: signed cells, middle or least of the hash rows.

    ``classes[label of the schema, joint label]`` is the class column that a joint
    label is summed into; with one label the classes are the joint labels.
    """
    bits = sign_bits(plan, table, key)
    offset, width = plan[table, PLAN_OFFSET], plan[table, PLAN_WIDTH]
    rows = plan[table, PLAN_ROWS]
    for row in range(rows):
        at[row] = offset + (row * width + place(plan, table, row, key)) * labels
        signs[row] = 1.0 - 2.0 * np.float64((bits >> row) & np.uint64(1))
    median, single = plan[table, PLAN_KIND] == COUNT_MEDIAN, classes.shape[0] == 1
    if single and rows == np.uint64(1):
        for label in range(labels):
            counts[label] = signs[0] * cells[at[0] + label]
    elif single and median and rows == np.uint64(5):
        for label in range(labels):
            counts[label] = _middle_of_five(
                signs[0] * cells[at[0] + label],
                signs[1] * cells[at[1] + label],
                signs[2] * cells[at[2] + label],
                signs[3] * cells[at[3] + label],
                signs[4] * cells[at[4] + label],
                deviations[table, label],
            )
    else:
        for row in range(rows):
            for c in range(counts.size):
                by_row[c, row] = 0.0
            for m in range(classes.shape[0]):
                for label in range(labels):
                    c = np.uint64(classes[m, label])
                    by_row[c, row] += signs[row] * cells[at[row] + label]
        for c in range(counts.size):
            if median:
                counts[c] = _middle(by_row, c, np.int64(rows), deviations[table, c])
            else:
                counts[c] = by_row[c, 0]
                for row in range(np.uint64(1), rows):
                    counts[c] = min(counts[c], by_row[c, row])


@njit(cache=True, nogil=True)
def counts_of(
    plan: Any,
    table: Any,
    cells32: Any,
    cells64: Any,
    labels: Any,
    keys: Any,
    classes: Any,
    deviations: Any,
    out: Any,
) -> None:
    """Estimated counts per class of each key: out[key, class]."""
    by_row, counts = np.empty((out.shape[1], MAX_ROWS)), np.empty(out.shape[1])
    at, signs = np.empty(MAX_ROWS, dtype=np.uint64), np.empty(MAX_ROWS)
    wide = plan[table, PLAN_WIDE]
    for i in range(keys.size):
        key = keys[i]
        if wide:
            _count(
                plan, table, cells64, labels, key, classes, deviations, at, signs, by_row, counts
            )
        else:
            _count(
                plan, table, cells32, labels, key, classes, deviations, at, signs, by_row, counts
            )
        for c in range(counts.size):
            out[i, c] = counts[c]


@njit(inline="always", cache=True)
def _prefetch(plan: Any, cells32: Any, cells64: Any, labels: Any, keys: Any) -> None:
    """Ask for all cells of a row at once: of large tables, each is a wait for memory."""
    for t in range(keys.shape[0]):
        table, key = t + 1, keys[t, 0]
        offset, width = plan[table, PLAN_OFFSET], plan[table, PLAN_WIDTH]
        wide = plan[table, PLAN_WIDE]
        start, size = (cells64, 8) if wide else (cells32, 4)
        for row in range(plan[table, PLAN_ROWS]):
            at = offset + (row * width + place(plan, table, row, key)) * labels
            prefetch(start + size * np.int64(at))


@njit(cache=True, nogil=True)
def estimate_one(places: Any, keys: Any, out: Any) -> Any:
    """`estimate` for one row and all tables, all else in a bundle: keys[t, 0] to out[column].

    Raw columns are written too: of table t with c codes from column k on, for each (t, k, c).
    """
    plan, sizes = matrix(places, ONE_PLAN, np.uint64), vector(places, ONE_SIZES, np.int64)
    cells32, cells64 = vector(places, ONE_CELLS32, np.int32), vector(places, ONE_CELLS64, np.int64)
    classes, borders = matrix(places, ONE_CLASSES, np.int64), vector(places, ONE_BORDERS, np.int64)
    template, raw = matrix(places, ONE_TEMPLATE, np.int64), matrix(places, ONE_RAW, np.int64)
    makeup = matrix(places, ONE_MAKEUP, np.int64)
    prior, centers = vector(places, ONE_PRIOR, np.float64), vector(places, ONE_CENTERS, np.float64)
    strength = matrix(places, ONE_STRENGTH, np.float64)
    spread, shift = matrix(places, ONE_SPREAD, np.float64), matrix(places, ONE_SHIFT, np.float64)
    deviations = matrix(places, ONE_DEVIATIONS, np.float64)
    limit, unit = vector(places, ONE_SCALES, np.float64)
    labels, method = np.uint64(sizes[0]), sizes[1]
    columns, most = prior.size, makeup.shape[1]
    by_class = np.empty((MAX_ROWS + 4 + most - MADE_PARTS, columns))
    by_label, signs = np.empty((2, borders.size)), np.empty(MAX_ROWS)
    at = np.empty(MAX_ROWS, dtype=np.uint64)
    by_row = by_class[4 : 4 + MAX_ROWS].reshape(columns, MAX_ROWS)
    said = by_class[4 + MAX_ROWS :]
    counts, p, means, flags = by_class[0], by_class[1], by_label[0], by_label[1]
    target, scale = by_class[2], by_class[3]
    target[:] = prior
    grouping = most > MADE_PARTS
    chances = np.empty((keys.shape[0] + 1 if grouping else 0, columns))
    _prefetch(plan, places[ONE_CELLS32, 0], places[ONE_CELLS64, 0], labels, keys)
    for t in range(keys.shape[0]):
        table, key = t + 1, keys[t, 0]
        if plan[table, PLAN_KIND] == DENSE and key >= plan[table, PLAN_WIDTH]:
            return table
        if plan[table, PLAN_WIDE]:
            _count(
                plan, table, cells64, labels, key, classes, deviations, at, signs, by_row, counts
            )
        else:
            _count(
                plan, table, cells32, labels, key, classes, deviations, at, signs, by_row, counts
            )
        parts = 0
        if grouping:
            for j in range(MADE_PARTS, most):
                if makeup[table, j]:
                    said[parts] = chances[makeup[table, j]]
                    parts += 1
        if parts:
            shrink_group(
                said,
                parts,
                counts,
                borders,
                prior,
                strength,
                spread,
                shift,
                table,
                target,
                scale,
                flags,
                p,
            )
        for m in range(borders.size - 1):
            low, high, per = borders[m], borders[m + 1], strength[table, m]
            if not parts and method == SHRINKAGE:
                flags[m] = shrink(counts, low, high, prior, None, per, spread, shift, table, p)
            elif not parts:
                flags[m] = ratio(counts, low, high, prior, limit, per, spread, table, p)
            means[m] = 0.0
            for c in range(low, high):
                means[m] += p[c] * centers[c]
                counts[c] /= unit
        for k in range(makeup[table, MADE_COLUMNS]):
            source, index = template[k, 0], template[k, 1]
            place_in = makeup[table, MADE_FIRST] + k
            out[place_in] = column(source, index, p, target, counts, flags, means)
        if grouping:
            for c in range(columns):
                chances[table, c] = p[c]
    for r in range(raw.shape[0]):
        first, chosen = raw[r, 1], np.int64(keys[raw[r, 0], 0])
        for code in range(raw[r, 2]):
            out[first + code] = code == chosen
    return 0


@njit(cache=True, nogil=True)
def distinct(keys: Any, t: Any, slot_keys: Any, slot_at: Any, found: Any, which: Any) -> Any:
    """Distinct keys of keys[t] into ``found``, and for each row which one it has.

    ``slot_keys`` and ``slot_at`` have a power of two of slots, at least twice the rows.
    """
    mask = np.uint64(slot_at.size - 1)
    shift, size = np.uint64(64), slot_at.size
    while size > 1:
        size >>= 1
        shift -= np.uint64(1)
    slot_at[:] = -1
    count = 0
    for i in range(keys.shape[1]):
        key = keys[t, i]
        slot = (key * SPREAD) >> shift
        while slot_at[slot] >= 0 and slot_keys[slot] != key:
            slot = (slot + np.uint64(1)) & mask
        if slot_at[slot] < 0:
            slot_at[slot] = count
            slot_keys[slot] = key
            found[count] = key
            count += 1
        which[i] = slot_at[slot]
    return count


@njit(cache=True, nogil=True)
def estimate(
    plan: Any,
    cells32: Any,
    cells64: Any,
    labels: Any,
    classes: Any,
    borders: Any,
    prior: Any,
    strength: Any,
    spread: Any,
    shift: Any,
    deviations: Any,
    centers: Any,
    template: Any,
    makeup: Any,
    method: Any,
    limit: Any,
    unit: Any,
    keys: Any,
    tables: Any,
    shown: Any,
    out: Any,
    start: Any,
) -> Any:
    """Features of rows: keys[r, i] of the plan's table tables[r] to out[column, start + i].

    Table by table, so that in bulk one table's cells stay in the cache, and each
    distinct key once. With one row the same loop goes once through all tables in
    one call. Rows of keys before ``shown`` are parts of groups that come after them, and are
    not written; where a part of a group is not among the tables, it says nothing. ``out`` is
    always whole: a slice of it would have other strides, and be compiled for again.
    Returns 0, or the plan's row of a dense table that was asked for a code it lacks.
    """
    given, n = keys.shape
    if n == 0:
        return 0
    most = makeup.shape[1]
    by_row, counts, p = np.empty((prior.size, MAX_ROWS)), np.empty(prior.size), np.empty(prior.size)
    at, signs = np.empty(MAX_ROWS, dtype=np.uint64), np.empty(MAX_ROWS)
    means, flags = np.empty(borders.size), np.empty(borders.size)
    target, scale = np.empty(prior.size), np.empty(prior.size)
    slots = 1
    while n > 1 and slots < 2 * n:
        slots *= 2
    slot_keys, slot_at = np.empty(slots, dtype=np.uint64), np.empty(slots, dtype=np.int32)
    found, which = np.empty(n, dtype=np.uint64), np.zeros(n, dtype=np.int32)
    one_of = np.zeros(n, dtype=np.int32)
    results = np.empty((template.shape[0], n), dtype=np.float32)
    # Of tables that are parts of others: where their chances go, and where they are once found.
    goes, place_of = np.full(makeup.shape[0], -1), np.full(makeup.shape[0], -1)
    kept = 0
    for r in range(given):
        for j in range(MADE_PARTS, most):
            part = makeup[tables[r], j]
            if part and goes[part] < 0:
                goes[part] = kept
                kept += 1
    chances, whose = np.empty((kept, n, prior.size)), np.empty((kept, n), dtype=np.int32)
    said = np.empty((most - MADE_PARTS, prior.size))
    for r in range(given):
        table = tables[r]
        wide, dense = plan[table, PLAN_WIDE], plan[table, PLAN_KIND] == DENSE
        if n > 1:
            count = distinct(keys, r, slot_keys, slot_at, found, which)
        else:
            count = 1
            found[0] = keys[r, 0]
        grouped = most > MADE_PARTS and makeup[table, MADE_PARTS] > 0
        target[:] = prior
        if grouped:
            for i in range(n):
                one_of[which[i]] = i
        for u in range(count):
            key = found[u]
            if dense and key >= plan[table, PLAN_WIDTH]:
                return table
            if wide:
                _count(
                    plan,
                    table,
                    cells64,
                    labels,
                    key,
                    classes,
                    deviations,
                    at,
                    signs,
                    by_row,
                    counts,
                )
            else:
                _count(
                    plan,
                    table,
                    cells32,
                    labels,
                    key,
                    classes,
                    deviations,
                    at,
                    signs,
                    by_row,
                    counts,
                )
            parts = 0
            if grouped:
                for j in range(MADE_PARTS, most):
                    at_part = place_of[makeup[table, j]]  # the prior's table, 0, is never a part
                    if at_part >= 0:
                        said[parts] = chances[at_part, whose[at_part, one_of[u]]]
                        parts += 1
                shrink_group(
                    said,
                    parts,
                    counts,
                    borders,
                    prior,
                    strength,
                    spread,
                    shift,
                    table,
                    target,
                    scale,
                    flags,
                    p,
                )
            for m in range(borders.size - 1):
                low, high = borders[m], borders[m + 1]
                per = strength[table, m]
                if not grouped and method == SHRINKAGE:
                    flags[m] = shrink(counts, low, high, prior, None, per, spread, shift, table, p)
                elif not grouped:
                    flags[m] = ratio(counts, low, high, prior, limit, per, spread, table, p)
                means[m] = 0.0
                for c in range(low, high):
                    means[m] += p[c] * centers[c]
                    counts[c] /= unit
            for k in range(makeup[table, MADE_COLUMNS]):
                source, index = template[k, 0], template[k, 1]
                results[k, u] = column(source, index, p, target, counts, flags, means)
            if goes[table] >= 0:
                chances[goes[table], u] = p
        if goes[table] >= 0:
            whose[goes[table]] = which
            place_of[table] = goes[table]
        if r >= shown:
            for k in range(makeup[table, MADE_COLUMNS]):
                for i in range(n):
                    out[makeup[table, MADE_FIRST] + k, start + i] = results[k, which[i]]
    return 0
