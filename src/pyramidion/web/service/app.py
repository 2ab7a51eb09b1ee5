"""The app of a service: its routes, put together."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from pyramidion import __version__
from pyramidion.counts.signing import key_text
from pyramidion.web import dashboard
from pyramidion.web.bodies import PLAIN, json_response
from pyramidion.web.openapi import OpenRoute, document, document_routes
from pyramidion.web.routing import PREFIX, App, guarded, refuse_unguarded
from pyramidion.web.service import (
    routes_admin,
    routes_models,
    routes_rows,
    routes_store,
    routes_vault,
)
from pyramidion.web.service.calls import Call
from pyramidion.web.service.service import Service

ALL = (
    routes_rows.routes,
    routes_models.routes,
    routes_store.routes,
    routes_vault.routes,
    routes_admin.routes,
)
FREQUENT = frozenset(
    {"/streams/{stream}/observations", "/streams/{stream}/models/{model}/predictions"}
)
"""Routes that the router tries first: it goes through them in order, a microsecond each."""
OPEN = frozenset(
    {
        *("/healthz", "/readyz", "/v1/key", "/openapi.json", "/docs"),
        *("/", "/login", "/static/{mark}/{name}"),
    }
)
"""What anybody may ask; everything else needs a token."""


def create_app(service: Service) -> App:
    """An app that answers for a service; the caller closes the service."""
    admit = partial(Call.admit, service)
    routes = [(PREFIX, route) for routes in ALL for route in routes.all]
    routes.sort(key=lambda each: each[1].path not in FREQUENT)
    open_routes = _open_routes(service)
    if service.open_metrics:
        open_metrics = partial(routes_admin.open_metrics, service)
        open_routes.append(
            OpenRoute("/metrics", open_metrics, "Numbers for Prometheus.", kind=PLAIN)
        )
    else:
        routes += [("", route) for route in routes_admin.metrics_routes.all]
    described = document("Pyramidion", __version__, routes, open_routes)
    app = App(
        service,
        [
            *(guarded(route, service, admit, prefix=prefix) for prefix, route in routes),
            *(route.mounted() for route in open_routes),
            *document_routes(described),
            *dashboard.routes_of(service, ALL),
        ],
    )
    refuse_unguarded(app.routes, OPEN | {"/metrics"} if service.open_metrics else OPEN)
    return app


def _open_routes(service: Service) -> list[OpenRoute]:
    async def healthz(_: Request) -> Response:
        return json_response({"alive": True})

    async def readyz(_: Request) -> Response:
        # The name of the stream is not for everybody; /metrics has it.
        reasons = service.reasons
        body = {"ready": not reasons} | ({"reasons": reasons} if reasons else {})
        return json_response(body, 503 if reasons else 200)

    async def key(_: Request) -> Response:
        return json_response({"ed25519": key_text(service.signer.public_key())})

    return [
        OpenRoute("/healthz", healthz, "Whether the process lives."),
        OpenRoute(
            "/readyz", readyz, "Whether all can be answered.", {"503": "the reasons why not"}
        ),
        OpenRoute("/v1/key", key, "The public key that snapshots are signed with."),
    ]
