"""One flat JSON object to the keys of all tables: no Python object for any name or value.

The kernel reads what is usual and gives up, by a negative position or False, on
everything else: nested values, lone surrogates, NaN, integers of more than 19 digits,
numbers with a fraction in categories, text where a number is due, what is no JSON at
all. Giving up is never wrong, since `pyramidion.rows.json_rows` then asks Python's own
parser; what the kernel does read, it reads as that parser would. Of names that come
twice the last one counts, as there.

Bytes are read by index, each after a look at the size of the body: nothing behind it
is ever touched. `pyramidion.rows.decimal_kernels` makes the numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from pyramidion.rows.decimal_kernels import nearest
from pyramidion.rows.encoding_kernels import (
    BINS,
    FEATURE_CODES,
    FEATURE_HOW,
    FEATURE_SIZE,
    FEATURE_START,
    FLOAT,
    OPEN,
    PLANS_CUTS,
    PLANS_DOMAIN_CODES,
    PLANS_DOMAIN_KEYS,
    PLANS_FEATURES,
    PLANS_KEYS,
    PLANS_TABLES,
    cut,
    find,
    join_tables,
)
from pyramidion.rows.hashing_kernels import (
    EXACT,
    LARGE,
    MISSING,
    NUMBER,
    TEXT,
    by_text,
    hash_bytes,
    hash_number,
    hash_value,
    hash_word,
)
from pyramidion.rows.packed_kernels import matrix, vector

SOUGHT_NAMES, SOUGHT_STARTS, SOUGHT_SLOTS = range(3)
GIVEN_UP = -1
UNKNOWN = -1
"""A name that is no feature's."""

_MOST_DIGITS = 19  # always within 64 bits
_MOST_EXPONENT = 4  # digits
_TWO63 = np.uint64(1 << 63)

_QUOTE, _COMMA, _COLON, _OPENING, _CLOSING = 0x22, 0x2C, 0x3A, 0x7B, 0x7D
_MINUS, _PLUS, _POINT, _ZERO, _NINE, _E, _BACKSLASH = 0x2D, 0x2B, 0x2E, 0x30, 0x39, 0x65, 0x5C
_LOWER = 0x20  # the bit that makes a small letter of a capital
_U = 0x75
_TRUE = np.frombuffer(b"true", dtype=np.uint8)
_FALSE = np.frombuffer(b"false", dtype=np.uint8)
_NULL = np.frombuffer(b"null", dtype=np.uint8)
_ESCAPED = np.frombuffer(b'"\\/bfnrt', dtype=np.uint8)
_MEANT = np.frombuffer(b'"\\/\b\f\n\r\t', dtype=np.uint8)


@njit(cache=True, nogil=True)
def byte_at(body: Any, at: Any) -> Any:
    """The byte at a place, 0 (which nothing in JSON may be) behind the end."""
    return np.int64(body[at]) if at < body.size else 0


@njit(cache=True, nogil=True)
def after_space(body: Any, at: Any) -> Any:
    """The next place that is no white space."""
    while at < body.size and (
        body[at] == 0x20 or body[at] == 0x0A or body[at] == 0x0D or body[at] == 0x09
    ):
        at += 1
    return at


# --- text -----------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def wide(body: Any, at: Any) -> Any:
    """Bytes of a character beyond ASCII in UTF-8; 0 where it is none."""
    first, low, high = byte_at(body, at), 0x80, 0xBF
    if 0xC2 <= first <= 0xDF:
        count = 2
    elif 0xE0 <= first <= 0xEF:
        count = 3
        low = 0xA0 if first == 0xE0 else low  # no longer than need be
        high = 0x9F if first == 0xED else high  # no surrogates
    elif 0xF0 <= first <= 0xF4:
        count = 4
        low = 0x90 if first == 0xF0 else low
        high = 0x8F if first == 0xF4 else high
    else:
        return 0
    if not low <= byte_at(body, at + 1) <= high:
        return 0
    for i in range(2, count):
        if not 0x80 <= byte_at(body, at + i) <= 0xBF:
            return 0
    return count


@njit(cache=True, nogil=True)
def text_end(body: Any, at: Any) -> Any:
    """Where text that begins at a place stops: at its quote, or at a backslash; or given up."""
    while at < body.size:
        byte = np.int64(body[at])
        if byte in (_QUOTE, _BACKSLASH):
            return at
        if byte < 0x20:
            return GIVEN_UP
        if byte < 0x80:
            at += 1
        else:
            count = wide(body, at)
            if count == 0:
                return GIVEN_UP
            at += count
    return GIVEN_UP


@njit(cache=True, nogil=True)
def four_hex(body: Any, at: Any) -> Any:
    """The number that four hexadecimal digits are, or -1."""
    number = 0
    for i in range(4):
        byte = byte_at(body, at + i)
        small = byte | _LOWER
        if _ZERO <= byte <= _NINE:
            number = 16 * number + byte - _ZERO
        elif 0x61 <= small <= 0x66:
            number = 16 * number + small - 0x57
        else:
            return -1
    return number


@njit(cache=True, nogil=True)
def escaped(body: Any, at: Any) -> Any:
    """The character of the escape at a place and the place behind it, or given up."""
    byte = byte_at(body, at + 1)
    for i in range(_ESCAPED.size):
        if byte == _ESCAPED[i]:
            return np.int64(_MEANT[i]), at + 2
    if byte != _U:
        return 0, GIVEN_UP
    code, at = four_hex(body, at + 2), at + 6
    if 0xD800 <= code <= 0xDBFF and byte_at(body, at) == _BACKSLASH and byte_at(body, at + 1) == _U:
        low, at = four_hex(body, at + 2), at + 6
        paired = 0xDC00 <= low <= 0xDFFF
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00) if paired else -1
    if code < 0 or 0xD800 <= code <= 0xDFFF:
        return 0, GIVEN_UP
    return code, at


@njit(cache=True, nogil=True)
def put(code: Any, out: Any, size: Any) -> Any:
    """Write a character as UTF-8 behind ``size`` bytes; how many there are then."""
    if code < 0x80:
        out[size] = code
        return size + 1
    if code < 0x800:
        out[size] = 0xC0 | (code >> 6)
    elif code < 0x10000:
        out[size] = 0xE0 | (code >> 12)
    else:
        out[size] = 0xF0 | (code >> 18)
        size += 1
        out[size] = 0x80 | ((code >> 12) & 0x3F)
    if code >= 0x800:
        size += 1
        out[size] = 0x80 | ((code >> 6) & 0x3F)
    out[size + 1] = 0x80 | (code & 0x3F)
    return size + 2


@njit(cache=True, nogil=True)
def unescape(body: Any, at: Any, out: Any) -> Any:
    """Text with escapes as UTF-8 into ``out``; its size, and its quote's place or given up.

    No escape is shorter than what it stands for, so ``out`` need not be larger than the body.
    """
    size = 0
    while True:
        stop = text_end(body, at)
        if stop < 0:
            return 0, GIVEN_UP
        for i in range(at, stop):
            out[size] = body[i]
            size += 1
        if body[stop] == _QUOTE:
            return size, stop
        code, at = escaped(body, stop)
        if at < 0:
            return 0, GIVEN_UP
        size = put(code, out, size)


# --- numbers and words ------------------------------------------------------------------


@njit(cache=True, nogil=True)
def digits(body: Any, at: Any, word: Any, count: Any) -> Any:
    """Extend a number by the digits from a place on; how many count, and where they stop."""
    while at < body.size and _ZERO <= body[at] <= _NINE:
        word = word * np.uint64(10) + np.uint64(body[at] - _ZERO)
        count += word != 0 or count > 0
        at += 1
    return word, count, at


@njit(cache=True, nogil=True)
def exponent(body: Any, at: Any) -> Any:
    """The exponent whose e is at a place, and where it stops or given up."""
    sign = byte_at(body, at + 1)
    first = at + 2 if sign in (_MINUS, _PLUS) else at + 1
    word, _, stop = digits(body, first, np.uint64(0), 0)
    if stop == first or stop - first > _MOST_EXPONENT:
        return 0, GIVEN_UP
    power = np.int64(word)
    return -power if sign == _MINUS else power, stop


@njit(cache=True, nogil=True)
def number(body: Any, at: Any) -> Any:
    """Kind, word and end of the number at a place.

    NUMBER and LARGE are integers, as when hashed; FLOAT has the bits of the nearest double.
    """
    negative = body[at] == _MINUS
    first = at + 1 if negative else at
    word, count, at = digits(body, first, np.uint64(0), 0)
    if at == first or (at > first + 1 and body[first] == _ZERO):
        return 0, word, GIVEN_UP
    real, power = False, 0
    if byte_at(body, at) == _POINT:
        point = at + 1
        word, count, at = digits(body, point, word, count)
        if at == point:
            return 0, word, GIVEN_UP
        real, power = True, point - at
    if byte_at(body, at) | _LOWER == _E:
        more, at = exponent(body, at)
        if at < 0:
            return 0, word, GIVEN_UP
        real, power = True, power + more
    if count > _MOST_DIGITS:
        return 0, word, GIVEN_UP
    if real:
        value, sure = nearest(word, power)
        bits = np.float64(-value if negative else value).view(np.uint64)
        return FLOAT, bits, at if sure else GIVEN_UP
    if word < _TWO63:
        return NUMBER, np.uint64(-np.int64(word)) if negative else word, at
    return LARGE, word, GIVEN_UP if negative else at


@njit(cache=True, nogil=True)
def same(body: Any, at: Any, expected: Any, start: Any, stop: Any) -> Any:
    """Whether the body goes on with expected[start:stop]."""
    if at + stop - start > body.size:
        return False
    for i in range(stop - start):  # noqa: SIM110
        if body[at + i] != expected[start + i]:
            return False
    return True


@njit(cache=True, nogil=True)
def literal(body: Any, at: Any) -> Any:
    """Kind, word and end of true, false or null: of the integers 1 and 0, or of nothing."""
    if same(body, at, _TRUE, 0, _TRUE.size):
        return NUMBER, np.uint64(1), at + _TRUE.size
    if same(body, at, _FALSE, 0, _FALSE.size):
        return NUMBER, np.uint64(0), at + _FALSE.size
    if same(body, at, _NULL, 0, _NULL.size):
        return MISSING, np.uint64(0), at + _NULL.size
    return MISSING, np.uint64(0), GIVEN_UP


# --- names ----------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def slot_of(name: Any, start: Any, stop: Any, slots: Any) -> Any:
    """Where the search for a name begins; there is a power of two of slots."""
    mixed = np.uint64(0xCBF29CE484222325)
    for i in range(start, stop):
        mixed = (mixed ^ np.uint64(name[i])) * np.uint64(0x100000001B3)
    return np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(slots.size - 1))


@njit(cache=True, nogil=True)
def feature_at(body: Any, at: Any, guess: Any, names: Any, starts: Any, slots: Any) -> Any:
    """The feature that the name at a place is, or UNKNOWN, and the place behind its quote.

    Names end with their quotes: feature f's is names[starts[f]:starts[f + 1]]. The
    ``guess`` is tried first, since most rows have their names in the schema's order.
    """
    start, stop = starts[guess], starts[guess + 1]
    if same(body, at, names, start, stop):
        return guess, at + stop - start
    end = text_end(body, at)
    if end < 0 or body[end] == _BACKSLASH:
        return UNKNOWN, GIVEN_UP
    slot = slot_of(body, at, end, slots)
    while slots[slot] >= 0:
        f = slots[slot]
        if starts[f + 1] - starts[f] == end + 1 - at and same(
            body, at, names, starts[f], starts[f + 1]
        ):
            return f, end + 1
        slot = (slot + 1) & (slots.size - 1)
    return UNKNOWN, end + 1


# --- rows -----------------------------------------------------------------------------


@njit(inline="always", cache=True)
def _code(plan: Any, f: Any, key: Any, domain_keys: Any, domain_codes: Any) -> Any:
    """The key of an open feature's value, or its code in the declared domain."""
    if plan[f, FEATURE_HOW] == OPEN:
        return key
    start, size, codes = plan[f, FEATURE_START], plan[f, FEATURE_SIZE], plan[f, FEATURE_CODES]
    return np.uint64(find(key, start, size, codes, domain_keys, domain_codes))


@njit(inline="always", cache=True)
def _scalar(
    keys: Any,
    plan: Any,
    f: Any,
    kind: Any,
    word: Any,
    domain_keys: Any,
    domain_codes: Any,
    cuts: Any,
) -> Any:
    """The key (open) or code (finite) of a number or of nothing."""
    how = plan[f, FEATURE_HOW]
    if kind == MISSING:
        if how != OPEN:
            return np.uint64(plan[f, FEATURE_CODES] - 1)
        return hash_bytes(keys[MISSING, 0], keys[MISSING, 1], 0, 0, 0)
    value = np.uint64(word).view(np.float64)
    if how == BINS:
        if kind == NUMBER:
            value = np.float64(np.int64(word))
        elif kind == LARGE:
            value = np.float64(word)
        return np.uint64(cut(value, plan[f, FEATURE_START], plan[f, FEATURE_SIZE], cuts))
    if kind == FLOAT:
        key = hash_number(keys, value)
    else:
        key = hash_word(keys[kind, 0], keys[kind, 1], word)
    return _code(plan, f, key, domain_keys, domain_codes)


@njit(inline="always", cache=True)
def _unusual(keys: Any, plan: Any, f: Any, word: Any) -> Any:
    """Whether a category has a float that is refused, or that is read by its text."""
    value = np.uint64(word).view(np.float64)
    exact = np.abs(value) < EXACT
    whole = value == np.floor(value) or not by_text(keys)
    return plan[f, FEATURE_HOW] != BINS and not (exact and whole)


@njit(cache=True, nogil=True)
def text_key(keys: Any, body: Any, at: Any) -> Any:
    """The key of the text at a place, and the place behind its quote or given up."""
    stop = text_end(body, at)
    if stop < 0:
        return np.uint64(0), GIVEN_UP
    if body[stop] == _QUOTE:
        address = np.int64(body.ctypes.data)
        return hash_value(keys, TEXT, address + at, stop - at, address + body.size), stop + 1
    made = np.empty(body.size, dtype=np.uint8)
    size, stop = unescape(body, at, made)
    if stop < 0:
        return np.uint64(0), GIVEN_UP
    address = np.int64(made.ctypes.data)
    return hash_value(keys, TEXT, address, size, address + made.size), stop + 1


@njit(cache=True, nogil=True)
def encode_json(places: Any, sought: Any, row: Any, out: Any) -> Any:
    """Table keys of the row that a body is; False where it is given up, for whatever reason.

    ``row`` is Python's bytes.
    """
    keys, plan = matrix(places, PLANS_KEYS, np.uint64), matrix(places, PLANS_FEATURES, np.int64)
    tables = matrix(places, PLANS_TABLES, np.int64)
    domain_keys = vector(places, PLANS_DOMAIN_KEYS, np.uint64)
    domain_codes = vector(places, PLANS_DOMAIN_CODES, np.int64)
    cuts = vector(places, PLANS_CUTS, np.float64)
    names, starts = vector(sought, SOUGHT_NAMES, np.uint8), vector(sought, SOUGHT_STARTS, np.int64)
    slots = vector(sought, SOUGHT_SLOTS, np.int64)
    body, count = np.frombuffer(row, dtype=np.uint8), plan.shape[0]
    features, seen = np.empty(count, dtype=np.uint64), np.zeros(count, dtype=np.bool_)
    left, guess = count, 0
    at = after_space(body, 0)
    if byte_at(body, at) != _OPENING:
        return False
    while True:
        at = after_space(body, at + 1)  # behind the opening brace or a comma
        if byte_at(body, at) != _QUOTE:
            return False
        f, at = feature_at(body, at + 1, guess, names, starts, slots)
        if at < 0:
            return False
        at = after_space(body, at)
        if byte_at(body, at) != _COLON:
            return False
        at = after_space(body, at + 1)
        first = byte_at(body, at)
        if first == _QUOTE:
            empty = byte_at(body, at + 1) == _QUOTE
            key, at = text_key(keys, body, at + 1)
            if at < 0 or (f >= 0 and plan[f, FEATURE_HOW] == BINS):
                return False
            if f >= 0 and empty and by_text(keys):
                missing, none = np.uint64(0), MISSING
                features[f] = _scalar(keys, plan, f, none, missing, domain_keys, domain_codes, cuts)
            elif f >= 0:
                features[f] = _code(plan, f, key, domain_keys, domain_codes)
        else:
            if first == _MINUS or _ZERO <= first <= _NINE:
                kind, value, at = number(body, at)
            else:
                kind, value, at = literal(body, at)
            if at < 0:
                return False
            if f >= 0:
                if kind == FLOAT and _unusual(keys, plan, f, value):
                    return False
                features[f] = _scalar(keys, plan, f, kind, value, domain_keys, domain_codes, cuts)
        if f >= 0:
            left -= not seen[f]
            seen[f] = True
            guess = f + 1 if f + 1 < count else 0
        at = after_space(body, at)
        if byte_at(body, at) != _COMMA:
            break
    if byte_at(body, at) != _CLOSING or after_space(body, at + 1) != body.size or left > 0:
        return False
    join_tables(keys, plan, tables, features, out)
    return True
