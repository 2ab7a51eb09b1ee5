"""A store with a vault, and a broker's desk."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.stores import Stand
from tests.vault.desk import Desk

MEMORY = Path("/dev/shm")  # noqa: S108


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    """A place for one store, whose new stores have a vault beside it."""
    stand = Stand(tmp_path)
    stand.vault = tmp_path / "vault"
    yield stand
    stand.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory, where there is one: its syncs cost nothing."""
    where = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="pyramidion-", dir=where) as made:
        yield Path(made)


@pytest.fixture
def desk(folder: Path) -> Iterator[Desk]:
    """Three hours of rows, a custodian, an engineer and a broker."""
    made = Desk(folder)
    yield made
    made.log.close()
