"""The process that serves: an address, certificates, and a stop that loses nothing."""

from __future__ import annotations

import gc
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from pyramidion.listening import BACKLOG, Certificate
from pyramidion.serve.app import create_app
from pyramidion.serve.connections import connections
from pyramidion.serve.lane import Lane
from pyramidion.serve.service import Service

SWITCH = 0.0005
"""Seconds after which a thread of Python's must let another one have its turn, if that waits.

With Python's own 0.005 a prediction that comes while a window seals waits that long whenever it
let go of the lock, which it does with every system call."""
YOUNG = 20_000
"""Objects after which Python looks for cycles among the newest; its own number is 700.

Requests that wait for a commit have more than that, and are no cycles: to look at them again and
again was a tenth of the work."""
GRACE = 30  # seconds that requests have to finish once a stop was asked for


class _Server(uvicorn.Server):
    """Stops at a signal, and leaves the process to who called it: the stores are not closed yet.

    Or when an event is set, for who cannot send one; a signal sets it too.
    """

    def __init__(self, config: uvicorn.Config, stop: threading.Event) -> None:
        super().__init__(config)
        self._stop = stop

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal."""
        self._stop.set()
        super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Whether to stop; asked ten times a second."""
        return await super().on_tick(counter) or self._stop.is_set()

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
    config = uvicorn.Config(
        create_app(service),
        http=connections(service.limits, Lane(service)),
        loop="uvloop",
        ws="none",
        timeout_keep_alive=service.limits.idle_seconds,
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=grace,
        ssl_certfile=None if certificate is None else str(certificate.chain),
        ssl_keyfile=None if certificate is None else str(certificate.key),
    )
    with _switching(SWITCH):
        _Server(config, stop or threading.Event()).run(sockets=[listening])


@contextmanager
def _switching(seconds: float) -> Iterator[None]:
    """Meanwhile threads take turns after so many seconds."""
    former = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(former)


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
