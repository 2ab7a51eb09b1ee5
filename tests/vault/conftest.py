"""A store with a vault."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.stores import Stand


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    """A place for one store, whose new stores have a vault beside it."""
    stand = Stand(tmp_path)
    stand.vault = tmp_path / "vault"
    yield stand
    stand.close()
