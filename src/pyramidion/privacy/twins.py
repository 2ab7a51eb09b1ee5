"""The samplers in exact arithmetic: the kernels' naive twins, and their last resort.

They read the same words in the same order as `pyramidion.privacy.noise_kernels`,
and decide what the kernels leave undecided, with integer intervals around exp(-γ).
"""

from __future__ import annotations

from fractions import Fraction

from pyramidion.privacy.randomness import Words


def exp_interval(gamma: Fraction, bits: int) -> tuple[int, int]:
    """Integers low <= 2**bits exp(-gamma) <= high, at most 2 apart, for gamma >= 0.

    Sums gamma**n / n! rounded down and rounded up, with 32 guard bits. Once n >=
    2 gamma the terms at least halve, so all that follow are within the last one.
    """
    if gamma > bits:
        return 0, 1
    one = low = high = least = most = 1 << (bits + 32)
    n = 0
    while most > 1 or n < 2 * gamma:
        n += 1
        divisor = gamma.denominator * n
        least = least * gamma.numerator // divisor
        most = -(-most * gamma.numerator // divisor)
        low += least
        high += most
    high += most
    return (one << bits) // high, -(-(one << bits) // low)


class Uniform:
    """A uniform number in [0, 1) of which only the first ``bits`` binary digits are drawn yet."""

    def __init__(self, digits: int, bits: int, words: Words) -> None:
        self._digits = digits
        self._bits = bits
        self._words = words

    def is_below_exp(self, gamma: Fraction) -> bool:
        """Whether it is below exp(-gamma), drawing more digits until there is no doubt."""
        while True:
            low, high = exp_interval(gamma, self._bits)
            if self._digits < low:
                return True
            if self._digits >= high:
                return False
            self._digits = self._digits << 64 | self._words.take_spare()
            self._bits += 64


def below(words: Words, most: int) -> int:
    """A fair integer of 0 to most - 1, for most up to 2**64 (Lemire's rejection)."""
    while True:
        product = words.take() * most
        if product % 2**64 >= 2**64 % most:
            return product >> 64


def coin(words: Words, gamma: Fraction) -> bool:
    """Heads with probability exp(-gamma), exactly."""
    return Uniform(words.take(), 64, words).is_below_exp(gamma)


def laplace(words: Words, t: int, shift: int) -> int:
    """``noise_kernels.discrete_laplace`` for one sample, in exact arithmetic."""
    while True:
        u = below(words, t)
        if not coin(words, Fraction(u, t)):
            continue
        word = words.take()
        uniform, v = Uniform(word >> 1, 63, words), 0
        while uniform.is_below_exp(Fraction(v + 1)):
            v += 1
        value = (u + t * v) >> shift
        if word & 1 == 0:
            return value
        if value != 0:
            return -value


def gaussian(words: Words, t: int, squared_scale: Fraction) -> int:
    """``noise_kernels.discrete_gaussian`` for one sample, in exact arithmetic."""
    while True:
        value = laplace(words, t, 0)
        if coin(words, (abs(value) - squared_scale / t) ** 2 / (2 * squared_scale)):
            return value
