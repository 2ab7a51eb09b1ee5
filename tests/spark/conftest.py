from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.sessions import need_java, session
from tests.store.conftest import stand, trainer

__all__ = ["stand", "trainer"]


@pytest.fixture(scope="session")
def local_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark keeps what it writes."""
    return tmp_path_factory.mktemp("spark-local")


@pytest.fixture(scope="session")
def spark(local_dir: Path) -> Iterator[Any]:
    need_java()
    made = session(local_dir)
    yield made
    made.stop()
