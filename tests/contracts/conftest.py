"""The table stores that the contract is tried on; each is the real thing.

To add one, write a fixture ``<name>_tables`` that gives an empty store, and its name to `STORES`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pyramidion.storage.tables import FileTables, MemoryTables, TableStore

STORES = ("memory", "files")


@pytest.fixture
def memory_tables() -> TableStore:
    return MemoryTables()


@pytest.fixture
def files_tables(tmp_path: Path) -> TableStore:
    return FileTables(tmp_path / "shared")


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> TableStore:
    found: TableStore = request.getfixturevalue(f"{request.param}_tables")
    return found
