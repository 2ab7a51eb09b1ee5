"""The pages of a service, put together."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.routing import Route

from pyramidion.web.dashboard import first_rows, first_stream, login, stream_pages
from pyramidion.web.dashboard.api import Api
from pyramidion.web.dashboard.layout import Layout
from pyramidion.web.dashboard.pages import House
from pyramidion.web.dashboard.sessions import Sessions
from pyramidion.web.dashboard.static_files import static
from pyramidion.web.routing import Routes, mounted
from pyramidion.web.service.calls import Call
from pyramidion.web.service.service import Service

ALL = (login.pages, stream_pages.pages, first_stream.pages, first_rows.pages)


def routes_of(service: Service, api: Iterable[Routes[Call]]) -> list[Route]:
    """The routes of pages, which show what the API's routes answer."""
    house = House(service, Sessions(service.tokens), Api(service, api), Layout())
    return [
        mounted("GET", "/static/{mark}/{name}", static),
        *login.open_routes(house),
        *(route for pages in ALL for route in pages.mounted(house)),
    ]
