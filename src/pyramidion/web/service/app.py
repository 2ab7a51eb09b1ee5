"""The routes of a service, put together."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pyramidion import __version__
from pyramidion.counts.signing import key_text
from pyramidion.web import dashboard
from pyramidion.web.bodies import answer
from pyramidion.web.gate import Gate
from pyramidion.web.openapi import OPEN, documented
from pyramidion.web.page import POLICY, page
from pyramidion.web.refusals import unrouted
from pyramidion.web.service import (
    routes_beginning,
    routes_copies,
    routes_metrics,
    routes_models,
    routes_predictions,
    routes_rows,
    routes_service,
    routes_store,
    routes_vault,
)
from pyramidion.web.service.routing import refuse_unguarded
from pyramidion.web.service.service import Service
from pyramidion.web.service.shapes import NAMED
from pyramidion.web.service.shortcuts import Shortcuts

ALL = (
    routes_rows.routes,
    routes_copies.routes,
    routes_models.routes,
    routes_predictions.routes,
    routes_store.routes,
    routes_vault.routes,
    routes_beginning.routes,
    routes_service.routes,
)


class App(FastAPI):
    """FastAPI, and a shorter way past it to what is asked most."""

    shortcuts: Shortcuts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        short = self.shortcuts.of(scope)
        await (super().__call__ if short is None else short)(scope, receive, send)


def create_app(service: Service) -> FastAPI:
    """An app that answers for a service; who made the service closes it."""
    app = App(
        title="Pyramidion",
        version=__version__,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    app.shortcuts = Shortcuts(service, (route for routes in ALL for route in routes.all))
    documented(app, NAMED)
    app.add_exception_handler(HTTPException, unrouted)
    app.add_middleware(Gate, service=service)
    for routes in ALL:
        routes.serve(app, service)
    routes_metrics.serve(app, service)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        headers = {"Content-Security-Policy": POLICY}
        return Response(page(app.openapi()), headers=headers, media_type="text/html")

    @app.get("/healthz", openapi_extra=OPEN, summary="Whether the process lives.")
    async def healthz() -> Response:
        return answer({"alive": True})

    @app.get("/readyz", openapi_extra=OPEN, summary="Whether all can be answered.")
    async def readyz() -> Response:
        # Which stream it is stands in /metrics: its name is not for everybody.
        reasons = service.reasons
        told = {"ready": not reasons} | ({"reasons": reasons} if reasons else {})
        return answer(told, 503 if reasons else 200)

    @app.get(
        "/v1/key", openapi_extra=OPEN, summary="The public key that snapshots are signed with."
    )
    async def key() -> Response:
        return answer({"ed25519": key_text(service.signer.public_key())})

    dashboard.serve(app, service, ALL)
    refuse_unguarded(app)
    return app
