"""What is hashed of a Python value: its kind and its payload, or why it has none.

This is the rule, by text (`by_text`) and by type (`category`); `pyramidion.rows.hashing`
follows it from Arrow's buffers. Reasons are worded to stand behind "column 'name'",
and never hold the value.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np

from pyramidion.config.checks import LARGEST, SMALLEST
from pyramidion.config.spelling import whole_of
from pyramidion.rows import hashing_kernels as kernels

NOT_FINITE = "is NaN or infinite; send a finite number, or null for a missing one"
NOT_A_TIME = "is NaT, which is no time; send null for a missing one"
NOT_UNICODE = "is text that is not valid Unicode; mend it, or send bytes"
NOT_EXACT = (
    "is a floating-point number of 2^53 or more, and may stand for several whole numbers; send "
    "whole numbers as integers or as text, in pandas as Int64"
)

NOT_SHORTEST = (
    "is a 32-bit float with a fraction, which doubles and text spell differently; send a double "
    "or text, or declare it Continuous"
)
NOT_WHOLE = (
    "is a decimal with a fraction, which text spells in several ways; send text, or declare it "
    "Continuous"
)
NOT_A_DATE = (
    "is a time, not a date, and text spells times in several ways; send a date, text, or the "
    "hour or weekday"
)
TOO_LONG = "is a whole number beyond 64 bits; send it as text"

NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
DAY = 86_400 * NANOSECONDS["s"]
_NUMPY_UNITS = {**NANOSECONDS, "m": DAY // 1440, "h": DAY // 24, "D": DAY, "W": 7 * DAY}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_MASK = (1 << 64) - 1
_NAT, _AS_NAT = -(1 << 63), 1 << 54  # NumPy's word for no time; seconds that have it modulo 2**64
FIRST_DAY, LAST_DAY = (day.toordinal() - _EPOCH.toordinal() for day in (dt.date.min, dt.date.max))
"""The days since 1970 that are dates."""
EXACT = 2.0**53
"""The size from which on a double may stand for several whole numbers."""
_MOST_DIGITS = 76  # as many as Arrow's decimals can have


class UnfitError(TypeError):
    """A value that has no key; the message says why, and holds nothing of it."""


def unhashable(kind: object) -> str:
    """The reason given for a type that has no key."""
    return f"has type {kind}, which cannot be counted; use text, numbers, booleans, bytes or times"


def by_text(value: object) -> tuple[int, bytes]:
    """Kind and payload of a value of a category that is read by its text.

    >>> by_text(7) == by_text("7") == by_text(7.0) == by_text("7.0") != by_text("007")
    True
    """
    if isinstance(value, str):
        return text_of(encoded(value))
    if isinstance(value, bytes):
        return text_of(value)
    if isinstance(value, float | np.floating):
        kind, payload = category(value)
        if kind != kernels.FRACTION:
            return kind, payload
        if isinstance(value, np.float32 | np.float16):
            raise UnfitError(NOT_SHORTEST)
        return kernels.TEXT, repr(float(value)).encode()
    if isinstance(value, Decimal):
        return _whole_decimal(value)
    if isinstance(value, UUID):
        return kernels.TEXT, str(value).encode()
    if isinstance(value, int) and not SMALLEST <= value <= LARGEST:
        raise UnfitError(TOO_LONG)
    kind, payload = canonical(value)
    if kind == kernels.INSTANT and _is_date(value):
        return kernels.TEXT, _date(instant(value))  # type: ignore[arg-type]
    if kind in (kernels.INSTANT, kernels.TIME_OF_DAY, kernels.DURATION):
        raise UnfitError(NOT_A_DATE)
    return kind, payload


def text_of(text: bytes) -> tuple[int, bytes]:
    """Kind and payload of text: those of the whole number that it is, if it is one."""
    whole = whole_of(text)
    if whole is not None:
        return _integer(whole)
    return (kernels.TEXT, text) if text else (kernels.MISSING, b"")


def _whole_decimal(value: Decimal) -> tuple[int, bytes]:
    if not value.is_finite():
        raise UnfitError(NOT_FINITE)
    if value and (value.adjusted() > 20 or value.adjusted() < 0):
        raise UnfitError(TOO_LONG if value.adjusted() > 20 else NOT_WHOLE)
    whole = int(value)
    if whole != value:
        raise UnfitError(NOT_WHOLE)
    if not SMALLEST <= whole <= LARGEST:
        raise UnfitError(TOO_LONG)
    return _integer(whole)


def _is_date(value: object) -> bool:
    if isinstance(value, np.datetime64):
        return np.datetime_data(value.dtype)[0] == "D"
    return isinstance(value, dt.date) and not isinstance(value, dt.datetime)


def _date(nanoseconds: int) -> bytes:
    """The text of a date, given by the midnight that it begins with."""
    days, rest = divmod(nanoseconds, DAY)
    if rest or not FIRST_DAY <= days <= LAST_DAY:
        raise UnfitError(NOT_A_DATE)
    return dt.date.fromordinal(_EPOCH.toordinal() + days).isoformat().encode()


def category(value: object) -> tuple[int, bytes]:
    """Kind and payload of a value of a category that is read by its type.

    As `canonical`, but for inexact numbers.

    >>> category(7.0) == category(7)
    True
    """
    if isinstance(value, float | np.floating) and not abs(float(value)) < exact_below(value):
        raise UnfitError(NOT_EXACT if math.isfinite(value) else NOT_FINITE)
    return canonical(value)


def exact_below(value: float | np.floating[Any]) -> float:
    """The size from which on whole numbers of a floating-point type stand for their neighbours."""
    if isinstance(value, np.float32 | np.float16):
        return float(1 << (np.finfo(type(value)).nmant + 1))
    return EXACT


def canonical(value: object) -> tuple[int, bytes]:
    """Kind and payload of a Python value: the rule that the Arrow door follows too.

    >>> canonical(1) == canonical(1.0) == canonical(True) != canonical("1")
    True
    """
    if value is None:
        return kernels.MISSING, b""
    if isinstance(value, str):
        return kernels.TEXT, encoded(value)
    if isinstance(value, bytes):
        return kernels.BYTES, value
    if isinstance(value, np.timedelta64):
        return _time(value)  # before integers: to NumPy it is one
    if isinstance(value, (bool, int, np.bool_, np.integer)):
        return _integer(int(value))
    if isinstance(value, (float, np.floating)):
        return _float(float(value))
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, UUID):
        return kernels.BYTES, value.bytes
    return _time(value)


def restored(kind: int, payload: bytes) -> object:
    """A value that `canonical` gives this kind and payload for.

    >>> restored(*canonical("AA")), restored(*canonical(2.5)), restored(*canonical(None))
    ('AA', 2.5, None)
    """
    word = int.from_bytes(payload[:8], "little", signed=True)
    if kind == kernels.MISSING:
        return None
    if kind == kernels.TEXT:
        return payload.decode()
    if kind == kernels.BYTES:
        return payload
    if kind == kernels.NUMBER:
        return word
    if kind == kernels.LARGE:
        return int.from_bytes(payload, "little")
    if kind == kernels.FRACTION:
        return float(np.frombuffer(payload, dtype=np.float64)[0])
    if kind == kernels.DECIMAL:
        digits = int.from_bytes(payload[:-8], "little", signed=True)
        scale = int.from_bytes(payload[-8:], "little", signed=True)
        sign, figures = int(digits < 0), tuple(map(int, str(abs(digits))))
        return Decimal((sign, figures, -scale))
    if kind == kernels.INSTANT:
        return np.datetime64(word, "ns") if word != _NAT else np.datetime64(_AS_NAT, "s")
    if kind == kernels.DURATION:
        return np.timedelta64(word, "ns") if word != _NAT else np.timedelta64(_AS_NAT, "s")
    return (dt.datetime.min + dt.timedelta(microseconds=word // 1_000)).time()


def encoded(text: str) -> bytes:
    """Text as UTF-8; lone surrogates are no text."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        pass  # that error holds the text; the next one must not hold that error
    raise UnfitError(NOT_UNICODE)


def _integer(value: int) -> tuple[int, bytes]:
    if -(1 << 63) <= value < (1 << 63):
        return kernels.NUMBER, value.to_bytes(8, "little", signed=True)
    if 0 < value < (1 << 64):
        return kernels.LARGE, value.to_bytes(8, "little")
    raise UnfitError(unhashable("int beyond 64 bits"))


def _float(value: float) -> tuple[int, bytes]:
    if not math.isfinite(value):
        raise UnfitError(NOT_FINITE)
    if value.is_integer() and -(2.0**63) <= value < 2.0**64:
        return _integer(int(value))
    return kernels.FRACTION, np.float64(value).tobytes()


def _decimal(value: Decimal) -> tuple[int, bytes]:
    """As the integer or float that equals it; otherwise digits, less trailing zeros, and scale."""
    if not value.is_finite():
        raise UnfitError(NOT_FINITE)
    sign, figures, exponent = value.as_tuple()
    if len(figures) > _MOST_DIGITS:
        raise UnfitError(unhashable("Decimal of too many digits"))
    digits, scale = int("".join(map(str, figures))), -int(exponent)
    while digits and digits % 10 == 0:
        digits, scale = digits // 10, scale - 1
    digits = -digits if sign else digits
    if digits == 0 or (-20 < scale <= 0 and -(1 << 63) <= digits * 10**-scale < 1 << 64):
        return _integer(digits * 10**-scale if digits else 0)
    if Decimal(float(value)) == value:
        return _float(float(value))
    size = 8 * ((digits ^ (digits >> digits.bit_length())).bit_length() // 64 + 1)
    return kernels.DECIMAL, digits.to_bytes(size, "little", signed=True) + _word(scale)


def _time(value: object) -> tuple[int, bytes]:
    if isinstance(value, np.datetime64 | dt.date):
        return kernels.INSTANT, _word(instant(value))
    if isinstance(value, np.timedelta64):
        return kernels.DURATION, _word(_ticks(value))
    if isinstance(value, dt.time):
        since = dt.datetime.combine(dt.date.min, value.replace(tzinfo=None)) - dt.datetime.min
        return kernels.TIME_OF_DAY, _word(since // _MICROSECOND * 1_000)
    if isinstance(value, dt.timedelta):
        finer = int(getattr(value, "nanoseconds", 0))  # pandas' Timedelta has them
        return kernels.DURATION, _word(value // _MICROSECOND * 1_000 + finer)
    raise UnfitError(unhashable(type(value).__name__))


def instant(value: np.datetime64 | dt.date) -> int:
    """Nanoseconds since the epoch; naive times are UTC, a date is its midnight."""
    if isinstance(value, np.datetime64):
        return _ticks(value)
    if not isinstance(value, dt.datetime):
        return (value - _EPOCH.date()).days * DAY
    if value != value:  # pandas' NaT is a datetime
        raise UnfitError(NOT_A_TIME)
    aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
    finer = int(getattr(value, "nanosecond", 0))  # pandas' Timestamp has them
    return (aware - _EPOCH) // _MICROSECOND * 1_000 + finer


def _ticks(value: np.datetime64 | np.timedelta64) -> int:
    """Nanoseconds of a NumPy time, without NumPy's overflow."""
    if np.isnat(value):
        raise UnfitError(NOT_A_TIME)
    unit, count = np.datetime_data(value.dtype)
    if unit in ("Y", "M") and isinstance(value, np.datetime64):
        value, unit, count = value.astype("datetime64[D]"), "D", 1
    if unit not in _NUMPY_UNITS:
        raise UnfitError(unhashable(f"{type(value).__name__}[{unit}]"))
    return int(value.astype(np.int64)) * count * _NUMPY_UNITS[unit]


def _word(number: int) -> bytes:
    return (number & _MASK).to_bytes(8, "little")
