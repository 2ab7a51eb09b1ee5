"""The process of an edge: an address, certificates, and a stop that finishes what was asked."""

from __future__ import annotations

import socket
import threading

from pyramidion.web.connection_slots import ConnectionSlots
from pyramidion.web.descriptors import for_connections, refuse_few
from pyramidion.web.edge.app import create_app
from pyramidion.web.edge.edge import Edge
from pyramidion.web.listen import Certificate
from pyramidion.web.server import run

GRACE = 10  # seconds that requests have to finish once a stop was asked for


def serve(edge: Edge, listening: socket.socket, certificate: Certificate | None) -> None:
    """Answer until a signal says stop; then let go of everything."""
    try:
        refuse_few(0)
        slots = ConnectionSlots(lambda: min(edge.limits.connections, for_connections(0)))
        run(
            create_app(edge), listening, certificate,
            limits=edge.limits, slots=slots, stop=threading.Event(), grace=GRACE,
        )  # fmt: skip
    finally:
        edge.copies.close()
