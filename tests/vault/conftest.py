from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vault.desk import Desk

MEMORY = Path("/dev/shm")  # noqa: S108


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory, where there is one: its syncs cost nothing."""
    where = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="pyramidion-", dir=where) as made:
        yield Path(made)


@pytest.fixture
def desk(folder: Path) -> Iterator[Desk]:
    made = Desk(folder)
    yield made
    made.log.close()
