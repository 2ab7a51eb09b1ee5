"""Which tables to sum: of all ways to have every window once, the one with the least noise.

A node of a tree stands for its windows. A table of it has the rows of those windows that have
this table, so for each table either the node is taken, or what covers its windows best without
it. Sets of windows are nested or apart; one that is neither is left alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

Owner = TypeVar("Owner", bound=Hashable)


class Piece(NamedTuple):
    """Tables that could be summed: those of a window, or of a node that stands for several."""

    windows: Collection[int]
    variances: Mapping[str, float]
    """Of the noise in a cell, by table; inf: of a window whose file cannot be read."""


def cover(
    windows: Mapping[int, Piece], nodes: Sequence[tuple[Owner, Piece]]
) -> tuple[dict[int, set[str]], dict[Owner, set[str]]]:
    """Which tables of which windows and nodes to sum; smaller nodes come before larger ones.

    >>> one, two = (Piece([n], {"": 4.0}) for n in (1, 2))
    >>> cover({1: one, 2: two}, [("both", Piece([1, 2], {"": 6.0}))])
    ({}, {'both': {''}})
    >>> cover({1: one, 2: two}, [("both", Piece([1, 2], {"": 9.0}))])
    ({1: {''}, 2: {''}}, {})
    """
    leaves: dict[int, set[str]] = {}
    above: dict[Owner, set[str]] = {}
    for name in dict.fromkeys(name for piece in windows.values() for name in piece.variances):
        for node, number in _of_table(name, windows, nodes):
            if node is None:
                leaves.setdefault(number, set()).add(name)
            else:
                above.setdefault(node, set()).add(name)
    return leaves, above


class _Unit(NamedTuple):
    """Some windows as they are covered best so far."""

    windows: frozenset[int]
    variance: float
    chosen: tuple[tuple[object, int], ...]


def _of_table(
    name: str, windows: Mapping[int, Piece], nodes: Iterable[tuple[Owner, Piece]]
) -> list[tuple[Owner | None, int]]:
    """The nodes, and the windows that are in none of these, of one table."""
    units = {
        number: _Unit(frozenset([number]), piece.variances[name], ((None, number),))
        for number, piece in windows.items()
        if name in piece.variances
    }
    for node, piece in nodes:
        inside = frozenset(number for number in piece.windows if number in units)
        if name not in piece.variances or not inside:
            continue
        parts = {id(units[number]): units[number] for number in inside}.values()
        variance = piece.variances[name]
        if variance <= math.fsum(part.variance for part in parts) and all(
            part.windows <= inside for part in parts
        ):
            whole = _Unit(inside, variance, ((node, min(inside)),))
            units |= dict.fromkeys(inside, whole)
    found = {id(unit): unit for unit in units.values()}.values()
    return [chosen for unit in found for chosen in unit.chosen]  # type: ignore[misc]
