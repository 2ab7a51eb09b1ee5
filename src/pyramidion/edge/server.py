"""The process of an edge: an address, certificates, and a stop that finishes what was asked."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import NamedTuple

import uvicorn

from pyramidion.edge.access import Callers
from pyramidion.edge.app import create_app
from pyramidion.edge.copies import Copies
from pyramidion.errors import StorageError

GRACE = 10  # seconds that requests have to finish once a stop was asked for


class Certificate(NamedTuple):
    """Files for TLS."""

    chain: Path
    key: Path


def bound(host: str, port: int) -> socket.socket:
    """A socket at an address; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is said, or asyncio would not switch off waiting for more to send (40 ms).
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
    except OSError:
        found.close()
        raise StorageError(f"{host} port {port} is taken or not ours; choose another") from None
    return found


def serve(
    copies: Copies, callers: Callers, listening: socket.socket, certificate: Certificate | None
) -> None:
    """Answer until a signal says stop; then let go of everything."""
    config = uvicorn.Config(
        create_app(copies, callers),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
        ssl_certfile=None if certificate is None else str(certificate.chain),
        ssl_keyfile=None if certificate is None else str(certificate.key),
    )
    try:
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:  # uvicorn raises the signal again once it has stopped
        pass
    finally:
        copies.close()
