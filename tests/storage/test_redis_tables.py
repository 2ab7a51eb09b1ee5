"""Shared tables in Redis: what is on the server, and what happens when it goes away."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pyramidion.errors import (
    ExpiredError,
    PyramidionError,
    SchemaError,
    StorageError,
    UnreachableError,
)
from pyramidion.storage.blocks import Blocks, Encrypted, Span
from pyramidion.storage.tables import TableStore, tables_at
from tests.conftest import ROOT
from tests.ports import free_port
from tests.redis_servers import RedisCluster, RedisServer, needed
from tests.storage.contracts.test_table_store import LAYOUT, count, filled, lengths, loaded, same
from tests.waiting import wait_for


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that a test may kill."""
    needed()
    server = RedisServer(tmp_path / "redis")
    yield server
    server.kill()


@pytest.fixture
def store(own_server: RedisServer) -> Iterator[TableStore]:
    found = tables_at(own_server.url)
    yield found
    found.close()


def keys(server: RedisServer) -> list[str]:
    return server.asked("keys", "*").decode().split()


# --- what is on the server ----------------------------------------------------------------------


def test_keys_hold_no_name_of_a_table(store: TableStore, own_server: RedisServer) -> None:
    store.publish(filled(), owner="0123")
    chunk = re.compile(r"pyramidion:0123\.[0-9a-f]{24}:\d+")
    found = [key for key in keys(own_server) if key != "pyramidion:names"]
    assert found
    assert all(chunk.fullmatch(key) for key in found)


def test_chunks_end_by_themselves(store: TableStore, own_server: RedisServer) -> None:
    generation = store.publish(filled(), owner="o", life=3600.0)
    for key in keys(own_server):
        left = int(own_server.asked("pttl", key))
        assert left == -1 if key == "pyramidion:names" else 3_000_000 < left <= 3_600_000
    soon = store.publish(filled(), owner="o", life=2.0)
    wait_for(lambda: not store.has(soon.name, lengths(store, soon)))
    with pytest.raises(ExpiredError, match="fetch a new card"):
        loaded(store, soon)
    assert same(loaded(store, generation), filled())


def test_a_row_takes_one_round_trip(store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    from redis.connection import AbstractConnection

    opened = store.opened(store.publish(filled(), owner="o"), LAYOUT)
    sent, send = [], AbstractConnection.send_packed_command

    def spy(self: AbstractConnection, *given: object, **named: object) -> object:
        sent.append(1)
        return send(self, *given, **named)

    monkeypatch.setattr(AbstractConnection, "send_packed_command", spy)
    opened.buckets(np.full(195, 2), np.arange(0, 195_000, 1000) % (5 << 15))
    assert len(sent) == 1


# --- it goes away ---------------------------------------------------------------------------------


def test_a_server_that_is_gone_is_said_to_be(store: TableStore, own_server: RedisServer) -> None:
    generation, arena = store.publish(filled(), owner="o"), filled()
    with own_server.away():
        for call in (
            lambda: store.read(generation.name, [Span(0, 0, 1)]),
            lambda: store.publish(arena, owner="o"),
            lambda: store.has(generation.name, [1]),
            lambda: store.delete(generation.name, 1),
            store.names,
        ):
            with pytest.raises(UnreachableError, match="does not answer") as told:
                call()
            assert told.value.status == 503
            assert told.value.__cause__ is not None
    with pytest.raises(ExpiredError, match="it lost them"):  # it is back, and empty
        loaded(store, generation)
    assert same(loaded(store, store.publish(arena, owner="o")), arena)


def test_a_server_killed_while_tables_are_loaded_gives_no_tables(
    store: TableStore, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    generation, read = store.publish(filled(), owner="o"), store.read

    def killed(name: str, spans: list[Span]) -> list[bytes]:
        found = read(name, spans)
        own_server.kill()
        return found

    monkeypatch.setattr(store, "read", killed)
    with pytest.raises(UnreachableError):
        loaded(store, generation)


@pytest.mark.parametrize("after", [0, 1, 2, 4])
def test_a_server_restarted_while_tables_are_published_has_none_of_them(
    store: TableStore, own_server: RedisServer, after: int
) -> None:
    whole = Encrypted.__iter__

    def restarted(chunks: Iterator[bytes]) -> Iterator[bytes]:
        for number, chunk in enumerate(chunks):
            if number == after:  # the driver connects again, and the rest is taken
                with own_server.away():
                    pass
            yield chunk

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Encrypted, "__iter__", lambda self: restarted(whole(self)))
        if after:
            with pytest.raises(StorageError, match="lost tables while they were written"):
                store.publish(filled(), owner="o")
            assert keys(own_server) == []
        else:  # nothing was lost but what said that they are coming
            generation = store.publish(filled(), owner="o")
            assert list(store.names()) == [generation.name]
    assert same(loaded(store, store.publish(filled(), owner="o")), filled())


def test_nobody_at_the_address_is_said_so() -> None:
    needed()
    with pytest.raises(UnreachableError, match=r"redis://127\.0\.0\.1:\d+/0 does not answer"):
        tables_at(f"redis://127.0.0.1:{free_port()}/0").names()
    with pytest.raises(UnreachableError, match="does not answer"):
        tables_at(f"redis+cluster://127.0.0.1:{free_port()}").names()


@pytest.mark.slow
def test_a_node_of_a_cluster_that_is_gone_is_said_to_be(redis_cluster: RedisCluster) -> None:
    store, arena = tables_at(redis_cluster.url), filled()
    generation = store.publish(arena, owner="o")
    lost = redis_cluster.servers[-1]
    with lost.away(), pytest.raises((UnreachableError, ExpiredError)):
        loaded(store, generation)
    redis_cluster.ready()
    with pytest.raises(ExpiredError):  # only some of the chunks are there
        loaded(store, generation)
    assert same(loaded(store, store.publish(arena, owner="o")), arena)
    store.close()


# --- passwords and limits -------------------------------------------------------------------------


def test_passwords_stand_in_no_error(tmp_path: Path) -> None:
    needed()
    server = RedisServer(tmp_path / "redis", "--requirepass", "open sesame")
    try:
        at = f"127.0.0.1:{server.port}"
        with pytest.raises(UnreachableError, match="does not let us in") as told:
            tables_at(f"redis://:wrongpassword@{at}/0").names()
        assert "wrongpassword" not in str(told.value)
        right = tables_at(f"redis://:open%20sesame@{at}/0")
        assert right.names() == {}
        assert right.address == f"redis://{at}/0"
        assert "sesame" not in repr(vars(right)["address"])
    finally:
        server.kill()


def test_rights_as_the_documents_say_suffice_and_readers_cannot_write(tmp_path: Path) -> None:
    needed()
    told = (ROOT / "docs" / "backends.md").read_text("utf-8")
    owner, reader = (
        found.split() for found in re.findall(r"`((?:\+\w+ ?)+)`", " ".join(told.split()))
    )
    server = RedisServer(tmp_path / "redis")
    try:
        for user, rights in (("owner", owner), ("reader", reader)):
            server.asked("acl", "setuser", user, "on", ">word", "~pyramidion:*", *rights)
        server.asked("acl", "setuser", "default", "off")
        at, arena = f"127.0.0.1:{server.port}/0", filled()
        store, read = (tables_at(f"redis://{user}:word@{at}") for user in ("owner", "reader"))
        generation = store.publish(arena, owner="o", life=60.0)
        assert list(store.names()) == [generation.name]
        assert same(loaded(read, generation), arena)
        cells = read.opened(generation, LAYOUT).buckets(np.array([2, 2]), np.array([3, 900]))
        assert len(cells) == 2
        for forbidden in (lambda: read.delete(generation.name, 1), read.names):
            with pytest.raises(UnreachableError, match="does not let us in"):
                forbidden()
        store.delete(generation.name, count(store, generation))
        assert store.names() == {}
    finally:
        server.kill()


def test_over_tls_and_only_with_a_server_that_is_known(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    needed()
    pem, key = certificate
    port = free_port()
    tls = ("--tls-port", str(port), "--tls-cert-file", str(pem), "--tls-key-file", str(key))
    server = RedisServer(tmp_path / "redis", *tls, "--tls-ca-cert-file", str(pem),
                         "--tls-auth-clients", "no")  # fmt: skip
    try:
        url = f"rediss://127.0.0.1:{port}/0"
        with pytest.raises(UnreachableError, match="does not answer"):
            tables_at(url).names()
        store = tables_at(f"{url}?ssl_ca_certs={pem}")
        assert same(loaded(store, store.publish(filled(), owner="o")), filled())
    finally:
        server.kill()


def test_a_full_server_refuses_and_keeps_nothing(tmp_path: Path) -> None:
    needed()
    server = RedisServer(tmp_path / "redis", "--maxmemory", "3mb")
    try:
        store = tables_at(server.url)
        arenas = [filled() for _ in range(9)]
        with pytest.raises(StorageError, match="is full"):
            [store.publish(arena, owner="o") for arena in arenas]
        expected = Blocks(LAYOUT).lengths
        for name, count in store.names().items():
            assert count == len(expected)
            assert store.has(name, expected)  # what stands there is whole
    finally:
        server.kill()


def test_an_option_that_the_driver_does_not_know_is_said_so() -> None:
    needed()
    with pytest.raises(SchemaError, match="has an option"):
        tables_at("redis://127.0.0.1:1/0?socket_timeout=soon").names()


def test_other_urls_are_refused_without_being_told() -> None:
    with pytest.raises(SchemaError, match="one begins with file:") as told:
        tables_at("http://somebody:secret@host")
    assert "secret" not in str(told.value)
    assert isinstance(told.value, PyramidionError)
