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
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from pyramidion.counts.arena import Arena
from pyramidion.counts.cover import Piece, cover
from pyramidion.counts.layout import Layout
from pyramidion.errors import FormatError, KeyHolderError, StateError, StorageError
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.ciphers import opened, sealed
from pyramidion.storage.data_keys import DataKey, DataKeys
from pyramidion.storage.disk import read, remove, write_durably


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
        self._keys = keys
        self.folder = folder
        self._secret = secret
        self._noted = noted
        """Whether the noise of tables stands in the catalogue beside their names."""

    def write(
        self, arena: Arena, kind: str, window: int | None = None, node: int | None = None
    ) -> NewFile:
        """Write tables to a new file, durable on return; the catalogue does not know it yet."""
        key, name = DataKey.new(kind), f"{os.urandom(12).hex()}.tables"
        parts = arena.to_parts() if arena.sealed else arena.checkpoint()
        write_durably(self.folder / name, sealed(key.key, parts, name.encode()))
        tables = arena.layout.tables
        told = {table.name: table.variance for table in tables} if self._noted else None
        names = list(arena.layout.index) if told is None else told
        return NewFile(self, kind, window, node, key, name, names)

    def add(self, file: NewFile, after: int) -> None:
        """Make a file and its key known; within a transaction."""
        self._keys.add(file.key)
        self._catalogue.run(
            "INSERT INTO arenas (kind, window, key, file, after, current, tables, node) "
            "VALUES (?, ?, ?, ?, ?, 1, ?, ?)",
            file.kind,
            file.window,
            file.key.id,
            file.name,
            after,
            json.dumps(file.tables),
            file.node,
        )

    def supersede(self, kind: str, window: int | None = None, node: int | None = None) -> None:
        """What is current of a kind is not any more; within a transaction."""
        self._catalogue.run(
            "UPDATE arenas SET current = 0 WHERE kind = ? AND window IS ? AND node IS ?",
            kind,
            window,
            node,
        )

    def current(self, *kinds: str) -> list[sqlite3.Row]:
        """The current files of windows of some kinds, as the catalogue has them."""
        rows = self._catalogue.all(
            "SELECT * FROM arenas WHERE current = 1 AND node IS NULL ORDER BY id"
        )
        return [row for row in rows if row["kind"] in kinds]

    def nodes(self, state: str) -> list[sqlite3.Row]:
        """The files of nodes in a state, with their levels and places, small nodes first."""
        return self._catalogue.all(
            "SELECT arenas.*, level, place FROM arenas JOIN nodes ON number = node "
            "WHERE current = 1 AND state = ? ORDER BY level, number",
            state,
        )

    def members(self, node: int) -> dict[int, int]:
        """The windows whose rows a node takes, and how many rows each took."""
        rows = self._catalogue.all(
            "SELECT number, rows FROM members JOIN windows ON number = window WHERE node = ?", node
        )
        return {row["number"]: row["rows"] for row in rows}

    def windows(self) -> list[sqlite3.Row]:
        """The files of sealed windows, each with the rows it took; a retired one has left."""
        return self._catalogue.all(
            "SELECT arenas.*, windows.rows FROM arenas JOIN windows ON number = window "
            "WHERE kind = 'sealed' AND current = 1 AND state = 'sealed' ORDER BY id"
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
        query = "SELECT * FROM arenas WHERE current = 1 AND kind = 'sealed' AND window = ?"
        (row,) = self._catalogue.all(query, number)
        return self.read(row["file"], self._keys.get(row["key"]), like=like)

    def names(self, row: sqlite3.Row) -> set[str]:
        """The names of the tables in a file; they are public, the file need not be read."""
        return set(self.variances(row))

    def variances(self, row: sqlite3.Row) -> Mapping[str, float]:
        """The noise of the tables in a file, where it was noted."""
        if not row["tables"]:  # written by a version that did not note them: all were paid for
            lines = self._catalogue.lines(row["window"])
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
        """The tables in the file of a sealed window or node, of as many rows as it took."""
        arena = self.of(row)
        if row["node"] is not None:
            taken = sum(self.members(row["node"]).values())
        else:
            taken = self._catalogue.one("SELECT rows FROM windows WHERE number = ?", row["window"])
        if not arena.sealed or arena.rows != taken:
            path = self.folder / row["file"]
            raise FormatError(f"{path} has not the rows of its window; restore it from a backup")
        return arena

    def total(
        self,
        *,
        but: Collection[int] = (),
        windows: Mapping[int, Arena] | None = None,
        nodes: Mapping[int, Arena | None] | None = None,
    ) -> tuple[Arena | None, frozenset[int]]:
        """The sum of the sealed windows, and the numbers of those that cannot be read.

        Nodes stand for their windows where that leaves less noise. Some windows may be left out;
        some tables may be given that the catalogue does not know yet, in place of those that it
        knows (None: there are none any more). Sums of what is private already cost nothing.
        """
        held = {row["window"]: row for row in self.windows() if row["window"] not in but}
        above = {row["node"]: row for row in self.nodes("sealed")} | dict(nodes or {})
        members: dict[int, set[int]] = {node: set() for node in above}
        for row in self._catalogue.all("SELECT node, window FROM members") if above else ():
            if row["node"] in members:
                members[row["node"]].add(row["window"])
        standing = {
            node: found
            for node, found in above.items()
            if found is not None and not members[node].intersection(but)
        }
        return _Sum(self, held | dict(windows or {}), standing, members).total()

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
        kind: str,
        window: int | None,
        node: int | None,
        key: DataKey,
        name: str,
        tables: dict[str, float] | list[str],
    ) -> None:
        self._of = of
        self.kind, self.window, self.key, self.name = kind, window, key, name
        self.node = node
        self.tables = tables

    def __enter__(self) -> Callable[..., None]:
        return self.add

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
        nodes: Mapping[int, Source],
        members: Mapping[int, Collection[int]],
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
        self, windows: Mapping[int, Collection[str]], nodes: Mapping[int, Collection[str]]
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
