"""Connections with limits on time and size, and with one reading of every request.

uvicorn bounds how long a connection rests between requests, but not how long a request's header
takes or how large it is, nor an answer that nobody reads. Here each has its bound, and connections
their number.

A request that two parties could read in two ways is refused with 400, and its connection closes, so
that the body of one request is never handled as another:

    Upgrade, CONNECT     the parser would end the message at its header and read on behind it
    versions             only HTTP/1.0 and HTTP/1.1
    Host                 exactly one; HTTP/1.0 may leave it out
    Transfer-Encoding    `chunked` alone, once, and not in HTTP/1.0
    trailer fields       none

The parser itself refuses the rest: two lengths, folded fields, bare line feeds, odd chunk sizes.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from pyramidion.web.errors import JSON, error_body
from pyramidion.web.limits import Limits
from pyramidion.web.room import Room

UNREAD = error_body(
    {
        "code": "RequestError",
        "message": "malformed HTTP request; send one Host, one length, and no Upgrade, CONNECT or "
        "trailer fields",
    }
)
HEADERS = (
    f"content-type: {JSON}\r\ncontent-length: {len(UNREAD)}\r\nx-content-type-options: nosniff\r\n"
    "cache-control: no-store\r\nconnection: close\r\n\r\n"
)

VERSIONS = ("1.0", "1.1")
PIPELINED = 100
"""Requests of one connection that wait for the answer to an earlier one; each takes memory."""


def connections(limits: Limits, room: Room | None = None) -> type[HttpToolsProtocol]:
    """The kind of connections that keep to some limits.

    Without a ``room`` they have one of their own.
    """
    places = Room(lambda: limits.connections) if room is None else room

    class Connection(HttpToolsProtocol):
        """One connection."""

        connecting: asyncio.Task[Any] | None = None
        """The handshake of a TLS connection; `connection_made` is called at its end."""
        _dropped = False
        _looking: asyncio.TimerHandle | None = None
        _unread: asyncio.TimerHandle | None = None
        _since = 0.0
        """When it began to wait for a request, or what is left of one."""
        _pending = 0
        """Bytes that came since a header, a part of a body or its end was whole."""
        _in_body = False
        _malformed = False
        """Whether the bytes behind a whole request are not HTTP; refused after its answer."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            """Begin to wait for the first request, where there is room."""
            super().connection_made(transport)
            if self._dropped or (self not in places and not places.enter(self)):
                transport.abort()
                return
            self._since = self.loop.time()
            self._look_later(limits.header_seconds)

        def connection_lost(self, exc: Exception | None) -> None:
            """Let go of what waits for it."""
            places.leave(self)
            super().connection_lost(exc)
            self._unset_keepalive_if_required()
            for timer in (self._looking, self._unread):
                if timer is not None:
                    timer.cancel()

        def drop(self) -> None:
            """End it at once, so that another one has its place."""
            self._dropped, transport = True, getattr(self, "transport", None)
            if transport is not None:
                transport.abort()
            elif self.connecting is not None:
                self.connecting.cancel()

        # --- what comes in -----------------------------------------------------------------

        def data_received(self, data: bytes) -> None:
            """Read on, unless nothing came of all that was read."""
            if self._malformed or self.parser is None:
                return
            self._pending += len(data)
            super().data_received(data)
            if self._pending > limits.header_bytes and not self.transport.is_closing():
                self.send_400_response("")

        def on_header(self, name: bytes, value: bytes) -> None:
            """Take a field of the header."""
            if self._in_body:
                raise ValueError  # a trailer field; answered with 400, as all that is raised here
            super().on_header(name, value)

        def on_headers_complete(self) -> None:
            """Begin to answer a request that can be read in one way only."""
            if self._ambiguous() or len(self.pipeline) >= PIPELINED:
                raise ValueError
            self._pending, self._in_body = 0, True
            places.begin(self)
            super().on_headers_complete()

        def _ambiguous(self) -> bool:
            """Whether somebody else could see another request in these bytes."""
            version, hosts, codings = self.parser.get_http_version(), 0, []
            for name, value in self.headers:
                if name == b"host":
                    hosts += 1
                elif name == b"transfer-encoding":
                    codings.append(value.strip(b" \t").lower())
            return (
                self.parser.should_upgrade()
                or version not in VERSIONS
                or hosts > 1
                or (not hosts and version == "1.1")
                or (bool(codings) and (version == "1.0" or codings != [b"chunked"]))
            )

        def on_body(self, body: bytes) -> None:
            """Take a part of the body."""
            self._pending = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            """Take the end of the body."""
            self._pending, self._in_body = 0, False
            super().on_message_complete()

        def send_400_response(self, msg: str) -> None:  # noqa: ARG002 uvicorn's words
            """Refuse what is not HTTP, after the answers to the requests before it."""
            cycle, before = self.cycle, bool(self.pipeline)
            if cycle is not None and not cycle.response_complete:
                if not cycle.more_body:
                    before = True
                elif before:  # its body is malformed, and it waits for an earlier answer
                    self.pipeline.popleft()
                elif cycle.response_started:
                    self.transport.abort()
                    return
                else:
                    cycle.disconnected = True
                    cycle.message_event.set()
            if before:
                self._malformed = True
            else:
                self._refuse_malformed()

        def _refuse_malformed(self) -> None:
            self.transport.write(STATUS_LINE[400] + HEADERS.encode() + UNREAD)
            self.transport.close()

        # --- time --------------------------------------------------------------------------

        def on_response_complete(self) -> None:
            """Begin to wait for the next request."""
            self._since, last = self.loop.time() + self.timeout_keep_alive, not self.pipeline
            if last:
                places.rest(self)
            super().on_response_complete()
            if self._malformed and last and not self.transport.is_closing():
                self._refuse_malformed()

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

    return Connection
