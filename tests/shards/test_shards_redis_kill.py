"""Shards and the Redis that they meet in, killed at random: each row is in the sum once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.redis_servers import RedisServer, needed
from tests.shards.killing import END, Ordeal
from tests.shards.streams import DAYS, NAMES, cells, exact, served
from tests.shards.test_shards_kill import kept
from tests.store.stores import same


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    needed()
    made = RedisServer(tmp_path / "redis")
    yield made
    made.kill()


@pytest.mark.parametrize("seed", [1, 2])
def test_every_acknowledged_row_is_in_the_sum_once_whatever_redis_lost(
    server: RedisServer, tmp_path: Path, seed: int
) -> None:
    ordeal = Ordeal(tmp_path, seed, url=server.url, epsilon=math.inf, shard_wait="1s")
    ordeal.go_without(server)
    assert ordeal.kills["redis"] >= 4
    assert sum(ordeal.kills.values()) - ordeal.kills["redis"] >= 4  # of shards

    stream, batches = ordeal.stream, kept(ordeal)
    stream.clock.now = END
    nodes = {name: stream.reopen(name) for name in NAMES}
    with server.away():
        pass
    stream.advance(61 / DAYS)  # nobody opened anything since: they give again what is gone
    for name in NAMES:
        nodes[name] = stream.reopen(name)
    for node in nodes.values():
        found, told = served(node), node.status().shard
        assert (told.missing, told.problem) == ({}, "")
        assert found.rows == sum(batch.num_rows for batch in batches)
        assert same(cells(found), exact(node, found, batches))
    entries = stream.shard(NAMES[0]).roster.entries()
    known = {window.held.name for window in entries.windows}
    known |= {member.manifest.name for member in entries.members.values() if member.manifest}
    assert set(nodes[NAMES[0]]._shards._tables.names()) == known  # and nothing else is left there
    stream.close()
