"""For who must answer: what was exposed, who read the vault, and whether the record is whole."""

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
from pyramidion.web.dashboard.layout import Link
from pyramidion.web.dashboard.pages import HEADERS, Pages, Visit
from pyramidion.web.errors import public_message
from pyramidion.web.routing import in_thread

pages = Pages()
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
