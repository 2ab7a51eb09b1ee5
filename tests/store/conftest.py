from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.memory import in_memory
from tests.store.stores import Stand
from tests.store.teaching import one_trainer


@pytest.fixture
def stand() -> Iterator[Stand]:
    with in_memory() as folder:
        made = Stand(folder)
        yield made
        made.close()


@pytest.fixture(scope="module")
def trainer() -> Iterator[None]:
    """All stores of a module train in one process."""
    with one_trainer():
        yield
