"""From values to keys of tables: look up declared domains, cut bins, join groups.

A *feature plan* row says how a feature's key is made (`FEATURE_*`): open
features are hashed; declared ones are hashed and looked up in a small
open-addressing table; continuous ones are cut into bins. A *table plan* row
says how a table's key is made of its parts (`TABLE_*`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from pyramidion.rows.hashing_kernels import (
    EXACT,
    EXACT32,
    MISSING,
    NUMBER,
    TEXT,
    by_text,
    hash_bytes,
    hash_number,
    hash_value,
    hash_word,
    join,
    load8,
    load32,
    load64,
)
from pyramidion.rows.packed_kernels import matrix, vector

OPEN, DOMAIN, BINS = range(3)
FEATURE_HOW, FEATURE_START, FEATURE_SIZE, FEATURE_CODES = range(4)
TABLE_DENSE, TABLE_PARTS, TABLE_FIRST = range(3)

# What the kernels of one row find in their bundle.
(
    PLANS_KEYS,
    PLANS_FEATURES,
    PLANS_TABLES,
    PLANS_DOMAIN_KEYS,
    PLANS_DOMAIN_CODES,
    PLANS_CUTS,
    PLANS_ORDER,
) = range(7)

# A pseudo kind beside those of values: eight bytes that are a float to be cut into bins.
FLOAT = 100

# How a column lies in Arrow memory, for the door that takes a single Arrow row.
(
    ARROW_TEXT32,
    ARROW_TEXT64,
    ARROW_INT8,
    ARROW_INT16,
    ARROW_INT32,
    ARROW_INT64,
    ARROW_FLOAT32,
    ARROW_FLOAT64,
) = range(8)


@njit(inline="always", cache=True)
def find(key: Any, start: Any, size: Any, codes: Any, domain_keys: Any, domain_codes: Any) -> Any:
    """Code of a key in a declared domain, or the code of 'other'. ``size`` is a power of two."""
    slot = np.int64(key & np.uint64(size - 1))
    while domain_codes[start + slot] >= 0:
        if domain_keys[start + slot] == key:
            return domain_codes[start + slot]
        slot = (slot + 1) & (size - 1)
    return codes - 2


@njit(inline="always", cache=True)
def cut(value: Any, start: Any, size: Any, cuts: Any) -> Any:
    """Bin of a number: how many cut points are at most as large."""
    if size <= 8:
        code = 0
        for i in range(start, start + size):
            code += value >= cuts[i]
        return np.int64(code)
    low, high = start, start + size
    while low < high:
        middle = (low + high) >> 1
        if value >= cuts[middle]:
            low = middle + 1
        else:
            high = middle
    return np.int64(low - start)


@njit(cache=True, nogil=True)
def find_all(
    keys: Any, missing: Any, start: Any, size: Any, codes: Any, domain_keys: Any, domain_codes: Any
) -> None:
    """Replace keys by codes in place; the key of a missing value by the last code."""
    for i in range(keys.size):
        if keys[i] == missing:
            keys[i] = np.uint64(codes - 1)
        else:
            keys[i] = np.uint64(find(keys[i], start, size, codes, domain_keys, domain_codes))


@njit(cache=True, nogil=True)
def cut_all(values: Any, start: Any, size: Any, cuts: Any, out: Any) -> None:
    """Bins of numbers; of few cut points one after the other, which LLVM vectorises."""
    if size <= 8:
        out[:] = 0
        for c in range(start, start + size):
            at = cuts[c]
            for i in range(values.size):
                out[i] += np.uint64(np.float64(values[i]) >= at)
        return
    for i in range(values.size):
        out[i] = np.uint64(cut(np.float64(values[i]), start, size, cuts))


@njit(cache=True, nogil=True)
def hash_codes(keys: Any, codes: Any) -> None:
    """Replace codes by keys in place: finite features as parts of a hashed group."""
    for i in range(codes.size):
        codes[i] = hash_word(keys[NUMBER, 0], keys[NUMBER, 1], codes[i])


@njit(inline="always", cache=True)
def _feature(
    keys: Any,
    plan: Any,
    f: Any,
    kind: Any,
    address: Any,
    length: Any,
    end: Any,
    domain_keys: Any,
    domain_codes: Any,
    cuts: Any,
) -> Any:
    """The key (open) or code (finite) of one value given as kind and payload."""
    how, codes = plan[f, FEATURE_HOW], plan[f, FEATURE_CODES]
    if kind == TEXT and length == 0 and by_text(keys):
        kind = MISSING
    if kind == MISSING and how != OPEN:
        return np.uint64(codes - 1)
    if how == BINS:
        value = np.uint64(load64(address)).view(np.float64)
        return np.uint64(cut(value, plan[f, FEATURE_START], plan[f, FEATURE_SIZE], cuts))
    if kind == FLOAT:
        key = hash_number(keys, np.uint64(load64(address)).view(np.float64))
    elif kind == TEXT:
        key = hash_value(keys, kind, address, length, end)
    else:
        key = hash_bytes(keys[kind, 0], keys[kind, 1], address, length, end)
    if how == OPEN:
        return key
    start, size = plan[f, FEATURE_START], plan[f, FEATURE_SIZE]
    return np.uint64(find(key, start, size, codes, domain_keys, domain_codes))


@njit(inline="always", cache=True)
def join_tables(keys: Any, plan: Any, tables: Any, features: Any, out: Any) -> None:
    """The keys of all tables from the keys or codes of all features."""
    for t in range(tables.shape[0]):
        first = tables[t, TABLE_FIRST]
        if tables[t, TABLE_PARTS] == 1:
            out[t, 0] = features[first]
        elif tables[t, TABLE_DENSE]:
            code = np.uint64(0)
            for i in range(tables[t, TABLE_PARTS]):
                f = tables[t, TABLE_FIRST + i]
                code = code * np.uint64(plan[f, FEATURE_CODES]) + features[f]
            out[t, 0] = code
        else:
            key = np.uint64(0)
            for i in range(tables[t, TABLE_PARTS]):
                f = tables[t, TABLE_FIRST + i]
                part = features[f]
                if plan[f, FEATURE_HOW] != OPEN:
                    part = hash_word(keys[NUMBER, 0], keys[NUMBER, 1], part)
                key = part if i == 0 else join(key, part)
            out[t, 0] = key


@njit(cache=True, nogil=True)
def encode_usual(places: Any, reals: Any, text: Any, out: Any) -> Any:
    """Table keys of one row of numbers, as doubles, and of text, with a 0 between two of them.

    Numbers are of the first features of the order, text of the others. Returns whether
    that was the row: not where a number is not finite, or text has a 0 of its own.
    """
    keys, plan = matrix(places, PLANS_KEYS, np.uint64), matrix(places, PLANS_FEATURES, np.int64)
    tables, order = matrix(places, PLANS_TABLES, np.int64), vector(places, PLANS_ORDER, np.int64)
    domain_keys = vector(places, PLANS_DOMAIN_KEYS, np.uint64)
    domain_codes = vector(places, PLANS_DOMAIN_CODES, np.int64)
    cuts = vector(places, PLANS_CUTS, np.float64)
    features = np.empty(plan.shape[0], dtype=np.uint64)
    numbers = np.frombuffer(reals, dtype=np.float64)
    data = np.frombuffer(text, dtype=np.uint8)
    for i in range(numbers.size):
        f = order[i]
        if not np.isfinite(numbers[i]):
            return False
        code = cut(numbers[i], plan[f, FEATURE_START], plan[f, FEATURE_SIZE], cuts)
        features[f] = np.uint64(code)
    address, start = np.int64(data.ctypes.data), 0
    end = address + data.size
    for i in range(numbers.size, order.size):
        f, stop = order[i], start
        while stop < data.size and data[stop] != 0:
            stop += 1
        features[f] = _feature(
            keys, plan, f, TEXT, address + start, stop - start, end, domain_keys, domain_codes, cuts
        )
        start = stop + 1
    if order.size > numbers.size and start != data.size + 1:
        return False
    join_tables(keys, plan, tables, features, out)
    return True


@njit(cache=True, nogil=True)
def encode_payloads(
    places: Any,
    buffer: Any,
    lengths: Any,
    kinds: Any,
    out: Any,
) -> Any:
    """Table keys of one row whose payloads stand one after the other in ``buffer``.

    Payload i is that of feature order[i].

    Returns -1, or the number of a feature that is not a finite number.
    """
    keys, plan = matrix(places, PLANS_KEYS, np.uint64), matrix(places, PLANS_FEATURES, np.int64)
    tables, order = matrix(places, PLANS_TABLES, np.int64), vector(places, PLANS_ORDER, np.int64)
    domain_keys = vector(places, PLANS_DOMAIN_KEYS, np.uint64)
    domain_codes = vector(places, PLANS_DOMAIN_CODES, np.int64)
    cuts = vector(places, PLANS_CUTS, np.float64)
    features = np.empty(plan.shape[0], dtype=np.uint64)
    address = np.int64(buffer.ctypes.data)
    stop = address + buffer.size
    start = 0
    for i in range(order.size):
        f, length = order[i], lengths[i]
        if kinds[i] == FLOAT and not np.isfinite(
            np.uint64(load64(address + start)).view(np.float64)
        ):
            return f
        features[f] = _feature(
            keys,
            plan,
            f,
            np.int64(kinds[i]),
            address + start,
            length,
            stop,
            domain_keys,
            domain_codes,
            cuts,
        )
        start += length
    join_tables(keys, plan, tables, features, out)
    return -1


@njit(inline="always", cache=True)
def _arrow_word(layout: Any, data: Any, at: Any) -> Any:
    """An Arrow number as a word: integers sign-extended, floats as doubles."""
    if layout in (ARROW_INT64, ARROW_FLOAT64):
        return load64(data + 8 * at)
    if layout == ARROW_INT32:
        return np.uint64(np.int64(load32(data + 4 * at)))
    if layout == ARROW_FLOAT32:
        wide = np.float64(np.uint32(load32(data + 4 * at)).view(np.float32))
        return np.float64(wide).view(np.uint64)
    if layout == ARROW_INT8:
        return np.uint64(np.int64(np.int8(load8(data + at))))
    low, high = np.int64(load8(data + 2 * at)), np.int64(load8(data + 2 * at + 1))
    return np.uint64(np.int64(np.int16(low | (high << 8))))


@njit(cache=True, nogil=True)
def encode_arrow(
    places: Any,
    array: Any,
    columns: Any,
    scratch: Any,
    out: Any,
) -> Any:
    """Table keys of the only row of an exported Arrow struct array; -1, or the bad feature.

    ``columns[feature] = (child, layout)``. A float that is not finite, or in a category too
    large to be exact or of no whole number, is what a type does not rule out; it is reported by
    its feature's number.
    """
    keys, plan = matrix(places, PLANS_KEYS, np.uint64), matrix(places, PLANS_FEATURES, np.int64)
    tables = matrix(places, PLANS_TABLES, np.int64)
    domain_keys = vector(places, PLANS_DOMAIN_KEYS, np.uint64)
    domain_codes = vector(places, PLANS_DOMAIN_CODES, np.int64)
    cuts = vector(places, PLANS_CUTS, np.float64)
    features = np.empty(plan.shape[0], dtype=np.uint64)
    children = np.int64(load64(array + 48))
    row = np.int64(load64(array + 16))
    word_at = np.int64(scratch.ctypes.data)
    for f in range(plan.shape[0]):
        child = np.int64(load64(children + 8 * columns[f, 0]))
        layout = columns[f, 1]
        at = row + np.int64(load64(child + 16))
        buffers = np.int64(load64(child + 40))
        validity, data = np.int64(load64(buffers)), np.int64(load64(buffers + 8))
        kind, address, length, end = MISSING, word_at, 0, word_at
        if validity != 0 and not (load8(validity + (at >> 3)) >> np.uint8(at & 7)) & 1:
            pass
        elif layout <= ARROW_TEXT64:
            kind = TEXT
            if layout == ARROW_TEXT32:
                start = np.int64(load32(data + 4 * at))
                length = np.int64(load32(data + 4 * at + 4)) - start
            else:
                start = np.int64(load64(data + 8 * at))
                length = np.int64(load64(data + 8 * at + 8)) - start
            address = np.int64(load64(buffers + 16)) + start
            end = address + length
        else:
            word = _arrow_word(layout, data, at)
            real = layout >= ARROW_FLOAT32
            if real:
                value = np.uint64(word).view(np.float64)
                exact = EXACT32 if layout == ARROW_FLOAT32 else EXACT
                binned = plan[f, FEATURE_HOW] == BINS
                if not np.abs(value) < (np.inf if binned else exact):
                    return f
                if not binned and by_text(keys) and value != np.floor(value):
                    return f
            if plan[f, FEATURE_HOW] == BINS and not real:
                word = np.float64(np.int64(word)).view(np.uint64)
            kind = FLOAT if real else NUMBER
            scratch[0] = word
            length, end = 8, word_at + 8
        features[f] = _feature(
            keys, plan, f, kind, address, length, end, domain_keys, domain_codes, cuts
        )
    join_tables(keys, plan, tables, features, out)
    return -1
