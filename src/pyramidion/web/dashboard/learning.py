"""The models: what each learned from, until when it lives, and on demand how well it does."""

from __future__ import annotations

from starlette.responses import Response

from pyramidion.errors import PyramidionError
from pyramidion.web.dashboard import figures
from pyramidion.web.dashboard.layout import Link
from pyramidion.web.dashboard.pages import Pages, Visit
from pyramidion.web.errors import public_message

pages = Pages()
LOSS = "/streams/{stream}/models/{model}/loss"
SECONDS = 120
"""How long a loss stays on the screen: it is as raw as the rows it was measured on."""


@pages.add("GET", "/streams/{stream}/models", "predict", "train", link=Link("Models", 50))
async def models(visit: Visit) -> Response:
    """The registered models."""
    told = (await visit.ask("GET", "/streams/{stream}/models"))["models"]
    return visit.show("models.html", models=told, measures=visit.may("GET", LOSS))


@pages.add("POST", "/streams/{stream}/models/{model}/loss", "train")
async def loss(visit: Visit) -> Response:
    """A model's loss beside the prior's: reads raw rows, which the audit log tells."""
    name = visit.request.path_params["model"]
    told, why, figure = None, "", None
    try:
        told = await visit.ask("GET", LOSS, model=name)
        figure = figures.loss(told)
    except PyramidionError as problem:
        why = public_message(problem)
    about = {"model": name, "loss": told, "why": why, "figure": figure, "seconds": SECONDS}
    return visit.show("loss.html", **about)
