"""What an exposure report says: frozen values, times in microseconds since 1970.

Only row totals, times and names, which are public, and totals of noisy tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

Component = Literal["store", "edge", "tables"]
COMPONENTS: tuple[Component, ...] = get_args(Component)

Range = tuple[int, int]
"""From one moment to another, both included, in microseconds since 1970."""


@dataclass(frozen=True, kw_only=True)
class HotExposed:
    """Raw rows of one hot step that could be read. Times are microseconds since 1970."""

    step: int
    first: int
    last: int
    """Arrivals of the exposed rows; those of an imported history are as its rows say."""
    rows: int
    arrived: int
    """Of these, the rows that came during the interval."""
    exact: bool
    """Whether both numbers are; else they are upper bounds."""
    gone: int | None
    """Since when nothing opens them; None: they are still hot."""


@dataclass(frozen=True, kw_only=True)
class ModelExposed:
    """From when to when a model was registered (None: it is). Without a name: any, perhaps."""

    name: str | None
    since: int
    until: int | None


@dataclass(frozen=True, kw_only=True)
class ModelsExposed:
    """Models that were registered, and the hot rows that they can have learned from, at most."""

    registered: tuple[ModelExposed, ...]
    rows: int
    ranges: tuple[Range, ...]
    """When these rows arrived."""


@dataclass(frozen=True, kw_only=True)
class WindowExposed:
    """A window whose tables were visible, at (ε, δ)."""

    number: int
    start: int | None
    stop: int | None
    born: int
    sealed: int | None
    frozen: int | None
    """When it was sealed, and when no state before that could be read any more."""
    erased: int | None
    rows: int
    """All that it took, also later ones."""
    states: tuple[str, ...]
    """What it was during the interval: populating, sealed, or first one and then the other."""
    epsilon: float
    delta: float
    later: int
    """Rows that came after the interval, while it was still populating, at most: a later state of
    its tables, less the one that was seen, tells their exact counts."""
    noisy_rows: int | None
    """Its row total as the tables tell it, and the deviation of the noise in that; None: gone."""
    noise: float | None


@dataclass(frozen=True, kw_only=True)
class Forgotten:
    """What was gone before the interval began, and so was not exposed."""

    steps: int
    step_rows: int
    unrecorded: int
    """More steps, so long gone that their numbers of rows are forgotten, too."""
    windows: tuple[int, ...]
    window_rows: int


OPEN = "open then"
LATER = "given later to a broker that ran then"
ENDED = "over before, given to a broker that still ran then"


@dataclass(frozen=True, kw_only=True)
class GrantExposed:
    """A grant that was open, or one for a broker that ran: its key opens what the grant names."""

    grant: str
    since: int
    until: int | None
    opened: int
    """How often it was used during the interval."""
    why: str = OPEN


@dataclass(frozen=True, kw_only=True)
class VaultExposed:
    """Sealed files, which nobody here can read; grants, where an audit log was at hand."""

    files: int
    rows: int
    grants: tuple[GrantExposed, ...] | None


@dataclass(frozen=True, kw_only=True)
class Gap:
    """What the record does not tell: from when to when (None: not known either), and why."""

    start: int | None
    stop: int | None
    why: str


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """What could be read of a store from ``start`` to ``stop``, as it was known ``at`` a time."""

    component: Component
    start: int
    stop: int
    at: int
    columns: tuple[str, ...]
    unit: str | None
    hot: tuple[HotExposed, ...]
    models: ModelsExposed
    windows: tuple[WindowExposed, ...]
    k: int
    epsilon: float
    delta: float
    """Of all visible windows together: the largest; with a unit, composed over them."""
    later: int
    """Rows that came afterwards whose exact counts later states of the tables tell, at most."""
    forgotten: Forgotten
    vault: VaultExposed
    gaps: tuple[Gap, ...]

    @property
    def rows(self) -> int:
        """Raw rows that could be read."""
        return sum(part.rows for part in self.hot)

    @property
    def arrived(self) -> int:
        """Of these, the rows that came during the interval."""
        return sum(part.arrived for part in self.hot)

    @property
    def exact(self) -> bool:
        """Whether numbers of raw rows are exact; else they are upper bounds."""
        return not self.gaps and all(part.exact for part in self.hot)

    @property
    def ranges(self) -> tuple[Range, ...]:
        """When the rows arrived whose people are to be told: raw rows, or those in models."""
        if self.component == "store":
            return merged((part.first, part.last) for part in self.hot)
        return self.models.ranges

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; no ε is None."""
        totals = {name: getattr(self, name) for name in ("rows", "arrived", "exact")}
        told = asdict(self) | totals | {"ranges": [list(each) for each in self.ranges]}
        for part in (told, *told["windows"]):
            part["epsilon"] = part["epsilon"] if part["epsilon"] < math.inf else None
        return told


def merged(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Ranges in order, those that meet as one.

    >>> merged([(5, 7), (1, 2), (7, 9), (3, 3)])
    ((1, 2), (3, 3), (5, 9))
    """
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return tuple(found)
