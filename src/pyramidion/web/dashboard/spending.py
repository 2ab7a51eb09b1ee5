"""What the past costs: the ledger of each window, and the noise in each table."""

from __future__ import annotations

from starlette.responses import Response

from pyramidion.web.dashboard import figures
from pyramidion.web.dashboard.layout import Link
from pyramidion.web.dashboard.pages import Pages, Visit
from pyramidion.web.tokens import ANY

pages = Pages()


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
