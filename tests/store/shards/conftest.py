from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.shards.streams import Stream


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[Stream]:
    made = Stream(tmp_path)
    yield made
    made.close()
