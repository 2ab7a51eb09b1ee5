"""The routes of an edge: those of the service that need no rows and no store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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
from pyramidion.edge.access import Callers
from pyramidion.edge.bodies import (
    answer,
    arrow,
    body_of,
    refusal,
    rows_from,
    surprise,
    wants_arrow,
)
from pyramidion.edge.copies import Copies, Revived
from pyramidion.errors import (
    BusyError,
    ExpiredError,
    MissingError,
    PyramidionError,
    RequestError,
    SchemaError,
    StateError,
)

AT_ONCE = 256  # requests that are being answered; beyond that, callers are asked to come back
MODEL = "/v1/streams/{stream}/models/{model}"

Endpoint = Callable[[Request], Awaitable[Response]]


def create_app(copies: Copies, callers: Callers) -> FastAPI:
    """An app that answers from copies; who made them closes them."""
    app = FastAPI(title="Pyramidion edge", redirect_slashes=False)
    app.add_exception_handler(HTTPException, _unrouted)
    busy = [0]

    def route(method: str, path: str, endpoint: Endpoint) -> None:
        async def handle(request: Request) -> Response:
            busy[0] += 1
            try:
                if busy[0] > AT_ONCE:
                    raise BusyError("too much is being asked of this edge; come back in a second")
                callers.refuse_stranger(
                    request.headers.get("authorization"), request.path_params["stream"]
                )
                return await endpoint(request)
            except PyramidionError as problem:
                return refusal(problem)
            except Exception:
                return surprise()
            finally:
                busy[0] -= 1

        app.add_api_route(
            path, handle, methods=[method], name=endpoint.__name__,
            summary=(endpoint.__doc__ or "").partition("\n")[0], response_class=Response,
        )  # fmt: skip

    async def features(request: Request) -> Response:
        """Features of rows, from the complete tables at hand (P2)."""
        rows = rows_from(request, await body_of(request))
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
        rows = rows_from(request, await body_of(request))
        stream, name = request.path_params["stream"], request.path_params["model"]
        model = copies.model(stream, name)
        told: dict[str, Any] = {"model": name, "version": model.version}
        if isinstance(rows, dict | np.ndarray):  # one row is answered sooner than handed over
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

    route("POST", "/v1/streams/{stream}/features", features)
    route("POST", f"{MODEL}/predictions", predictions)
    route("GET", MODEL, model)

    @app.get("/healthz", summary="Whether the process lives.")
    async def healthz() -> Response:
        return answer({"alive": True})

    @app.get("/readyz", summary="Whether everything that was asked for is at hand.")
    async def readyz() -> Response:
        lacking = copies.lacking()
        return answer({"ready": not lacking, "lacking": sorted(lacking)}, 503 if lacking else 200)

    return app


def _listed(rows: Any) -> Any:
    return [rows] if isinstance(rows, dict) else rows


def _predicted(copies: Copies, stream: str, model: Revived, rows: Any) -> dict[str, Any]:
    """What a model says of rows; one that expired in between says nothing."""
    try:
        snapshot = copies.snapshot(stream)
        if isinstance(rows, np.ndarray):
            found = [_ready_made(model, snapshot, rows).tolist()]
            return {"classes": list(model.classes), "probabilities": found}
        about = {"classes": list(model.classes)} if model.classes else {}
        with suppress(SchemaError):  # a classifier that has no probabilities gives classes
            if model.classes:
                told = model.predict_proba(snapshot, _listed(rows))
                return about | {"probabilities": np.asarray(told).tolist()}
        return about | {"predictions": np.asarray(model.predict(snapshot, _listed(rows))).tolist()}
    except StateError as problem:
        if model.expired:
            raise ExpiredError(str(problem)) from None
        raise


def _ready_made(
    model: Revived, snapshot: Snapshot, features: NDArray[np.float64]
) -> NDArray[np.float64]:
    if not model.classes:
        raise SchemaError("ready-made features need a model of classes; send rows")
    if len(features) != len(snapshot.names):
        raise SchemaError(
            f"this stream has {len(snapshot.names)} features; give one number for each, as "
            f"/features names them"
        )
    return model.proba_one(features.astype(np.float32), snapshot)


async def _unrouted(_: Request, problem: Exception) -> Response:
    """What no route takes, in the one shape of errors."""
    status = problem.status_code if isinstance(problem, HTTPException) else 500
    if status == 404:
        return refusal(MissingError("there is nothing at this address; an edge only predicts"))
    told = RequestError("this address does not take this method, or the request cannot be read")
    told.status = status
    return refusal(told)
