"""Folders in memory, where there is such a disk: hundreds of small stores then need no real syncs.

A killed process loses nothing that it wrote to a file, wherever that is.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108


@contextmanager
def in_memory() -> Iterator[Path]:
    """A new folder, removed at the end."""
    where = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="pyramidion-", dir=where) as folder:
        yield Path(folder)
