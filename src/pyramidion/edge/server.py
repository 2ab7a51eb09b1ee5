"""The process of an edge: an address, certificates, and a stop that finishes what was asked."""

from __future__ import annotations

import socket

import uvicorn

from pyramidion.edge.access import Callers
from pyramidion.edge.app import create_app
from pyramidion.edge.copies import Copies
from pyramidion.listening import Certificate

GRACE = 10  # seconds that requests have to finish once a stop was asked for


def serve(
    copies: Copies, callers: Callers, listening: socket.socket, certificate: Certificate | None
) -> None:
    """Answer until a signal says stop; then let go of everything."""
    config = uvicorn.Config(
        create_app(copies, callers),
        http="h11",  # which bounds headers
        loop="asyncio",
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
