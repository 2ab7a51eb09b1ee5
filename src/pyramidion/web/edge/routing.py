"""Routes of an edge, each with who may call it; what one raises becomes the one shape of errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from pyramidion.errors import PyramidionError, UnknownCallerError
from pyramidion.web.edge.bodies import refused
from pyramidion.web.edge.edge import Edge
from pyramidion.web.gate import CALLER, PLACE
from pyramidion.web.openapi import described
from pyramidion.web.refusals import surprise

Endpoint = Callable[[Request], Awaitable[Response]]
PLACES = "requests"


@dataclass(frozen=True)
class Route:
    """One route: what it is called by, who may, and what it says of itself."""

    method: str
    path: str
    role: str
    endpoint: Endpoint
    about: dict[str, Any]

    @property
    def roles(self) -> frozenset[str]:
        """The one role that is needed."""
        return frozenset({self.role})

    @property
    def for_all(self) -> bool:
        """None is for every token."""
        return False

    def serve(self, app: FastAPI, edge: Edge) -> None:
        """Have an app answer it."""
        app.add_api_route(
            self.path,
            self._handler(edge),
            methods=[self.method],
            name=self.endpoint.__name__,
            summary=(self.endpoint.__doc__ or "").partition("\n")[0],
            response_class=Response,
            openapi_extra=described(self),
        )

    def _handler(self, edge: Edge) -> Endpoint:
        async def handle(request: Request) -> Response:
            try:
                self._let_in(edge, request)
                edge.admission.enter(PLACES)
                request.scope[PLACE] = PLACES
                return await self.endpoint(request)
            except PyramidionError as problem:
                return refused(problem)
            except Exception as problem:
                return surprise(problem)

        return handle

    def _let_in(self, edge: Edge, request: Request) -> None:
        """Raise unless the caller may: first who, then how often, then what, and where."""
        try:
            caller = edge.callers.caller(request.headers.get("authorization"))
        except UnknownCallerError:
            edge.admission.strange(request.client.host if request.client else "")
            raise
        request.scope[CALLER] = caller.id
        edge.admission.take(caller.id)
        caller.refuse_without(self.role)
        caller.refuse_other(request.path_params.get("stream", "*"))
