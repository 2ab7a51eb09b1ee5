"""The routes of an edge: those of the service that need no rows and no store."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
from anyio import to_thread
from fastapi import FastAPI
from numpy.typing import NDArray
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from pyramidion.counts.snapshot import Snapshot
from pyramidion.errors import ExpiredError, SchemaError, StateError
from pyramidion.web.bodies import answer, arrow, body_of, kind_of, wants_arrow
from pyramidion.web.edge.bodies import rows_from
from pyramidion.web.edge.copies import Copies, Revived
from pyramidion.web.edge.edge import Edge
from pyramidion.web.edge.routing import Route
from pyramidion.web.edge.shapes import ASKED, MODEL, NAMED, ROWS
from pyramidion.web.gate import Gate
from pyramidion.web.metrics import TYPE
from pyramidion.web.openapi import OPEN, documented
from pyramidion.web.page import POLICY, page
from pyramidion.web.refusals import unrouted
from pyramidion.web.shapes import FEATURES, TEXT, Body, json_of, named

SMALL = 1 << 14  # bytes of a body that are read at once: about as long as a thread takes to start
OF_STREAM = "/v1/streams/{stream}"
OF_MODEL = OF_STREAM + "/models/{model}"


def create_app(edge: Edge) -> FastAPI:
    """An app that answers for an edge."""
    app = FastAPI(
        title="Pyramidion edge",
        version=edge.version,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    documented(app, NAMED)
    app.add_exception_handler(HTTPException, unrouted)
    app.add_middleware(Gate, service=edge)
    for route in _routes(edge):
        route.serve(app, edge)
    _serve_open(app, edge)
    return app


def _routes(edge: Edge) -> list[Route]:
    """What asks for a token."""
    copies, limits = edge.copies, edge.limits

    async def rows_of(request: Request) -> Any:
        body, kind = await body_of(request, limits), kind_of(request)
        if len(body) <= SMALL:
            return rows_from(body, kind, limits)
        return await to_thread.run_sync(lambda: rows_from(body, kind, limits))

    async def features(request: Request) -> Response:
        """Features of rows, from the complete tables at hand (P2)."""
        rows = await rows_of(request)
        if isinstance(rows, np.ndarray):
            raise SchemaError("these are features already; send rows")
        snapshot = copies.snapshot(request.path_params["stream"])
        if wants_arrow(request):
            return arrow(await to_thread.run_sync(lambda: snapshot.featurize(_listed(rows))))
        found = await to_thread.run_sync(lambda: np.asarray(snapshot.array(_listed(rows))))
        told = {"names": snapshot.names, "rows": found.tolist()}
        return answer(told | {"guarantee": snapshot.guarantee.to_dict()})

    async def predictions(request: Request) -> Response:
        """Predict rows by a model at hand: a probability for each class, or a number (P1)."""
        rows = await rows_of(request)
        stream, name = request.path_params["stream"], request.path_params["model"]
        model = copies.model(stream, name)
        told: dict[str, Any] = {"model": name, "version": model.version}
        one = isinstance(rows, dict | np.ndarray)  # is answered sooner than handed over
        if one and copies.is_loaded(stream, name):
            return answer(told | _predicted(copies, stream, model, rows))
        return answer(
            told | await to_thread.run_sync(lambda: _predicted(copies, stream, model, rows))
        )

    async def model(request: Request) -> Response:
        """A model at hand: its version, its classes, and when it ends."""
        name = request.path_params["model"]
        found = copies.model(request.path_params["stream"], name)
        told = {"name": name, "version": found.version, "classes": list(found.classes)}
        return answer(told | {"expires": found.expires})

    async def metrics(_: Request) -> Response:
        """Numbers for Prometheus."""
        return await _numbered(edge)

    given = json_of(named("Predictions"))
    routes = [
        Route(
            "POST", f"{OF_STREAM}/features", "predict", features,
            {"takes": ROWS, "gives": FEATURES},
        ),
        Route(
            "POST", f"{OF_MODEL}/predictions", "predict", predictions,
            {"takes": ASKED, "gives": given},
        ),
        Route("GET", OF_MODEL, "predict", model, {"gives": MODEL}),
    ]  # fmt: skip
    if not edge.open_metrics:
        told = Body({"text/plain": TEXT})
        routes.append(Route("GET", "/metrics", "admin", metrics, {"gives": told}))
    return routes


async def _numbered(edge: Edge) -> Response:
    return Response(await to_thread.run_sync(edge.metrics.exposition), media_type=TYPE)


def _serve_open(app: FastAPI, edge: Edge) -> None:
    """What anybody may ask."""

    @app.get("/healthz", openapi_extra=OPEN, summary="Whether the process lives.")
    async def healthz() -> Response:
        return answer({"alive": True})

    ready: dict[str, Any] = OPEN | {"responses": {"503": {"description": "something is lacking"}}}

    @app.get("/readyz", openapi_extra=ready, summary="Whether all that was asked for is at hand.")
    async def readyz() -> Response:
        lacking = edge.copies.lacking()
        return answer({"ready": not lacking, "lacking": sorted(lacking)}, 503 if lacking else 200)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        headers = {"Content-Security-Policy": POLICY}
        return Response(page(app.openapi()), headers=headers, media_type="text/html")

    if edge.open_metrics:

        @app.get("/metrics", openapi_extra=OPEN, summary="Numbers for Prometheus.")
        async def metrics() -> Response:
            return await _numbered(edge)


def _listed(rows: Any) -> Any:
    return [rows] if isinstance(rows, dict) else rows


def _predicted(copies: Copies, stream: str, model: Revived, rows: Any) -> dict[str, Any]:
    """What a model says of rows; one that expired in between says nothing."""
    try:
        snapshot = copies.snapshot(stream)
        if isinstance(rows, np.ndarray):
            found = [_numbers(_ready_made(model, snapshot, rows))]
            return {"classes": list(model.classes), "probabilities": found}
        about = {"classes": list(model.classes)} if model.classes else {}
        with suppress(SchemaError):  # a classifier that has no probabilities gives classes
            if model.classes:
                told = model.predict_proba(snapshot, _listed(rows))
                return about | {"probabilities": _numbers(told)}
        return about | {"predictions": _numbers(model.predict(snapshot, _listed(rows)))}
    except StateError as problem:
        if model.expired:
            raise ExpiredError(str(problem)) from None
        raise


def _numbers(found: NDArray[Any]) -> list[Any]:
    """What a model answers, as plain values; one that has no number for a row has no answer."""
    given = np.asarray(found)
    if given.dtype.kind == "f" and not np.isfinite(given).all():
        raise StateError(
            "this model finds no number for these features; give them as /features makes them, or "
            "register another estimator"
        )
    listed: list[Any] = given.tolist()
    return listed


def _ready_made(
    model: Revived, snapshot: Snapshot, features: NDArray[np.float32]
) -> NDArray[np.float64]:
    if not model.classes:
        raise SchemaError("ready-made features need a model of classes; send rows")
    if len(features) != len(snapshot.names):
        raise SchemaError(
            f"this stream has {len(snapshot.names)} features; give one number for each, as "
            f"/features names them"
        )
    return model.proba_one(features, snapshot)
