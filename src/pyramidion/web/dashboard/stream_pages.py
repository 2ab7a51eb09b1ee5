"""The pages of a stream: overview, windows, ledger, tables, models, exposure, vault, audit log."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

from starlette.responses import HTMLResponse, Response

from pyramidion.config.durations import EPOCH
from pyramidion.errors import MissingError, PyramidionError
from pyramidion.store.exposure.exposed import COMPONENTS, Component, Exposure
from pyramidion.store.exposure.page import page as report_page
from pyramidion.store.exposure.text import WHERE, parts, sentences
from pyramidion.store.exposure.timeline import drawn
from pyramidion.web.dashboard import figures
from pyramidion.web.dashboard.layout import Link
from pyramidion.web.dashboard.pages import HEADERS, Pages, Visit
from pyramidion.web.errors import public_message
from pyramidion.web.routing import in_thread
from pyramidion.web.tokens import ANY

pages = Pages()
LOSS = "/streams/{stream}/models/{model}/loss"
SECONDS = 120
"""How long a loss stays on the screen: it is as raw as the rows it was measured on."""
LAST = 50
"""Entries of the audit log on a page, the newest."""
DAY = 86_400_000_000
# The report is one file that needs nothing but itself, its style included; no script runs in it.
PRINTED = {
    **HEADERS,
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'; "
        "form-action 'none'"
    ),
}


# --- overview --------------------------------------------------------------------------------


@pages.add("GET", "/streams/{stream}", *ANY, link=Link("Overview", 0))
async def overview(visit: Visit) -> Response:
    """The sentence, the pyramid, the windows, and what the tables promise."""
    layers = await visit.ask("GET", "/streams/{stream}/pyramid")
    status = await visit.ask("GET", "/streams/{stream}")
    return visit.show(
        "overview.html",
        pyramid=layers,
        status=status,
        drawn=figures.pyramid(layers),
        timeline=figures.timeline(status["windows"], status["oldest_hot"], status["at"]),
        trouble=visit.stream.trouble,
    )


@pages.add("GET", "/streams/{stream}/windows", *ANY, link=Link("Windows", 10))
async def windows(visit: Visit) -> Response:
    """Every window: when it was, what it is now, and how many rows it took."""
    status = await visit.ask("GET", "/streams/{stream}")
    told = (await visit.ask("GET", "/streams/{stream}/windows"))["windows"]
    drawn = figures.timeline(told, status["oldest_hot"], status["at"])
    return visit.show("windows.html", windows=told, status=status, timeline=drawn)


@pages.add("GET", "/streams/{stream}/deletions", *ANY, link=Link("Deletions", 90))
async def deletions(visit: Visit) -> Response:
    """What was erased, when, why, and that it is complete."""
    status = await visit.ask("GET", "/streams/{stream}")
    return visit.show("deletions.html", status=status, deletions=status["deletions"])


# --- budget and tables -----------------------------------------------------------------------


@pages.add("GET", "/streams/{stream}/ledger", *ANY, link=Link("Ledger", 20))
async def ledger(visit: Visit) -> Response:
    """Each window's budget, what was spent of it and what is left."""
    told = await visit.ask("GET", "/streams/{stream}/ledger", query={"lines": "no"})
    return visit.show("ledger.html", ledger=told, figure=figures.spent(told["windows"]))


@pages.add("GET", "/streams/{stream}/ledger/{window}", *ANY)
async def lines(visit: Visit) -> Response:
    """Every line of one window."""
    number = visit.request.path_params["window"]
    told = await visit.ask("GET", "/streams/{stream}/ledger/{window}", window=number)
    return visit.show("lines.html", window=told)


@pages.add("GET", "/streams/{stream}/tables", *ANY, link=Link("Tables", 30))
async def tables(visit: Visit) -> Response:
    """The tables with their noise, against the counts that are typical of them."""
    told = (await visit.ask("GET", "/streams/{stream}/tables"))["tables"]
    return visit.show("tables.html", tables=told, figure=figures.noise(told))


@pages.add("GET", "/streams/{stream}/groups", *ANY, link=Link("Groups", 40))
async def groups(visit: Visit) -> Response:
    """What is counted together, how it came, and what sealed tables say of it."""
    told = await visit.ask("GET", "/streams/{stream}/groups")
    return visit.show("groups.html", trials=told["trials"])


# --- models ----------------------------------------------------------------------------------


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


# --- exposure, vault and audit log -----------------------------------------------------------


@pages.add("GET", "/streams/{stream}/exposure", "admin", link=Link("Exposure", 60))
async def exposure(visit: Visit) -> Response:
    """What an intruder between two moments could read."""
    now = visit.stream.now
    start = visit.query("from") or _minute(now - DAY)
    stop = visit.query("to") or _minute(now)
    component = visit.query("component", "store")
    told: dict[str, Any] = {"start": start, "stop": stop, "component": component, "why": ""}
    found = None
    try:
        found = await in_thread(lambda: _found(visit, start, stop, component))
    except PyramidionError as problem:
        told["why"] = public_message(problem)
    told |= {"components": WHERE, "found": found, "sentences": (), "parts": (), "drawn": ""}
    told["query"] = {"from": start, "to": stop, "component": component}
    if found is not None:
        told |= {"sentences": sentences(found), "parts": parts(found), "drawn": drawn(found)}
    return visit.show("exposure.html", **told)


@pages.add("GET", "/streams/{stream}/exposure/report", "admin")
async def report(visit: Visit) -> Response:
    """The same on one page that prints, and can be kept as a file."""
    start, stop = visit.query("from"), visit.query("to")
    component = visit.query("component", "store")
    found = await in_thread(lambda: _found(visit, start, stop, component))
    return HTMLResponse(report_page(found, visit.stream.name), headers=PRINTED)


def _found(visit: Visit, start: str, stop: str, component: str) -> Exposure:
    for known in COMPONENTS:
        if component == known:
            return _of(visit, start, stop, known)
    raise MissingError(f"component must be one of {', '.join(COMPONENTS)}; choose one")


def _of(visit: Visit, start: str, stop: str, component: Component) -> Exposure:
    return visit.stream.pyramid.exposure(start, stop, component=component)


def _minute(micros: int) -> str:
    return f"{EPOCH + timedelta(microseconds=micros):%Y-%m-%dT%H:%M}"


@pages.add("GET", "/streams/{stream}/vault", "admin", link=Link("Vault", 70))
async def vault(visit: Visit) -> Response:
    """What the vault holds, what is on its way, and who was let read it."""
    told = None
    with suppress(MissingError):  # a stream may have none
        told = await visit.ask("GET", "/streams/{stream}/vault")
    grants = (await visit.ask("GET", "/streams/{stream}/grants"))["grants"]
    return visit.show("vault.html", vault=told, grants=grants)


@pages.add("GET", "/streams/{stream}/audit-log", "admin", link=Link("Audit log", 80))
async def audit_log(visit: Visit) -> Response:
    """The newest entries."""
    return await _entries(visit, None)


@pages.add("POST", "/streams/{stream}/audit-log", "admin")
async def verification(visit: Visit) -> Response:
    """Check every entry of the audit log, and say whether it is as it was written."""
    return await _entries(visit, await visit.ask("GET", "/streams/{stream}/audit-log/verification"))


async def _entries(visit: Visit, verified: object) -> Response:
    query = {"last": str(LAST)}
    entries = await visit.ask("GET", "/streams/{stream}/audit-log", query=query)
    return visit.show("audit_log.html", entries=entries[::-1], verified=verified)
