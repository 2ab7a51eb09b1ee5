"""A broker at an address: HTTP from the standard library, on loopback unless told otherwise.

    GET  /hello         the broker's public key, the store, the custodian's fingerprint
    POST /grants        a grant; answered by a challenge, sealed to its engineer
    POST /open          the challenge's answer; answered by the rows (`pyramidion.vault.stream`)
    POST /erase         the same and an order, for a grant to erase; answered by rewritten files
    POST /revocations   a revocation

It needs no TLS: grants and revocations are signed, and rows are sealed to the engineer. Bodies,
connections and the time they wait are bounded. Nothing is printed of what is asked or told.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6, SHUT_WR
from typing import Any

from pyramidion.errors import FormatError, PyramidionError
from pyramidion.storage.disk import explained
from pyramidion.vault.broker import Broker
from pyramidion.vault.custody import coded, decoded

LONGEST = 32 << 20  # bytes of a body: a grant of about thirty thousand files
CONNECTIONS = 16  # at a time
PATIENCE = 30.0  # seconds that one may say, or take, nothing
TICK = 0.5  # seconds between looks at what has expired

Answer = dict[str, object]


class BrokerServer:
    """Answers for a broker until it is stopped. Port 0: any that is free."""

    def __init__(self, broker: Broker, host: str = "127.0.0.1", port: int = 0) -> None:
        self.broker = broker
        with explained(f"{host}:{port}"):
            self._server = _Server(broker, host, port)
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}),
            threading.Thread(target=self._tick),
        ]

    @property
    def address(self) -> str:
        """Where engineers find it."""
        host, port = self._server.server_address[:2]
        told = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{told}:{port}"

    def start(self) -> None:
        """Answer from now on, in threads."""
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    def _tick(self) -> None:
        while not self._stopped.wait(TICK):
            with suppress(PyramidionError):  # it is tried again, and no grant outlives it
                self.broker.expire()

    def stop(self) -> None:
        """Answer no more. Streams that run end when the broker is closed."""
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = CONNECTIONS

    def __init__(self, broker: Broker, host: str, port: int) -> None:
        self.broker = broker
        self.address_family = AF_INET6 if ":" in host else AF_INET
        self._room = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, unless there are too many."""
        if not self._room.acquire(blocking=False):
            with suppress(OSError):
                request.sendall(b"HTTP/1.0 503 Busy\r\nRetry-After: 1\r\n\r\n")
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a traceback may hold what was asked."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = PATIENCE
    server_version, sys_version = "pyramidion", ""

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:  # the name that http.server calls
        """Who is here."""
        self._answer({"/hello": lambda _: self._hello()})

    def do_POST(self) -> None:
        """A grant, an answer to a challenge, a revocation."""
        self._answer(
            {
                "/grants": self._present,
                "/open": self._open,
                "/erase": self._erase,
                "/revocations": self._revoke,
            }
        )

    def _answer(self, routes: dict[str, Callable[[bytes], Answer | Iterator[bytes]]]) -> None:
        route = routes.get(self.path)
        if route is None:
            self._tell(404, {"error": "there is nothing at this address; give the broker's"})
            return
        try:
            answer = route(self._body())
        except PyramidionError as error:
            self._tell(error.status, {"error": str(error), "kind": type(error).__name__})
        except OSError:
            self.close_connection = True
        else:
            self._tell(200, answer) if isinstance(answer, dict) else self._stream(answer)

    def _body(self) -> bytes:
        told = self.headers.get("Content-Length") or "0"
        if not told.isascii() or not told.isdigit() or int(told) > LONGEST:
            raise FormatError(f"a message is at most {LONGEST} bytes long; send a shorter one")
        body = self.rfile.read(int(told))
        if len(body) < int(told):
            raise FormatError("a message was cut off; send it again")
        return body

    def _tell(self, status: int, told: Answer) -> None:
        body = json.dumps(told).encode()
        with suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def _stream(self, frames: Iterator[bytes]) -> None:
        with suppress(OSError):  # who asked has left
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.end_headers()
            for frame in frames:
                self.wfile.write(frame)
            self.connection.shutdown(SHUT_WR)

    # --- routes ---------------------------------------------------------------------------

    def _hello(self) -> Answer:
        broker = self.server.broker
        return {
            "broker": broker.public.to_code(),
            "store": broker.store,
            "custodian": broker.custodian.fingerprint,
        }

    def _present(self, body: bytes) -> Answer:
        challenge = self.server.broker.present(body)
        return {"grant": challenge.grant, "challenge": coded(challenge.sealed)}

    def _open(self, body: bytes) -> Iterator[bytes]:
        (answer,) = _decoded(body, "answer")
        return self.server.broker.open(answer)

    def _erase(self, body: bytes) -> Iterator[bytes]:
        return self.server.broker.erase(*_decoded(body, "answer", "order"))

    def _revoke(self, body: bytes) -> Answer:
        return {"revoked": self.server.broker.revoke(body)}


def _decoded(body: bytes, *names: str) -> list[bytes]:
    """The bytes in the fields of a JSON object."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        told = None
    fields = told if isinstance(told, dict) else {}
    return [decoded(fields.get(name), "the answer to a challenge") for name in names]
