"""The first page of a stream: what an attacker who broke in now would get; and its windows."""

from __future__ import annotations

from starlette.responses import Response

from pyramidion.web.dashboard import drawings
from pyramidion.web.dashboard.layout import Link
from pyramidion.web.dashboard.pages import Pages, Visit
from pyramidion.web.tokens import ANY

pages = Pages()


@pages.add("GET", "/streams/{stream}", *ANY, link=Link("Overview", 0))
async def overview(visit: Visit) -> Response:
    """The sentence, the pyramid, the windows, and what the tables promise."""
    layers = await visit.ask("GET", "/streams/{stream}/pyramid")
    status = await visit.ask("GET", "/streams/{stream}")
    return visit.show(
        "overview.html",
        pyramid=layers,
        status=status,
        drawn=drawings.pyramid(layers),
        timeline=drawings.timeline(status["windows"], status["oldest_hot"], status["at"]),
        trouble=visit.stream.trouble,
    )


@pages.add("GET", "/streams/{stream}/windows", *ANY, link=Link("Windows", 10))
async def windows(visit: Visit) -> Response:
    """Every window: when it was, what it is now, and how many rows it took."""
    status = await visit.ask("GET", "/streams/{stream}")
    told = (await visit.ask("GET", "/streams/{stream}/windows"))["windows"]
    drawn = drawings.timeline(told, status["oldest_hot"], status["at"])
    return visit.show("windows.html", windows=told, status=status, timeline=drawn)


@pages.add("GET", "/streams/{stream}/deletions", *ANY, link=Link("Deletions", 90))
async def deletions(visit: Visit) -> Response:
    """What was erased, when, why, and that it is complete."""
    status = await visit.ask("GET", "/streams/{stream}")
    return visit.show("deletions.html", status=status, deletions=status["deletions"])
