"""The first steps of a stream: rows from a file, a model by name, a prediction for one row.

A file is sent by the browser in parts, each with a key of its own, so that a part that is sent
again is counted once. Rows and predictions are raw (P1) and stay on no page.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from pyramidion.errors import PyramidionError
from pyramidion.web.bodies import CSV
from pyramidion.web.dashboard.curl_commands import one_row, plain
from pyramidion.web.dashboard.first_stream import commands_of, sentence
from pyramidion.web.dashboard.layout import Link
from pyramidion.web.dashboard.pages import Pages, Visit
from pyramidion.web.tokens import ANY

pages = Pages()
HERE = "/streams/{stream}/first-steps"
MOST = 60
"""Features that have a field each; more are asked for as a line of CSV."""
PREFIX = "of "
"""Before a feature's name in a form, so that none is called like another field."""


@dataclass
class Shown:
    """What a page of the first steps shows beside what is so."""

    file: str = "rows.csv"
    receipt: dict[str, int] | None = None
    model: str = "first"
    estimator: str = "LogisticRegression"
    row: dict[str, str] = field(default_factory=dict)
    line: str = ""
    answer: Any = None
    wrong: dict[str, str] = field(default_factory=dict)
    """What is wrong with which field."""
    status: int = 200

    def refuse(self, name: str, problem: PyramidionError) -> None:
        """Say at a field what is wrong with it."""
        self.wrong[name] = sentence(problem)
        self.status = 422 if problem.status == 404 else problem.status  # the page is there


@pages.add("GET", HERE, *ANY, link=Link("First steps", 95))
async def first_rows(visit: Visit) -> Response:
    """Where the stream is on its way to a prediction, and what comes next."""
    return await _page(visit, Shown(file=visit.query("file", "rows.csv")))


@pages.add("POST", f"{HERE}/rows", "observe")
async def first_observe(visit: Visit) -> Response:
    """Observe a part of a file, or all of it."""
    form = visit.form
    shown = Shown(file=form.get("file", "rows.csv"))
    headers = {"idempotency-key": plain(form["key"])} if form.get("key") else {}
    try:
        shown.receipt = await visit.ask(
            "POST",
            "/streams/{stream}/observations",
            body=form.get("rows", "").encode(),
            kind=CSV,
            headers=headers,
        )
        if visit.may("POST", "/streams/{stream}/advance"):
            await visit.ask("POST", "/streams/{stream}/advance")
    except PyramidionError as problem:
        shown.refuse("rows", problem)
    return await _page(visit, shown)


@pages.add("POST", f"{HERE}/model", "train")
async def first_model(visit: Visit) -> Response:
    """Register a model, and train it."""
    form = visit.form
    shown = Shown(file=form.get("file", "rows.csv"))
    shown.model, shown.estimator = form.get("model", ""), form.get("estimator", "")
    recipe = await _recipe(visit, shown.estimator)
    try:
        told = await visit.ask(
            "PUT", "/streams/{stream}/models/{model}", json=recipe, model=shown.model
        )
        if told["available"]:
            return visit.go(f"{_address(visit)}?{urlencode({'file': shown.file})}#predict")
        shown.wrong["model"] = f"It is registered and not trained yet: {told['why']}."
    except PyramidionError as problem:
        shown.refuse("model", problem)
    return await _page(visit, shown)


@pages.add("POST", f"{HERE}/prediction", "predict")
async def first_prediction(visit: Visit) -> Response:
    """Ask a model for one row."""
    form = visit.form
    shown = Shown(file=form.get("file", "rows.csv"), model=form.get("model", ""))
    shown.row = {
        name.removeprefix(PREFIX): text for name, text in form.items() if name.startswith(PREFIX)
    }
    shown.line = form.get("line", "") or one_row(shown.row)
    try:
        shown.answer = await visit.ask(
            "POST",
            "/streams/{stream}/models/{model}/predictions",
            body=shown.line.encode(),
            kind=CSV,
            model=shown.model,
        )
    except PyramidionError as problem:
        shown.refuse("row", problem)
    return await _page(visit, shown)


def _address(visit: Visit) -> str:
    return HERE.format(stream=visit.stream.name)


async def _recipe(visit: Visit, estimator: str) -> dict[str, Any]:
    """What is registered: an estimator with the parameters that it is told with."""
    known = (await visit.ask("GET", "/estimators"))["estimators"]
    params: Any = next((each["params"] for each in known if each["estimator"] == estimator), {})
    return {"estimator": estimator} | ({"params": params} if params else {})


async def _page(visit: Visit, shown: Shown) -> Response:
    stream = visit.stream.name
    status = await visit.ask("GET", "/streams/{stream}")
    about = await visit.ask("GET", "/streams/{stream}/schema")
    estimators = (await visit.ask("GET", "/estimators"))["estimators"]
    models: list[Any] = []
    if visit.may("GET", "/streams/{stream}/models"):
        models = (await visit.ask("GET", "/streams/{stream}/models"))["models"]
    ready = [model for model in models if model["available"]]
    sealed = [window for window in status["windows"] if window["state"] == "sealed"]
    features = about["schema"]["features"]
    asked = shown.model if shown.model in {model["name"] for model in ready} else ""
    asked = asked or (ready[0]["name"] if ready else "")
    row = {each["name"]: shown.row.get(each["name"], "") for each in features}
    commands = commands_of(visit)
    return visit.show(
        "first_rows.html",
        shown.status,
        step=5 if ready else 4 if sealed else 3,
        shown=shown,
        hot_rows=status["hot_rows"],
        windows=status["windows"],
        sealed=sealed,
        window=about["settings"]["count_window"],
        estimators=[each for each in estimators if each["installed"]],
        models=models,
        ready=ready,
        asked=asked,
        features=features if len(features) <= MOST else [],
        prefix=PREFIX,
        line=shown.line or ",".join(each["name"] for each in features) + "\n",
        may={
            "observe": visit.may("POST", "/streams/{stream}/observations"),
            "train": visit.may("PUT", "/streams/{stream}/models/{model}"),
            "predict": visit.may("POST", "/streams/{stream}/models/{model}/predictions"),
        },
        commands={
            "observe": commands.observe(stream, shown.file),
            "register": commands.register(
                stream, _word(shown.model), await _recipe(visit, shown.estimator)
            ),
            "predict": commands.predict(
                stream, _word(asked or shown.model), shown.line or one_row(row)
            ),
        },
    )


def _word(model: str) -> str:
    """A model's name in an address, or one that stands for it."""
    return model if model.replace("-", "").replace("_", "").isalnum() else "first"
