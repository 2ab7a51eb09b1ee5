"""What every request passes, whatever its route: bounds of fields, headers, metrics, the log.

It stands around the app and takes what no route foresaw, so that no error reaches the server,
which would print what it says.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Protocol

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pyramidion.errors import PyramidionError, TooLargeError
from pyramidion.web import logs
from pyramidion.web.bodies import JSON, kind_of
from pyramidion.web.limits import Admission, JsonMemory, Limits
from pyramidion.web.metrics import Requests
from pyramidion.web.refusals import LongError, refusal, surprise

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
UNROUTED = "none"
CALLER = "pyramidion.caller"
"""Where in a request's scope the id of the caller's token stands, once it is known."""
PLACE = "pyramidion.place"
"""Where in a request's scope it stands which place it has taken, to be given back at its end."""
Header = tuple[bytes, bytes]
ALWAYS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
"""Headers of all answers that do not say otherwise,"""
SECURE = (b"strict-transport-security", b"max-age=%d" % (365 * 86_400))
"""and of those under TLS."""


class Guarded(Protocol):
    """Whoever answers: what it takes, and what it counts."""

    limits: Limits
    admission: Admission

    @property
    def metrics(self) -> Requests:
        """Numbers for Prometheus."""


class Gate:
    """Stands around an app; made by the app itself for a service or an edge."""

    def __init__(self, app: ASGIApp, service: Guarded) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        passage = Passage(self._service, scope, receive, send)
        self._service.metrics.in_flight += 1
        try:
            await self._answer(scope, passage)
        except Exception as problem:
            await passage.break_off(problem)
        finally:
            self._service.metrics.in_flight -= 1
            passage.done()

    async def _answer(self, scope: Scope, passage: Passage) -> None:
        problem = too_long(scope, self._service.limits)
        if problem is None:
            await self._app(scope, passage.receive, passage.send)
        else:
            await refusal(problem)(scope, passage.receive, passage.send)


def too_long(scope: Scope, limits: Limits) -> PyramidionError | None:
    """Why the fields of a request are not read, if they are not."""
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


class Passage:
    """One request on its way through: what it brought, and what it got."""

    def __init__(self, service: Guarded, scope: Scope, receive: Receive, send: Send) -> None:
        self._service = service
        self._scope = scope
        self._receive = receive
        self._send = send
        self._begun = time.perf_counter()
        self._came = self._status = 0
        self._json: JsonMemory | None = None

    async def receive(self) -> Message:
        """What comes in, as far as there is room for it."""
        message = await self._receive()
        part = message.get("body", b"")
        if part:
            self._hold(part)
        return message

    def _hold(self, part: bytes) -> None:
        """Count what a part of the body takes in memory until the request is answered."""
        if not self._came and kind_of(Request(self._scope)) == JSON:
            self._json = JsonMemory()
        size = len(part) if self._json is None else self._json.add(part)
        most = self._service.limits.held_bytes
        if self._json is not None and self._came + size > most:  # it would not fit alone either
            raise TooLargeError(
                f"the values of this JSON body take more than the {most >> 20} MB that there are "
                f"for bodies; send fewer rows in a request, or Arrow"
            )
        self._came += size
        self._service.admission.hold(size)

    async def send(self, message: Message) -> None:
        """What goes out, under the headers that all answers have."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            message["headers"] = headed(self._scope, message.get("headers", ()))
        await self._send(message)

    async def break_off(self, problem: Exception) -> None:
        """After an error: say so, or where the answer has begun, leave it seen to have no end."""
        if isinstance(problem, PyramidionError) and not self._status:
            await refusal(problem)(self._scope, self.receive, self.send)
            return
        answer = surprise(problem)
        if not self._status:
            await answer(self._scope, self.receive, self.send)

    def done(self) -> None:
        """Count it and log it. How long a body was tells of its rows, and a log outlives them."""
        status = self._status or 499  # the caller left, and got nothing
        finished(self._service, self._scope, status, self._came, self._begun)


def headed(scope: Scope, given: Iterable[Header]) -> list[Header]:
    """The headers of an answer, with those that all have."""
    headers = list(given)
    there = {name for name, _ in headers}
    headers += [each for each in ALWAYS if each[0] not in there]
    if scope["scheme"] == "https" and SECURE[0] not in there:
        headers.append(SECURE)
    return headers


def finished(service: Guarded, scope: Scope, status: int, came: int, begun: float) -> None:
    """Give back what a request held, count it and log it."""
    service.admission.release(came)
    if PLACE in scope:
        service.admission.leave(scope[PLACE])
    seconds = time.perf_counter() - begun
    method = scope["method"] if scope["method"] in METHODS else "other"
    route = getattr(scope.get("route"), "path", UNROUTED)
    service.metrics.answered(route, method, status, seconds)
    told: dict[str, Any] = {"method": method, "route": route, "status": status}
    told["seconds"] = round(seconds, 6)
    if CALLER in scope:
        told["token"] = scope[CALLER]
    logs.request(told)
