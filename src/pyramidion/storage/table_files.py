"""Count tables in encrypted files, each under a key of its own; written once, never changed.

File names are random and never used twice, so a copy of one name is a copy of one
content. A file is written before the catalogue knows it, and superseded before it is
removed: what a crash leaves is a file that nobody needs.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, Self

from pyramidion.counts.arena import Arena
from pyramidion.counts.layout import Layout
from pyramidion.counts.tree_cover import Piece, cover
from pyramidion.errors import FormatError, KeyHolderError, StateError, StorageError
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.ciphers import opened, sealed
from pyramidion.storage.data_keys import DataKey, DataKeys
from pyramidion.storage.disk import read, remove, write_durably
from pyramidion.storage.table_sets import SetId, TableSets

Kind = Literal["checkpoint", "sealed", "complete"]


class TableFile(NamedTuple):
    """What a file of tables is for; there is at most one current file of each.

    A populating table set has a ``checkpoint``, a sealed one its ``sealed`` tables; the
    ``complete`` tables, which are the sum of all sealed ones, belong to no table set.
    """

    kind: Kind
    owner: SetId | None


COMPLETE = TableFile("complete", None)


def checkpoint(owner: SetId) -> TableFile:
    """The file of the populating tables of a table set."""
    return TableFile("checkpoint", owner)


def sealed_tables(owner: SetId) -> TableFile:
    """The file of the sealed tables of a table set."""
    return TableFile("sealed", owner)


def owner_of(row: sqlite3.Row) -> SetId | None:
    """The table set that a row of the catalogue belongs to."""
    return None if row["number"] is None else SetId(row["level"], row["number"])


class TableFiles:
    """The table files of a store: checkpoints, sealed windows, the complete tables."""

    def __init__(
        self,
        catalogue: Catalogue,
        keys: DataKeys,
        folder: Path,
        secret: bytes,
        *,
        noted: bool = False,
    ) -> None:
        self._catalogue = catalogue
        self._sets = TableSets(catalogue)
        self._keys = keys
        self.folder = folder
        self._secret = secret
        self._noted = noted
        """Whether the noise of tables stands in the catalogue beside their names."""

    def write(self, arena: Arena, role: TableFile) -> NewFile:
        """Write tables to a new file, durable on return; the catalogue does not know it yet."""
        key, name = DataKey.new(role.kind), f"{os.urandom(12).hex()}.tables"
        parts = arena.to_parts() if arena.sealed else arena.checkpoint()
        write_durably(self.folder / name, sealed(key.key, parts, name.encode()))
        tables = arena.layout.tables
        noise = {table.name: table.variance for table in tables} if self._noted else None
        names = list(arena.layout.index) if noise is None else noise
        return NewFile(self, role, key, name, names)

    def add(self, file: NewFile, after: int) -> None:
        """Make a file and its key known; within a transaction."""
        self._keys.add(file.key)
        level, number = file.role.owner or (None, None)
        self._catalogue.run(
            "INSERT INTO arenas (kind, level, number, key, file, after, current, tables) "
            "VALUES (?, ?, ?, ?, ?, ?, 1, ?)",
            *(file.role.kind, level, number, file.key.id, file.name, after),
            json.dumps(file.tables),
        )

    def supersede(self, role: TableFile) -> None:
        """The current file of a role is no longer current; within a transaction."""
        level, number = role.owner or (None, None)
        self._catalogue.run(
            "UPDATE arenas SET current = 0 WHERE kind = ? AND level IS ? AND number IS ?",
            *(role.kind, level, number),
        )

    def supersede_all(self, owner: SetId) -> None:
        """No file of a table set is current any longer; within a transaction."""
        self._catalogue.run("UPDATE arenas SET current = 0 WHERE level = ? AND number = ?", *owner)

    def forget_superseded(self) -> list[int]:
        """Drop all files that are not current; their keys, which must die. In a transaction."""
        rows = self._catalogue.all("SELECT key FROM arenas WHERE current = 0")
        self._catalogue.run("DELETE FROM arenas WHERE current = 0")
        return [row["key"] for row in rows]

    def current_names(self) -> set[str]:
        """The names of all current files."""
        rows = self._catalogue.all("SELECT file FROM arenas WHERE current = 1")
        return {row["file"] for row in rows}

    def complete_file(self) -> str | None:
        """The name of the file of the complete tables; None if there are none."""
        rows = self.current("complete")
        return str(rows[-1]["file"]) if rows else None

    def current(self, *kinds: Kind) -> list[sqlite3.Row]:
        """The current files of windows of some kinds, and of the complete tables."""
        rows = self._catalogue.all(
            "SELECT * FROM arenas WHERE current = 1 AND (level = 0 OR level IS NULL) ORDER BY id"
        )
        return [row for row in rows if row["kind"] in kinds]

    def checkpoints(self) -> list[sqlite3.Row]:
        """The files of all populating table sets: windows first, then nodes from small to large."""
        return self._catalogue.all(
            "SELECT arenas.* FROM arenas JOIN table_sets USING (level, number) "
            "WHERE current = 1 AND state = 'populating' ORDER BY level, number"
        )

    def nodes(self, state: str) -> list[sqlite3.Row]:
        """The files of nodes in a state, from small to large."""
        return self._catalogue.all(
            "SELECT arenas.* FROM arenas JOIN table_sets USING (level, number) "
            "WHERE current = 1 AND state = ? AND level > 0 ORDER BY level, number",
            state,
        )

    def windows(self) -> list[sqlite3.Row]:
        """The files of sealed windows, each with the rows it took; a retired one has left."""
        return self._catalogue.all(
            "SELECT arenas.*, arenas.number AS window, table_sets.rows "
            "FROM arenas JOIN table_sets USING (level, number) "
            "WHERE kind = 'sealed' AND current = 1 AND state = 'sealed' AND level = 0 ORDER BY id"
        )

    def read(self, name: str, key: bytes, *, like: Layout | None = None) -> Arena:
        """The tables in a file."""
        path = self.folder / name
        data = opened(key, read(path), name.encode(), what=str(path))
        return Arena.from_bytes(data, self._secret, like=like)

    def of(self, row: sqlite3.Row) -> Arena:
        """The tables in a file that the catalogue knows."""
        return self.read(row["file"], self._keys.get(row["key"]))

    def sealed(self, number: int, *, like: Layout | None = None) -> Arena:
        """The tables of a sealed window; ``like`` those of another one, where that was read."""
        query = (
            "SELECT * FROM arenas WHERE current = 1 AND kind = 'sealed' "
            "AND level = 0 AND number = ?"
        )
        (row,) = self._catalogue.all(query, number)
        return self.read(row["file"], self._keys.get(row["key"]), like=like)

    def names(self, row: sqlite3.Row) -> set[str]:
        """The names of the tables in a file; they are public, the file need not be read."""
        return set(self.variances(row))

    def variances(self, row: sqlite3.Row) -> Mapping[str, float]:
        """The noise of the tables in a file, where it was noted."""
        if not row["tables"]:  # written by a version that did not note them: all were paid for
            lines = self._catalogue.lines(row["number"])
            return {line.purpose: 0.0 for line in lines if line.kind == "table"}
        return _noted(row["tables"])

    def behind(self, but: Collection[int] = ()) -> dict[str, int]:
        """How many sealed windows have each table; some are left out."""
        found: dict[str, int] = {}
        for row in [row for row in self.windows() if row["window"] not in but]:
            for name in self.variances(row):
                found[name] = found.get(name, 0) + 1
        return found

    def checked(self, row: sqlite3.Row) -> Arena:
        """The tables in the file of a sealed table set, of as many rows as it took."""
        arena = self.of(row)
        taken = sum(self._sets.windows_of(SetId(row["level"], row["number"])).values())
        if not arena.sealed or arena.rows != taken:
            path = self.folder / row["file"]
            raise FormatError(f"{path} has not the rows of its window; restore it from a backup")
        return arena

    def total(
        self,
        *,
        but: Collection[int] = (),
        sets: Mapping[SetId, Arena | None] | None = None,
    ) -> tuple[Arena | None, frozenset[int]]:
        """The sum of the sealed windows, and the numbers of those that cannot be read.

        Nodes stand for their windows where that leaves less noise. Windows in ``but`` are left
        out. ``sets`` has tables that the catalogue does not know yet, in place of those that it
        knows (None: the table set has none any longer). A sum of private tables costs nothing.
        """
        more = dict(sets or {})
        held: dict[int, Source] = {
            row["window"]: row for row in self.windows() if row["window"] not in but
        }
        held |= {owner.number: a for owner, a in more.items() if not owner.level and a is not None}
        above: dict[SetId, Source | None] = {
            SetId(row["level"], row["number"]): row for row in self.nodes("sealed")
        }
        above |= {owner: arena for owner, arena in more.items() if owner.level}
        members = self._sets.members() if above else {}
        standing = {
            node: found
            for node, found in above.items()
            if found is not None and not members[node].intersection(but)
        }
        return _Sum(self, held, standing, members).total()

    def forget(self, name: str) -> None:
        """Remove a file that did not get into the catalogue.

        If the disk has failed it may have got in; then it stays until the store is opened.
        """
        if self._catalogue.health.failed:
            return
        if self._catalogue.one("SELECT 1 FROM arenas WHERE file = ?", name) is None:
            remove(self.folder, [name])


class NewFile:
    """A table file that is written and not yet in the catalogue; removed where that fails."""

    def __init__(
        self,
        of: TableFiles,
        role: TableFile,
        key: DataKey,
        name: str,
        tables: dict[str, float] | list[str],
    ) -> None:
        self._of = of
        self.role, self.key, self.name = role, key, name
        self.tables = tables

    def __enter__(self) -> Self:
        return self

    def add(self, *, after: int = 0) -> None:
        """Make it known; within a transaction."""
        self._of.add(self, after)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._of.forget(self.name)


@lru_cache(maxsize=4096)  # most windows of a store say the same
def _noted(text: str) -> Mapping[str, float]:
    told = json.loads(text)
    return MappingProxyType(told if isinstance(told, dict) else dict.fromkeys(told, 0.0))


Source = sqlite3.Row | Arena


class _Sum:
    """A sum of all windows, from the files that can be read; those that cannot are found out."""

    def __init__(
        self,
        of: TableFiles,
        windows: Mapping[int, Source],
        nodes: Mapping[SetId, Source],
        members: Mapping[SetId, Collection[int]],
    ) -> None:
        self._of = of
        self._windows = dict(windows)
        self._nodes = {n: nodes[n] for n in sorted(nodes, key=lambda node: len(members[node]))}
        self._members = members
        self._damaged: set[int] = set()
        """Windows whose own tables cannot be read: only a node can stand for them."""
        self._lacking: set[int] = set()

    def total(self) -> tuple[Arena | None, frozenset[int]]:
        """The sum with the least noise, and the windows that are not in it."""
        while True:
            leaves = {n: Piece([n], self._noise(n)) for n in self._windows}
            above = [
                (node, Piece(self._members[node], self._told(found)))
                for node, found in self._nodes.items()
            ]
            chosen, standing = cover(leaves, above)
            lost = self._damaged.intersection(chosen)
            if lost:
                self._leave_out(lost)
                continue
            total = self._summed(chosen, standing)
            if total is None and (chosen or standing):
                continue
            if total is not None and standing:
                order = dict.fromkeys(name for piece in leaves.values() for name in piece.variances)
                total = total.arranged(order, sum(map(self._rows, self._windows)))
            return total, frozenset(self._lacking)

    def _told(self, found: Source) -> Mapping[str, float]:
        if isinstance(found, Arena):
            return {table.name: table.variance for table in found.layout.tables}
        return self._of.variances(found)

    def _noise(self, window: int) -> Mapping[str, float]:
        told = self._told(self._windows[window])
        return dict.fromkeys(told, math.inf) if window in self._damaged else told

    def _rows(self, window: int) -> int:
        found = self._windows[window]
        return found.rows if isinstance(found, Arena) else int(found["rows"])

    def _leave_out(self, windows: Collection[int]) -> None:
        """A window that some table lacks is in none, so that all of them count the same rows."""
        self._lacking.update(windows)
        for number in windows:
            del self._windows[number]
        for node in [n for n in self._nodes if not self._lacking.isdisjoint(self._members[n])]:
            del self._nodes[node]

    def _summed(
        self, windows: Mapping[int, Collection[str]], nodes: Mapping[SetId, Collection[str]]
    ) -> Arena | None:
        """The sum of these tables; None where one cannot be read, which is remembered."""
        total: Arena | None = None
        for number, names in windows.items():
            total = self._more(total, self._windows[number], names)
            if total is None:
                self._damaged.add(number)
                return None
        for node, names in nodes.items():
            total = self._more(total, self._nodes[node], names)
            if total is None:
                del self._nodes[node]
                return None
        return total

    def _more(self, total: Arena | None, found: Source, names: Collection[str]) -> Arena | None:
        try:
            arena = found if isinstance(found, Arena) else self._of.checked(found)
            part = arena if len(names) == len(arena.layout.index) else arena.only(names)
            return part if total is None else Arena.total([total, part])
        except KeyHolderError:
            raise
        except (FormatError, StorageError, StateError):
            return None
