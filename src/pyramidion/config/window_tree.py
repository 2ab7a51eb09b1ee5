"""Trees of windows: how large, how the levels share the budget, and what noise that leaves.

    level 2   |               16                |  ...
    level 1   |   4   |   4   |   4   |   4     |
    level 0   | 1 1 1 1 ...                        count windows

A node of level l stands for r^l count windows, from a fixed multiple of so many on. Every
observation is in one node of each level, so the levels share one budget. The R windows that
are kept are covered by as few nodes as possible: whole ones of the top level, and what is left
at both ends by smaller ones. Over time that takes, on average,

    C_l = r - 1                        nodes of each level l below the top, and
    C_t = (R - r^t + 1) / r^t          of the top level t, r^t at most R + 1.

(Of the level's nodes (R - r^l + 1) / r^l lie wholly inside, for every position of the border is
equally likely; r in each node of the next level are not needed.)

With shares s_l of the budget the noise in the sum is Σ C_l / s_l (Gaussian) or Σ C_l / s_l²
(Laplace), in units of one table that has the whole budget. It is least with s_l ∝ √C_l, and
with s_l ∝ C_l^(1/3). Flat windows have R.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Mechanism = Literal["none", "laplace", "gaussian"]

RADICES = range(2, 65)
DEPTHS = range(2, 17)
WORTH = 0.98
"""Each level takes memory and writes, so it must lower the noise to less than this."""


@dataclass(frozen=True)
class Levels:
    """A tree: its radix, and the share of the budget of each level, that of the windows first."""

    radix: int
    shares: tuple[float, ...]

    @property
    def depth(self) -> int:
        """How many levels there are, that of the count windows among them."""
        return len(self.shares)

    def span(self, level: int) -> int:
        """How many count windows a node of a level stands for.

        >>> Levels(4, (0.5, 0.3, 0.2)).span(2)
        16
        """
        return int(self.radix**level)

    def used(self, windows: int) -> tuple[float, ...]:
        """How many nodes of each level cover so many windows, on average over time."""
        return used(windows, self.radix, self.depth)

    def variance(self, windows: int, mechanism: Mechanism) -> float:
        """Of the noise in the sum of so many windows, in tables that have the whole budget."""
        power = 2 if mechanism == "laplace" else 1
        needed = zip(self.used(windows), self.shares, strict=True)
        return sum(nodes / share**power for nodes, share in needed)


def used(windows: int, radix: int, depth: int) -> tuple[float, ...]:
    """How many nodes of each level cover so many windows, on average over time.

    >>> used(52, 4, 3)
    (3.0, 3.0, 2.3125)
    """
    inside = [max(0.0, (windows + 1) / radix**level - 1) for level in range(depth)]
    above = [*(radix * nodes for nodes in inside[1:]), 0.0]
    return tuple(nodes - more for nodes, more in zip(inside, above, strict=True))


def least(nodes: Sequence[float], mechanism: Mechanism) -> tuple[float, ...]:
    """The shares of levels that leave the least noise, where so many nodes of each are used."""
    power = 1 / 3 if mechanism == "laplace" else 1 / 2
    weights = [max(each, 1e-9) ** power for each in nodes]
    return tuple(weight / sum(weights) for weight in weights)


def tree(windows: int, radix: int, depth: int, mechanism: Mechanism) -> Levels:
    """The tree of a radix and depth whose levels share the budget best."""
    return Levels(radix, least(used(windows, radix, depth), mechanism))


@lru_cache(maxsize=256)
def best(
    windows: int, mechanism: Mechanism, radix: int | None = None, depth: int | None = None
) -> Levels | None:
    """The tree with the least noise, of a radix or depth where that is given; None: flat has less.

    A deeper one must be worth its memory.

    >>> best(12, "laplace")
    >>> found = best(1000, "gaussian")
    >>> found.radix, found.depth, round(found.variance(1000, "gaussian"))
    (6, 4, 74)
    """
    chosen, lowest = None, float(windows)
    for levels in DEPTHS if depth is None else (depth,):
        fitting = [
            tree(windows, each, levels, mechanism)
            for each in (RADICES if radix is None else (radix,))
            if each ** (levels - 1) <= windows
        ]
        if not fitting:
            break
        found = min(fitting, key=lambda each: each.variance(windows, mechanism))
        if found.variance(windows, mechanism) < WORTH * lowest:
            chosen, lowest = found, found.variance(windows, mechanism)
    return chosen
