"""Table sets in the catalogue: windows, and the nodes of a tree over them.

A table set is a group of count tables that are born, filled, sealed and erased together. It counts
the rows of some windows: a window (level 0) its own, a node of a tree (level 1 and up) those of
every window in its slots. All of them have one life, and every change of state is made by
`pyramidion.store.change.apply`:

    opening -> populating -> sealed -> retired -> erased

``members`` says which windows a table set counts; a window is a member of itself.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pyramidion.storage.catalogue import Catalogue

State = Literal["opening", "populating", "sealed", "retired", "erased"]


class SetId(NamedTuple):
    """What a table set is called: its level, and its number among windows or among nodes.

    >>> str(window_id(3)), str(SetId(2, 5))
    ('window 3', 'node 5')
    """

    level: int
    number: int

    def __str__(self) -> str:
        return f"{'node' if self.level else 'window'} {self.number}"


def window_id(number: int) -> SetId:
    """The table set of a window."""
    return SetId(0, number)


@dataclass(frozen=True)
class NewSet:
    """A table set that begins: which slot of its level it is, and when that starts and stops."""

    id: SetId
    slot: int
    start: int | None = None
    stop: int | None = None
    windows: tuple[int, ...] = ()
    """The windows it counts at first; more may join."""


class TableSets:
    """The table sets of one store, as the catalogue has them.

    What changes something runs within a transaction.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    # --- changes ---------------------------------------------------------------------------

    def insert(self, new: NewSet) -> None:
        """Add a table set, in the state `opening`."""
        self._catalogue.run(
            "INSERT INTO table_sets (level, number, state, slot, start, stop) "
            "VALUES (?, ?, 'opening', ?, ?, ?)",
            *(*new.id, new.slot, new.start, new.stop),
        )
        self.join(new.id, new.windows)

    def join(self, owner: SetId, windows: Collection[int]) -> None:
        """Have a table set count the rows of some windows."""
        self._catalogue.run_all(
            "INSERT INTO members VALUES (?, ?, ?)", [(*owner, window) for window in windows]
        )

    def set_state(self, owner: SetId, state: State, stop: int | None = None) -> None:
        """Change the state; a window that has no ``stop`` yet gets this one."""
        self._catalogue.run(
            "UPDATE table_sets SET state = ?, stop = coalesce(stop, ?) "
            "WHERE level = ? AND number = ?",
            *(state, None if owner.level else stop, *owner),
        )

    def add_rows(self, window: int, rows: int, now: int) -> None:
        """Count rows that a window took; its first row starts it if no slot did."""
        self._catalogue.run(
            "UPDATE table_sets SET rows = rows + ?, start = coalesce(start, ?) "
            "WHERE level = 0 AND number = ?",
            *(rows, now, window),
        )

    def set_dates(self, window: int, slot: int, start: int, stop: int | None) -> None:
        """Move a window to another slot."""
        self._catalogue.run(
            "UPDATE table_sets SET slot = ?, start = ?, stop = ? WHERE level = 0 AND number = ?",
            *(slot, start, stop, window),
        )

    # --- one table set -----------------------------------------------------------------------

    def row(self, owner: SetId) -> sqlite3.Row | None:
        """Number, state, slot, start, stop and rows of a table set."""
        query = "SELECT * FROM table_sets WHERE level = ? AND number = ?"
        rows = self._catalogue.all(query, *owner)
        return rows[0] if rows else None

    def state(self, owner: SetId) -> State | None:
        """The state of a table set; None if there is no such set."""
        row = self.row(owner)
        return None if row is None else row["state"]

    def windows_of(self, owner: SetId) -> dict[int, int]:
        """The windows that a table set counts, and how many rows each took."""
        rows = self._catalogue.all(
            "SELECT table_sets.number, rows FROM members JOIN table_sets "
            "ON table_sets.level = 0 AND table_sets.number = members.window "
            "WHERE members.level = ? AND members.number = ?",
            *owner,
        )
        return {row["number"]: row["rows"] for row in rows}

    # --- windows -----------------------------------------------------------------------------

    def windows(self, *states: State) -> list[sqlite3.Row]:
        """The windows in some states, or all, by number."""
        rows = self._catalogue.all("SELECT * FROM table_sets WHERE level = 0 ORDER BY number")
        return [row for row in rows if not states or row["state"] in states]

    def retained(self) -> set[int]:
        """The windows that are not erased."""
        query = "SELECT number FROM table_sets WHERE level = 0 AND state <> 'erased'"
        return {row["number"] for row in self._catalogue.all(query)}

    def countable(self) -> set[int]:
        """The windows that have tables and are kept: populating or sealed."""
        return {row["number"] for row in self.windows("populating", "sealed")}

    def next_window(self) -> int:
        """The number of the window that is opened next."""
        query = "SELECT coalesce(max(number), 0) + 1 FROM table_sets WHERE level = 0"
        return int(self._catalogue.one(query))

    def last_slot(self, *excluded: State) -> int | None:
        """The last slot of a window that is in none of these states; None if there is none."""
        query = "SELECT max(slot) FROM table_sets WHERE level = 0"
        query += "".join(f" AND state <> '{state}'" for state in excluded)
        last = self._catalogue.one(query)
        return None if last is None else int(last)

    def in_slot(self, slot: int) -> int | None:
        """The window of a slot that has tables."""
        query = (
            "SELECT number FROM table_sets WHERE level = 0 AND slot = ? "
            "AND state IN ('populating', 'sealed', 'retired')"
        )
        number = self._catalogue.one(query, slot)
        return None if number is None else int(number)

    def past(self, start: int) -> list[int]:
        """Sealed windows that began at this time or before, and all that are retired."""
        query = (
            "SELECT number FROM table_sets WHERE level = 0 AND (state = 'retired' "
            "OR (state = 'sealed' AND start <= ?)) ORDER BY number"
        )
        return [row["number"] for row in self._catalogue.all(query, start)]

    def oldest_start(self, *, retired: bool = False) -> int | None:
        """When the oldest sealed window began; also counting those that are ``retired``."""
        states = "('sealed', 'retired')" if retired else "('sealed')"
        query = f"SELECT min(start) FROM table_sets WHERE level = 0 AND state IN {states}"  # noqa: S608
        oldest = self._catalogue.one(query)
        return None if oldest is None else int(oldest)

    # --- nodes -------------------------------------------------------------------------------

    def nodes(self, *states: State) -> list[sqlite3.Row]:
        """The nodes in some states, by number."""
        rows = self._catalogue.all("SELECT * FROM table_sets WHERE level > 0 ORDER BY number")
        return [row for row in rows if row["state"] in states]

    def next_node(self) -> int:
        """The number of the node that begins next."""
        query = "SELECT coalesce(max(number), 0) + 1 FROM table_sets WHERE level > 0"
        return int(self._catalogue.one(query))

    def nodes_over(self, windows: Collection[int], *states: State) -> list[SetId]:
        """The nodes in some states that count rows of some windows."""
        query = (
            "SELECT table_sets.level, table_sets.number, state FROM table_sets JOIN members "
            "USING (level, number) WHERE level > 0 AND window = ?"
        )
        rows = [row for window in windows for row in self._catalogue.all(query, window)]
        found = {SetId(row["level"], row["number"]) for row in rows if row["state"] in states}
        return sorted(found, key=lambda node: node.number)

    def members(self) -> Mapping[SetId, set[int]]:
        """The windows that each node counts."""
        found: dict[SetId, set[int]] = {}
        for row in self._catalogue.all("SELECT level, number, window FROM members WHERE level > 0"):
            found.setdefault(SetId(row["level"], row["number"]), set()).add(row["window"])
        return found

    def opening(self) -> list[SetId]:
        """The table sets that were charged and not born: a crash came in between."""
        rows = self._catalogue.all("SELECT level, number FROM table_sets WHERE state = 'opening'")
        return [SetId(row["level"], row["number"]) for row in rows]
