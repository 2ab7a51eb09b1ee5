"""A service in a process of its own over one stream, and a connection to it with little overhead.

We time what a caller waits for, so the service is the real one, started by its command, and the
connection is a bare socket: a client library would double the time.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lab.datasets import DataSet
from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.errors import StateError
from pyramidion.storage.shared import SharedTables
from pyramidion.store.pyramid import Pyramid

STREAM, MODEL = "clicks", "click"
DAY = 86_400
PATIENCE = 10.0
"""Seconds until a server that was started must answer."""


def filled(data: DataSet, folder: Path, rows: int, tables: str, **knobs: Any) -> SharedTables:
    """A store with one sealed window and as many hot rows; its tables, as a reader finds them."""
    schema = Schema(features=data.schema.features, label=data.schema.labels[0])
    settings = Settings(epsilon=1.0, delta=1e-9, count_window="1d", hot_window="2d", **knobs)
    now, signer = [time.time() - DAY - 60], Ed25519PrivateKey.generate()
    given = data.table(0, 2 * rows).drop_columns(["time"])
    (folder / "data").mkdir()
    with Pyramid.create(
        folder / "data" / STREAM, schema, settings, keys=_keys(folder), clock=lambda: now[0]
    ) as store:
        store.observe(given.slice(0, rows))
        now[0] = time.time()
        store.advance()
        store.observe(given.slice(rows))
        store.publisher.start(tables)
        card = store.publisher.card(stream=STREAM, signer=signer)
    return SharedTables(card, tables, stream=STREAM, key=signer.public_key())


def _keys(folder: Path, stream: str = STREAM) -> str:
    return f"file:{folder / stream}.key"


@contextmanager
def serving(folder: Path) -> Iterator[Line]:
    """The service over what is in a folder, with a model; a connection to it."""
    data = ["--data", str(folder / "data"), "--json"]
    roles = [word for role in ("train", "predict", "admin") for word in ("--role", role)]
    command = [sys.executable, "-m", "pyramidion"]
    made = subprocess.run(  # noqa: S603  # our own program
        [*command, "tokens", "add", "evaluation", *roles, *data],
        check=True,
        capture_output=True,
        text=True,
    )
    serve = [*command, "serve", *data, "--port", "0", "--keys", _keys(folder, "{stream}")]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(  # noqa: S603  # our own program
            serve, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        told = process.stdout.readline() if process.stdout is not None else ""
        if not told:
            raise StateError(f"the service did not start: {(folder / 'log').read_text()[-300:]}")
        port = int(json.loads(told)["url"].rpartition(":")[2])
        line = Line(port, json.loads(made.stdout)["token"])
        line.ask("PUT", f"/models/{MODEL}", {"estimator": "LogisticRegression"})
        yield line
        line.close()
    finally:
        process.terminate()
        process.wait()


class Line:
    """A kept connection to a stream, with as little of its own as there can be."""

    def __init__(self, port: int, token: str) -> None:
        self._token = token
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def request(self, method: str, path: str, told: Any) -> bytes:
        """A request as it is sent."""
        body = json.dumps(told).encode()
        head = (
            f"{method} /v1/streams/{STREAM}{path} HTTP/1.1\r\nHost: evaluation\r\n"
            f"Authorization: Bearer {self._token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def send(self, request: bytes) -> bytes:
        """The body of the answer."""
        self._socket.sendall(request)
        held = b""
        while b"\r\n\r\n" not in held:
            held += self._more()
        head, _, body = held.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        while len(body) < length:
            body += self._more()
        if not head.startswith(b"HTTP/1.1 2"):
            raise StateError(f"the service answered {head[9:12].decode()}")
        return body

    def _more(self) -> bytes:
        found = self._socket.recv(1 << 16)
        if not found:
            raise StateError("the service left")
        return found

    def ask(self, method: str, path: str, told: Any) -> Any:
        """An answer as JSON has it."""
        return json.loads(self.send(self.request(method, path, told)))

    def prediction(self, told: Any) -> bytes:
        """A request for a prediction, of a row or of a vector."""
        return self.request("POST", f"/models/{MODEL}/predictions", told)

    def close(self) -> None:
        """Leave."""
        self._socket.close()


@contextmanager
def redis(folder: Path) -> Iterator[str | None]:
    """The address of a Redis of its own, in memory alone; None: there is none on this machine."""
    program = shutil.which("redis-server")
    if program is None or find_spec("redis") is None:
        yield None
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    asked = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no"]
    process = subprocess.Popen(  # noqa: S603  # as it is installed
        [program, *asked], cwd=folder, stdout=subprocess.DEVNULL
    )
    try:
        _wait_for(port)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int) -> None:
    """Until something listens there."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if time.monotonic() > end:
                raise StateError(f"Redis did not start within {PATIENCE:g} s") from None
            time.sleep(0.02)
        else:
            return
