"""An edge as people run it, before a service that can be told how long its copies live."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pyramidion import Pyramid
from tests.clocked import Moved
from tests.memory import in_memory
from tests.ports import free_port
from tests.secrets_on_disk import secret
from tests.store.inspect import settled
from tests.store.stores import TIMELESS, rows, tiny
from tests.waiting import PATIENCE, wait_for
from tests.web.client.service import TOKEN
from tests.web.edge.conftest import ASKER, line

ROWS = rows(3).drop_columns(["t", "y"]).to_pylist()


class World:
    """A folder with a store, an upstream over it, and an edge before that."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.clock = Moved(folder / "clock", time.time())
        self.upstream: subprocess.Popen[str] | None = None
        self.edge: subprocess.Popen[str] | None = None
        self.http = httpx.Client(headers={"Authorization": f"Bearer {ASKER}"}, timeout=PATIENCE)
        given: Any = {"keys": f"file:{folder / 'store.key'}"}
        settings = tiny(count_window=50, hot_step="1d")
        with Pyramid.create(folder / "store", TIMELESS, settings, **given) as store:
            store.observe(rows(50).drop_columns(["t"]))
            settled(store).advance()
            store.observe(rows(30, seed=2).drop_columns(["t"]))

    def more(self) -> None:
        """The store gets rows while it is nobody's, and another window is sealed."""
        with Pyramid.open(self.folder / "store", keys=f"file:{self.folder / 'store.key'}") as store:
            store.observe(rows(50, seed=3).drop_columns(["t"]))
            settled(store).advance()

    def begin_upstream(self, *life: str) -> None:
        where = [str(self.folder), str(self.port), *life]
        self.upstream = begun(*self.clock.words("tests.web.edge.upstream"), *where)
        assert self.upstream.stdout is not None
        assert self.upstream.stdout.readline()

    def kill_upstream(self) -> None:
        assert self.upstream is not None
        self.upstream.send_signal(signal.SIGKILL)
        self.upstream.wait()

    def begin_edge(self, *given: str) -> None:
        token, hashes = self.folder / "token", self.folder / "hashes"
        secret(token, TOKEN + "\n")
        hashes.write_text(line(ASKER))
        self.edge = begun(
            *self.clock.words("pyramidion"), "edge", "--from", f"http://127.0.0.1:{self.port}",
            "--token-file", str(token), "--token-hash-file", str(hashes),
            "--stream", "flights", "--port", "0", "--every", "0.2", *given,
        )  # fmt: skip
        assert self.edge.stdout is not None
        self.http.base_url = self.edge.stdout.readline().split()[-1]

    def ready(self) -> bool:
        try:
            return self.http.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def windows(self) -> int:
        answer = self.http.post("/v1/streams/flights/features", json=ROWS)
        assert answer.status_code == 200, answer.text
        found: int = answer.json()["guarantee"]["windows"]
        return found

    def close(self) -> None:
        self.http.close()
        for process in (self.upstream, self.edge):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


def begun(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path.cwd())


@pytest.fixture
def world() -> Iterator[World]:
    with in_memory() as folder:
        made = World(folder)
        yield made
        made.close()


def test_features_go_on_while_the_store_is_killed_and_are_renewed_when_it_is_back(
    world: World,
) -> None:
    world.begin_upstream()
    world.begin_edge()
    wait_for(world.ready)
    assert world.windows() == 1
    world.kill_upstream()
    assert [world.windows() for _ in range(50)] == [1] * 50
    world.more()
    assert world.windows() == 1
    world.begin_upstream()
    wait_for(lambda: world.windows() == 2)


def test_an_edge_that_begins_before_the_store_waits_for_it(world: World) -> None:
    world.begin_edge()
    wait_for(lambda: alive(world))
    answer = world.http.post("/v1/streams/flights/features", json=ROWS)
    assert answer.status_code == 503
    assert "are not at hand: the service is not there" in answer.json()["error"]["message"]
    world.begin_upstream()
    wait_for(world.ready)
    assert world.windows() == 1


def alive(world: World) -> bool:
    try:
        return world.http.get("/healthz").json() == {"alive": True}
    except httpx.TransportError:
        return False


def test_copies_end_without_the_store(world: World) -> None:
    world.begin_upstream("600")
    world.begin_edge()
    wait_for(world.ready)
    world.kill_upstream()
    assert world.ready()
    world.clock.pass_(601)
    wait_for(lambda: not world.ready())
    answer = world.http.post("/v1/streams/flights/features", json=ROWS)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "ExpiredError"


def test_an_edge_stops_when_it_is_asked_to(world: World) -> None:
    world.begin_upstream()
    world.begin_edge()
    wait_for(world.ready)
    assert world.edge is not None
    world.edge.send_signal(signal.SIGTERM)
    assert world.edge.wait(PATIENCE) in (0, -signal.SIGTERM)
