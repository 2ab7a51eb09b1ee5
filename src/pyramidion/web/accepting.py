"""Accepting connections: each has its place before it costs a TLS handshake.

An event loop's own server accepts whatever comes, and tells a protocol of a TLS connection only
after its handshake: whoever never sends one would hold descriptors that nobody counts.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pyramidion.web.room import Room

MANY = 8
"""Connections that are accepted before others get their turn.

One that is dropped during its handshake keeps its descriptor for some turns of the loop; with 100,
a burst took all that are kept for the process."""
PAUSE = 0.1  # seconds without accepting when the system has no room for more


class Accepting:
    """Accepts connections from a socket until it is closed."""

    def __init__(
        self,
        listening: socket.socket,
        protocol: Callable[[], Any],
        room: Room,
        context: ssl.SSLContext | None,
        handshake_seconds: float,
    ) -> None:
        self._listening = listening
        self._protocol = protocol
        self._room = room
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
        for _ in range(MANY):
            try:
                made, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError:
                self._loop.remove_reader(self._listening.fileno())
                self._timer = self._loop.call_later(PAUSE, self._resume)
                return
            self._begin(made)

    def _begin(self, made: socket.socket) -> None:
        connection = self._protocol()
        if not self._room.enter(connection):
            made.close()
            return
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(
            self._loop.connect_accepted_socket(lambda: connection, made, **self._tls)
        )
        if self._tls:  # others are made at once
            connection.connecting = task
        self._connecting.add(task)
        task.add_done_callback(lambda task: self._connected(task, made, connection))

    def _connected(self, task: asyncio.Task[Any], made: socket.socket, connection: Any) -> None:
        self._connecting.discard(task)
        if task.cancelled() or task.exception() is not None:
            self._room.leave(connection)
            made.close()

    def close(self) -> None:
        """Accept no more; handshakes that are not over are broken off."""
        if self._timer is not None:
            self._timer.cancel()
        with suppress(OSError, ValueError):
            self._loop.remove_reader(self._listening.fileno())
        for task in list(self._connecting):
            task.cancel()
