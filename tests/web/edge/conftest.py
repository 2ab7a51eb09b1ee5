from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from pyramidion import Client
from pyramidion.web.connection_slots import ConnectionSlots
from pyramidion.web.connections import Connection
from pyramidion.web.edge import edge as edges
from pyramidion.web.edge.app import create_app
from pyramidion.web.edge.bodies import LIMITS as USUAL
from pyramidion.web.edge.copies import Copies
from pyramidion.web.limits import Limits
from pyramidion.web.listen import bound
from pyramidion.web.server import Server
from pyramidion.web.tokens import TokenFile
from tests.store.stores import SECOND, Stand
from tests.waiting import PATIENCE, wait_for
from tests.web.client.conftest import client, service, soon, stand, store  # noqa: F401
from tests.web.client.service import TOKEN, Service
from tests.web.edge.toys import Toy, export

LIMITS = replace(
    USUAL, header_seconds=2 * PATIENCE, body_seconds=2 * PATIENCE, idle_seconds=600, connections=40,
    stranger_per_second=1e-6,
)  # fmt: skip
"""A busy machine is no slow client."""
ASKER = "pyr_00000000000000aa_" + "q" * 43


def line(token: str) -> str:
    _, mark, secret = token.split("_", 2)
    return f"{mark} {hashlib.sha256(secret.encode()).hexdigest()}\n"


@dataclass
class Edge:
    copies: Copies
    http: httpx.Client
    hashes: Path
    made: edges.Edge

    def post(self, path: str, rows: Any, **given: Any) -> httpx.Response:
        return self.http.post(f"/v1/streams/flights/{path}", json=rows, **given)


@pytest.fixture
def limits() -> Limits:
    """What an edge takes."""
    return LIMITS


@pytest.fixture
def slots(limits: Limits) -> ConnectionSlots:
    """The connections of an edge."""
    return ConnectionSlots(lambda: limits.connections)


@pytest.fixture
def kind() -> type[Any]:
    """The kind of connections that an edge has."""
    return Connection


@pytest.fixture
def edge(
    service: Service,  # noqa: F811
    stand: Stand,  # noqa: F811
    tmp_path: Path,
    kind: type[Any],
    limits: Limits,
    slots: ConnectionSlots,
) -> Iterator[Edge]:
    """An edge that holds a stream and models: of classes, of a number, and one that has none."""
    now = int(stand.clock.now * SECOND)
    service.exports = {
        "late": export(0.25, now),
        "delay": export(7.5, now, classes=()),
        "lost": export(math.nan, now),
    }
    hashes = tmp_path / "hashes"
    hashes.write_text(line(ASKER))
    upstream = Client(service.url, token=TOKEN, clock=stand.clock, retries=0)
    wanted = {"flights": ["late", "delay", "lost"]}
    copies = Copies(upstream, wanted, clock=stand.clock, every=0.05, revive=Toy).begin()
    listening = bound("127.0.0.1", 0)
    made = edges.Edge(copies, TokenFile(hashes), limits)
    config = uvicorn.Config(
        create_app(made), http="httptools", loop="uvloop", ws="none", log_config=None,
        timeout_keep_alive=limits.idle_seconds, access_log=False, server_header=False,
    )  # fmt: skip
    server = Server(config, threading.Event(), slots, limits, kind)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    wait_for(lambda: server.started and not copies.lacking())
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    bearer = {"Authorization": f"Bearer {ASKER}"}
    with httpx.Client(base_url=url, headers=bearer, timeout=PATIENCE) as http:
        yield Edge(copies, http, hashes, made)
    server.should_exit = True
    thread.join()
    copies.close()
