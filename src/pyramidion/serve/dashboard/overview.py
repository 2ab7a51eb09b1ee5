"""The first page of a stream: what an attacker who broke in now would get."""

from __future__ import annotations

from starlette.responses import Response

from pyramidion.serve.dashboard.layout import Link
from pyramidion.serve.dashboard.pages import Pages, Visit

pages = Pages()


@pages.add("GET", "/streams/{stream}", link=Link("Overview", 0))
async def overview(visit: Visit) -> Response:
    """The sentence, the pyramid, the windows, and what the tables promise."""
    told = await visit.ask("GET", "/streams/{stream}/pyramid")
    return visit.show("overview.html", pyramid=told)
