"""Routes that cannot be added without saying who may call them.

Every route stands in `Routes` with its roles; a route of a stream gets the stream, and the
caller's token must be for it. What an endpoint raises becomes the one shape of errors.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from anyio import to_thread
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from pyramidion.config.checks import nearest
from pyramidion.errors import MissingError, PyramidionError, StateError, UnknownCallerError
from pyramidion.learn.models import Model
from pyramidion.store.pyramid import Pyramid
from pyramidion.web.bodies import body_of, content_of, kind_of
from pyramidion.web.gate import CALLER, PLACE
from pyramidion.web.limits import Limits
from pyramidion.web.openapi import described
from pyramidion.web.refusals import refusal, surprise
from pyramidion.web.service.access import ANY, Role, Token, needed
from pyramidion.web.service.row_bodies import Wanted, rows_from
from pyramidion.web.service.service import Service
from pyramidion.web.service.streams import Stream

PREFIX = "/v1"
SMALL = 1 << 14  # bytes of a body that are read at once: about as long as a thread takes to start
GUARDED = "guarded_by"
OPEN = frozenset(
    {
        *("/healthz", "/readyz", "/v1/key", "/openapi.json", "/docs"),
        *("/", "/login", "/static/{mark}/{name}"),
    }
)
"""What anybody may ask; everything else asks for a token."""
T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """A request of somebody who may make it."""

    request: Request
    service: Service
    caller: Token
    _stream: Stream | None = None

    @property
    def stream(self) -> Stream:
        """The stream in its path."""
        assert self._stream is not None  # noqa: S101 by the route's path
        return self._stream

    @property
    def pyramid(self) -> Pyramid:
        """The store of that stream."""
        return self.stream.pyramid

    def asked(self, name: str) -> str:
        """A part of the path."""
        told: str = self.request.path_params[name]
        return told

    def query(self, name: str, default: str | None = None) -> str | None:
        """A parameter of the query."""
        if not self.request.scope["query_string"]:
            return default
        return self.request.query_params.get(name, default)


Endpoint = Callable[[Call], Awaitable[Response]]


async def apart(verb: Callable[[], T]) -> T:
    """Do something that waits in a thread of its own, so that others are answered meanwhile."""
    return await to_thread.run_sync(verb)


class Rows(NamedTuple):
    """The rows of a body: what they are, how many, and the bytes that they came in."""

    rows: Any
    number: int
    size: int
    content: bytes = b""
    """A hash of these bytes, where they came under a key."""


async def rows_in(
    body: bytes, kind: str, limits: Limits, wanted: Wanted, key: str | None = None
) -> Rows:
    """The rows of a body; of a large one in a thread, so that others are answered meanwhile."""

    def read() -> Rows:
        content = content_of(body, kind, key)
        return Rows(*rows_from(body, kind, limits, wanted), len(body), content)

    return read() if len(body) <= SMALL else await apart(read)


async def rows_of(call: Call, wanted: Wanted, key: str | None = None) -> Rows:
    """The rows of a request, which may be sent again under a key."""
    limits = call.service.limits
    body = await body_of(call.request, limits)
    return await rows_in(body, kind_of(call.request), limits, wanted, key)


def observed(call: Call) -> Wanted:
    """What rows that are observed have: all columns."""
    return Wanted.of(call.pyramid, call.pyramid.schema.columns)


def asked_for(call: Call) -> Wanted:
    """What rows that are asked for have: the features."""
    return Wanted.of(call.pyramid, call.pyramid.schema.feature_names)


async def read_by(call: Call, what: str) -> None:
    """Have the audit log say who reads raw data, before any leaves; if it cannot, none does."""
    by, token = call.caller.name, call.caller.id
    await apart(lambda: call.pyramid.admin.note("rows.read", by=by, token=token, what=what))


@dataclass(frozen=True)
class Route:
    """One route: what it is called by, who may, and what it says of itself."""

    method: str
    path: str
    roles: frozenset[Role]
    """One of them is needed."""
    endpoint: Endpoint
    about: dict[str, Any]
    often: bool = False
    """Whether it is asked so often that the way to it counts, see `shortcuts`."""

    @property
    def for_all(self) -> bool:
        """Whether any token that is known may call it."""
        return self.roles == frozenset(ANY)


class Routes:
    """A list of routes, filled by decorators."""

    def __init__(self) -> None:
        self.all: list[Route] = []

    def add(
        self, method: str, path: str, *roles: Role, often: bool = False, **about: Any
    ) -> Callable[[Endpoint], Endpoint]:
        """Add a route under ``/v1``; ``about`` says what it asks, takes and gives.

        Who may call it is said: roles, or ``*ANY``.
        """
        asked = needed(path, roles)

        def added(endpoint: Endpoint) -> Endpoint:
            self.all.append(Route(method, path, asked, endpoint, about, often))
            return endpoint

        return added

    def serve(self, app: FastAPI, service: Service, prefix: str = PREFIX) -> None:
        """Have an app answer them."""
        for route in self.all:
            app.add_api_route(
                prefix + route.path,
                handler(route, service),
                methods=[route.method],
                name=route.endpoint.__name__,
                summary=(route.endpoint.__doc__ or "").partition("\n")[0],
                response_class=Response,
                status_code=route.about.get("status", 200),
                openapi_extra=described(route),
            )


Handle = Callable[[Request], Awaitable[Response]]


def handler(route: Route, service: Service) -> Handle:
    """What answers a route's requests, whatever becomes of them."""
    place = place_of(route)

    async def handle(request: Request) -> Response:
        try:
            call = _admitted(route, service, request)
            service.admission.enter(place)
            request.scope[PLACE] = place
            return await route.endpoint(call)
        except PyramidionError as problem:
            return refusal(problem)
        except Exception as problem:
            return surprise(problem)

    vars(handle)[GUARDED] = route
    return handle


def place_of(route: Route) -> str:
    """Among whom a request is counted while it is answered."""
    return "observations" if route.roles == {"observe"} else "requests"


def _admitted(route: Route, service: Service, request: Request) -> Call:
    """The call, if the caller may make it."""
    try:
        caller = service.tokens.caller(request.headers.get("authorization"))
    except UnknownCallerError:
        service.admission.strange(request.client.host if request.client else "")
        raise
    request.scope[CALLER] = caller.id
    name = request.path_params.get("stream")
    if name is not None:
        return Call(request, service, caller, let_in(route, service, caller, name))
    _let_in(route, service, caller)
    return Call(request, service, caller)


def let_in(route: Route, service: Service, caller: Token, name: str) -> Stream:
    """The stream that a caller may call a route of: first how often, then what, and where."""
    _let_in(route, service, caller)
    return service.stream(name, caller)


def _let_in(route: Route, service: Service, caller: Token) -> None:
    service.admission.take(caller.id)
    caller.refuse_without(route.roles)


def refuse_unguarded(app: FastAPI) -> None:
    """Raise if an app answers somewhere without asking who calls, save where that is meant."""
    for route in app.routes:
        path, guarded = getattr(route, "path", ""), getattr(route, "endpoint", None)
        if not hasattr(guarded, GUARDED) and path not in OPEN:
            raise StateError(f"{path} is open to everybody; give it roles, or add it to OPEN")


@contextmanager
def unexplained(call: Call, model: str) -> Iterator[None]:
    """Why a model is unavailable follows from hot rows: only callers with ``train`` are told."""
    try:
        yield
    except StateError:
        if "train" in call.caller.roles or not model_of(call.pyramid, model).why:
            raise
        raise StateError(
            f"model {model!r} is unavailable; a token with the role train is told why"
        ) from None


def model_of(pyramid: Pyramid, name: str) -> Model:
    """A registered model."""
    models = dict(pyramid.models.items())
    if name not in models:
        remedy = nearest(name, models) if models else "register it first"
        raise MissingError(f"there is no model of this name; {remedy}")
    return models[name]
