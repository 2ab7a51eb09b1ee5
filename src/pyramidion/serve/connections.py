"""Connections that cannot be held for ever by who sends nothing, little, or does not read.

uvicorn bounds how long a connection rests between requests, but not how long a request's header
takes, nor an answer that nobody reads. Here each has its time, and connections their number.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pyramidion.serve.limits import Limits
from pyramidion.serve.refusals import JSON, shaped

UNREAD = shaped({"code": "RequestError", "message": "this is not HTTP as it is read here; see it"})


def connections(limits: Limits) -> type[H11Protocol]:
    """The kind of connections that keep to some limits."""

    class Connection(H11Protocol):
        """One connection."""

        _looking: asyncio.TimerHandle | None = None
        _unread: asyncio.TimerHandle | None = None
        _since = 0.0
        """When it began to wait for a request, or what is left of one."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            """Begin to wait for the first request, where there is room."""
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                transport.abort()
                return
            self._since = self.loop.time()
            self._look_later(limits.header_seconds)

        def connection_lost(self, exc: Exception | None) -> None:
            """Let go of what waits for it."""
            super().connection_lost(exc)
            self._unset_keepalive_if_required()
            for timer in (self._looking, self._unread):
                if timer is not None:
                    timer.cancel()

        def on_response_complete(self) -> None:
            """Begin to wait for the next request."""
            self._since = self.loop.time() + self.timeout_keep_alive
            super().on_response_complete()

        def _look_later(self, seconds: float) -> None:
            self._looking = self.loop.call_later(max(seconds, 0.01), self._look)

        def _look(self) -> None:
            """Close it when what it waits for took too long; look again otherwise."""
            if self.cycle is not None and not self.cycle.response_complete:
                self._look_later(limits.header_seconds)
                return
            left = self._since + limits.header_seconds - self.loop.time()
            if left > 0:
                self._look_later(left)
            else:
                self.transport.abort()

        def pause_writing(self) -> None:
            """The answer is not read as fast as it is written."""
            super().pause_writing()
            if self._unread is None:
                self._unread = self.loop.call_later(limits.unread_seconds, self.transport.abort)

        def resume_writing(self) -> None:
            """It is read on."""
            super().resume_writing()
            if self._unread is not None:
                self._unread.cancel()
                self._unread = None

        def send_400_response(self, msg: str) -> None:  # noqa: ARG002 uvicorn's words
            """Answer what is not HTTP in the one shape of errors, where nothing is answered yet."""
            if self.cycle is not None and not self.cycle.response_complete:
                self.cycle.disconnected = True
                self.cycle.message_event.set()
            if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
                self.transport.abort()
                return
            headers = [
                ("content-type", JSON),
                ("content-length", str(len(UNREAD))),
                ("x-content-type-options", "nosniff"),
                ("cache-control", "no-store"),
                ("connection", "close"),
            ]
            answer = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
            for event in (answer, h11.Data(data=UNREAD), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
            self.transport.close()

    return Connection
