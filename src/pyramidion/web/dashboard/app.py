"""The pages of a service, put together."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import FastAPI
from starlette.responses import Response

from pyramidion.web.dashboard import (
    entry,
    first_rows,
    first_stream,
    learning,
    overview,
    spending,
    watching,
)
from pyramidion.web.dashboard.api import Api
from pyramidion.web.dashboard.layout import Layout
from pyramidion.web.dashboard.pages import House
from pyramidion.web.dashboard.sessions import Sessions
from pyramidion.web.dashboard.statics import static
from pyramidion.web.service.routing import Routes
from pyramidion.web.service.service import Service

ALL = (
    entry.pages,
    overview.pages,
    spending.pages,
    learning.pages,
    watching.pages,
    first_stream.pages,
    first_rows.pages,
)


def serve(app: FastAPI, service: Service, routes: Iterable[Routes]) -> House:
    """Have an app answer at ``/`` with pages that show what the API's routes answer."""
    house = House(service, Sessions(service.tokens), Api(service, routes), Layout())
    about = {"include_in_schema": False, "response_class": Response}
    app.add_api_route("/static/{mark}/{name}", static, methods=["GET"], **about)  # type: ignore[arg-type]
    entry.open_to_all(app, house)
    for pages in ALL:
        pages.serve(app, house)
    return house
