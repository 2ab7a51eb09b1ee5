"""The table stores that the contract is tried on; each is the real thing.

To add one, write a fixture ``<name>_tables`` that gives an empty store, and its name to `STORES`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyramidion.storage.tables import FileTables, MemoryTables, TableStore, tables_at
from tests.redis_servers import RedisCluster, RedisServer

if TYPE_CHECKING:
    from tests.cassandra_nodes.ring import Node

STORES = ("memory", "files", "redis", "redis_cluster", "cassandra")


@pytest.fixture
def memory_tables() -> TableStore:
    return MemoryTables()


@pytest.fixture
def files_tables(tmp_path: Path) -> TableStore:
    return FileTables(tmp_path / "shared")


@pytest.fixture
def redis_tables(redis_server: RedisServer) -> Iterator[TableStore]:
    yield from emptied(redis_server.url)


@pytest.fixture
def redis_cluster_tables(redis_cluster: RedisCluster) -> Iterator[TableStore]:
    yield from emptied(redis_cluster.url)


@pytest.fixture
def cassandra_tables(cassandra_node: Node) -> Iterator[TableStore]:
    yield from emptied(cassandra_node.url("shared", replication=1))


def emptied(url: str) -> Iterator[TableStore]:
    """The store at a URL; what a test leaves in it goes."""
    store = tables_at(url)
    for name, count in store.names().items():
        store.delete(name, count)
    yield store
    store.close()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> TableStore:
    found: TableStore = request.getfixturevalue(f"{request.param}_tables")
    return found
