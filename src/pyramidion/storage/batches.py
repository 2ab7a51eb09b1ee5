"""Batches of hot rows, as the catalogue has them in the clear: numbers, row totals, arrival times.

What their rows hold is sealed under the key of their step, see `pyramidion.storage.hot`.
"""

from __future__ import annotations

import sqlite3

from pyramidion.storage.catalogue import Catalogue


class Batches:
    """The hot batches of one store. What changes something runs within a transaction."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def all(self) -> list[sqlite3.Row]:
        """Number, step, rows and times of every batch, in the order they came."""
        return self._catalogue.all(
            "SELECT number, step, rows, arrived, came, since FROM batches ORDER BY came, number"
        )

    def after(self, number: int) -> list[sqlite3.Row]:
        """The batches with a higher number, in order."""
        query = "SELECT number, rows, arrived, since FROM batches WHERE number > ? ORDER BY number"
        return self._catalogue.all(query, number)

    def has(self, number: int) -> bool:
        """Whether a batch is hot."""
        return self._catalogue.one("SELECT 1 FROM batches WHERE number = ?", number) is not None

    def first_since(self, after: int) -> int | None:
        """When the first row of batches with a higher number arrived."""
        found = self._catalogue.one("SELECT min(since) FROM batches WHERE number > ?", after)
        return None if found is None else int(found)

    def rows_until(self, number: int, moment: int) -> int:
        """Rows of batches up to a number that arrived before a moment."""
        query = "SELECT coalesce(sum(rows), 0) FROM batches WHERE number <= ? AND arrived < ?"
        return int(self._catalogue.one(query, number, moment))

    def past_steps(self, since: int) -> list[sqlite3.Row]:
        """Steps that have left and whose first row came after a time, by number."""
        query = "SELECT * FROM past_steps WHERE came_first > ? ORDER BY number"
        return self._catalogue.all(query, since)

    def segment_files(self) -> set[str]:
        """The names of the segment files of hot steps."""
        return {row["file"] for row in self._catalogue.all("SELECT file FROM steps")}

    def set_step_start(self, step: int, start: int) -> None:
        """Date a hot step."""
        self._catalogue.run("UPDATE steps SET start = ? WHERE number = ?", start, step)

    def move_later(self, step: int, by: int) -> None:
        """Date the batches of a step and later ones as much later."""
        self._catalogue.run(
            "UPDATE batches SET arrived = arrived + ?, since = since + ?, came = came + ? "
            "WHERE step >= ?",
            *(by, by, by, step),
        )
