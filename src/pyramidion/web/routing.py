"""Routes of the service, its dashboard and the edge, which cannot be added without roles.

`Routes` collects what handles a path, with the roles of which the caller needs one. `Guard` is the
way to each of them: it finds the caller by the token, checks how often, what and where they may
call, and turns errors into the one JSON shape. Starlette's router finds the route.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import starlette.routing
from anyio import to_thread
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pyramidion.errors import PyramidionError, StateError, UnknownCallerError
from pyramidion.web.errors import error_response, unexpected_error
from pyramidion.web.middleware import CALLER, PLACE, Host, RequestMiddleware
from pyramidion.web.tokens import ANY, Role, Token, TokenFile, needed

PREFIX = "/v1"
T = TypeVar("T")
C = TypeVar("C")
Handler = Callable[[Request], Awaitable[Response]]


class TokenHost(Host, Protocol):
    """A service or an edge, as far as its routes need it."""

    @property
    def tokens(self) -> TokenFile:
        """The callers that it knows."""


async def in_thread(function: Callable[[], T]) -> T:
    """Run something that blocks in a worker thread, so that other requests are answered."""
    return await to_thread.run_sync(function)


@dataclass(frozen=True)
class Route(Generic[C]):
    """One route: method, path, roles and handler. The handler takes a call of type C."""

    method: str
    path: str
    roles: frozenset[Role]
    """The caller needs one of them."""
    endpoint: Callable[[C], Awaitable[Response]]
    about: dict[str, Any]
    """For the OpenAPI document: parameters, request body, response."""

    @property
    def for_all(self) -> bool:
        """Whether any known token may call it."""
        return self.roles == frozenset(ANY)

    @property
    def summary(self) -> str:
        """The first line of the handler's docstring."""
        return (self.endpoint.__doc__ or "").partition("\n")[0]


class Routes(Generic[C]):
    """A list of routes, filled by decorators."""

    def __init__(self) -> None:
        self.all: list[Route[C]] = []

    def add(
        self, method: str, path: str, *roles: Role, **about: Any
    ) -> Callable[[Callable[[C], Awaitable[Response]]], Callable[[C], Awaitable[Response]]]:
        """Add a route; ``about`` describes it for the OpenAPI document.

        Roles must be named; ``*ANY`` admits every known token.
        """
        checked = needed(path, roles)

        def added(
            endpoint: Callable[[C], Awaitable[Response]],
        ) -> Callable[[C], Awaitable[Response]]:
            self.all.append(Route(method, path, checked, endpoint, about))
            return endpoint

        return added


class Endpoint:
    """What answers at one path, as an ASGI app."""

    def __init__(self, path: str, handler: Handler, guard: object = None) -> None:
        self.path = path
        self._handler = handler
        self.guard = guard
        """What says who may call it; None: anybody."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        response = await self._handler(Request(scope, receive))
        await response(scope, receive, send)


def mounted(
    method: str, path: str, handler: Handler, guard: object = None
) -> starlette.routing.Route:
    """A handler as a route of Starlette's."""
    route = starlette.routing.Route(path, Endpoint(path, handler, guard), methods=[method])
    route.methods = {method}  # without HEAD: it would do all that GET does, and show nothing
    return route


def guarded(
    route: Route[C],
    host: TokenHost,
    admit: Callable[[Request, Token], C],
    *,
    prefix: str = PREFIX,
    respond: Callable[[PyramidionError], Response] = error_response,
) -> starlette.routing.Route:
    """A route behind its checks.

    ``admit`` makes the call from a request and its caller, and raises if the caller may not see
    what the path names. ``respond`` makes the response of an error.
    """
    place = "observations" if route.roles == {"observe"} else "requests"

    async def handle(request: Request) -> Response:
        try:
            call = admit(request, caller_of(request, host, route.roles))
            host.admission.enter(place)
            request.scope[PLACE] = place
            return await route.endpoint(call)
        except PyramidionError as problem:
            return respond(problem)
        except Exception as problem:
            return unexpected_error(problem)

    return mounted(route.method, prefix + route.path, handle, route)


def caller_of(request: Request, host: TokenHost, roles: frozenset[Role]) -> Token:
    """The caller of a request: first who it is, then how often, then what they may call."""
    try:
        caller = host.tokens.caller(request.headers.get("authorization"))
    except UnknownCallerError:
        host.admission.strange(request.client.host if request.client else "")
        raise
    request.scope[CALLER] = caller.id
    host.admission.take(caller.id)
    caller.refuse_without(roles)
    return caller


class App(starlette.routing.Router):
    """Starlette's router behind our middleware.

    Our middleware maps errors to responses. `starlette.applications.Starlette` would add two of its
    own for that, and errors would be mapped in two places.
    """

    def __init__(self, host: Host, routes: Iterable[starlette.routing.Route]) -> None:
        middleware = [Middleware(RequestMiddleware, host=host)]
        super().__init__(list(routes), redirect_slashes=False, middleware=middleware)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; what no route takes is raised for the middleware to answer."""
        scope["app"] = self
        await super().__call__(scope, receive, send)


def refuse_unguarded(routes: Iterable[object], open_paths: frozenset[str]) -> None:
    """Raise if there is a route without a guard that is not meant to be open."""
    for route in routes:
        path, endpoint = getattr(route, "path", ""), getattr(route, "endpoint", None)
        if getattr(endpoint, "guard", None) is None and path not in open_paths:
            raise StateError(f"{path} is open to everybody; give it roles, or add it to OPEN")
