"""Routes of models: predictions first, then registering, training, losses and exports.

One row is predicted at once, in the event loop; many in a thread. A thread costs more than all that
is done for one row: with a linear model, about 15 microseconds from JSON to probability, which
other requests do not notice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from starlette.responses import Response

from pyramidion.counts.signing import sign
from pyramidion.errors import FormatError
from pyramidion.learn.choices import CHOICES
from pyramidion.learn.estimators import estimator_named
from pyramidion.learn.models import Model
from pyramidion.web import schemas
from pyramidion.web.bodies import (
    JSON,
    arrow,
    body_of,
    json_from,
    json_response,
    kind_of,
    wants_arrow,
)
from pyramidion.web.errors import public_message
from pyramidion.web.routing import Routes, in_thread
from pyramidion.web.schemas import ASKED, PREDICTIONS, SIGNED, json_of, struct_of
from pyramidion.web.service.calls import (
    SMALL,
    Call,
    asked_for,
    model_of,
    record_read,
    rows_in,
    signed_response,
    unexplained,
)
from pyramidion.web.service.workloads import arguments_of
from pyramidion.web.tokens import ANY, Token
from pyramidion.workers import emptied

routes = Routes[Call]()


FIELD = b'"features"'
"""The one field of a vector; a body that does not begin with it is a row."""

MOST = float(np.finfo(np.float32).max)
"""The largest number that a feature can be."""

_vector = msgspec.json.Decoder(schemas.Vector).decode


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
    model = model_of(call.pyramid, call.path_param("model"))
    if kind == JSON and body[:1] == b"{" and model.available and has_probabilities(model):
        quick = is_fast(model) and len(body) <= SMALL and not call.service.warming.busy
        found = (
            _one(call, model, body) if quick else await in_thread(lambda: _one(call, model, body))
        )
        return json_response(_about(model) | {"probabilities": [found]})
    rows = (await rows_in(body, kind, call.service.limits, asked_for(call))).rows
    return await in_thread(lambda: _many(call, model.name, rows))


def has_probabilities(model: Model) -> bool:
    """Whether a model gives probabilities."""
    fitted = model.fitted
    return bool(model.classes) and fitted is not None and hasattr(fitted.estimator, "predict_proba")


def is_fast(model: Model) -> bool:
    """Whether one row takes microseconds; a forest would hold up all other requests."""
    return model.fitted is not None and model.fitted.quick is not None


def _about(model: Model) -> dict[str, Any]:
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

    found: list[float] = _predict_once(model, ask).tolist()
    return found


def _predict_once(model: Model, ask: Callable[[Model], NDArray[Any]]) -> NDArray[Any]:
    """Ask just this version of a model; neither the answer nor an error keeps what it learned."""
    begun = model.begun()
    try:
        return np.asarray(emptied(lambda: ask(begun)))
    finally:
        begun.ended()


def _features(body: bytes) -> NDArray[np.float32] | None:
    """A vector, if that is what the body has: no column of a row is a list."""
    try:
        numbers = _vector(body).features
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if numbers and (max(numbers) > MOST or min(numbers) < -MOST):  # JSON has no NaN
        raise FormatError(
            "a feature is beyond what a number of 32 bits can hold; give the numbers that "
            "/features gives"
        )
    return np.array(numbers, dtype=np.float32)


def _many(call: Call, name: str, rows: Any) -> Response:
    """Predictions of many rows, or of a model that is to be trained first."""
    store = call.pyramid
    if not model_of(store, name).available:
        with unexplained(call, name):
            store.predict(name, [])  # waits for its training, or says why there is none
    model, snapshot = model_of(store, name), store.snapshot()
    if has_probabilities(model):
        found = _predict_once(model, lambda begun: begun.predict_proba(snapshot, rows))
        if wants_arrow(call.request):
            names = [f"P({model.label}={_text(each)})" for each in model.classes]
            return arrow(pa.table(list(found.T), names=names))
        return json_response(_about(model) | {"probabilities": found.tolist()})
    found = _predict_once(model, lambda begun: begun.predict(snapshot, rows))
    if wants_arrow(call.request):
        return arrow(pa.table([pa.array(found)], names=[model.label]))
    return json_response(_about(model) | {"predictions": found.tolist()})


def _text(each: object) -> str:
    return each.decode("utf-8", "replace") if isinstance(each, bytes) else str(each)


# --- models --------------------------------------------------------------------------------


@routes.add(
    "GET",
    "/streams/{stream}/models",
    "predict",
    "train",
    gives=json_of(schemas.Models),
)
async def models(call: Call) -> Response:
    """The registered models."""
    return json_response(
        {"models": [model_values(model, call.caller) for model in call.pyramid.models.values()]}
    )


@routes.add(
    "GET", "/streams/{stream}/models/{model}", "predict", "train", gives=json_of(schemas.Model)
)
async def model(call: Call) -> Response:
    """One model: what it is, whether it is available, and if not, why."""
    return json_response(
        model_values(model_of(call.pyramid, call.path_param("model")), call.caller)
    )


@routes.add(
    "PUT",
    "/streams/{stream}/models/{model}",
    "train",
    takes=json_of(schemas.Recipe),
    gives=json_of(schemas.Model),
)
async def register(call: Call) -> Response:
    """Register a model: an estimator by its name, with parameters; trained now and from now on."""
    recipe = await struct_of(call.request, call.service.limits, schemas.Recipe)
    name, workload = call.path_param("model"), arguments_of(recipe)

    def registered() -> Model:
        estimator = estimator_named(recipe.estimator, recipe.params)
        return call.pyramid.register(name, estimator, **workload)

    return json_response(model_values(await in_thread(registered), call.caller))


@routes.add(
    "DELETE", "/streams/{stream}/models/{model}", "train", gives=json_of(schemas.RemovedModel)
)
async def unregister(call: Call) -> Response:
    """Forget a model and its recipe."""
    name = model_of(call.pyramid, call.path_param("model")).name
    await in_thread(lambda: call.pyramid.models.unregister(name))
    return json_response({"removed": name})


@routes.add(
    "POST", "/streams/{stream}/models/{model}/retrain", "train", gives=json_of(schemas.Model)
)
async def retrain(call: Call) -> Response:
    """Train a model again now; what serves goes on until it is ready."""
    name = model_of(call.pyramid, call.path_param("model")).name
    return json_response(
        model_values(await in_thread(lambda: call.pyramid.models.retrain(name)), call.caller)
    )


@routes.add("GET", "/streams/{stream}/models/{model}/loss", "train", gives=json_of(schemas.Loss))
async def loss(call: Call) -> Response:
    """A model's loss on the newest hot rows, beside the prior's: raw (P1), drop it when they go."""
    name = model_of(call.pyramid, call.path_param("model")).name
    found = await in_thread(lambda: call.pyramid.models.loss(name))
    await record_read(call, "loss")
    about = {"model": name, "loss": found.model, "prior": found.prior, "gain": found.gain}
    about |= {"kind": found.kind, "tested": found.tested, "at": found.at}
    return json_response(about | {"guarantee": found.guarantee.to_dict()})


def model_values(model: Model, caller: Token) -> dict[str, Any]:
    """A model in plain values.

    How many rows it has learned from, when, how long that took and why it failed follow from the
    rows, and from the erasure of a person: they are for who may read the rows.
    """
    about = {"why": public_message(model.why), "rows": model.rows}
    about |= {"trained": model.trained, "took": model.took}
    return {
        "name": model.name,
        "estimator": model.recipe,
        **model.workload.to_dict(),
        "classes": list(model.classes),
        "available": model.available,
        "version": model.version,
        "expires": model.expires,
        **(about if "train" in caller.roles else dict.fromkeys(about)),
    }


@routes.add("GET", "/streams/{stream}/models/{model}/export", "predict", gives=SIGNED)
async def export(call: Call) -> Response:
    """A model for an edge: signed, as raw as its rows (P1), ending as it does; audited."""
    name = model_of(call.pyramid, call.path_param("model")).name
    with unexplained(call, name):
        header, payload = await in_thread(lambda: call.pyramid.models.export(name))
    data = await in_thread(
        lambda: sign(call.service.signer, "model", call.stream.name, header, payload)
    )
    await record_read(call, "model")
    return signed_response(data, header["expires"])


@routes.add("GET", "/estimators", *ANY, gives=json_of(schemas.Estimators))
async def estimators(_: Call) -> Response:
    """Estimators to begin with, what each is for, and whether it is installed here."""
    return json_response({"estimators": [choice.to_dict() for choice in CHOICES]})
