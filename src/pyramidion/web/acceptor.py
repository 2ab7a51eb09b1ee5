"""Accepting connections: each takes a slot before it costs a TLS handshake.

An event loop's own server accepts everything, and calls the protocol of a TLS connection only after
its handshake: a client that never completes one would hold a descriptor that nobody counts.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pyramidion.web.connection_slots import ConnectionSlots

AT_ONCE = 8
"""Connections that are accepted before the loop does other work.

One that is dropped during its handshake keeps its descriptor for some iterations of the loop; with
100, a burst took all that are kept for the process."""
PAUSE = 0.1  # seconds without accepting when the system has no descriptors left


class Acceptor:
    """Accepts connections from a listening socket until it is closed."""

    def __init__(
        self,
        listening: socket.socket,
        protocol: Callable[[], Any],
        slots: ConnectionSlots,
        context: ssl.SSLContext | None,
        handshake_seconds: float,
    ) -> None:
        self._listening = listening
        self._protocol = protocol
        self._slots = slots
        self._tls: dict[str, Any] = {}
        if context is not None:
            self._tls = {"ssl": context, "ssl_handshake_timeout": handshake_seconds}
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._resume()

    def _resume(self) -> None:
        self._timer = None
        self._loop.add_reader(self._listening.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                accepted, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError:
                self._loop.remove_reader(self._listening.fileno())
                self._timer = self._loop.call_later(PAUSE, self._resume)
                return
            self._connect(accepted)

    def _connect(self, accepted: socket.socket) -> None:
        connection = self._protocol()
        if not self._slots.acquire(connection):
            accepted.close()
            return
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(
            self._loop.connect_accepted_socket(lambda: connection, accepted, **self._tls)
        )
        if self._tls:  # without TLS it completes at once
            connection.connecting = task
        self._connecting.add(task)
        task.add_done_callback(lambda task: self._connected(task, accepted, connection))

    def _connected(self, task: asyncio.Task[Any], accepted: socket.socket, connection: Any) -> None:
        self._connecting.discard(task)
        if task.cancelled() or task.exception() is not None:
            self._slots.release(connection)
            accepted.close()

    def close(self) -> None:
        """Stop accepting, and break off handshakes that are not complete."""
        if self._timer is not None:
            self._timer.cancel()
        with suppress(OSError, ValueError):
            self._loop.remove_reader(self._listening.fileno())
        for task in list(self._connecting):
            task.cancel()
