"""What an output promises about the observations behind it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Level = Literal["P1", "P2", "P3"]

_LEVELS = {
    "P1": "raw: computed from hot rows, no protection; must go when those rows go",
    "P2": "differentially private",
    "P3": "gone",
}


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """The promise that rides on every output.

    ``P1``: none, hot rows are in it. ``P2``: (ε, δ)-differential privacy for any
    ``k`` observations. ``windows`` is the number of windows behind it; they hold
    disjoint observations, so ε is the largest window's, not the sum.

    >>> print(Guarantee(level="P2", epsilon=1.0, delta=1e-9, k=1, windows=2))
    P2: (1, 1e-09)-differentially private for any 1 observation, over 2 windows
    """

    level: Level
    epsilon: float
    delta: float
    k: int
    windows: int

    def __str__(self) -> str:
        if self.level != "P2":
            return f"{self.level}: {_LEVELS[self.level]}"
        windows = f"over {self.windows} window{'s' if self.windows != 1 else ''}"
        if math.isinf(self.epsilon):
            return f"P2 with epsilon = inf: NO privacy, exact counts, {windows}"
        some = f"any {self.k} observation{'s' if self.k != 1 else ''}"
        return f"P2: ({self.epsilon:g}, {self.delta:g})-{_LEVELS['P2']} for {some}, {windows}"
