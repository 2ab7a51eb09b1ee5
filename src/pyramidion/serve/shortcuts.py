"""The way to routes that are asked so often that the way counts.

FastAPI tries one route after the other and looks for what a route depends on, which takes longer
than a prediction. Here such a route is found by the shape of its path. It passes the same gate and
the same handler; that it is there, and what it takes, FastAPI tells as of all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from pyramidion.serve.gate import Gate
from pyramidion.serve.routing import PREFIX, Route, handler
from pyramidion.serve.service import Service

Shape = tuple[str, int, str]
"""A method, how many parts a path has, and the last of them."""


class Short(NamedTuple):
    """One route: its path in parts, which of them are names, and what answers."""

    path: str
    parts: list[str]
    names: list[tuple[int, str]]
    answer: ASGIApp


class Shortcuts:
    """Finds what answers a request, if it is one of those."""

    def __init__(self, service: Service, routes: Iterable[Route]) -> None:
        self._found: dict[Shape, Short] = {}
        for route in routes:
            if route.often:
                self._add(route, service)

    def _add(self, route: Route, service: Service) -> None:
        path = PREFIX + route.path
        parts, handle = path.split("/"), handler(route, service)
        names = [(place, part[1:-1]) for place, part in enumerate(parts) if part[:1] == "{"]

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            await (await handle(Request(scope, receive)))(scope, receive, send)

        short = Short(path, parts, names, Gate(answer, service))
        self._found[route.method, len(parts), parts[-1]] = short

    def of(self, scope: Scope) -> ASGIApp | None:
        """What answers a request; None where it is for FastAPI to find."""
        if scope["type"] != "http":
            return None
        parts = scope["path"].split("/")
        found = self._found.get((scope["method"], len(parts), parts[-1]))
        if found is None:
            return None
        names = {}
        for place, name in found.names:
            names[name], parts[place] = parts[place], found.parts[place]
        if parts != found.parts or not all(names.values()):
            return None
        scope["route"], scope["path_params"] = found, names
        return found.answer
