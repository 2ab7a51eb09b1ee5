"""A service for tests of who gets in and what is refused, and callers of all kinds."""

from __future__ import annotations

import contextlib
import io
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import uvicorn
from starlette.testclient import TestClient

from pyramidion.learn.estimators import estimator_named
from pyramidion.web.bodies import ARROW
from pyramidion.web.connection_slots import ConnectionSlots
from pyramidion.web.connections import Connection
from pyramidion.web.limits import Limits
from pyramidion.web.listen import bound
from pyramidion.web.logs import logged
from pyramidion.web.server import Server
from pyramidion.web.service.app import create_app
from pyramidion.web.service.service import Service
from pyramidion.web.service.tokens import Tokens
from pyramidion.web.tokens import ROLES
from tests.store.stores import DAY, SCHEMA, START, Clock, rows, tiny
from tests.waiting import PATIENCE, wait_for

STREAM, OTHER, MODEL = "flights", "clicks", "late"
MARKER = "Zq7marker"
"""Stands in values that must be found nowhere else."""


class Guarded:
    """A service with two streams, one of them filled, and tokens for every role."""

    def __init__(
        self,
        folder: Path,
        limits: Limits | None = None,
        *,
        open_metrics: bool = False,
        now: float = START,
    ) -> None:
        self.clock = Clock()
        self.clock.now = now
        self.service = Service(
            folder / "data",
            keys=f"file:{folder}/keys/{{stream}}.key",
            limits=limits,
            clock=self.clock,
            open_metrics=open_metrics,
        )
        self.data = folder / "data"
        self.app = create_app(self.service)
        self.outside = Tokens.of(self.data)
        """The tokens as another process sees them."""
        self._usual: dict[tuple[str, ...], str] = {}
        self.client = TestClient(self.app, raise_server_exceptions=False)

    def create(self, *names: str) -> None:
        for name in names:
            self.service.create(name, SCHEMA, tiny())

    def fill(self) -> None:
        """A sealed window, hot rows, a model."""
        store = self.pyramid()
        store.observe(rows(200, self.clock.now, seed=1))
        self.clock.pass_(10 * DAY)
        store.advance()
        store.observe(rows(200, self.clock.now, seed=2))
        store.register(MODEL, estimator_named("LogisticRegression", {}))

    def pyramid(self, name: str = STREAM) -> Any:
        return self.service._streams[name].pyramid

    def token(self, *roles: str, streams: tuple[str, ...] = ("*",), name: str = "test") -> str:
        return self.outside.add(name, roles or ROLES, streams, 0)

    def ask(
        self, method: str, path: str, *roles: str, token: str | None = None, **given: Any
    ) -> httpx.Response:
        """Ask as somebody with these roles, or with a token."""
        if token is None:
            token = self._usual.get(roles) or self._usual.setdefault(roles, self.token(*roles))
        headers = bearer(token) | given.pop("headers", {})
        return self.client.request(method, path, headers=headers, **given)

    def rows_json(self, size: int = 3) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = rows(size, self.clock.now, seed=3).to_pylist()
        return found

    def close(self) -> None:
        self.client.close()
        self.service.close()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def arrow_bytes(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    given = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_stream(sink, table.schema, options=given) as writer:
        writer.write_table(table)
    return sink.getvalue()


ARROW_IN = {"Content-Type": ARROW}


def code_of(answer: httpx.Response) -> str:
    """The code of a refusal, which must have the one shape."""
    told = answer.json()
    assert set(told) == {"error"}
    assert {"code", "message"} <= set(told["error"]) <= {"code", "message", "problems"}
    assert told["error"]["message"]
    code: str = told["error"]["code"]
    return code


class Listening:
    """A guarded service behind a real socket, in a thread."""

    def __init__(
        self, guarded: Guarded, kind: Callable[[type[Any]], type[Any]] = lambda kind: kind
    ) -> None:
        self.socket = bound("127.0.0.1", 0)
        self.port = self.socket.getsockname()[1]
        limits = guarded.service.limits
        self.slots = ConnectionSlots(lambda: limits.connections)
        config = uvicorn.Config(
            guarded.app,
            http="httptools",
            loop="uvloop",
            ws="none",
            timeout_keep_alive=limits.idle_seconds,
            log_config=None,
            access_log=False,
            server_header=False,
        )
        self.server = Server(config, threading.Event(), self.slots, limits, kind(Connection))
        self.thread = threading.Thread(target=self.server.run, args=([self.socket],))
        self.thread.start()
        wait_for(lambda: self.server.started)

    def connect(self) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        return made

    def send(self, data: bytes) -> bytes:
        """Send bytes; all that comes back until the service closes."""
        with self.connect() as made:
            made.sendall(data)
            return read_all(made)

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join()
        self.socket.close()


def read_all(made: socket.socket) -> bytes:
    """What comes until the other side closes."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := made.recv(65_536):
            parts.append(part)
    return b"".join(parts)


@contextlib.contextmanager
def captured() -> Iterator[io.StringIO]:
    """All that a service logs meanwhile; whole at the end."""
    found = io.StringIO()
    with logged(found):
        yield found


def lines_of(log: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.getvalue().splitlines()]
