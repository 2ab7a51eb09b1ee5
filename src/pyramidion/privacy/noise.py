"""Exact integer noise, fast enough for every cell of every table.

**Why exact.** A count plus a Laplace draw made of floating-point operations is
not private: the doubles that draw can produce have gaps, the gaps depend on the
count, and the count can often be read off the low bits (Mironov 2012). Rounding
afterwards hides the gaps but leaves probabilities that are not those the proof
speaks of. So noise here is an integer whose distribution is *exactly* discrete
Laplace or discrete Gaussian, given random bits that are exactly fair.

**The idea.** Canonne, Kamath and Steinke (2020) build both from fair integers and
coins that fall heads with probability exp(-γ), γ rational:

- discrete Laplace, scale b = t / 2**shift (their algorithm 2): U uniform in
  0..t-1, kept with probability exp(-U/t); V geometric, P(V >= k) = exp(-k);
  then P(U + tV = x) ∝ exp(-x/t), and Y = (U + tV) >> shift is geometric with
  exp(-1/b). A fair sign, with minus zero rejected, makes it two-sided.
- discrete Gaussian, parameter σ² (their algorithm 3): Y discrete Laplace of
  scale t = floor(σ) + 1, kept with probability exp(-(|Y| - σ²/t)² / 2σ²).

They flip a coin of bias exp(-γ) with many fair coins. We compare one random word
with exp(-γ): the word is the first 64 binary digits of a uniform u, and u <
exp(-γ) is nearly always settled by an approximation of exp(-γ) with a *proved*
error. If it is not, the numba kernel stops (about once in 10**10 comparisons) and
a Python twin draws that one sample with integer intervals around exp(-γ), taking
further digits of u until an interval leaves no doubt. The twin reads the very
same words in the same order: had we thrown them away and started afresh, samples
near a boundary would have become rarer, and the noise inexact.

**The error bound** (ε = 2**-53, IEEE doubles, no fast-math, no libm). Laplace:
U and t are below 2**53, so exact; 1/t and its product with U round once each; γ is
off by at most 2ε. Gaussian: write D = ||Y| - σ²/t| / σ, so that γ = D²/2. |Y|, σ²/t
and their difference each round once, and σ²/t < σ, so D is off by at most 2ε(D + 1);
three more roundings make γ off by at most 2εD(D + 1) + 3εD²/2, under 2**-44 for
γ < 40. Both errors of γ are *relative* errors of exp(-γ). Then exp(-γ) =
exp(-i/16) exp(-r) with 0 <= r < 1/16 exact (γ·16 is exact, the subtraction by
Sterbenz' lemma); the table is correctly rounded (ε); the series to r**7 errs by
r**8/8! < 2**-47 relatively; its dozen operations on numbers of at most 1 and the
last product add less than 2**-48. Together under 2**-43. ``MARGIN`` is 2**-36: 128
times that, and wide enough for the roundings of the comparison itself. Beyond γ =
40 the kernel takes exp(-γ) for 0, wrong by less than a tenth of the absolute slack
of two units (of 2**-53); one unit is the width of u's first 53 digits. V is
compared in integers: the 63 digits of u against floor(2**63 exp(-k)) are settled
unless equal.

**The bound on a draw.** Table cells get their width from public bounds, so noise
is refused beyond 64 scales. The kernels cannot get there: V <= 43 without the
twin, so Laplace stays under 44 scales, and what the Gaussian kernel accepts has
γ < 40, so |Y| < 10σ. A draw by the twin is beyond it with probability below
10**-27. The refusal depends on noise alone, before any data; that no draw beyond it is
ever kept adds at most 2 exp(-64) per cell to δ, also where δ is said to be 0.

**Randomness** is AES-256 in counter mode under a key from the operating system,
a new one for every draw; key, words and scratch noise are overwritten after it
(as far as Python and OpenSSL let us). Who has the key can take the noise off.

References: I. Mironov, On significance of the least significant bits for
differential privacy, CCS 2012. C. Canonne, G. Kamath, T. Steinke, The discrete
Gaussian for differential privacy, NeurIPS 2020. D. Lemire, Fast random integer
generation in an interval, TOMACS 2019.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from pyramidion.errors import PrivacyError, SchemaError
from pyramidion.privacy import noise_kernels as kernels
from pyramidion.privacy import twins
from pyramidion.privacy.randomness import Randomness, Words

MARGIN: Final = 2.0**-36  # relative, see the essay; math.inf sends every sample to the twin
CHUNK_CELLS: Final = 2**14  # scratch, so that int32 cells need no int64 copy
SCALES_BOUND: Final = 64
_T_LIMIT: Final = 2**53  # beyond it U is no exact double
_T_BITS: Final = 40  # a scale is rounded up by less than 2**-40 of itself
_SHIFT_LIMIT: Final = 62
_LEAST_VARIANCE: Final = 2.0**-100  # its square is still a normal double

Cells = NDArray[np.int32] | NDArray[np.int64]


class Noise(ABC):
    """Integer noise of one exact distribution, symmetric around zero."""

    @property
    @abstractmethod
    def scale(self) -> float:
        """b of the discrete Laplace, σ of the discrete Gaussian."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """The variance of one draw."""

    @property
    def bound(self) -> int:
        """64 scales, rounded up: public, and no draw is beyond it. Cell widths rest on this."""
        return math.ceil(SCALES_BOUND * self.scale)

    @abstractmethod
    def mass(self, x: int) -> float:
        """The probability of drawing ``x``."""

    @abstractmethod
    def _run(self, out: NDArray[np.int64], start: int, words: Words, margin: float) -> Any:
        """The kernel from ``out[start]`` on; its answer is in ``noise_kernels``."""

    @abstractmethod
    def _twin(self, words: Words) -> int:
        """One sample in exact arithmetic from the next words."""

    def fill(self, cells: Cells, randomness: Randomness) -> None:
        """Write one draw into every cell, over what was there: noise comes before counts.

        ``cells`` is a contiguous vector, int32 or int64; use ``reshape(-1)`` of a
        contiguous table. Apart from it, memory stays under half a megabyte.
        """
        self._refuse_unfit(cells)
        scratch = np.zeros(min(CHUNK_CELLS, len(cells)), dtype=np.int64)
        try:
            with randomness.words() as words:
                for start in range(0, len(cells), CHUNK_CELLS):
                    target = cells[start : start + CHUNK_CELLS]
                    drawn = scratch[: len(target)]
                    self._draw(drawn, words)
                    self._refuse_beyond_bound(max(int(drawn.max()), -int(drawn.min())))
                    target[:] = drawn
        finally:
            scratch.fill(0)

    def _draw(self, out: NDArray[np.int64], words: Words, margin: float = MARGIN) -> None:
        """Run the kernel; give it words when it is short, the twin when it is undecided."""
        index = 0
        while True:
            index, words.position, status = self._run(out, index, words, margin)
            if status == kernels.DONE:
                return
            if status == kernels.NEED_WORDS:
                words.refill()
                continue
            value = self._twin(words)
            self._refuse_beyond_bound(abs(value))
            out[index] = value
            index += 1

    def _refuse_beyond_bound(self, size: int) -> None:
        if size > self.bound:
            raise PrivacyError(
                "a noise draw was beyond its public bound of 64 scales (chance below 1e-20, "
                "independent of any data); discard these cells and draw again"
            )

    def _refuse_unfit(self, cells: Cells) -> None:
        if cells.dtype not in (np.int32, np.int64) or cells.ndim != 1:
            raise SchemaError("noise goes into a vector of int32 or int64 cells; reshape the table")
        if not (cells.flags.c_contiguous and cells.flags.writeable):
            raise SchemaError("noise goes into a contiguous, writeable vector; reshape the table")
        if self.bound > np.iinfo(cells.dtype).max:
            raise SchemaError(
                f"noise of scale {self.scale:g} may reach {self.bound}, too wide for "
                f"{cells.dtype} cells; use int64 cells or a larger privacy budget"
            )


@dataclass(frozen=True)
class DiscreteLaplace(Noise):
    """P(x) ∝ exp(-|x| / b) on the integers, b = numerator / 2**shift. For pure ε.

    >>> DiscreteLaplace.at_least(7.5).scale
    7.5
    """

    numerator: int
    shift: int

    def __post_init__(self) -> None:
        if not (1 <= self.numerator < _T_LIMIT and 0 <= self.shift <= _SHIFT_LIMIT):
            raise SchemaError("a discrete Laplace needs 1 <= numerator < 2**53, 0 <= shift <= 62")

    @classmethod
    def at_least(cls, scale: Fraction | float) -> Self:
        """The scale, rounded up (noise never rounds down) to 40 binary digits."""
        exact = _positive(scale, "scale")
        _refuse_huge(exact)
        shift = 0
        while shift < _SHIFT_LIMIT and exact * 2**shift < 2**_T_BITS:
            shift += 1
        return cls(numerator=math.ceil(exact * 2**shift), shift=shift)

    @property
    def scale(self) -> float:
        """b, exactly: the numerator fits a double."""
        return math.ldexp(self.numerator, -self.shift)

    @property
    def variance(self) -> float:
        """2a / (1 - a)², a = exp(-1/b); about 2b² for large b."""
        return 2 * math.exp(-1 / self.scale) / math.expm1(-1 / self.scale) ** 2

    def mass(self, x: int) -> float:
        """(1 - a) / (1 + a) · a**|x|, a = exp(-1/b)."""
        return math.tanh(0.5 / self.scale) * math.exp(-abs(x) / self.scale)

    def _run(self, out: NDArray[np.int64], start: int, words: Words, margin: float) -> Any:
        shift = np.uint64(self.shift)
        proposal = _proposal(self.numerator)
        return kernels.discrete_laplace(
            out, start, words.buffer, words.position, *proposal, shift, margin
        )

    def _twin(self, words: Words) -> int:
        return twins.laplace(words, self.numerator, self.shift)


@dataclass(frozen=True)
class DiscreteGaussian(Noise):
    """P(x) ∝ exp(-x² / 2σ²) on the integers, σ² = squared_scale, a double. For zCDP.

    >>> DiscreteGaussian.at_least(900).scale
    30.0
    """

    squared_scale: float

    def __post_init__(self) -> None:
        if not _LEAST_VARIANCE <= self.squared_scale < float(_T_LIMIT - 1) ** 2:
            raise SchemaError("a discrete Gaussian needs 2**-100 <= σ² < 2**106")

    @classmethod
    def at_least(cls, variance: Fraction | float) -> Self:
        """σ², rounded up to a double, and to 2**-100 if it is less than that."""
        exact = _positive(variance, "variance")
        _refuse_huge(Fraction(math.isqrt(math.floor(exact)) + 1))
        nearest = float(exact)
        rounded = nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)
        return cls(squared_scale=max(rounded, _LEAST_VARIANCE))

    @property
    def scale(self) -> float:
        """σ."""
        return math.sqrt(self.squared_scale)

    @property
    def variance(self) -> float:
        """From σ = 1 on σ² itself, above the variance by less than a millionth."""
        if self.squared_scale >= 1:
            return self.squared_scale
        return 2 * math.fsum(k * k * self.mass(k) for k in range(1, 41))

    def mass(self, x: int) -> float:
        """exp(-x² / 2σ²), normalised: by the sum, or from σ = 1 on its Poisson dual."""
        if self.squared_scale < 1:
            total = math.fsum(math.exp(-k * k / (2 * self.squared_scale)) for k in range(-40, 41))
        else:
            dual = 1 + 2 * math.exp(-2 * math.pi**2 * self.squared_scale)
            total = math.sqrt(2 * math.pi * self.squared_scale) * dual
        return math.exp(-x * x / (2 * self.squared_scale)) / total

    @property
    def _t(self) -> int:
        """floor(σ) + 1, the scale of the proposals."""
        return math.isqrt(math.floor(self.squared_scale)) + 1

    def _run(self, out: NDArray[np.int64], start: int, words: Words, margin: float) -> Any:
        proposal = _proposal(self._t)
        return kernels.discrete_gaussian(
            out, start, words.buffer, words.position, *proposal, self.squared_scale, margin
        )

    def _twin(self, words: Words) -> int:
        return twins.gaussian(words, self._t, Fraction(self.squared_scale))


def _proposal(t: int) -> tuple[np.uint64, np.uint64, float]:
    """What a kernel needs to draw U in 0..t-1: t, 2**64 mod t, 1/t."""
    return np.uint64(t), np.uint64(2**64 % t), 1 / t


def _positive(value: Fraction | float, name: str) -> Fraction:
    if not 0 < value < math.inf:
        raise PrivacyError(f"the noise {name} must be positive and finite: no noise, no privacy")
    return Fraction(value)


def _refuse_huge(scale: Fraction) -> None:
    if scale > _T_LIMIT - 1:
        raise SchemaError("the noise scale is 2**53 or more; raise epsilon or lower the weight cap")
