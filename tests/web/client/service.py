"""A small real service for tests: a store behind an HTTP server that can be told to fail."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pyramidion import Pyramid
from pyramidion.counts.signing import sign
from pyramidion.counts.snapshot_file import LIFE, etag_of, snapshot_bytes
from pyramidion.errors import MissingError, PyramidionError, UnknownCallerError

ARROW = "application/vnd.apache.arrow.stream"
TOKEN = "pyr_0123456789abcdef_" + "x" * 43
SECOND = 1_000_000

Answer = tuple[int, bytes, dict[str, str]]


def said(told: Any, status: int = 200, **headers: str) -> Answer:
    return status, json.dumps(told).encode(), {"Content-Type": "application/json", **headers}


def refused(problem: PyramidionError) -> Answer:
    told: dict[str, Any] = {"code": type(problem).__name__, "message": str(problem)}
    if getattr(problem, "problems", None):
        told["problems"] = problem.problems  # type: ignore[attr-defined]
    return said({"error": told}, problem.status)


class Service:
    """Speaks the interface for one stream called ``flights``, over a real store."""

    def __init__(self, store: Pyramid, clock: Callable[[], float], port: int = 0) -> None:
        self.store, self.clock = store, clock
        self.signer = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
        self.life = LIFE
        self.asked: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.faults: list[Callable[[], Answer | None]] = []
        """Each is the answer to one request, in place of the real one; None: hang up."""
        self.hang_up_after: list[str] = []
        """Paths whose next answer is lost on its way, after it was done."""
        self.exports: dict[str, tuple[dict[str, Any], bytes]] = {}
        """Header and payload of models that are not the store's."""
        self.training: set[str] = set()
        """Those of them that are being trained again, and do not answer."""
        handler = type("Handler", (_Handler,), {"service": self})
        self.connections: set[socket.socket] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """Be gone, as a process that was killed: connections that are open break, too."""
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def counted(self, method: str, end: str) -> int:
        return sum(m == method and path.endswith(end) for m, path in self.asked)

    # --- routes -------------------------------------------------------------------------------

    def answer(self, method: str, path: str, query: dict[str, str], body: bytes, sent: Any) -> Any:
        parts = [unquote(part) for part in path.split("/")[2:]]
        if parts == ["key"]:
            return said({"ed25519": self.signer.public_key().public_bytes_raw().hex()})
        if sent.get("Authorization") != f"Bearer {TOKEN}":
            raise UnknownCallerError("no token, or none that this service knows; send one")
        if parts == ["streams"]:
            return said({"streams": ["flights"]})
        if parts[:2] != ["streams", "flights"]:
            raise MissingError("there is no stream of this name for this token; see /v1/streams")
        return self.of_stream(method, parts[2:], query, body, sent)

    def of_stream(self, method: str, parts: Any, query: Any, body: bytes, sent: Any) -> Answer:
        store = self.store
        match method, parts:
            case "POST", ["observations"]:
                key, errors = sent["Idempotency-Key"], query.get("errors", "refuse")
                assert key
                return said(vars(store.observe(_rows(body, sent), key=key, errors=errors)))
            case "POST", ["features"]:
                return 200, _stream(store.featurize(_rows(body, sent))), {"Content-Type": ARROW}
            case "GET", ["snapshot"]:
                return self.snapshot(sent)
            case "GET", ["training-set"]:
                X, y = store.training_set(query.get("label"))
                names = [*store.snapshot().names, "y"]
                table = pa.table([*map(pa.array, np.asarray(X).T), pa.array(y)], names=names)
                return 200, _stream(table), {"Content-Type": ARROW}
            case "GET", []:
                return said({"stream": "flights", "rows": store.status().hot_rows})
            case "GET", ["windows"]:
                return said({"windows": [asdict(window) for window in store.status().windows]})
            case "GET", ["groups"]:
                told = [asdict(group) for group in store.groups.status()]
                groups = [list(group) for group in store.schema.groups]
                return said({"groups": groups, "trials": told})
            case "DELETE", ["tables", name]:
                store.groups.withdraw(name, why=query["why"])
                return said({"withdrawn": name})
            case "GET", ["models"]:
                return said({"models": [self.model(name) for name in store.models]})
            case "GET", ["models", name, "export"]:
                return self.export(name)
            case _, ["models", name, *rest]:
                return self.of_model(method, name, rest, body, sent)
        raise MissingError("there is nothing at this address; /docs shows what there is")

    def snapshot(self, sent: Any) -> Answer:
        found = self.store.snapshot()
        tag = f'"{etag_of(found, stream="flights")}"'
        if sent.get("If-None-Match") == tag:
            return 304, b"", {"ETag": tag}
        now = int(self.clock() * SECOND)
        given = {"stream": "flights", "now": now, "signer": self.signer, "life": self.life}
        return 200, snapshot_bytes(found, **given), {"ETag": tag}

    def model(self, name: str) -> dict[str, Any]:
        if name in self.exports:
            available = name not in self.training
            return {
                "name": name,
                "version": self.exports[name][0]["version"],
                "available": available,
            }
        model = self.store.models[name]
        told = {"name": name, "classes": list(model.classes), "available": model.available}
        return told | {"version": getattr(model, "version", 1)}

    def export(self, name: str) -> Answer:
        if name not in self.exports and name not in self.store.models:
            raise MissingError("there is no model of this name; register it first")
        header, payload = self.exports.get(name) or self.store.models.export(name)
        header = {"name": name, **header}
        return 200, sign(self.signer, "model", "flights", header, payload), {}

    def of_model(self, method: str, name: str, rest: Any, body: bytes, sent: Any) -> Answer:
        if method == "PUT":
            from sklearn.linear_model import LogisticRegression

            asked = json.loads(body)
            assert asked.pop("estimator") == "LogisticRegression"
            self.store.register(name, LogisticRegression(**asked.pop("params")), **asked)
            return said(self.model(name))
        if name not in self.store.models and name not in self.exports:
            raise MissingError("there is no model of this name; register it first")
        if (method, rest) == ("GET", []):
            return said(self.model(name))
        if (method, rest) == ("DELETE", []):
            self.store.models.unregister(name)
            return said({"removed": name})
        if (method, rest) == ("POST", ["retrain"]):
            self.store.models.retrain(name)
            return said(self.model(name))
        assert (method, rest) == ("POST", ["predictions"])
        found = self.store.predict_proba(name, _rows(body, sent))
        classes = list(self.store.models[name].classes)
        return said({"model": name, "classes": classes, "probabilities": found.tolist()})


def _rows(body: bytes, sent: Any) -> Any:
    if sent.get("Content-Type") == ARROW:
        return pa.ipc.open_stream(body).read_all()
    return json.loads(body)


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    found: bytes = sink.getvalue().to_pybytes()
    return found


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: Service

    def setup(self) -> None:
        super().setup()
        self.service.connections.add(self.connection)

    def finish(self) -> None:
        self.service.connections.discard(self.connection)
        super().finish()

    def log_message(self, *_: Any) -> None:
        pass

    def handle_one(self) -> None:
        service, where = self.service, urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(where.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        service.asked.append((self.command, where.path))
        service.headers.append(dict(self.headers))
        if service.faults:
            answer = service.faults.pop(0)()
        else:
            try:
                answer = service.answer(self.command, where.path, query, body, self.headers)
            except PyramidionError as problem:
                answer = refused(problem)
        if where.path in service.hang_up_after:
            service.hang_up_after.remove(where.path)
            answer = None
        if answer is None:
            self.close_connection = True
            self.connection.close()
            return
        status, content, headers = answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = handle_one  # noqa: N815


@contextmanager
def serving(store: Pyramid, clock: Callable[[], float], port: int = 0) -> Iterator[Service]:
    service = Service(store, clock, port)
    try:
        yield service
    finally:
        service.close()
