"""The samplers of :mod:`pyramidion.privacy.noise` as numba loops: words in, integers out.

Read the essay in ``noise.py`` first; it has the algorithms and the proof of the
error bound that makes these loops exact. A kernel

    kernel(out, start, words, position, <parameters>, margin) -> (index, position, status)

fills ``out[start:]`` and returns where it got to and why it stopped:

    DONE         ``out`` is full
    NEED_WORDS   fewer words are left than one trial may need
    UNDECIDED    a random word fell so close to a probability that doubles cannot tell the side

After the last two, ``position`` is back at the first word of the sample in
progress. The caller appends words, or has the exact twin draw that one sample
from those same words, and calls again. Nothing is ever thrown away: words are
short, or undecided, more often for some outcomes than for others, so samples
that start afresh on new words would favour the rest.

A sample is a number of *trials*. A trial takes its words in a fixed order, which
the twin follows to the word:

    1. U in 0..t-1: the high half of word × t. A low half under 2**64 mod t is
       rejected (Lemire 2019), as some U would have one word too many.
    2. accepted with probability exp(-U/t)
    3. one word for V = how many k >= 1 have u < exp(-k), and, in its last bit, the sign;
       Y = (U + tV) >> shift, rejected if it is minus zero
    4. (Gaussian only) accepted with probability exp(-(|Y| - variance/t)**2 / (2 variance))

A rejected trial starts the next one, so four words are all a trial ever needs.
Indices are made unsigned on the way: numba then leaves out the test for negative
ones, which is a tenth of the time.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

DONE: Final = 0
NEED_WORDS: Final = 1
UNDECIDED: Final = 2

_REJECTED: Final = 0
_ACCEPTED: Final = 1
# UNDECIDED is the third verdict on a trial.

# Beyond this exponent exp(-γ) < 2**-57: under one unit of a 53-bit uniform.
_LAST_EXPONENT: Final = 40
_STEPS: Final = 16
_TRIAL_WORDS: Final = 4

_PRECISE: Final = Context(prec=60)


def _scaled_exp(steps: int, bits: int) -> Decimal:
    """2**bits exp(-steps/16). Decimal rounds correctly on every machine; libm does not."""
    exponent = _PRECISE.divide(Decimal(-steps), Decimal(_STEPS))
    return _PRECISE.multiply(_PRECISE.exp(exponent), Decimal(2**bits))


# exp(-i/16) in units of 2**-53, for i/16 below _LAST_EXPONENT.
EXP_TABLE: Final[NDArray[np.float64]] = np.array(
    [float(_scaled_exp(i, 53)) for i in range(_LAST_EXPONENT * _STEPS)]
)
# floor(2**63 exp(-k)) for k = 1, 2, ..., down to the first zero (k = 44).
E_POWERS: Final[NDArray[np.uint64]] = np.array(
    [int(_scaled_exp(k * _STEPS, 63)) for k in range(1, 45)], dtype=np.uint64
)


def _type_multiply_high(_context: Any, _a: Any, _b: Any) -> Any:
    """The high 64 bits of a 64 × 64 bit product: one machine instruction."""

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        a, b = (builder.zext(argument, wide) for argument in arguments)
        high = builder.lshr(builder.mul(a, b), ir.Constant(wide, 64))
        return builder.trunc(high, ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), codegen


_multiply_high: Any = intrinsic(_type_multiply_high)


@njit(cache=True, nogil=True)
def _approximate_exp(exponent: float) -> float:
    """exp(-exponent) in units of 2**-53, to a relative 2**-43; zero beyond the table."""
    if exponent >= _LAST_EXPONENT:
        return 0.0
    step = int(exponent * _STEPS)
    r = exponent - step * (1.0 / _STEPS)
    square = r * r
    low = (1 - r) + square * (1 / 2 - r * (1 / 6))
    high = (1 / 24 - r * (1 / 120)) + square * (1 / 720 - r * (1 / 5040))
    return EXP_TABLE[np.uint64(step)] * (low + square * square * high)


@njit(cache=True, nogil=True)
def _below_exp(word: np.uint64, exponent: float, margin: float) -> int:
    """Whether the uniform number that starts with the bits of ``word`` is below exp(-exponent).

    Only the first 53 bits are looked at, since they are exact as a double; the
    twin looks at all. ``margin`` is relative and much wider than the proved
    error; the two units (of 2**-53) are the uniform's own width, and one more.
    """
    uniform = np.float64(np.int64(word >> np.uint64(11)))
    probability = _approximate_exp(exponent)
    slack = probability * margin + 2
    if uniform < probability - slack:
        return _ACCEPTED
    if uniform > probability + slack:
        return _REJECTED
    return UNDECIDED


@njit(cache=True, nogil=True)
def _laplace_trial(
    words: NDArray[np.uint64],
    position: int,
    t: np.uint64,
    uneven: np.uint64,
    inverse_t: float,
    shift: np.uint64,
    margin: float,
) -> tuple[int, np.int64, int]:
    """Steps 1 to 3: (verdict, value, position after the words used)."""
    word = words[np.uint64(position)]
    if word * t < uneven:
        return _REJECTED, np.int64(0), position + 1
    u = np.int64(_multiply_high(word, t))
    verdict = _below_exp(words[np.uint64(position + 1)], u * inverse_t, margin)
    if verdict != _ACCEPTED:
        return verdict, np.int64(0), position + 2
    word = words[np.uint64(position + 2)]
    digits = word >> np.uint64(1)
    v = 0
    while digits < E_POWERS[np.uint64(v)]:
        v += 1
    if digits == E_POWERS[np.uint64(v)]:
        return UNDECIDED, np.int64(0), position + 3
    value = (u + np.int64(t) * v) >> np.int64(shift)
    if word & np.uint64(1):
        if value == 0:
            return _REJECTED, np.int64(0), position + 3
        value = -value
    return _ACCEPTED, value, position + 3


@njit(cache=True, nogil=True)
def discrete_laplace(
    out: NDArray[np.int64],
    start: int,
    words: NDArray[np.uint64],
    position: int,
    t: np.uint64,
    uneven: np.uint64,
    inverse_t: float,
    shift: np.uint64,
    margin: float,
) -> tuple[int, int, int]:
    """Discrete Laplace noise of scale t / 2**shift; ``uneven`` is 2**64 mod t."""
    for index in range(start, len(out)):
        begin = position
        while True:
            if position + _TRIAL_WORDS > len(words):
                return index, begin, NEED_WORDS
            verdict, value, position = _laplace_trial(
                words, position, t, uneven, inverse_t, shift, margin
            )
            if verdict == _ACCEPTED:
                break
            if verdict == UNDECIDED:
                return index, begin, UNDECIDED
        out[index] = value
    return len(out), position, DONE


@njit(cache=True, nogil=True)
def discrete_gaussian(
    out: NDArray[np.int64],
    start: int,
    words: NDArray[np.uint64],
    position: int,
    t: np.uint64,
    uneven: np.uint64,
    inverse_t: float,
    variance: float,
    margin: float,
) -> tuple[int, int, int]:
    """Discrete Gaussian noise, its proposals discrete Laplace of scale t = floor(σ) + 1."""
    centre = variance / np.float64(t)
    half_inverse = 0.5 / variance
    for index in range(start, len(out)):
        begin = position
        while True:
            if position + _TRIAL_WORDS > len(words):
                return index, begin, NEED_WORDS
            verdict, value, position = _laplace_trial(
                words, position, t, uneven, inverse_t, np.uint64(0), margin
            )
            if verdict == _ACCEPTED:
                away = abs(value) - centre
                verdict = _below_exp(words[np.uint64(position)], away * away * half_inverse, margin)
                position += 1
                if verdict == _ACCEPTED:
                    break
            if verdict == UNDECIDED:
                return index, begin, UNDECIDED
        out[index] = value
    return len(out), position, DONE
