"""How far the rates of keys scatter around the prior, read off the cells of one label.

A cell with counts c_l and total s is off by Σ (c_l - π_l s)². In units of
Σ π_l(1 - π_l), and with n = |s|, that is on average

    noise + g n + (n² - g n) / (a + 1)

where a is the *strength* of the prior (a key's own rates have variance
π(1-π)/(a+1)) and g the *grain*: what one observation weighs in the cells. With
importance weights w it is E[w²]/E[w], since a few heavy observations scatter
more than many light ones of the same sum. Only cells that stand out from the
noise are looked at, and each is weighed by how well it tells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MAD = 1.4826  # standard deviation of a normal variable over its median absolute value
STRENGTHS = (0.5, 1e7)
_TYPICAL = 1 / 11  # 1/(a + 1) of a typical table, for weighing cells and where few are seen
_ROUNDS = 4  # of reweighing; grains change by less than a tenth after the third


def noise_of_rates(variance: Floats, prior: Floats) -> Floats:
    """The variance of c_l - π_l s when each c_l has its own, independent one."""
    noise: Floats = (1 - prior) ** 2 * variance + prior**2 * (variance.sum() - variance)
    return noise


@dataclass(frozen=True)
class Scatter:
    """Cells that stand out: their sizes n, and how far they are off beyond the noise."""

    n: Floats
    off: Floats
    noise: float

    @classmethod
    def of(
        cls, counts: Floats, prior: Floats, variance: Floats, *, sketch: bool, beyond: float
    ) -> Scatter:
        """The cells counts[cell, class] whose total is ``beyond`` deviations of the noise.

        In sketches the median cell, which holds no key of size, shows the collisions.
        """
        s = counts.sum(axis=1)
        off = (counts - prior * s[:, None]) ** 2
        known, total = noise_of_rates(variance, prior), float(variance.sum())
        if sketch and s.size:
            known = np.maximum(known, MAD**2 * np.median(off, axis=0))
            total = max(total, float(MAD * np.median(np.abs(s))) ** 2)
        clear = np.abs(s) > beyond * total**0.5
        unit = float((prior * (1 - prior)).sum())
        noise = float(known.sum()) / unit
        return cls(np.abs(s[clear]), off[clear].sum(axis=1) / unit - noise, noise)

    def _seen(self, grain: float) -> tuple[Floats, Floats, Floats]:
        """Sizes of cells of two observations or more, how far off they are, their weights."""
        seen = self.n > 2.0 * grain
        n = self.n[seen]
        return n, self.off[seen], (self.noise / n**2 + grain / n + _TYPICAL) ** -2

    def strength(self, grain: float) -> float:
        """a, given the grain: a mean over the cells and one more that is typical."""
        n, off, weight = self._seen(grain)
        told = (off - grain * n) / (n * n - grain * n)
        one = _TYPICAL**-2
        mean = float(weight @ told + one * _TYPICAL) / float(weight.sum() + one)
        return float(np.clip(1.0 / max(mean, 1e-12) - 1.0, *STRENGTHS))

    def grain(self, mean: float, most: float) -> float:
        """g, between the mean weight and a bound: off/n² is a line in 1/n of slope g a/(a+1)."""
        grain = mean
        for _ in range(_ROUNDS):
            n, off, weight = self._seen(grain)
            if not n.size:
                break
            x, y, weight = 1.0 / n, off / n**2, weight / weight.sum()
            across = x - weight @ x
            if weight @ across**2 <= 1e-6 * (weight @ x) ** 2:  # all of one size: no line
                break
            slope = float(weight @ (across * y) / (weight @ across**2))
            level = float(np.clip(weight @ y - slope * (weight @ x), 0.0, 2.0 / 3.0))
            grain = float(np.clip(slope / (1.0 - level), mean, most))
        return grain
