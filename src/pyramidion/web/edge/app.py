"""The app of an edge: those routes of the service that need no rows and no store."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from pyramidion.counts.snapshot import Snapshot
from pyramidion.errors import ExpiredError, SchemaError, StateError
from pyramidion.web.bodies import (
    PLAIN,
    arrow,
    body_of,
    json_response,
    kind_of,
    wants_arrow,
)
from pyramidion.web.edge.bodies import refused, rows_from
from pyramidion.web.edge.copies import Copies, Revived
from pyramidion.web.edge.edge import Edge
from pyramidion.web.metrics import TYPE
from pyramidion.web.openapi import OpenRoute, document, document_routes
from pyramidion.web.routing import (
    PREFIX,
    App,
    Routes,
    guarded,
    in_thread,
    refuse_unguarded,
)
from pyramidion.web.schemas import (
    EDGE_ASKED,
    EDGE_ROWS,
    FEATURES,
    Body,
    EdgeModel,
    Predictions,
    json_of,
)
from pyramidion.web.tokens import EVERY, Token

SMALL = 1 << 14
"""Bytes of a body that are parsed at once: about as long as a thread takes to start."""
OPEN = frozenset({"/healthz", "/readyz", "/openapi.json", "/docs"})
"""What anybody may ask; everything else needs a token."""


@dataclass(frozen=True)
class Call:
    """A request of a caller who may make it."""

    request: Request
    edge: Edge

    @classmethod
    def admit(cls, edge: Edge, request: Request, caller: Token) -> Call:
        """The call; raises if its path names a stream that the caller may not see."""
        caller.refuse_other(request.path_params.get("stream", EVERY))
        return cls(request, edge)

    def path_param(self, name: str) -> str:
        """A part of the path."""
        value: str = self.request.path_params[name]
        return value


routes = Routes[Call]()
metrics_routes = Routes[Call]()


@routes.add(
    "POST",
    "/streams/{stream}/models/{model}/predictions",
    "predict",
    takes=EDGE_ASKED,
    gives=json_of(Predictions),
)
async def predictions(call: Call) -> Response:
    """Predict rows by a model at hand: a probability for each class, or a number (P1)."""
    rows = await _rows_of(call)
    copies, stream, name = call.edge.copies, call.path_param("stream"), call.path_param("model")
    model = copies.model(stream, name)
    found: dict[str, Any] = {"model": name, "version": model.version}
    one = isinstance(rows, dict | np.ndarray)  # takes less time than starting a thread
    if one and copies.is_loaded(stream, name):
        found |= _predicted(copies, stream, model, rows)
    else:
        found |= await in_thread(lambda: _predicted(copies, stream, model, rows))
    return json_response(found)


@routes.add("POST", "/streams/{stream}/features", "predict", takes=EDGE_ROWS, gives=FEATURES)
async def features(call: Call) -> Response:
    """Features of rows, from the complete tables at hand (P2)."""
    rows = await _rows_of(call)
    if isinstance(rows, np.ndarray):
        raise SchemaError("these are features already; send rows")
    snapshot = call.edge.copies.snapshot(call.path_param("stream"))
    if wants_arrow(call.request):
        return arrow(await in_thread(lambda: snapshot.featurize(_listed(rows))))
    found = await in_thread(lambda: np.asarray(snapshot.array(_listed(rows))))
    body = {"names": snapshot.names, "rows": found.tolist()}
    return json_response(body | {"guarantee": snapshot.guarantee.to_dict()})


@routes.add("GET", "/streams/{stream}/models/{model}", "predict", gives=json_of(EdgeModel))
async def model(call: Call) -> Response:
    """A model at hand: its version, its classes, and when it ends."""
    name = call.path_param("model")
    found = call.edge.copies.model(call.path_param("stream"), name)
    about = {"name": name, "version": found.version, "classes": list(found.classes)}
    return json_response(about | {"expires": found.expires})


@metrics_routes.add("GET", "/metrics", "admin", gives=Body({PLAIN: str}))
async def metrics(call: Call) -> Response:
    """Numbers for Prometheus."""
    return await _exposition(call.edge)


async def _exposition(edge: Edge) -> Response:
    return Response(await in_thread(edge.metrics.exposition), media_type=TYPE)


def create_app(edge: Edge) -> App:
    """An app that answers for an edge."""
    admit = partial(Call.admit, edge)
    served = [(PREFIX, route) for route in routes.all]
    open_routes = _open_routes(edge)
    if not edge.open_metrics:
        served += [("", route) for route in metrics_routes.all]
    described = document("Pyramidion edge", edge.version, served, open_routes)
    app = App(
        edge,
        [
            *(guarded(route, edge, admit, prefix=at, respond=refused) for at, route in served),
            *(route.mounted() for route in open_routes),
            *document_routes(described),
        ],
    )
    refuse_unguarded(app.routes, OPEN | {"/metrics"} if edge.open_metrics else OPEN)
    return app


def _open_routes(edge: Edge) -> list[OpenRoute]:
    async def healthz(_: Request) -> Response:
        return json_response({"alive": True})

    async def readyz(_: Request) -> Response:
        lacking = edge.copies.lacking()
        body = {"ready": not lacking, "lacking": sorted(lacking)}
        return json_response(body, 503 if lacking else 200)

    async def open_metrics(_: Request) -> Response:
        return await _exposition(edge)

    found = [
        OpenRoute("/healthz", healthz, "Whether the process lives."),
        OpenRoute(
            "/readyz",
            readyz,
            "Whether all that was asked for is at hand.",
            {"503": "something is missing"},
        ),
    ]
    if edge.open_metrics:
        found.append(OpenRoute("/metrics", open_metrics, "Numbers for Prometheus.", kind=PLAIN))
    return found


async def _rows_of(call: Call) -> Any:
    limits = call.edge.limits
    body, kind = await body_of(call.request, limits), kind_of(call.request)
    if len(body) <= SMALL:
        return rows_from(body, kind, limits)
    return await in_thread(lambda: rows_from(body, kind, limits))


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
