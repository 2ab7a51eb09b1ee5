"""A store with a vault, and a broker's desk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.memory import in_memory
from tests.store.stores import Stand
from tests.vault.desk import Desk


@pytest.fixture
def stand(folder: Path) -> Iterator[Stand]:
    """A place for one store, whose new stores have a vault beside it."""
    stand = Stand(folder)
    stand.vault = folder / "vault"
    yield stand
    stand.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    with in_memory() as made:
        yield made


@pytest.fixture
def desk(folder: Path) -> Iterator[Desk]:
    """Three hours of rows, a custodian, an engineer and a broker."""
    made = Desk(folder)
    yield made
    made.log.close()
