"""Shards and the Redis that they meet in, killed by plan: each row is in the sum once."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from tests.memory import in_memory
from tests.redis_servers import RedisServer, needed
from tests.store import inspect
from tests.store.shards.killing import END, OUTAGES, POINTS, Ordeal
from tests.store.shards.streams import DAYS, NAMES, cells, exact, served
from tests.store.shards.test_shards_kill import kept
from tests.store.stores import same


@pytest.fixture
def server() -> Iterator[RedisServer]:
    needed()
    with in_memory() as folder:
        made = RedisServer(folder / "redis")
        yield made
        made.kill()


def test_each_point_of_sharing_meets_an_outage() -> None:
    assert {where for _, where, _, _ in OUTAGES} == set(POINTS)
    assert {uses > 0 for _, _, _, uses in OUTAGES} == {True, False}


def test_every_acknowledged_row_is_in_the_sum_once_whatever_redis_lost(server: RedisServer) -> None:
    url = f"{server.url}?socket_timeout=300"  # a busy machine is no outage
    ordeal = Ordeal(server.folder.parent, 1, url=url, epsilon=math.inf, shard_wait="1s")
    ordeal.go_without(server)
    died = [(name, where) for kills in ordeal.kills for name, where in kills.items() if where]
    assert died == [(name, where) for name, where, _, _ in OUTAGES]

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
    tables = inspect.parts(nodes[NAMES[0]]).shards._tables
    assert set(tables.names()) == known  # and nothing else is left there
    stream.close()
