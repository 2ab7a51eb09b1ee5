"""Count tables in encrypted files, each under a key of its own; written once, never changed.

File names are random and never used twice, so a copy of one name is a copy of
one content.
"""

from __future__ import annotations

import os
from pathlib import Path

from pyramidion.counts.arena import Arena
from pyramidion.storage.ciphers import opened, sealed
from pyramidion.storage.disk import read, write_durably


class TableFiles:
    """The table files in one folder."""

    def __init__(self, folder: Path, secret: bytes) -> None:
        self.folder = folder
        self._secret = secret

    def write(self, arena: Arena, key: bytes) -> str:
        """Write tables to a new file, durable on return; its name."""
        name = f"{os.urandom(12).hex()}.tables"
        parts = arena.to_parts() if arena.sealed else arena.checkpoint()
        write_durably(self.folder / name, sealed(key, parts, name.encode()))
        return name

    def read(self, name: str, key: bytes) -> Arena:
        """The tables in a file."""
        path = self.folder / name
        data = opened(key, read(path), name.encode(), what=str(path))
        return Arena.from_bytes(data, self._secret)
