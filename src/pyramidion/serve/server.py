"""The process that serves: an address, certificates, and a stop that loses nothing."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import uvicorn

from pyramidion.errors import StorageError
from pyramidion.serve.app import create_app
from pyramidion.serve.connections import connections
from pyramidion.serve.service import Service

BACKLOG = 2_048  # connections that wait to be taken
GRACE = 30  # seconds that requests have to finish once a stop was asked for


class Certificate(NamedTuple):
    """Files for TLS."""

    chain: Path
    key: Path


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is said, or asyncio would not switch off waiting for more to send (40 ms).
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(BACKLOG)  # who calls before all is ready waits, and is answered then
    except OSError:
        found.close()
        raise StorageError(f"{host} port {port} is taken or not ours; choose another") from None
    return found


class _Server(uvicorn.Server):
    """Stops at a signal, and leaves the process to who called it: the stores are not closed yet."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take SIGINT and SIGTERM for stop; a second SIGINT waits no longer."""
        stops = (signal.SIGINT, signal.SIGTERM)
        former = {each: signal.signal(each, self.handle_exit) for each in stops}
        try:
            yield
        finally:
            for each, handler in former.items():
                signal.signal(each, handler)


def serve(service: Service, listening: socket.socket, certificate: Certificate | None) -> None:
    """Answer until a signal says stop, then finish what was taken; the stores stay open."""
    config = uvicorn.Config(
        create_app(service),
        http=connections(service.limits),
        ws="none",
        h11_max_incomplete_event_size=service.limits.header_bytes,
        timeout_keep_alive=service.limits.idle_seconds,
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE,
        ssl_certfile=None if certificate is None else str(certificate.chain),
        ssl_keyfile=None if certificate is None else str(certificate.key),
    )
    _Server(config).run(sockets=[listening])
