"""The way in and out: the login, the streams that a token is for, and the logout."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from pyramidion.errors import PyramidionError, UnknownCallerError
from pyramidion.web.dashboard.csrf import LOGIN_BYTES, form_of, refuse_elsewhere
from pyramidion.web.dashboard.layout import Link
from pyramidion.web.dashboard.pages import HEADERS, House, Pages, Visit, refused
from pyramidion.web.dashboard.sessions import cookie_of, give, take_back
from pyramidion.web.middleware import CALLER, PLACE
from pyramidion.web.routing import mounted
from pyramidion.web.tokens import ANY, Token

pages = Pages()


@pages.add("GET", "/streams", *ANY, link=Link("Streams", 0))
async def streams(visit: Visit) -> Response:
    """The streams that the token is for; where there is one, that one."""
    names = (await visit.ask("GET", "/streams"))["streams"]
    if len(names) == 1 and not visit.query("all"):
        return visit.go(f"/streams/{names[0]}")
    told = [
        await visit.house.api.ask(
            visit.caller, "GET", "/streams/{stream}/pyramid", names={"stream": name}
        )
        for name in names
    ]
    return visit.show("streams.html", streams=list(zip(names, told, strict=True)))


@pages.add("POST", "/logout", *ANY)
async def logout(visit: Visit) -> Response:
    """End the session, here and in the browser."""
    visit.house.sessions.end(cookie_of(visit.request))
    response = RedirectResponse("/", 303, HEADERS)
    take_back(visit.request, response)
    return response


# --- before anybody is known -----------------------------------------------------------------


def open_routes(house: House) -> list[Route]:
    """The addresses that need no login: the front page, and the login itself."""
    return [mounted("GET", "/", _front(house)), mounted("POST", "/login", _login(house))]


def _front(house: House) -> Callable[[Request], Awaitable[Response]]:
    async def front(request: Request) -> Response:
        try:
            house.sessions.find(cookie_of(request))
        except UnknownCallerError:
            return HTMLResponse(house.layout.page("login.html", live=False, why=""), 200, HEADERS)
        except PyramidionError as problem:
            return refused(house, request, problem, None)
        return RedirectResponse("/streams", 303, HEADERS)

    return front


def _login(house: House) -> Callable[[Request], Awaitable[Response]]:
    async def login(request: Request) -> Response:
        try:
            refuse_elsewhere(request)
            house.service.admission.enter("requests")
            request.scope[PLACE] = "requests"
            form = await form_of(request, house.service.limits, LOGIN_BYTES)
            value, token = _begun(house, request, form.get("token", ""))
        except UnknownCallerError:
            why = "There is no such token. An admin makes one with `pyramidion tokens add`."
            return HTMLResponse(house.layout.page("login.html", live=False, why=why), 401, HEADERS)
        except PyramidionError as problem:
            return refused(house, request, problem, None)
        request.scope[CALLER] = token.id
        house.sessions.end(cookie_of(request))
        response = RedirectResponse("/streams", 303, HEADERS)
        give(request, response, value)
        return response

    return login


def _begun(house: House, request: Request, text: str) -> tuple[str, Token]:
    try:
        return house.sessions.begin(text)
    except UnknownCallerError:
        house.service.admission.strange(request.client.host if request.client else "")
        raise
