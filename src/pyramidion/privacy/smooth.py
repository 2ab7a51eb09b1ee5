"""The paper's private quantile: smooth sensitivity by the J-List, and Cauchy noise.

In **floating point**, so its draw is private only as far as doubles are reals (Mironov 2012);
it is here to compare with the paper. Counts per key are clamped to LEAST..MOST and sorted,
x_1 <= ... <= x_n, with x_i = LEAST before and MOST behind; the quantile is x_m, m = ⌈p n⌉.

    A(t) = max over 0 <= i <= t+1 of x_{m+i} - x_{m+i-t-1},    S = max over t of e^{-βt} A(t)

(Nissim, Raskhodnikova and Smith 2007). Put j = m+i-t-1 and l = m+i: S is the largest
(x_l - x_j) e^{-β(l-j-1)} with j <= m <= l.

**Smooth under blanking.** A blanked row lowers one count by one, or takes a key with one count
away. Seen from m, the first changes one x by 1; with the second, n and perhaps m fall by one,
and since the key had the least count there is, the list moves by 0 or 1 places and is otherwise
the same. Either way the quantile moves by at most A(0), and each A(t) of one list is at most
A(t+1) of the other. So |Δx_m| <= S and |Δ ln S| <= β.

**Private.** With h(z) = 1/π(1+z²), |d ln h/dz| = 2|z|/(1+z²) <= 1, and stretching z by e^λ
changes ln(e^λ h(e^λ z)) by at most |λ|. Noise (2S/ε)·Cauchy with β = ε/2 costs ε/2 for the
move and ε/2 for the stretch: ε for one observation. For k of them, ε/k takes the place of ε.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pyramidion.privacy.randomness import Randomness

Indexed = tuple[NDArray[np.int64], NDArray[np.int64]]


def smooth_quantile(
    counts: NDArray[np.int64],
    *,
    p: Fraction,
    epsilon: Fraction,
    k: int,
    bounds: tuple[int, int],
    randomness: Randomness,
) -> float:
    """x_m + (2kS/ε)·Cauchy, clamped: ε-private up to rounding. S is gone when this returns."""
    least, most = bounds
    ordered = np.sort(np.clip(counts, least, most))
    m = math.ceil(p * len(ordered))
    each = float(epsilon) / k
    sensitivity = smooth_sensitivity(ordered, m=m, beta=each / 2, bounds=bounds)
    quantile = int(ordered[m - 1]) if m else least
    noisy = quantile + 2 * sensitivity / each * cauchy(randomness)
    return float(min(max(noisy, least), most))


def smooth_sensitivity(
    ordered: NDArray[np.int64], *, m: int, beta: float, bounds: tuple[int, int]
) -> float:
    """S of the m-th of some ordered, clamped counts: the J-List algorithm on their jumps.

    Of equal counts the one next to m is the best end, so the ends are few. The best l grows
    with j (the larger x_j, the less a small x_l is worth), so halving the ends on the left
    halves those to look at on the right.
    """
    (low, j), (high, end) = _left(ordered, m, bounds[0]), _right(ordered, m, bounds[1])
    best, open_ = 0.0, [(0, len(j), 0, len(end))]
    while open_:
        start, stop, first, last = open_.pop()
        if start == stop:
            continue
        i = (start + stop) // 2
        distance = (end[first:last] - j[i] - 1).astype(np.float64)
        gains = (high[first:last] - low[i]) * np.exp(-beta * distance)
        at = first + int(np.argmax(gains))
        best = max(best, float(gains[at - first]))
        open_ += [(start, i, first, at + 1), (i + 1, stop, at, last)]
    return best


def _left(ordered: NDArray[np.int64], m: int, least: int) -> Indexed:
    """Values up to x_m in order, and the last place of each that is not beyond m."""
    values, firsts = np.unique(ordered[:m], return_index=True)
    places = np.append(firsts[1:], m).astype(np.int64)[: len(values)]
    return np.append(least, values).astype(np.int64), np.append(0, places).astype(np.int64)


def _right(ordered: NDArray[np.int64], m: int, most: int) -> Indexed:
    """Values from x_m on in order, and the first place of each that is not before m."""
    values, firsts = np.unique(ordered[max(m, 1) - 1 :], return_index=True)
    places = firsts + max(m, 1)
    return np.append(values, most).astype(np.int64), np.append(places, len(ordered) + 1)


def cauchy(randomness: Randomness) -> float:
    """One draw of the standard Cauchy distribution, in doubles."""
    with randomness.words(chunk=1) as words:
        return math.tan(math.pi * (((words.take() >> 11) + 0.5) / 2**53 - 0.5))
