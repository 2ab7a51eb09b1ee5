"""A process that answers: an address, certificates, and a stop that finishes what was taken."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from pyramidion.web.acceptor import Acceptor
from pyramidion.web.connection_slots import ConnectionSlots
from pyramidion.web.connections import Connection
from pyramidion.web.limits import Limits
from pyramidion.web.listen import BACKLOG, Certificate

SWITCH = 0.0005
"""Seconds after which a thread of Python's must let another one have its turn, if that waits.

With Python's own 0.005 a prediction that comes while a window seals waits that long whenever it
let go of the lock, which it does with every system call."""


class Server(uvicorn.Server):
    """Stops at a signal or when an event is set, and does not end the process.

    The caller closes the stores afterwards. A signal sets the event too. Connections are accepted
    while there are slots for them.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        stop: threading.Event,
        slots: ConnectionSlots,
        limits: Limits,
        connection: type[Connection] = Connection,
    ) -> None:
        super().__init__(config)
        self._stop = stop
        self._slots = slots
        self._limits = limits
        self._connection = connection
        self._acceptors: list[Acceptor] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets=[])
        config = self.config

        def protocol() -> asyncio.Protocol:
            state = {"server_state": self.server_state, "app_state": self.lifespan.state}
            return self._connection(self._limits, self._slots, config=config, **state)

        more = self._slots, config.ssl, self._limits.header_seconds
        self._acceptors = [Acceptor(each, protocol, *more) for each in sockets or ()]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, and finish what was taken."""
        for each in self._acceptors:
            each.close()
        await super().shutdown(sockets=sockets)

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
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        stops = (signal.SIGINT, signal.SIGTERM)
        former = {each: signal.signal(each, self.handle_exit) for each in stops}
        try:
            yield
        finally:
            for each, handler in former.items():
                signal.signal(each, handler)


def run(
    app: ASGIApp,
    listening: socket.socket,
    certificate: Certificate | None,
    *,
    limits: Limits,
    slots: ConnectionSlots,
    stop: threading.Event,
    grace: int,
) -> None:
    """Answer until a signal says stop, or ``stop`` is set, then finish what was taken.

    That may take ``grace`` seconds. A signal sets ``stop``, so that others know at once.
    """
    config = uvicorn.Config(
        app,
        http="httptools",
        loop="uvloop",
        ws="none",
        timeout_keep_alive=limits.idle_seconds,
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=grace,
        ssl_certfile=None if certificate is None else str(certificate.chain),
        ssl_keyfile=None if certificate is None else str(certificate.key),
    )
    with _switching(SWITCH):
        Server(config, stop, slots, limits).run(sockets=[listening])


@contextmanager
def _switching(seconds: float) -> Iterator[None]:
    """Meanwhile threads take turns after so many seconds."""
    former = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(former)
