"""What was durable when: seen from a second connection, at the moments that count.

A witness stands at two places of a store. When noise is about to be drawn, the charge for
every table must be in the ledger and no file of the window may be there. When rows are about
to be acknowledged, their windows' noise must be in a file that the catalogue knows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from pyramidion.privacy.budget import budget_of
from pyramidion.privacy.table_noise import TableDesign
from pyramidion.store.pyramid import Pyramid


@dataclass
class Witness:
    """Notes for each draw and each acknowledgement whether it came in the right order."""

    store: Pyramid
    draws: list[bool] = field(default_factory=list)
    """Of each draw, whether all of it was charged before."""
    acknowledgements: list[bool] = field(default_factory=list)
    """Of each batch, whether the noise of its windows was durable before."""

    def __post_init__(self) -> None:
        lifecycle = self.store._state
        _watch(lifecycle, "birth", self._birth)
        _watch(lifecycle, "node_birth", self._node_birth)
        _watch(lifecycle.hot, "acknowledge", self._acknowledge)

    def _birth(self, real: Callable[..., TableDesign], window: int, *given: Any) -> TableDesign:
        born = real(window, *given)

        def drawn(draw: Callable[..., Any], *given: Any) -> Any:
            self.draws.append(self._charged(window, born))
            return draw(*given)

        _watch(born, "arena", drawn)
        return born

    def _node_birth(self, real: Callable[..., TableDesign], window: int, level: int) -> TableDesign:
        born = real(window, level)

        def drawn(draw: Callable[..., Any], *given: Any) -> Any:
            self.draws.append(self._charged_node(window, level, born))
            return draw(*given)

        _watch(born, "arena", drawn)
        return born

    def _charged_node(self, window: int, level: int, born: TableDesign) -> bool:
        """Whether the window that begins a node has paid for a node of this level."""
        query = (
            "SELECT amount FROM ledger JOIN table_sets ON purpose = 'node ' || number "
            "WHERE window = ? AND kind = 'node' AND state = 'opening' AND level = "
        )
        found = [Fraction(amount) for (amount,) in self._committed(f"{query}{level}", window)]
        _, budget = budget_of(self.store.settings)
        return found == [budget * sum(born.shares.values())]

    def _charged(self, window: int, born: TableDesign) -> bool:
        query = "SELECT purpose, amount FROM ledger WHERE window = ? AND kind = 'table'"
        found = {name: Fraction(amount) for name, amount in self._committed(query, window)}
        _, budget = budget_of(self.store.settings)
        owed = {name: share * budget for name, share in born.shares.items()}
        files = self._committed("SELECT file FROM arenas WHERE level = 0 AND number = ?", window)
        return found == owed and not files

    def _acknowledge(self, real: Callable[..., Any], *given: Any) -> Any:
        windows = [window for fresh in given[0] for window, _ in fresh.parts]
        self.acknowledgements.append(all(map(self._durable, windows)))
        return real(*given)

    def _durable(self, window: int) -> bool:
        """Whether the noise of a window is, and that of all nodes that count its rows."""
        query = (
            "SELECT coalesce(max(file), '') FROM members LEFT JOIN arenas "
            "ON arenas.level = members.level AND arenas.number = members.number "
            "AND kind = 'checkpoint' AND current = 1 "
            "WHERE members.window = ? GROUP BY members.level, members.number"
        )
        folder = self.store._state.tables.folder
        files = [folder / name for (name,) in self._committed(query, window)]
        levels = self.store.settings.levels
        enough = len(files) >= (1 if levels is None else levels.depth)
        return enough and all(file.is_file() for file in files)

    def _committed(self, query: str, window: int) -> list[Any]:
        """What another connection sees: what a crash at this moment would leave."""
        path = self.store.path / "catalogue.db"
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
            return db.execute(query, (window,)).fetchall()


def _watch(thing: object, name: str, call: Callable[..., Any]) -> None:
    """Have a method of one object go by a call that is given the method first."""
    real = getattr(thing, name)
    vars(thing)[name] = lambda *given: call(real, *given)
