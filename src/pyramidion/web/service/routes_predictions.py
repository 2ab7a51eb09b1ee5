"""Predictions: one row at once and in the event loop, many in a thread of their own.

A thread costs more than all that is done for one row. With a linear model, one row takes about
15 microseconds from JSON to probability, so other requests do not notice it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from starlette.responses import Response

from pyramidion.errors import FormatError
from pyramidion.learn.models import Model
from pyramidion.web.bodies import (
    JSON,
    answer,
    arrow,
    body_of,
    json_from,
    kind_of,
    wants_arrow,
)
from pyramidion.web.service.routing import (
    SMALL,
    Call,
    Routes,
    apart,
    asked_for,
    model_of,
    rows_in,
    unexplained,
)
from pyramidion.web.service.shapes import ASKED
from pyramidion.web.shapes import PREDICTIONS
from pyramidion.workers import emptied

routes = Routes()


class Vector(msgspec.Struct, forbid_unknown_fields=True):
    """The features of one row, ready-made."""

    features: list[float]


FIELD = b'"features"'
"""The one field of a vector; a body that does not begin with it is a row."""

MOST = float(np.finfo(np.float32).max)
"""The largest number that a feature can be."""

_vector = msgspec.json.Decoder(Vector).decode


@routes.add(
    "POST",
    "/streams/{stream}/models/{model}/predictions",
    "predict",
    often=True,
    takes=ASKED,
    gives=PREDICTIONS,
)
async def predictions(call: Call) -> Response:
    """Predict rows: a probability for each class, or the class, or the expected number."""
    body, kind = await body_of(call.request, call.service.limits), kind_of(call.request)
    model = model_of(call.pyramid, call.asked("model"))
    if kind == JSON and body[:1] == b"{" and model.available and probable(model):
        quick = quickly(model) and len(body) <= SMALL and not call.service.warming.busy
        found = _one(call, model, body) if quick else await apart(lambda: _one(call, model, body))
        return answer(_told(model) | {"probabilities": [found]})
    rows = (await rows_in(body, kind, call.service.limits, asked_for(call))).rows
    return await apart(lambda: _many(call, model.name, rows))


def probable(model: Model) -> bool:
    """Whether it gives probabilities."""
    fitted = model.fitted
    return bool(model.classes) and fitted is not None and hasattr(fitted.estimator, "predict_proba")


def quickly(model: Model) -> bool:
    """Whether one row takes it microseconds; a forest would keep everybody waiting."""
    return model.fitted is not None and model.fitted.quick is not None


def _told(model: Model) -> dict[str, Any]:
    about = {"model": model.name, "version": model.version}
    return about | {"classes": model.classes} if model.classes else about


def _one(call: Call, model: Model, body: bytes) -> list[float]:
    """The probabilities of one row, or of its features."""
    snapshot = call.pyramid.snapshot()
    features = _features(body) if body[1:].lstrip().startswith(FIELD) else None
    if features is not None and len(features) != len(snapshot.names):
        raise FormatError(
            f"this stream has {len(snapshot.names)} features; give one number for each, as "
            f"/features names them"
        )

    def ask(begun: Model) -> NDArray[np.float64]:
        vector = snapshot.featurize_one(json_from(body, JSON)) if features is None else features
        return begun.proba_one(vector, snapshot)

    found: list[float] = _asked(model, ask).tolist()
    return found


def _asked(model: Model, ask: Callable[[Model], NDArray[Any]]) -> NDArray[Any]:
    """An answer of just this version; neither it nor an error keeps what the model learned."""
    begun = model.begun()
    try:
        return np.asarray(emptied(lambda: ask(begun)))
    finally:
        begun.ended()


def _features(body: bytes) -> NDArray[np.float32] | None:
    """A vector, if that is what the body has: no column of a row is a list."""
    try:
        told = _vector(body).features
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if told and (max(told) > MOST or min(told) < -MOST):  # JSON has no NaN
        raise FormatError(
            "a feature is beyond what a number of 32 bits can hold; give the numbers that "
            "/features gives"
        )
    return np.array(told, dtype=np.float32)


def _many(call: Call, name: str, rows: Any) -> Response:
    """Predictions of many rows, or of a model that is to be trained first."""
    store = call.pyramid
    if not model_of(store, name).available:
        with unexplained(call, name):
            store.predict(name, [])  # waits for its training, or says why there is none
    model, snapshot = model_of(store, name), store.snapshot()
    if probable(model):
        found = _asked(model, lambda begun: begun.predict_proba(snapshot, rows))
        if wants_arrow(call.request):
            names = [f"P({model.label}={_text(each)})" for each in model.classes]
            return arrow(pa.table(list(found.T), names=names))
        return answer(_told(model) | {"probabilities": found.tolist()})
    found = _asked(model, lambda begun: begun.predict(snapshot, rows))
    if wants_arrow(call.request):
        return arrow(pa.table([pa.array(found)], names=[model.label]))
    return answer(_told(model) | {"predictions": found.tolist()})


def _text(each: object) -> str:
    return each.decode("utf-8", "replace") if isinstance(each, bytes) else str(each)
