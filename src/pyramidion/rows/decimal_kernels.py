"""Decimal digits to the nearest double, or the admission that it takes a slower way to know.

A number is w · 10^p with w below 2^64. Where w is at most 2^53 and 10^|p| is a
double itself, one multiplication or division rounds once, and so correctly.

Otherwise 10^p is replaced by its first 128 bits T, cut off, so that the true power
is within [T, T + 1). With w shifted up to 64 bits, the first 128 bits of w · T are
too small by less than 2: less than 1 for what was cut off of the power (times w,
less than 2^64, in units of 2^64), less than 1 for what was cut off of the product.
The double is made of the first 53 bits. If the bits behind them are above one half,
or below it by more than the error (4 after one more shift), rounding is certain;
else nothing is said. Halves themselves are always left to the slower way.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

LEAST, MOST = -280, 270
"""Powers of ten that are known; no result under- or overflows for any w but 0."""

_EXACT = 22  # 10^22 is the largest power of ten that is a double
_TWO53 = np.uint64(1 << 53)
_TENS = np.array([10.0**p for p in range(_EXACT + 1)])


def _power(p: int) -> tuple[int, int, int]:
    """10^p by the two words of its first 128 bits, cut off, and the exponent of its first bit."""
    ten = Fraction(10) ** p
    first = ten.numerator.bit_length() - ten.denominator.bit_length()
    first -= ten < Fraction(2) ** first
    bits = int(ten * Fraction(2) ** (127 - first))
    return bits >> 64, bits & ((1 << 64) - 1), first


_POWERS = [_power(p) for p in range(LEAST, MOST + 1)]
_HIGH = np.array([high for high, _, _ in _POWERS], dtype=np.uint64)
_LOW = np.array([low for _, low, _ in _POWERS], dtype=np.uint64)
_FIRST = np.array([first for _, _, first in _POWERS], dtype=np.int64)


def _to_upper(typingctx: Any, a: Any, b: Any) -> Any:  # noqa: ARG001
    """The upper 64 of the 128 bits of a product."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        wide, narrow = ir.IntType(128), ir.IntType(64)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), narrow)

    return types.uint64(types.uint64, types.uint64), codegen


def _to_leading(typingctx: Any, word: Any) -> Any:  # noqa: ARG001
    """Zeros before the first bit of a word that is not 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), codegen


_upper: Any = intrinsic(_to_upper)
_leading: Any = intrinsic(_to_leading)


@njit(cache=True, nogil=True)
def nearest(word: Any, power: Any) -> Any:
    """The double nearest to word · 10^power, and whether that is certain."""
    if word == 0:
        return 0.0, True
    if word <= _TWO53 and -_EXACT <= power <= _EXACT:
        value = np.float64(word)
        return (value * _TENS[power] if power >= 0 else value / _TENS[-power]), True
    if power < LEAST or power > MOST:
        return 0.0, False
    zeros = _leading(word)
    word = np.uint64(word) << zeros
    high, low = _HIGH[power - LEAST], _LOW[power - LEAST]
    top, rest, carry = _upper(word, high), word * high, _upper(word, low)
    rest += carry
    top += np.uint64(rest < carry)
    scale = _FIRST[power - LEAST] - np.int64(zeros) + 12  # of the first 53 bits
    if top >> np.uint64(63) == 0:
        top = (top << np.uint64(1)) | (rest >> np.uint64(63))
        rest <<= np.uint64(1)
        scale -= 1
    return _rounded(top, rest, scale)


@njit(cache=True, nogil=True)
def _rounded(top: Any, rest: Any, scale: Any) -> Any:
    """The double of the first 53 bits, rounded, and whether an error below 4 could matter."""
    mantissa, behind = top >> np.uint64(11), top & np.uint64(0x7FF)
    half = np.uint64(0x400)
    above = behind > half or (behind == half and rest > 0)
    below = behind < half - np.uint64(1) or (
        behind == half - np.uint64(1) and rest < np.uint64(0xFFFFFFFFFFFFFFFC)
    )
    mantissa += np.uint64(above)
    if mantissa == _TWO53:
        mantissa >>= np.uint64(1)
        scale += 1
    bits = (np.uint64(scale + 1075) << np.uint64(52)) | (mantissa & np.uint64((1 << 52) - 1))
    return np.uint64(bits).view(np.float64), above or below
