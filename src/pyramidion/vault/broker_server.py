"""A broker at an address, for the store in a directory.

    GET  /hello         the broker's public key, the store, the custodian's fingerprint
    POST /grants        a grant; answered by a challenge, sealed to its engineer
    POST /open          the challenge's answer; answered by the rows (`pyramidion.vault.stream`)
    POST /erase         the same and an order, for a grant to erase; answered by rewritten files
    POST /revocations   a revocation

HTTP from the standard library, on loopback by default. It needs no TLS: grants and revocations are
signed, and rows are sealed to the engineer. Bodies, connections and waiting times are bounded. No
request or answer is printed.

The broker takes neither the store's lock nor its keys: what it must know is in the catalogue, and
files that the place does not have yet are read from the store's backlog. ``broker.json`` in the
directory has its address and public key; it is removed when the broker ends normally.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import AF_INET, AF_INET6, SHUT_WR
from typing import Any

from pyramidion.errors import FormatError, PyramidionError, StateError, StorageError
from pyramidion.storage.audit_log import AUDIT_LOG, AuditLog
from pyramidion.storage.catalogue import facts
from pyramidion.storage.disk import explained, write_durably
from pyramidion.storage.home import BACKLOG, CATALOGUE
from pyramidion.storage.vault_files import is_kept
from pyramidion.vault.broker import Broker
from pyramidion.vault.key_pairs import PublicKey, coded, decoded
from pyramidion.vault.places import Place, place_at
from pyramidion.vault.reader import Hello, hello

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


# --- the broker of a store -----------------------------------------------------------------------


NOTE = "broker.json"


class Near:
    """A store's sealed files: from its backlog while they are there, else from their place.

    What the store has erased is not given, though the place may still have it.
    """

    def __init__(self, path: Path, place: Place) -> None:
        self._path, self._place = path, place

    def get(self, name: str) -> bytes:
        """The bytes of a file."""
        self._refuse_erased(name.partition(".")[0])
        path = self._path / BACKLOG / name
        with explained(path), suppress(FileNotFoundError):
            return path.read_bytes()
        return self._place.get(name)

    def _refuse_erased(self, name: str) -> None:
        if not is_kept(self._path / CATALOGUE, name):
            raise StateError(f"vault file {name} was erased since it was granted; ask again")


@contextmanager
def broker_at(path: Path) -> Iterator[Broker]:
    """A broker for the vault of a store, with a key of its own; all its grants end with it."""
    if not (path / CATALOGUE).exists():
        raise StorageError(f"there is no store at {path}; give the right path")
    said = facts(path / CATALOGUE)
    if said.get("copy"):
        raise StateError(f"{path} is a backup; give the store itself")
    if "vault" not in said:
        raise StateError(f"the store at {path} has no vault; attach one, or make one with a vault")
    try:
        vault = json.loads(said["vault"])
        url, custodian = str(vault["url"]), PublicKey.from_code(vault["custodian"])
    except (ValueError, KeyError, TypeError):
        raise FormatError(f"{path} does not say its vault; restore it from a backup") from None
    files = Near(path, place_at(url))
    log = AuditLog(path / AUDIT_LOG)
    try:
        broker = Broker(files, said["store"], custodian, log)
        try:
            yield broker
        finally:
            broker.close()
    finally:
        log.close()


@contextmanager
def announced(path: Path, server: BrokerServer) -> Iterator[None]:
    """Say in the store's directory where its broker is; refused where there is another one."""
    _refuse_second(path)
    note, draft = path / NOTE, path / f".{NOTE}.{secrets.token_hex(4)}"
    key = server.broker.public
    noted = {"address": server.address, "broker": key.to_code(), "fingerprint": key.fingerprint}
    write_durably(draft, [json.dumps(noted).encode()])
    with explained(note):
        os.replace(draft, note)
    try:
        yield
    finally:
        with suppress(OSError):
            if json.loads(note.read_bytes()) == noted:
                note.unlink()


def found_at(path: Path) -> tuple[str, Hello]:
    """The address of a store's broker, and who answers there: it must be the one that said so."""
    address, code = _noted(path)
    found = hello(address)
    if found.broker.to_code() != code:
        raise StateError(
            f"another broker answers at {address} than the one of the store at {path}; start that "
            f"again"
        )
    return address, found


def _noted(path: Path) -> tuple[str, str]:
    try:
        noted = json.loads((path / NOTE).read_bytes())
        return str(noted["address"]), str(noted["broker"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise StateError(
        f"no broker runs for the store at {path}; start `pyramidion vault broker`, or say where it "
        f"answers"
    )


def _refuse_second(path: Path) -> None:
    try:
        address, _ = found_at(path)
    except (StateError, StorageError, FormatError):
        return
    raise StateError(
        f"a broker for the store at {path} answers at {address} already; stop that one first"
    )
