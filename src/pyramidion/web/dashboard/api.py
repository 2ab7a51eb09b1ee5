"""The API, asked from here as whoever is logged in.

Pages show what the API answers, and change what it changes, by its own endpoints: what a token
may not read there is not on a page, and a number on a page is the one that the API tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from pyramidion.errors import ForbiddenError, FormatError
from pyramidion.web.routing import Route, Routes
from pyramidion.web.service.calls import Call
from pyramidion.web.service.service import Service
from pyramidion.web.tokens import Token

JSON = "application/json"
_decode = msgspec.json.Decoder().decode


class Api:
    """The endpoints of a service under ``/v1``, by method and path."""

    def __init__(self, service: Service, routes: Iterable[Routes[Call]]) -> None:
        self._service = service
        self._routes = {(each.method, each.path): each for group in routes for each in group.all}

    def may(self, caller: Token, method: str, path: str) -> bool:
        """Whether a token has a role for a route."""
        try:
            caller.refuse_without(self._route(method, path).roles)
        except ForbiddenError:
            return False
        return True

    def roles(self, method: str, path: str) -> list[str]:
        """One of which a route asks for."""
        return sorted(self._route(method, path).roles)

    async def ask(
        self,
        caller: Token,
        method: str,
        path: str,
        *,
        names: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        kind: str = JSON,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """What the API answers: ``path`` as its route has it, ``names`` for what is in braces.

        A refusal is raised as the error it is.
        """
        route = self._route(method, path)
        caller.refuse_without(route.roles)
        given = dict(names or {})
        for name in given.values():  # what no address could have
            if not name or "/" in name or len(name) > self._service.limits.path_bytes:
                raise FormatError("this name is empty, too long or has a / in it; choose another")
        stream = self._service.stream(given["stream"], caller) if "stream" in given else None
        about = {"content-type": kind, "accept": JSON, **(headers or {})}
        request = _request(route, given, query or {}, body, about)
        answer = await route.endpoint(Call(request, self._service, caller, stream))
        return await _told(answer)

    def _route(self, method: str, path: str) -> Route[Call]:
        return self._routes[method, path]


def _request(
    route: Route[Call],
    names: dict[str, str],
    query: Mapping[str, str],
    body: bytes,
    headers: Mapping[str, str],
) -> Request:
    """A request as if it had come in, with nothing of the browser's in it."""
    scope = {
        "type": "http",
        "method": route.method,
        "path": route.path,
        "path_params": names,
        "query_string": urlencode(query).encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request(scope, receive)


async def _told(answer: Response) -> Any:
    """The values of an answer: of JSON, or a list of those of JSON lines."""
    if hasattr(answer, "body_iterator"):
        parts = [p if isinstance(p, bytes) else p.encode() async for p in answer.body_iterator]
        return [_decode(line) for line in b"".join(parts).splitlines()]
    return _decode(bytes(answer.body))
