"""The way to routes that are asked so often that the way counts.

FastAPI tries one route after the other and looks for what a route depends on, which takes longer
than a prediction. Here such a route is found by the shape of its path. It passes the same gate and
the same handler; that it is there, and what it takes, FastAPI tells as of all others.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from pyramidion.web.gate import Gate
from pyramidion.web.service.routing import PREFIX, Handle, Route, handler
from pyramidion.web.service.service import Service

Sort = tuple[str, int, str]
"""A method, how many parts a path has, and the last of them."""


class Shape:
    """The path of a route: which of its parts are names."""

    def __init__(self, route: Route) -> None:
        self.path = PREFIX + route.path
        self._parts = self.path.split("/")
        places = [place for place, part in enumerate(self._parts) if part[:1] == "{"]
        self._names = [(place, self._parts[place][1:-1]) for place in places]
        self.sort: Sort = (route.method, len(self._parts), self._parts[-1])

    def names(self, parts: list[str]) -> dict[str, str] | None:
        """The names in a path that has this shape; None where it has not."""
        if len(parts) != len(self._parts):
            return None
        names = {}
        for place, name in self._names:
            names[name], parts[place] = parts[place], self._parts[place]
        return names if parts == self._parts and all(names.values()) else None


class Shortcuts:
    """Finds what answers a request, if it is one of those."""

    def __init__(self, service: Service, routes: Iterable[Route]) -> None:
        self._found: dict[Sort, tuple[Shape, ASGIApp]] = {}
        for route in routes:
            if route.often:
                self._add(Shape(route), handler(route, service), service)

    def _add(self, shape: Shape, handle: Handle, service: Service) -> None:
        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            await (await handle(Request(scope, receive)))(scope, receive, send)

        self._found[shape.sort] = shape, Gate(answer, service)

    def of(self, scope: Scope) -> ASGIApp | None:
        """What answers a request; None where it is for FastAPI to find."""
        if scope["type"] != "http":
            return None
        parts = scope["path"].split("/")
        found = self._found.get((scope["method"], len(parts), parts[-1]))
        if found is None:
            return None
        shape, answer = found
        names = shape.names(parts)
        if names is None:
            return None
        scope["route"], scope["path_params"] = shape, names
        return answer
