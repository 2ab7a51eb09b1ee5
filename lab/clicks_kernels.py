"""The loops of :mod:`lab.clicks`: one column of a block of rows at a time.

Nothing is drawn in sequence. What a row has in a column comes from a *state*, a word mixed
from the column's key and the row's number, so any row can be made alone and in any order:

    state = mix(key + row × GOLDEN)             one stream of words for each column and row
    word j of a state = mix(state + (j + 1) × GOLDEN)

``mix`` is the finalizer of SplitMix64 (Steele, Lea & Flood 2014), a bijection of words that
passes the usual tests of randomness when fed a counter.

Categories are bounded Zipf numbers, P(k) ∝ k**-e for k from 1 to n, drawn exactly and
without tables by rejection-inversion (Hörmann & Derflinger 1996): invert the integral of the
hat x**-e, round, and reject the little that the hat has too much. One logarithm and one
exponential are nearly always enough, for ten values or ten million.

A value's weight is looked up in 4,096 quantiles of the normal distribution by bits of its
hash, so that it need not be kept anywhere.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import ndtri

GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX2: Final = np.uint64(0x94D049BB133111EB)
_ULP: Final = 2.0**-53

_BITS: Final = 12
_QUANTILES: Final[NDArray[np.float64]] = ndtri((np.arange(1 << _BITS) + 0.5) / (1 << _BITS))
NORMAL: Final[NDArray[np.float64]] = _QUANTILES / np.sqrt(np.mean(_QUANTILES**2))
"""Normal quantiles at even steps, of variance 1."""

MISSING: Final = np.int32(-(2**31))
"""Stands in a numeric block where the value is missing."""

_LARGEST: Final = 2.0**31 - 1


@njit(inline="always", cache=True)
def mix(word: Any) -> Any:
    """Scatter a word over all 64 bits, one to one."""
    word = (word ^ (word >> np.uint64(30))) * _MIX1
    word = (word ^ (word >> np.uint64(27))) * _MIX2
    return word ^ (word >> np.uint64(31))


@njit(inline="always", cache=True)
def at(key: Any, number: Any) -> Any:
    """The word of a key at a row, a value or a draw."""
    return mix(key + np.uint64(number) * GOLDEN)


@njit(inline="always", cache=True)
def uniform(word: Any) -> Any:
    """A number strictly between 0 and 1."""
    return (np.float64(word >> np.uint64(11)) + 0.5) * _ULP


@njit(inline="always", cache=True)
def normal(word: Any) -> Any:
    """A normal number from the high bits of a word."""
    return NORMAL[word >> np.uint64(64 - _BITS)]


@njit(inline="always", cache=True)
def other_normal(word: Any) -> Any:
    """A second one, independent of the first, from the bits after those."""
    return NORMAL[(word >> np.uint64(64 - 2 * _BITS)) & np.uint64((1 << _BITS) - 1)]


@njit(inline="always", cache=True)
def _area(x: Any, flat: Any) -> Any:
    """The integral of x**-e from 1; ``flat`` is 1 - e, never 0."""
    return (math.exp(flat * math.log(x)) - 1.0) / flat


@njit(inline="always", cache=True)
def _inverse(area: Any, flat: Any) -> Any:
    return math.exp(math.log(1.0 + area * flat) / flat)


@njit(cache=True)
def zipf_setup(most: Any, exponent: Any) -> Any:
    """What :func:`zipf` needs to know of a distribution over 1 to ``most``."""
    flat = 1.0 - exponent
    first = _area(1.5, flat) - 1.0
    last = _area(most + 0.5, flat)
    sure = 2.0 - _inverse(_area(2.5, flat) - math.exp(-exponent * math.log(2.0)), flat)
    return flat, first, last, sure


@njit(inline="always", cache=True)
def zipf(state: Any, most: Any, flat: Any, first: Any, last: Any, sure: Any) -> Any:
    """A Zipf number from 1 to ``most``, from as many words of a state as it takes."""
    state += GOLDEN
    while True:
        area = last + uniform(mix(state)) * (first - last)
        x = _inverse(area, flat)
        k = min(max(math.floor(x + 0.5), 1.0), most)
        if k - x <= sure or area >= _area(k + 0.5, flat) - math.exp((flat - 1.0) * math.log(k)):
            return np.int64(k)
        state += GOLDEN


@njit(cache=True, nogil=True)
def segments(key: Any, start: Any, shape: Any, out: Any) -> None:
    """Each row's segment, from 0; the first are the largest."""
    most, flat, first, last, sure = shape
    for i in range(out.size):
        out[i] = zipf(at(key, start + i), most, flat, first, last, sure) - 1


@njit(cache=True, nogil=True)
def categories(
    keys: Any, start: Any, shape: Any, link: Any, choices: Any, renewal: Any, segment: Any, out: Any
) -> None:
    """Values of a column, from 0: the row's own, or one of the few that its segment has.

    Value v makes way for v + n, v + 2n, ... at moments of its own, ``renewal`` times a row.
    """
    most, flat, first, last, sure = shape
    own, shared, moments = keys
    for i in range(out.size):
        state = at(own, start + i)
        if uniform(state) < link:
            choice = at(state, 1) % np.uint64(choices)
            state = at(shared, segment[i] * choices + np.int64(choice))
        value = zipf(state, most, flat, first, last, sure) - 1
        if renewal > 0.0:
            times = math.floor((start + i) * renewal + uniform(at(moments, value)))
            value += np.int64(most) * np.int64(times)
        out[i] = value


@njit(cache=True, nogil=True)
def add_weights(key: Any, start: Any, scale: Any, turn: Any, values: Any, score: Any) -> None:
    """Add the weights of a column's values, which turn by an angle ``turn`` with every row."""
    for i in range(values.size):
        word = at(key, values[i])
        if turn == 0.0:
            score[i] += scale * normal(word)
        else:
            angle = turn * (start + i)
            turned = math.cos(angle) * normal(word) + math.sin(angle) * other_normal(word)
            score[i] += scale * turned


@njit(cache=True, nogil=True)
def add_pair_weights(key: Any, scale: Any, one: Any, other: Any, score: Any) -> None:
    """Add the weights of pairs of values."""
    for i in range(one.size):
        score[i] += scale * normal(at(at(key, one[i]), other[i]))


@njit(cache=True, nogil=True)
def numbers(
    keys: Any, start: Any, middle: Any, spread: Any, share: Any, absent: Any, segment: Any, out: Any
) -> None:
    """Counts of a numeric column: whole parts of log-normal numbers, ``absent`` of them missing.

    ``share`` of their logarithms' deviation is the segment's, the rest the row's own.
    """
    own, shared, gaps = keys
    rest = math.sqrt(1.0 - share * share)
    for i in range(out.size):
        if uniform(at(gaps, start + i)) < absent:
            out[i] = MISSING
            continue
        word = at(own, start + i)
        # two of them have 16 million steps, where one has 4,096
        free = math.sqrt(0.5) * (normal(word) + other_normal(word))
        deviation = share * normal(at(shared, segment[i])) + rest * free
        out[i] = np.int32(min(math.exp(middle + spread * deviation), _LARGEST))


@njit(cache=True, nogil=True)
def add_slopes(
    middle: Any, spread: Any, slope: Any, hump: Any, none: Any, values: Any, score: Any
) -> None:
    """Add a smooth function of a numeric column's values; ``none`` is for missing ones.

    It rises from -``slope`` to ``slope``, and has a hump of height ``hump`` at the middle.
    """
    for i in range(values.size):
        if values[i] == MISSING:
            score[i] += none
        else:
            z = (math.log(values[i] + 0.5) - middle) / spread
            score[i] += slope * z / math.sqrt(1.0 + z * z) + hump / (1.0 + z * z)


@njit(cache=True, nogil=True)
def clicks(key: Any, start: Any, truth: Any, out: Any) -> None:
    """Labels: 1 with each row's own probability."""
    for i in range(out.size):
        out[i] = uniform(at(key, start + i)) < truth[i]
