"""Count tables in encrypted files, each under a key of its own; written once, never changed.

File names are random and never used twice, so a copy of one name is a copy of one
content. A file is written before the catalogue knows it, and superseded before it is
removed: what a crash leaves is a file that nobody needs.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Collection
from pathlib import Path

from pyramidion.counts.arena import Arena
from pyramidion.counts.layout import Layout
from pyramidion.errors import FormatError, KeyHolderError, StateError, StorageError
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.ciphers import opened, sealed
from pyramidion.storage.data_keys import DataKey, DataKeys
from pyramidion.storage.disk import read, remove, write_durably


class Tables:
    """The table files of a store: checkpoints, sealed windows, the complete tables."""

    def __init__(self, catalogue: Catalogue, keys: DataKeys, folder: Path, secret: bytes) -> None:
        self._catalogue = catalogue
        self._keys = keys
        self.folder = folder
        self._secret = secret

    def write(self, arena: Arena, kind: str, window: int | None = None) -> NewFile:
        """Write tables to a new file, durable on return; the catalogue does not know it yet."""
        key, name = DataKey.new(kind), f"{os.urandom(12).hex()}.tables"
        parts = arena.to_parts() if arena.sealed else arena.checkpoint()
        write_durably(self.folder / name, sealed(key.key, parts, name.encode()))
        return NewFile(self, kind, window, key, name, list(arena.layout.index))

    def add(self, file: NewFile, after: int) -> None:
        """Make a file and its key known; within a transaction."""
        self._keys.add(file.key)
        self._catalogue.run(
            "INSERT INTO arenas (kind, window, key, file, after, current, tables) "
            "VALUES (?, ?, ?, ?, ?, 1, ?)",
            file.kind,
            file.window,
            file.key.id,
            file.name,
            after,
            json.dumps(file.tables),
        )

    def supersede(self, kind: str, window: int | None = None) -> None:
        """What is current of a kind is not any more; within a transaction."""
        self._catalogue.run(
            "UPDATE arenas SET current = 0 WHERE kind = ? AND window IS ?", kind, window
        )

    def current(self, *kinds: str) -> list[sqlite3.Row]:
        """The current files of some kinds, as the catalogue has them."""
        rows = self._catalogue.all("SELECT * FROM arenas WHERE current = 1 ORDER BY id")
        return [row for row in rows if row["kind"] in kinds]

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
        if not row["tables"]:  # written by a version that did not note them: all were paid for
            lines = self._catalogue.lines(row["window"])
            return {line.purpose for line in lines if line.kind == "table"}
        return set(json.loads(row["tables"]))

    def checked(self, row: sqlite3.Row) -> Arena:
        """The tables in the file of a sealed window, of as many rows as it took."""
        arena = self.of(row)
        taken = self._catalogue.one("SELECT rows FROM windows WHERE number = ?", row["window"])
        if not arena.sealed or arena.rows != taken:
            path = self.folder / row["file"]
            raise FormatError(f"{path} has not the rows of its window; restore it from a backup")
        return arena

    def total(self, *, but: Collection[int] = ()) -> tuple[Arena | None, frozenset[int]]:
        """The sum of the sealed windows, and the numbers of those that cannot be read.

        Some may be left out. Sums of what is private already cost nothing.
        """
        total, lacking = None, set()
        for row in [row for row in self.windows() if row["window"] not in but]:
            try:
                arena = self.checked(row)
                total = arena if total is None else Arena.total([total, arena])
            except KeyHolderError:
                raise
            except (FormatError, StorageError, StateError):
                lacking.add(row["window"])
        return total, frozenset(lacking)

    def forget(self, name: str) -> None:
        """Remove a file that did not get into the catalogue."""
        if self._catalogue.one("SELECT 1 FROM arenas WHERE file = ?", name) is None:
            remove(self.folder, [name])


class NewFile:
    """A table file that is written and not yet in the catalogue; removed where that fails."""

    def __init__(
        self,
        of: Tables,
        kind: str,
        window: int | None,
        key: DataKey,
        name: str,
        tables: list[str],
    ) -> None:
        self._of = of
        self.kind, self.window, self.key, self.name = kind, window, key, name
        self.tables = tables

    def __enter__(self) -> Callable[..., None]:
        return self.add

    def add(self, *, after: int = 0) -> None:
        """Make it known; within a transaction."""
        self._of.add(self, after)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._of.forget(self.name)
