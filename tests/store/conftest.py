from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.stores import Stand
from tests.store.teaching import one_trainer

MEMORY = Path("/dev/shm")  # noqa: S108
"""A disk in memory, where there is one: hundreds of small stores then need no real syncs."""


@pytest.fixture
def stand() -> Iterator[Stand]:
    where = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="pyramidion-", dir=where) as folder:
        made = Stand(Path(folder))
        yield made
        made.close()


@pytest.fixture(scope="module")
def trainer() -> Iterator[None]:
    """All stores of a module train in one process."""
    with one_trainer():
        yield
