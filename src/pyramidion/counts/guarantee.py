"""What an output promises about the observations behind it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Literal, Self

Level = Literal["P1", "P2", "P3"]


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """The promise that rides on every output.

    ``P1``: none, raw rows or exact counts are in it; ε is infinite. ``P2``: (ε,
    δ)-differential privacy for any ``k`` of the *counted* observations; the rows one
    featurizes are not among them. ``P3``: gone. ``windows`` is the number of windows
    behind it; they hold disjoint observations, so ε is the largest window's, not the
    sum. Who counts one row twice counts two observations.

    >>> print(Guarantee(level="P2", epsilon=1.0, delta=1e-9, k=1, windows=2))
    P2: (1.0, 1e-09)-differentially private for any 1 counted observation, over 2 windows

    ``unit`` is the column that tells people apart, where these are protected. A person may
    have rows in every window, so ε is per window there; the ledger has the sum.

    >>> print(Guarantee(level="P2", epsilon=1.0, delta=1e-9, k=1, windows=2, unit="user"))
    P2: (1.0, 1e-09)-differentially private for any person (column 'user'), in each of 2 windows
    """

    level: Level
    epsilon: float
    delta: float
    k: int
    windows: int
    unit: str | None = None

    def raw(self) -> Self:
        """The same windows with raw rows or exact counts in them: no promise."""
        return replace(self, level="P1", epsilon=math.inf, delta=1.0)

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON; no ε is None."""
        told = asdict(self) | {"epsilon": self.epsilon if self.epsilon < math.inf else None}
        if self.unit is None:
            del told["unit"]
        return told

    def __str__(self) -> str:
        windows = f"over {self.windows} window{'s' if self.windows != 1 else ''}"
        if self.level == "P1":
            return f"P1: NO privacy, raw rows or exact counts are in it, {windows}"
        if self.level == "P3":
            return f"P3: gone, {windows}"
        some = f"any {self.k} counted observation{'s' if self.k != 1 else ''}"
        if self.unit is not None:
            each = "in each of" if self.windows != 1 else "in"
            some, windows = f"any person (column {self.unit!r})", windows.replace("over", each)
        budget = f"({self.epsilon!r}, {self.delta!r})"
        return f"P2: {budget}-differentially private for {some}, {windows}"
