"""The process that serves: an address, certificates, and a stop that loses nothing."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyramidion.web.connection_slots import ConnectionSlots
from pyramidion.web.descriptors import for_connections, refuse_few
from pyramidion.web.listen import Certificate
from pyramidion.web.server import run
from pyramidion.web.service.app import create_app
from pyramidion.web.service.service import Service

YOUNG = 20_000
"""Objects after which Python looks for cycles among the newest; its own number is 700.

Requests that wait for a commit have more than that, and are no cycles: to look at them again and
again was a tenth of the work."""
GRACE = 30  # seconds that requests have to finish once a stop was asked for


def serve(
    service: Service,
    listening: socket.socket,
    certificate: Certificate | None = None,
    *,
    stop: threading.Event | None = None,
    grace: int = GRACE,
) -> None:
    """Answer until a signal says stop, or ``stop`` is set, then finish what was taken.

    That may take ``grace`` seconds. The stores stay open. A signal sets ``stop``, so that others
    know at once.
    """
    refuse_few(len(service.every))
    limits = service.limits
    slots = ConnectionSlots(lambda: min(limits.connections, for_connections(len(service.every))))
    service.warming.begin()
    run(
        create_app(service), listening, certificate,
        limits=limits, slots=slots, stop=stop or threading.Event(), grace=grace,
    )  # fmt: skip


@contextmanager
def collecting(young: int = YOUNG) -> Iterator[None]:
    """Meanwhile cycles are looked for seldom, and not among what is there already.

    That are modules, hundreds of thousands of objects: a tenth of a second in which nobody is
    answered. Enter it before stores are opened: what is there already is never let go of.
    """
    former = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(young, *former[1:])
    try:
        yield
    finally:
        gc.set_threshold(*former)
        gc.unfreeze()
