"""Sealed files of the vault, as the catalogue has them: whose rows, where they are, what is gone.

A file waits in the backlog until it is ``stored`` in the vault's place. One that is ``gone`` has no
lock any longer; its objects wait to be deleted.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from pyramidion.storage.catalogue import Catalogue, told

_KEPT = "SELECT * FROM vault_files WHERE gone IS NULL"


class NewVaultFile(NamedTuple):
    """A sealed file: when its first and last row arrived, its batches, rows and digests."""

    name: str
    first: int
    last: int
    first_batch: int
    last_batch: int
    rows: int
    digest: str
    envelope: str
    lock: int | None
    stored: int | None


class VaultFiles:
    """The vault's files of one store. What changes something runs within a transaction."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def insert(self, file: NewVaultFile) -> None:
        """Add a file."""
        self._catalogue.run(
            "INSERT INTO vault_files (name, first, last, first_batch, last_batch, rows, "
            "digest, envelope, lock, stored) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *file,
        )

    def set_stored(self, name: str, now: int) -> None:
        """A file is in its place."""
        self._catalogue.run("UPDATE vault_files SET stored = ? WHERE name = ?", now, name)

    def set_gone(self, name: str, at: int) -> None:
        """A file is erased; the caller has its lock destroyed."""
        self._catalogue.run("UPDATE vault_files SET lock = NULL, gone = ? WHERE name = ?", at, name)

    def delete(self, name: str) -> None:
        """Forget a file whose objects are deleted."""
        self._catalogue.run("DELETE FROM vault_files WHERE name = ?", name)

    def names(self) -> set[str]:
        """The names of all files, also of those that are gone."""
        return {row["name"] for row in self._catalogue.all("SELECT name FROM vault_files")}

    def waiting(self) -> list[sqlite3.Row]:
        """The files in the backlog, oldest first."""
        return self._catalogue.all(f"{_KEPT} AND stored IS NULL ORDER BY first")

    def gone(self) -> list[sqlite3.Row]:
        """The files that are erased and whose objects are not deleted yet."""
        return self._catalogue.all("SELECT * FROM vault_files WHERE gone IS NOT NULL")

    def between(self, first: int, last: int) -> list[sqlite3.Row]:
        """The files with rows that arrived from ``first`` up to, not with, ``last``."""
        query = f"{_KEPT} AND first < ? AND last >= ? ORDER BY first, first_batch"
        return self._catalogue.all(query, last, first)

    def named(self, name: str) -> list[sqlite3.Row]:
        """The file of a name, if there is one."""
        return self._catalogue.all(f"{_KEPT} AND name = ?", name)

    def past(self, kept: int, now: int) -> list[sqlite3.Row]:
        """The files whose last row arrived at least ``kept`` ago."""
        return self._catalogue.all(f"{_KEPT} AND last + ? <= ? ORDER BY first", kept, now)

    def rows_before(self, moment: int) -> int:
        """Rows of files that have some which arrived before a moment."""
        query = "SELECT coalesce(sum(rows), 0) FROM vault_files WHERE gone IS NULL AND first < ?"
        return int(self._catalogue.one(query, moment))

    def oldest(self) -> int | None:
        """When the last row of the file arrived whose time is over first."""
        found = self._catalogue.one("SELECT min(last) FROM vault_files WHERE gone IS NULL")
        return None if found is None else int(found)

    def batches(self) -> list[tuple[int, int]]:
        """First and last batch of each file."""
        rows = self._catalogue.all(_KEPT)
        return [(row["first_batch"], row["last_batch"]) for row in rows]

    def readable(self, start: int, stop: int) -> tuple[int, int]:
        """How many files could be read at some moment from start to stop, and their rows."""
        query = (
            "SELECT count(*) AS files, coalesce(sum(rows), 0) AS rows FROM vault_files "
            "WHERE first <= ? AND (gone IS NULL OR gone >= ?)"
        )
        (row,) = self._catalogue.all(query, stop, start)
        return row["files"], row["rows"]


def is_kept(path: Path, name: str) -> bool:
    """Whether a catalogue that another process has open knows a file, and it is not erased."""
    query = "SELECT count(*) FROM vault_files WHERE name = ? AND gone IS NULL"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            return bool(db.execute(query, (name,)).fetchone()[0])
    except sqlite3.Error as problem:
        raise told(problem, path) from None
