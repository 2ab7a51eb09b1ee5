"""Nodes of a tree of windows: which takes the rows of which window, and which are over.

A node is born with its first window, on noise of its own, and takes the rows of every window in
its slots, as they come. It is populating until the last of them is over, so all that is true of
the tables of a populating window is true of it for longer.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from pyramidion.config.settings import Settings
from pyramidion.config.window_tree import Levels
from pyramidion.counts.arena import Arena
from pyramidion.counts.windows import Slots
from pyramidion.rows.encoding import Encoder


@dataclass
class Node:
    """A populating node."""

    number: int
    level: int
    place: int
    """Of its level: it has the slots from so many times its span on."""
    arena: Arena
    encoder: Encoder
    after: int
    """The checkpoint on disk has all batches up to this one."""
    members: set[int] = field(default_factory=set)
    """The windows whose rows it takes."""
    fresh: int = 0
    """Rows counted since the last checkpoint that was due: the erasure of a person makes others."""
    closed: bool = False
    """Whether it is being sealed: no more windows join it."""

    def shared(self, tables: Collection[str]) -> set[str]:
        """The tables that a window has, too: its rows are counted in these."""
        return {name for name in self.arena.layout.index if name in tables}


def purpose(number: int) -> str:
    """What a node is called in the ledger."""
    return f"node {number}"


class Nodes:
    """Populating nodes by number; none where windows are flat."""

    def __init__(self, settings: Settings) -> None:
        self.levels: Levels | None = settings.levels
        self._slots = Slots.of_windows(settings)
        self._checkpoint_rows = settings.checkpoint_rows
        self.nodes: dict[int, Node] = {}

    def all(self) -> list[Node]:
        """The nodes in order."""
        return [self.nodes[number] for number in sorted(self.nodes)]

    def of(self, window: int) -> list[Node]:
        """The nodes that take the rows of a window."""
        return [node for node in self.all() if window in node.members]

    def wanted(self, slot: int) -> list[tuple[int, int, Node | None]]:
        """Level, place and node of each level for a window in a slot; None: one is to be born.

        Where a node is born all below it are, too: so nodes lie in one another, or apart.
        """
        found: list[tuple[int, int, Node | None]] = []
        born = False
        for level in range((self.levels.depth if self.levels else 1) - 1, 0, -1):
            place = slot // self._span(level)
            held = [
                node
                for node in self.all()
                if (node.level, node.place) == (level, place) and not node.closed
            ]
            born = born or not held
            found.append((level, place, None if born else held[-1]))
        return found

    def _span(self, level: int) -> int:
        return self.levels.span(level) if self.levels is not None else 1

    def over(self, now: int, taking: Collection[int], last: int) -> list[Node]:
        """Nodes that no more rows can come to: none of their windows takes any or can be opened.

        ``taking`` are the populating windows, ``last`` is the slot of the newest window.
        """
        return [
            node
            for node in self.all()
            if node.members.isdisjoint(taking) and (node.closed or self._is_past(node, now, last))
        ]

    def _is_past(self, node: Node, now: int, last: int) -> bool:
        end = (node.place + 1) * self._span(node.level)
        if self._slots is not None:
            return self._slots.start(end) <= now
        return last >= end - 1

    def full(self) -> list[Node]:
        """Nodes with so many rows since their checkpoint that a new one is due."""
        return [node for node in self.all() if node.fresh >= self._checkpoint_rows]
