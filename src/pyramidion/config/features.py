"""The features of an observation, each with its codes.

A feature turns a value into a *code*, the row of its count table. Declared
domains and bins give finitely many codes and a dense table; open categories
are hashed into a sketch. Everything here is written by people before any
observation is seen, so nothing here can leak one; but for bin edges that were read
from rows, privately (`Continuous.cut`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from pyramidion.config.bins import MOST_BINS, Read, checked_bounds, even_cuts
from pyramidion.config.checks import (
    Value,
    bin_names,
    checked_cuts,
    checked_keys,
    checked_name,
    checked_values,
    checked_whole,
    dumped,
    fill,
    loaded,
    nearest,
    require_keys,
)
from pyramidion.errors import SchemaError


@dataclass(frozen=True, init=False)
class Categorical:
    """A feature whose values are names or numbers without an order.

    With a ``domain`` the table is dense: one row per listed value, one for all
    'other' values, one for 'missing'. Without one the feature is open and is
    counted in a sketch. Values are known by their text, so True, 1, 1.0 and "1"
    are one value.

    >>> Categorical("carrier", domain=["AA", "UA"]).codes
    4
    >>> Categorical("tailnum").dense
    False
    """

    name: str
    domain: tuple[Value, ...] | None

    def __init__(self, name: str, domain: Iterable[Value] | None = None) -> None:
        name = checked_name("a categorical feature", name)
        if domain is not None:
            domain = checked_values(f"the domain of feature {name!r}", domain)
        fill(self, name=name, domain=domain)

    @property
    def dense(self) -> bool:
        """Whether the values are finitely many and declared."""
        return self.domain is not None

    @property
    def codes(self) -> int | None:
        """Rows of the table: the domain in order, then 'other', then 'missing'; None when open."""
        return None if self.domain is None else len(self.domain) + 2

    def to_dict(self) -> dict[str, object]:
        """Return the feature as a table of a schema file."""
        domain = {} if self.domain is None else {"domain": dumped(self.domain)}
        return {"name": self.name, "type": "categorical", **domain}


@dataclass(frozen=True, init=False)
class Continuous:
    """A feature whose values are numbers, counted in bins.

    Either ``edges``, the inner cut points, or ``bins`` over ``bounds``: even ones,
    until a store has read private ones from its rows. Value v is in bin i when
    cuts[i-1] <= v < cuts[i]; values beyond the bounds fall in the end bins.

    >>> Continuous("distance", bins=4, bounds=(0, 5000)).cuts
    (1250.0, 2500.0, 3750.0)
    >>> Continuous("delay", edges=[0, 15]).bin_names
    ('<0', '0..15', '>=15')
    """

    name: str
    edges: tuple[float, ...] | None
    bins: int | None
    bounds: tuple[float, float] | None
    read: Read | None

    def __init__(
        self,
        name: str,
        edges: Iterable[float] | None = None,
        bins: int | None = None,
        bounds: Iterable[float] | None = None,
    ) -> None:
        name = checked_name("a continuous feature", name)
        given = (edges is not None, bins is not None, bounds is not None)
        if given not in {(True, False, False), (False, True, True)}:
            raise SchemaError(
                f"feature {name!r} needs either edges or both bins and bounds; "
                f"write edges=[...], or bins=4 and bounds=(low, high)"
            )
        if edges is not None:
            edges = checked_cuts(f"the edges of feature {name!r}", edges)
        if bins is not None:
            bins = checked_whole(f"bins of feature {name!r}", bins, 2, MOST_BINS)
            bounds = checked_bounds(f"feature {name!r}", bounds)
        fill(self, name=name, edges=edges, bins=bins, bounds=bounds, read=None)
        checked_cuts(f"the cut points between the bounds of feature {name!r}", self.cuts)

    @cached_property
    def cuts(self) -> tuple[float, ...]:
        """The inner cut points, one fewer than the bins."""
        if self.read is not None:
            return self.read.edges
        if self.bins is None or self.bounds is None:
            return self.edges or ()
        return even_cuts(self.bins, self.bounds)

    def cut(self, read: Read | None) -> Continuous:
        """The same feature with its bins cut at edges that were read from rows, privately.

        >>> distance = Continuous("distance", bins=3, bounds=(0, 5000))
        >>> distance.cut(Read(7, (500.0, 900.0))).bin_names
        ('<500', '500..900', '>=900')
        """
        made = Continuous(self.name, self.edges, self.bins, self.bounds)
        fill(made, read=read)
        vars(made).pop("cuts")  # those that were declared
        return made

    @property
    def dense(self) -> bool:
        """Always: bins are finitely many."""
        return True

    @property
    def codes(self) -> int:
        """Rows of the table: the bins in order, then 'missing'."""
        return len(self.cuts) + 2

    @property
    def bin_names(self) -> tuple[str, ...]:
        """What people call the bins; 'missing' is not among them."""
        return bin_names(self.cuts)

    def to_dict(self) -> dict[str, object]:
        """Return the feature as a table of a schema file."""
        told: dict[str, object] = {"name": self.name, "type": "continuous"}
        if self.bounds is None:
            return told | {"edges": list(self.cuts)}
        return told | {"bins": self.bins, "bounds": list(self.bounds)}


Feature = Categorical | Continuous


def feature_from_dict(data: object, position: int) -> Feature:
    """Make a feature from its table in a schema file; ``position`` counts from 1."""
    what = f"feature {position}"
    told = checked_keys(what, data, ("name", "type", "domain", "edges", "bins", "bounds"))
    require_keys(what, told, "name", "type")
    kind, what = told.pop("type"), f"feature {told['name']!r}"
    if kind == "categorical":
        told = checked_keys(f"the categorical {what}", told, ("name", "domain"))
        domain = loaded(what, told.get("domain"))
        return Categorical(told["name"], domain)  # type: ignore[arg-type]
    if kind == "continuous":
        told = checked_keys(f"the continuous {what}", told, ("name", "edges", "bins", "bounds"))
        return Continuous(**told)  # type: ignore[arg-type]
    raise SchemaError(
        f"{what} has the unknown type {kind!r}; {nearest(kind, ('categorical', 'continuous'))}"
    )
