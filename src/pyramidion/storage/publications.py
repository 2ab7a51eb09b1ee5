"""What the catalogue knows of published tables: where they are, and each generation of them.

A generation is one publication of the complete tables: its name in the table store, its key, the
table file and layout it was made from, and how many chunks it has. A generation without a key
cannot be opened any longer, and its chunks wait to be deleted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.data_keys import DataKey, DataKeys

PLACE = "shared"
"""The fact in the catalogue that says where tables are published: a URL, encrypted."""
_STALE = (
    "key IS NOT NULL AND file NOT IN "
    "(SELECT file FROM arenas WHERE kind = 'complete' AND current = 1)"
)


class EncryptedPlace(NamedTuple):
    """Where tables are published: the URL, encrypted under a data key."""

    key: int
    url: bytes


class Publications:
    """The published tables of one store, as the catalogue has them.

    What changes something runs within a transaction.
    """

    def __init__(self, catalogue: Catalogue, keys: DataKeys) -> None:
        self._catalogue, self._keys = catalogue, keys

    # --- where ---------------------------------------------------------------------------------

    @property
    def place(self) -> EncryptedPlace | None:
        """Where tables are published; None if they are not."""
        text = self._catalogue.about(PLACE, "")
        if not text:
            return None
        found = json.loads(text)
        return EncryptedPlace(found["key"], bytes.fromhex(found["url"]))

    def set_place(self, key: DataKey, url: bytes) -> None:
        """Publish at a URL, which is encrypted under a key, in place of any other."""
        former = self.place
        if former is not None:
            self._catalogue.run("DELETE FROM keys WHERE id = ?", former.key)
        self._keys.add(key)
        self._catalogue.note(**{PLACE: json.dumps({"key": key.id, "url": url.hex()})})

    def forget_place(self) -> None:
        """Publish no longer."""
        self._catalogue.forget(PLACE)

    # --- generations -----------------------------------------------------------------------------

    def add(self, name: str, key: DataKey, file: str, layout: str, chunks: int) -> None:
        """Add a generation and its key."""
        self._keys.add(key)
        self._catalogue.run(
            "INSERT INTO shared VALUES (?, ?, ?, ?, ?)", name, key.id, file, layout, chunks
        )

    def find(self, file: str, layout: str) -> tuple[str, int] | None:
        """Name and key of the generation that was made from a table file."""
        query = "SELECT name, key FROM shared WHERE key IS NOT NULL AND file = ? AND layout = ?"
        rows = self._catalogue.all(query, file, layout)
        return (rows[0]["name"], rows[0]["key"]) if rows else None

    def names(self) -> set[str]:
        """The names of all generations."""
        return {row["name"] for row in self._catalogue.all("SELECT name FROM shared")}

    def key_of(self, name: str) -> int:
        """The key of a generation."""
        return int(self._catalogue.one("SELECT key FROM shared WHERE name = ?", name))

    def keys(self) -> list[int]:
        """The keys of all generations that can be opened."""
        rows = self._catalogue.all("SELECT key FROM shared WHERE key IS NOT NULL")
        return [row["key"] for row in rows]

    def forget_keys(self, name: str | None = None) -> None:
        """Forget the key of one generation, or of all; the caller has it destroyed."""
        if name is None:
            self._catalogue.run("UPDATE shared SET key = NULL")
        else:
            self._catalogue.run("UPDATE shared SET key = NULL WHERE name = ?", name)

    def forget_stale_keys(self) -> Sequence[int]:
        """Forget the keys of generations that are not of the current tables; which these were."""
        rows = self._catalogue.all(f"SELECT key FROM shared WHERE {_STALE}")  # noqa: S608
        self._catalogue.run(f"UPDATE shared SET key = NULL WHERE {_STALE}")  # noqa: S608
        return [row["key"] for row in rows]

    def to_delete(self) -> list[tuple[str, int]]:
        """Names and chunks of the generations whose keys are gone."""
        rows = self._catalogue.all("SELECT name, chunks FROM shared WHERE key IS NULL")
        return [(row["name"], row["chunks"]) for row in rows]

    def delete(self, name: str) -> None:
        """Forget a generation whose chunks are deleted."""
        self._catalogue.run("DELETE FROM shared WHERE name = ? AND key IS NULL", name)
