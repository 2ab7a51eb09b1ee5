"""People who were erased in a block of time: their rows count no more until it is over.

How many rows of a person were counted is known from hot rows alone. Once these are erased, who
comes again in the same block could be counted beyond the bound. So a keyed hash of whoever is
erased is kept until the block ends, whether rows of theirs were there or not: being on this list
does not say that one was in the store. Each stands sealed under a key of its own, which dies with
the first erasure after the block.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pyramidion.rows.hashing import Keys
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.ciphers import opened, sealed
from pyramidion.storage.data_keys import DataKey, DataKeys

PURPOSE = "erased person"


class Uncounted:
    """Who counts no more in which block."""

    def __init__(self, catalogue: Catalogue, keys: DataKeys) -> None:
        self._catalogue = catalogue
        self._keys = keys

    def add(self, people: Keys, block: int) -> None:
        """Keep people until a block is over; within a transaction."""
        for person in people:
            key = DataKey.new(PURPOSE)
            self._keys.add(key)
            self._catalogue.run(
                "INSERT INTO uncounted (key, block, sealed) VALUES (?, ?, ?)",
                key.id,
                block,
                b"".join(sealed(key.key, [person.tobytes()], _context(block))),
            )

    def of(self, block: int) -> Keys:
        """The people who count no more in a block."""
        rows = self._catalogue.all("SELECT key, sealed FROM uncounted WHERE block = ?", block)
        what = f"who counts no more in block {block}"
        found = [
            opened(self._keys.get(row["key"]), row["sealed"], _context(block), what=what)
            for row in rows
        ]
        return np.frombuffer(b"".join(found), dtype=np.uint64).copy()

    def move(self, block: int) -> list[int]:
        """Keep the people of later blocks until this one is over; the keys that are to die.

        Within the erasure of these keys.
        """
        rows = self._catalogue.all("SELECT key, block FROM uncounted WHERE block > ?", block)
        for later in {row["block"] for row in rows}:
            self.add(self.of(later), block)
            self._catalogue.run("DELETE FROM uncounted WHERE block = ?", later)
        return [row["key"] for row in rows]

    def drop(self, is_over: Callable[[int], bool]) -> list[int]:
        """Forget the people of blocks that are over; within the erasure of these keys."""
        rows = self._catalogue.all("SELECT key, block FROM uncounted")
        gone = [row["key"] for row in rows if is_over(row["block"])]
        for key in gone:
            self._catalogue.run("DELETE FROM uncounted WHERE key = ?", key)
        return gone


def _context(block: int) -> bytes:
    return f"erased in block {block}".encode()
