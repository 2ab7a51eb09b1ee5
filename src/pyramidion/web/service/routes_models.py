"""Models: registered by name, trained here, asked for predictions."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from pyramidion.errors import FormatError
from pyramidion.learn.estimators import estimator_named
from pyramidion.learn.models import Model
from pyramidion.web.bodies import answer, body_of, kind_of, object_from
from pyramidion.web.refusals import public_message
from pyramidion.web.service.access import Token
from pyramidion.web.service.routing import Call, Routes, apart, model_of, read_by
from pyramidion.web.service.workloads import FIELDS, workload_from
from pyramidion.web.shapes import TEXT, json_of, listed, named, whole

routes = Routes()


@routes.add(
    "GET",
    "/streams/{stream}/models",
    "predict",
    "train",
    gives=json_of(whole(models=listed(named("Model")))),
)
async def models(call: Call) -> Response:
    """The registered models."""
    return answer({"models": [told(model, call.caller) for model in call.pyramid.models.values()]})


@routes.add(
    "GET", "/streams/{stream}/models/{model}", "predict", "train", gives=json_of(named("Model"))
)
async def model(call: Call) -> Response:
    """One model: what it is, whether it is available, and if not, why."""
    return answer(told(model_of(call.pyramid, call.asked("model")), call.caller))


@routes.add(
    "PUT",
    "/streams/{stream}/models/{model}",
    "train",
    takes=json_of(named("Recipe")),
    gives=json_of(named("Model")),
)
async def register(call: Call) -> Response:
    """Register a model: an estimator by its name, with parameters; trained now and from now on."""
    body = await body_of(call.request, call.service.limits)
    recipe = object_from(body, kind_of(call.request), ("estimator", "params", *FIELDS))
    kind, params = recipe.get("estimator"), recipe.get("params", {})
    if not isinstance(kind, str) or not isinstance(params, dict):
        raise FormatError(
            "estimator must be the name of one, and params a JSON object; send "
            '{"estimator": "LogisticRegression", "params": {}}'
        )
    name, workload = call.asked("model"), workload_from(recipe)

    def registered() -> Model:
        return call.pyramid.register(name, estimator_named(kind, params), **workload)

    return answer(told(await apart(registered), call.caller))


@routes.add(
    "DELETE", "/streams/{stream}/models/{model}", "train", gives=json_of(whole(removed=TEXT))
)
async def unregister(call: Call) -> Response:
    """Forget a model and its recipe."""
    name = model_of(call.pyramid, call.asked("model")).name
    await apart(lambda: call.pyramid.models.unregister(name))
    return answer({"removed": name})


@routes.add(
    "POST", "/streams/{stream}/models/{model}/retrain", "train", gives=json_of(named("Model"))
)
async def retrain(call: Call) -> Response:
    """Train a model again now; what serves goes on until it is ready."""
    name = model_of(call.pyramid, call.asked("model")).name
    return answer(told(await apart(lambda: call.pyramid.models.retrain(name)), call.caller))


@routes.add("GET", "/streams/{stream}/models/{model}/loss", "train", gives=json_of(named("Loss")))
async def loss(call: Call) -> Response:
    """A model's loss on the newest hot rows, beside the prior's: raw (P1), drop it when they go."""
    name = model_of(call.pyramid, call.asked("model")).name
    found = await apart(lambda: call.pyramid.models.loss(name))
    await read_by(call, "loss")
    about = {"model": name, "loss": found.model, "prior": found.prior, "gain": found.gain}
    about |= {"kind": found.kind, "tested": found.tested, "at": found.at}
    return answer(about | {"guarantee": found.guarantee.to_dict()})


def told(model: Model, caller: Token) -> dict[str, Any]:
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
