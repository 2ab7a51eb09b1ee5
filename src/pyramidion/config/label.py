"""The label of an observation: classes, or a number in bins."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from pyramidion.config.bins import MOST_BINS, Read, checked_bounds, even_cuts
from pyramidion.config.checks import (
    Value,
    bin_names,
    checked_cuts,
    checked_items,
    checked_keys,
    checked_name,
    checked_number,
    checked_values,
    checked_whole,
    dumped,
    fill,
    loaded,
    require_keys,
)
from pyramidion.errors import SchemaError

KEYS = ("name", "classes", "edges", "values", "bins", "bounds")


@dataclass(frozen=True, init=False)
class Label:
    """What is predicted: one of some ``classes``, or a number in bins.

    Bins are cut at ``edges``; or they are ``bins`` over ``bounds``, even ones until
    a store has read private ones from its rows. A binned label speaks in numbers
    through ``centers``, one for each bin: ``values`` when given; otherwise the
    middle of the bin. End bins reach to the bounds; those of ``edges`` alone are as
    wide as the bin next to them (1 when there is a single edge).

    >>> Label("late", classes=[0, 1]).cardinality
    2
    >>> Label("rating", edges=[2, 3, 4]).centers
    (1.5, 2.5, 3.5, 4.5)
    >>> Label("delay", bins=2, bounds=(0, 60)).centers
    (15.0, 45.0)
    """

    name: str
    classes: tuple[Value, ...] | None
    edges: tuple[float, ...] | None
    values: tuple[float, ...] | None
    bins: int | None
    bounds: tuple[float, float] | None
    read: int
    """The window that the edges were read from; 0: none."""

    def __init__(
        self,
        name: str,
        classes: Iterable[Value] | None = None,
        edges: Iterable[float] | None = None,
        values: Iterable[float] | None = None,
        bins: int | None = None,
        bounds: Iterable[float] | None = None,
    ) -> None:
        name = checked_name("a label", name)
        given = (classes is not None, edges is not None, bins is not None)
        if sum(given) != 1 or (bins is None) != (bounds is None):
            raise SchemaError(
                f"label {name!r} needs either classes, edges, or bins and bounds; write "
                f"classes=[0, 1], or edges=[...] with the cut points of a number, or bins=4 and "
                f"bounds=(low, high)"
            )
        if classes is not None:
            classes = _checked_classes(name, classes)
        if edges is not None:
            edges = checked_cuts(f"the edges of label {name!r}", edges)
        if bins is not None:
            bins = checked_whole(f"bins of label {name!r}", bins, 2, MOST_BINS)
            bounds = checked_bounds(f"label {name!r}", bounds)
            cuts = even_cuts(bins, bounds)
            edges = checked_cuts(f"the cut points between the bounds of label {name!r}", cuts)
        if bins is not None and values is not None:
            raise SchemaError(
                f"the values of label {name!r} belong to edges and its bins move; remove values"
            )
        values = _checked_centers(name, edges, values)
        told = {"classes": classes, "edges": edges, "values": values}
        fill(self, name=name, **told, bins=bins, bounds=bounds, read=0)

    def cut(self, read: Read | None) -> Label:
        """The same label with its bins cut at edges that were read from rows, privately."""
        if self.bins is None:
            return self
        made = Label(self.name, bins=self.bins, bounds=self.bounds)
        if read is not None:
            fill(made, edges=read.edges, read=read.window)
        return made

    @property
    def cardinality(self) -> int:
        """How many classes or bins."""
        return len(self.class_names)

    @property
    def continuous(self) -> bool:
        """Whether the label is a number in bins."""
        return self.edges is not None

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """What people call the classes or bins, in the order they are counted."""
        if self.edges is not None:
            return bin_names(self.edges)
        return tuple(str(c) for c in self.classes or ())

    @cached_property
    def centers(self) -> tuple[float, ...]:
        """One number for each bin, or the classes themselves when all are numbers."""
        if self.edges is not None:
            return self.values or _middles(self.edges, self.bounds)
        classes = self.classes or ()
        if any(isinstance(c, str | bytes) for c in classes):
            raise SchemaError(
                f"label {self.name!r} has classes that are not numbers and so has no centers; "
                f"ask for probabilities, or declare numeric classes or edges"
            )
        return tuple(float(c) for c in classes)

    def to_dict(self) -> dict[str, object]:
        """Return the label as a table of a schema file."""
        if self.edges is None:
            return {"name": self.name, "classes": dumped(self.classes or ())}
        if self.bounds is not None:
            return {"name": self.name, "bins": self.bins, "bounds": list(self.bounds)}
        values = {} if self.values is None else {"values": list(self.values)}
        return {"name": self.name, "edges": list(self.edges), **values}


def label_from_dict(data: object) -> Label:
    """Make a label from its table in a schema file."""
    told = checked_keys("the label", data, KEYS)
    require_keys("the label", told, "name")
    what = f"label {told['name']!r}"
    told["classes"] = loaded(what, told.get("classes"))
    return Label(**told)  # type: ignore[arg-type]


def _checked_classes(name: str, given: object) -> tuple[Value, ...]:
    classes = checked_values(f"the classes of label {name!r}", given, at_least=2)
    if len({str(c) for c in classes}) < len(classes):
        raise SchemaError(
            f"two classes of label {name!r} look the same when written out, such as 1 and '1'; "
            f"declare them all as numbers or all as text"
        )
    return classes


def _checked_centers(
    name: str, edges: tuple[float, ...] | None, given: object
) -> tuple[float, ...] | None:
    what = f"the values of label {name!r}"
    if edges is None:
        if given is not None:
            raise SchemaError(f"{what} belong to edges and the label has classes; remove values")
        return None
    if given is None:
        if not all(map(math.isfinite, _middles(edges))):
            raise SchemaError(f"the edges of label {name!r} are too far apart; give values too")
        return None
    values = tuple(checked_number(f"a number in {what}", v) for v in checked_items(what, given))
    if len(values) != len(edges) + 1:
        raise SchemaError(
            f"{what} are {len(values)} numbers for {len(edges) + 1} bins; write one for each bin"
        )
    return values


def _middles(
    edges: tuple[float, ...], bounds: tuple[float, float] | None = None
) -> tuple[float, ...]:
    if bounds is not None:
        return tuple(a + (b - a) / 2 for a, b in pairwise((bounds[0], *edges, bounds[1])))
    inner = [a + (b - a) / 2 for a, b in pairwise(edges)]
    first = (edges[1] - edges[0]) / 2 if inner else 0.5
    last = (edges[-1] - edges[-2]) / 2 if inner else 0.5
    return (edges[0] - first, *inner, edges[-1] + last)
