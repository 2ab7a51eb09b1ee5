"""HTTP connections with timeouts for slow or idle clients, and one reading of every request.

uvicorn limits how long a connection is idle between requests. It has no option for the time and
size of a request header, for a response that nobody reads, for the number of pipelined requests, or
for requests that two parties could read in two ways. Such requests get 400 and the connection
closes, so that the body of one request is never handled as another:

    Upgrade, CONNECT     the parser would end the message at its header and parse on behind it
    versions             only HTTP/1.0 and HTTP/1.1
    Host                 exactly one; optional in HTTP/1.0
    Transfer-Encoding    `chunked` alone, once, and not in HTTP/1.0
    trailer fields       none

The parser itself refuses the rest: two lengths, folded fields, bare line feeds, odd chunk sizes.

All of this must happen before or while a request is parsed, where no ASGI middleware can see it.
uvicorn's extension point for that is the protocol class (its `http` setting takes one), so this is
a subclass of the class that it uses for httptools. It overrides the methods of `asyncio.Protocol`
and the callbacks of the httptools parser, both of which are public interfaces, and of uvicorn's own
methods only `on_response_complete` and `send_400_response`. A wrapper around it would need
a second parser for the same bytes. A reverse proxy that does the same is as good; the service does
not rely on one.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pyramidion.web.connection_slots import ConnectionSlots
from pyramidion.web.errors import JSON, error_body
from pyramidion.web.limits import Limits

_ERROR = error_body(
    {
        "code": "RequestError",
        "message": "malformed HTTP request; send one Host, one length, and no Upgrade, CONNECT or "
        "trailer fields",
    }
)
MALFORMED = (
    f"HTTP/1.1 400 Bad Request\r\ncontent-type: {JSON}\r\ncontent-length: {len(_ERROR)}\r\n"
    "x-content-type-options: nosniff\r\ncache-control: no-store\r\nconnection: close\r\n\r\n"
).encode() + _ERROR
"""The response to a malformed request."""
VERSIONS = ("1.0", "1.1")
PIPELINED = 100
"""Requests of one connection that wait for the response to an earlier one; each takes memory."""


class Connection(HttpToolsProtocol):
    """One connection; the other arguments are uvicorn's own."""

    connecting: asyncio.Task[Any] | None = None
    """The handshake of a TLS connection; `connection_made` is called at its end."""
    _dropped = False
    _request_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _waiting_since = 0.0
    """When it began to wait for a request, or for the rest of one."""
    _pending = 0
    """Bytes since the last whole header, part of a body, or end of a body."""
    _in_body = False
    _malformed = False
    """Whether malformed bytes follow a whole request; refused after its response."""

    def __init__(self, limits: Limits, slots: ConnectionSlots, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._limits = limits
        self._slots = slots

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request, if there is a slot."""
        super().connection_made(transport)
        if self._dropped or (self not in self._slots and not self._slots.acquire(self)):
            transport.abort()
            return
        self._waiting_since = self.loop.time()
        self._check_later(self._limits.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the slot and cancel the timers."""
        self._slots.release(self)
        super().connection_lost(exc)
        for timer in (self._request_timer, self._write_timer, self.timeout_keep_alive_task):
            if timer is not None:
                timer.cancel()

    def drop(self) -> None:
        """End it at once, so that another one gets its slot."""
        self._dropped, transport = True, getattr(self, "transport", None)
        if transport is not None:
            transport.abort()
        elif self.connecting is not None:
            self.connecting.cancel()

    # --- requests ---------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse; refuse a header, or what lies between parts of a body, that is too long."""
        if self._malformed or self.parser is None:
            return
        self._pending += len(data)
        super().data_received(data)
        if self._pending > self._limits.header_bytes and not self.transport.is_closing():
            self.send_400_response("")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header field; refuse trailer fields."""
        if self._in_body:
            raise ValueError  # the parser answers with 400, as for all that is raised here
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start to answer a request that can be read in one way only."""
        if self._ambiguous() or len(self.pipeline) >= PIPELINED:
            raise ValueError
        self._pending, self._in_body = 0, True
        self._slots.mark_busy(self)
        super().on_headers_complete()

    def _ambiguous(self) -> bool:
        """Whether another party could see another request in these bytes."""
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
        """Refuse malformed bytes, after the responses to the requests before them."""
        cycle, before = self.cycle, bool(self.pipeline)
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:
                before = True
            elif before:  # its body is malformed, and it waits for an earlier response
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
        self.transport.write(MALFORMED)
        self.transport.close()

    # --- timeouts ---------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self._waiting_since = self.loop.time() + self.timeout_keep_alive
        last = not self.pipeline
        if last:
            self._slots.mark_idle(self)
        super().on_response_complete()
        if self._malformed and last and not self.transport.is_closing():
            self._refuse_malformed()

    def _check_later(self, seconds: float) -> None:
        self._request_timer = self.loop.call_later(max(seconds, 0.01), self._check_request)

    def _check_request(self) -> None:
        """Close the connection if the next request took too long; otherwise check again later."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._check_later(self._limits.header_seconds)
            return
        left = self._waiting_since + self._limits.header_seconds - self.loop.time()
        if left > 0:
            self._check_later(left)
        else:
            self.transport.abort()

    def pause_writing(self) -> None:
        """The client reads slower than the response is written: give it some time."""
        super().pause_writing()
        if self._write_timer is None:
            seconds = self._limits.unread_seconds
            self._write_timer = self.loop.call_later(seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
