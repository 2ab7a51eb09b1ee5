"""The way of one small observation that has come: no task, no messages, hardly any waiting.

    connection ── the header and the body are there ──► lane ── submit ──► commits
        ▲                                                                     │
        └───────────────── one write ◄── bell, once for a group ◄─────────────┘

Senders who share a commit wait for each other's requests to be read and answered, which an ASGI
app does in some thirty steps. What is different in any way goes the way of all others: another
content type, a query, a body that does not come at once, a caller who is not known. What is taken
here passes what is asked of all: the bounds of its fields, the token and its role, rates, places
and held bytes, metrics and the log.
"""

from __future__ import annotations

import time
from typing import cast

from starlette.responses import Response
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from pyramidion.errors import PyramidionError
from pyramidion.storage.hot import Receipt
from pyramidion.store.batching import Arrival
from pyramidion.web.bodies import JSON, answer, content_of
from pyramidion.web.gate import CALLER, PLACE, finished, headed
from pyramidion.web.limits import JsonMemory, Limits
from pyramidion.web.refusals import refusal, surprise
from pyramidion.web.service.access import Token
from pyramidion.web.service.bell import Kept
from pyramidion.web.service.routes_rows import observe, routes
from pyramidion.web.service.routing import SMALL, let_in, place_of
from pyramidion.web.service.row_bodies import Wanted, rows_from
from pyramidion.web.service.service import Service
from pyramidion.web.service.shortcuts import Shape

ROUTE = next(route for route in routes.all if route.endpoint is observe)
LAST = "/" + ROUTE.path.rpartition("/")[2]
AUTHORIZATION, KIND, KEY = b"authorization", b"content-type", b"idempotency-key"
LENGTH = b"content-length"
COUNT = frozenset({AUTHORIZATION, KIND, KEY})
ODD = frozenset({b"content-encoding", b"expect", b"upgrade", b"forwarded"})
"""Fields whose meaning is for others to find out; so is that of all that begin with"""
PASSED_ON = b"x-forwarded"


class Lane:
    """Takes what it understands at sight; one for each service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._shape = Shape(ROUTE)

    def wants(self, cycle: RequestResponseCycle) -> bool:
        """Whether a request may be for it, by its first line."""
        scope = cycle.scope
        return (
            scope["method"] == ROUTE.method
            and scope["path"].endswith(LAST)
            and not scope["query_string"]
        )

    def small(self, cycle: RequestResponseCycle) -> bool:
        """Whether the body of a request, which is not there yet, will be one for it."""
        fields = _scope(cycle)["headers"]
        lengths = [value for name, value in fields if name == LENGTH]
        waits = any(name == b"expect" for name, _ in fields)
        told = lengths[0] if len(lengths) == 1 and not waits else b""
        return told.isdigit() and len(told) < 6 and int(told) <= SMALL

    def take(self, cycle: RequestResponseCycle) -> bool:
        """Have a request answered that is there as a whole; False where that is for others."""
        scope = _scope(cycle)
        names = self._shape.names(scope["path"].split("/"))
        fields = _fields(scope, self._service.limits)
        if names is None or fields is None or not 0 < len(cycle.body) <= SMALL:
            return False
        try:
            caller = self._service.tokens.caller(fields.get(AUTHORIZATION))
        except PyramidionError:
            return False
        scope["route"], scope[CALLER] = self._shape, caller.id
        Taken(self._service, cycle).observe(caller, names["stream"], fields.get(KEY))
        return True


class Taken:
    """One request that was taken, until it is answered."""

    def __init__(self, service: Service, cycle: RequestResponseCycle) -> None:
        self._service = service
        self._cycle = cycle
        self._scope = _scope(cycle)
        self._begun = time.perf_counter()
        self._came = 0
        service.metrics.in_flight += 1

    def observe(self, caller: Token, name: str, key: str | None) -> None:
        """Have its rows observed; who is not let in, and what is no rows, is answered at once."""
        service, place = self._service, place_of(ROUTE)
        try:
            stream = let_in(ROUTE, service, caller, name)
            service.admission.enter(place)
            self._scope[PLACE] = place
            body, columns = self._body(), Wanted.of(stream.pyramid, stream.pyramid.schema.columns)
            rows, number = rows_from(body, JSON, service.limits, columns)
            arrival = Arrival(rows, key, sender=caller.id, content=content_of(body, JSON, key))
            stream.observe_for(self._observed, arrival, number, len(body))
        except Exception as problem:
            self._answer(_refused(problem))

    def _body(self) -> bytes:
        """What came. The connection keeps none of it."""
        body, self._cycle.body = bytes(self._cycle.body), bytearray()
        self._came = JsonMemory().add(body)
        self._service.admission.hold(self._came)
        return body

    def _observed(self, promise: Kept[Receipt]) -> None:
        try:
            told = answer(promise.result().public)
        except Exception as problem:
            told = _refused(problem)
        self._answer(told)

    def _answer(self, told: Response) -> None:
        cycle, service = self._cycle, self._service
        service.metrics.in_flight -= 1
        finished(service, self._scope, told.status_code, self._came, self._begun)
        if cycle.disconnected:
            return
        cycle.transport.write(_written(cycle, self._scope, told))
        cycle.response_started = cycle.response_complete = True
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()


def _written(cycle: RequestResponseCycle, scope: Scope, told: Response) -> bytes:
    """An answer as it goes out, all at once."""
    parts = [STATUS_LINE[told.status_code]]
    for name, value in (*cycle.default_headers, *headed(scope, told.raw_headers)):
        parts += (name, b": ", value, b"\r\n")
    parts += (b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n", bytes(told.body))
    return b"".join(parts)


def _scope(cycle: RequestResponseCycle) -> Scope:
    return cast("Scope", cycle.scope)


def _refused(problem: Exception) -> Response:
    return refusal(problem) if isinstance(problem, PyramidionError) else surprise(problem)


def _fields(scope: Scope, limits: Limits) -> dict[bytes, str] | None:
    """The fields that count; None where one is not for here or comes twice, or all are too long.

    That is for others to refuse (`pyramidion.web.gate.too_long`): here they are looked at once.
    """
    found: dict[bytes, str] = {}
    size = 0
    for name, value in scope["headers"]:
        size += len(name) + len(value)
        if name in COUNT:
            if name in found:
                return None
            found[name] = value.decode("latin-1")
        elif name in ODD or name.startswith(PASSED_ON):
            return None
    if size > limits.header_bytes or len(scope["headers"]) > limits.fields:
        return None
    if len(scope["raw_path"]) > limits.path_bytes:
        return None
    told = found.get(KIND, JSON)
    return found if told == JSON or told.partition(";")[0].strip().lower() == JSON else None
