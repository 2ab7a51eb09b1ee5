"""Middleware around every app: limits on header fields, response headers, metrics and the log.

It also catches every error that no handler caught, so that none reaches the server, which would
print its message.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Protocol

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pyramidion.errors import PyramidionError, TooLargeError
from pyramidion.web import logs
from pyramidion.web.bodies import JSON, kind_of
from pyramidion.web.errors import LongError, error_response, unexpected_error, unrouted
from pyramidion.web.limits import Admission, JsonMemory, Limits
from pyramidion.web.metrics import Requests

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
UNROUTED = "none"
CALLER = "pyramidion.caller"
"""Key in a request's scope: the id of the caller's token, once it is known."""
PLACE = "pyramidion.place"
"""Key in a request's scope: the kind of place that it occupies until it is answered."""
Header = tuple[bytes, bytes]
ALWAYS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
"""Headers of all responses that do not set them,"""
SECURE = (b"strict-transport-security", b"max-age=%d" % (365 * 86_400))
"""and of those under TLS."""


class Host(Protocol):
    """A service or an edge, as far as the middleware needs it."""

    limits: Limits
    admission: Admission

    @property
    def metrics(self) -> Requests:
        """Numbers for Prometheus."""


class RequestMiddleware:
    """Wraps an app for a service or an edge."""

    def __init__(self, app: ASGIApp, host: Host) -> None:
        self._app = app
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(self._host, scope, receive, send)
        self._host.metrics.in_flight += 1
        try:
            problem = too_long(scope, self._host.limits)
            if problem is None:
                await self._app(scope, exchange.receive, exchange.send)
            else:
                await error_response(problem)(scope, exchange.receive, exchange.send)
        except Exception as problem:
            await exchange.fail(problem)
        finally:
            self._host.metrics.in_flight -= 1
            exchange.finish()


def too_long(scope: Scope, limits: Limits) -> PyramidionError | None:
    """Why a request line or header fields are refused; None if they are not."""
    if len(scope.get("raw_path") or scope["path"].encode()) > limits.path_bytes:
        return LongError(f"a path may have {limits.path_bytes} bytes; shorten the names in it")
    if len(scope["query_string"]) > limits.query_bytes:
        return LongError(f"a query may have {limits.query_bytes} bytes; shorten it")
    headers = scope["headers"]
    size = sum(len(name) + len(value) for name, value in headers)
    if len(headers) > limits.fields or size > limits.header_bytes:
        return LongError(
            f"a request may have {limits.fields} header fields of {limits.header_bytes} bytes "
            f"together; send fewer"
        )
    return None


class Exchange:
    """One request and its response."""

    def __init__(self, host: Host, scope: Scope, receive: Receive, send: Send) -> None:
        self._host = host
        self._scope = scope
        self._receive = receive
        self._send = send
        self._start = time.perf_counter()
        self._held = self._status = 0
        self._json: JsonMemory | None = None

    async def receive(self) -> Message:
        """A message of the client; raises if there is no memory for it."""
        message = await self._receive()
        part = message.get("body", b"")
        if part:
            self._hold(part)
        return message

    def _hold(self, part: bytes) -> None:
        """Count what a part of the body takes in memory until the request is answered."""
        if not self._held and kind_of(Request(self._scope)) == JSON:
            self._json = JsonMemory()
        size = len(part) if self._json is None else self._json.add(part)
        limit = self._host.limits.held_bytes
        if self._json is not None and self._held + size > limit:  # it would not fit alone either
            raise TooLargeError(
                f"the values of this JSON body take more than the {limit >> 20} MB that there are "
                f"for bodies; send fewer rows in a request, or Arrow"
            )
        self._held += size
        self._host.admission.hold(size)

    async def send(self, message: Message) -> None:
        """A message to the client, with the headers that all responses have."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            message["headers"] = with_defaults(self._scope, message.get("headers", ()))
        await self._send(message)

    async def fail(self, problem: Exception) -> None:
        """Answer with an error; if the response has begun, leave it without an end."""
        if isinstance(problem, HTTPException):
            response = unrouted(problem)
        elif isinstance(problem, PyramidionError) and not self._status:
            response = error_response(problem)
        else:
            response = unexpected_error(problem)
        if not self._status:
            await response(self._scope, self.receive, self.send)

    def finish(self) -> None:
        """Release what the request held, count it and log it.

        The length of a body is not logged: it tells of the rows, and a log outlives them.
        """
        host, scope = self._host, self._scope
        host.admission.release(self._held)
        if PLACE in scope:
            host.admission.leave(scope[PLACE])
        seconds = time.perf_counter() - self._start
        status = self._status or 499  # the client left before the response
        method = scope["method"] if scope["method"] in METHODS else "other"
        route = getattr(scope.get("endpoint"), "path", UNROUTED)
        host.metrics.answered(route, method, status, seconds)
        fields: dict[str, Any] = {"method": method, "route": route, "status": status}
        fields["seconds"] = round(seconds, 6)
        if CALLER in scope:
            fields["token"] = scope[CALLER]
        logs.request(fields)


def with_defaults(scope: Scope, given: Iterable[Header]) -> list[Header]:
    """The headers of a response, with those that all responses have."""
    headers = list(given)
    names = {name for name, _ in headers}
    headers += [each for each in ALWAYS if each[0] not in names]
    if scope["scheme"] == "https" and SECURE[0] not in names:
        headers.append(SECURE)
    return headers
