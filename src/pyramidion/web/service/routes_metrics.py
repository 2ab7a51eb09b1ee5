"""Numbers for Prometheus; what they mean stands in `pyramidion.web.service.metrics`."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.responses import Response

from pyramidion.web.metrics import TYPE
from pyramidion.web.service.routing import GUARDED, Call, Routes, apart
from pyramidion.web.service.service import Service
from pyramidion.web.shapes import TEXT, Body

routes = Routes()


@routes.add("GET", "/metrics", "admin", gives=Body({"text/plain": TEXT}))
async def metrics(call: Call) -> Response:
    """Numbers for Prometheus."""
    call.caller.refuse_part()
    return Response(await apart(call.service.metrics.exposition), media_type=TYPE)


def serve(app: FastAPI, service: Service) -> None:
    """Have an app answer; everybody, where the service was told so."""
    if not service.open_metrics:
        routes.serve(app, service, prefix="")
        return

    async def opened() -> Response:
        return Response(await apart(service.metrics.exposition), media_type=TYPE)

    vars(opened)[GUARDED] = None  # by who started the service
    about = {"summary": "Numbers for Prometheus.", "response_class": Response}
    app.add_api_route("/metrics", opened, methods=["GET"], name="metrics", **about)  # type: ignore[arg-type]
