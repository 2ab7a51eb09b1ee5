"""Routes of pages, which cannot be added without saying who may see them.

As the API's routes do: a page stands in `Pages` with its roles, a page of a stream gets the
stream, and to a token that is not for it the stream is not there. Who calls is told by a cookie
instead of a header; nobody is sent to the login. What an endpoint raises becomes a page that says
it in the same words.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from pyramidion.errors import BusyError, PyramidionError, UnknownCallerError
from pyramidion.web.dashboard.api import Api
from pyramidion.web.dashboard.csrf import Form, form_of, refuse_elsewhere, refuse_wordless
from pyramidion.web.dashboard.layout import Layout, Link
from pyramidion.web.dashboard.sessions import Session, Sessions, cookie_of
from pyramidion.web.errors import LOG, public_message, unexpected_error
from pyramidion.web.middleware import CALLER, PLACE
from pyramidion.web.routing import Handler, mounted
from pyramidion.web.service.service import Service
from pyramidion.web.service.streams import Stream
from pyramidion.web.tokens import ANY, Role, Token, needed

LIVE = "x-live"
"""The header of a live update: the page alone, without what stands around it."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "style-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Not no-referrer: browsers would send `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True)
class House:
    """What all pages of one service share."""

    service: Service
    sessions: Sessions
    api: Api
    layout: Layout


@dataclass(frozen=True)
class Visit:
    """A request of somebody who is logged in and may make it."""

    request: Request
    house: House
    session: Session
    caller: Token
    page: Page
    form: Form
    _stream: Stream | None = None

    @property
    def stream(self) -> Stream:
        """The stream in its path."""
        assert self._stream is not None  # noqa: S101 by the page's path
        return self._stream

    def query(self, name: str, default: str = "") -> str:
        """A parameter of the query."""
        return self.request.query_params.get(name, default)

    def may(self, method: str, path: str) -> bool:
        """Whether this token may call a route of the API, as ``/streams/{stream}/ledger``."""
        return self.house.api.may(self.caller, method, path)

    async def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        json: Any = None,
        body: bytes = b"",
        kind: str = "application/json",
        headers: Mapping[str, str] | None = None,
        **names: str,
    ) -> Any:
        """What the API answers to this token; the stream in its path is this page's."""
        if self._stream is not None:
            names = {"stream": self._stream.name, **names}
        sent = msgspec.json.encode(json) if json is not None else body
        api = self.house.api
        return await api.ask(
            self.caller,
            method,
            path,
            names=names,
            query=query,
            body=sent,
            kind=kind,
            headers=headers,
        )

    def show(self, template: str, answered: int = 200, /, **told: Any) -> Response:
        """A page of a template, which gets what it tells, with everything around it."""
        live = LIVE in self.request.headers
        text = self.house.layout.page(
            template,
            live=live,
            csrf=self.session.csrf,
            caller=self.caller,
            stream=None if self._stream is None else self._stream.name,
            here=self.page.path,
            links=self.house.layout.links(self.caller, self._stream),
            **told,
        )
        return HTMLResponse(text, answered, HEADERS | {"Vary": "Cookie, X-Live"})

    def go(self, path: str) -> Response:
        """Have the browser open another page, after a POST."""
        return RedirectResponse(path, 303, HEADERS)


Endpoint = Callable[[Visit], Awaitable[Response]]


@dataclass(frozen=True)
class Page:
    """One page: where it is, who may see it, and what it is called in the navigation."""

    method: str
    path: str
    roles: frozenset[Role]
    """One of them is needed."""
    endpoint: Endpoint
    link: Link | None

    @property
    def for_all(self) -> bool:
        """Whether any token that is known may see it."""
        return self.roles == frozenset(ANY)


class Pages:
    """A list of pages, filled by decorators."""

    def __init__(self) -> None:
        self.all: list[Page] = []

    def add(
        self, method: str, path: str, *roles: Role, link: Link | None = None
    ) -> Callable[[Endpoint], Endpoint]:
        """Add a page; with a ``link`` it stands in the navigation for who may see it.

        Who may see it is said: roles, or ``*ANY``.
        """
        asked = needed(path, roles)

        def added(endpoint: Endpoint) -> Endpoint:
            self.all.append(Page(method, path, asked, endpoint, link))
            return endpoint

        return added

    def mounted(self, house: House) -> list[Route]:
        """As routes of Starlette's."""
        for page in self.all:
            house.layout.know(page)
        return [mounted(page.method, page.path, _handler(page, house), page) for page in self.all]


def _handler(page: Page, house: House) -> Handler:
    async def handle(request: Request) -> Response:
        visit: Visit | None = None
        try:
            visit = await _admitted(page, house, request)
            return await page.endpoint(visit)
        except UnknownCallerError:
            return sent_to_login(house, request)
        except PyramidionError as problem:
            return refused(house, request, problem, visit)
        except Exception as problem:
            unexpected_error(problem)
            return refused(house, request, UnforeseenError(), visit)

    return handle


class UnforeseenError(PyramidionError):
    """What nobody foresaw; the log says where."""

    status = 500

    def __init__(self) -> None:
        super().__init__("something went wrong here; the service's log says where")


async def _admitted(page: Page, house: House, request: Request) -> Visit:
    """The visit, if the caller may make it. First who, then how often, what, and where."""
    if page.method == "POST":
        refuse_elsewhere(request)
    live = LIVE in request.headers
    session, caller = house.sessions.find(cookie_of(request), live=live)
    request.scope[CALLER] = caller.id
    house.service.admission.take(caller.id)
    caller.refuse_without(page.roles)
    name = request.path_params.get("stream")
    stream = None if name is None else house.service.stream(name, caller)
    house.service.admission.enter("requests")
    request.scope[PLACE] = "requests"
    form: Form = {}
    if page.method == "POST":
        form = await form_of(request, house.service.limits)
        refuse_wordless(form, session)
    return Visit(request, house, session, caller, page, form, stream)


def sent_to_login(house: House, request: Request) -> Response:
    """Nobody is logged in: the login, or where a script asks, that it is over."""
    if LIVE in request.headers:
        text = house.layout.page("ended.html", live=True)
        return HTMLResponse(text, 401, HEADERS)
    return RedirectResponse("/", 303, HEADERS)


def refused(
    house: House, request: Request, problem: PyramidionError, visit: Visit | None
) -> Response:
    """An error as a page, in its own words."""
    message = public_message(problem)
    if message != str(problem):
        LOG.error("failed %s", type(problem).__name__, extra={"trouble": str(problem)})
    told = {"code": type(problem).__name__, "message": message, "status": problem.status}
    headers = dict(HEADERS)
    if isinstance(problem, BusyError):
        headers["Retry-After"] = str(problem.retry_after)
    if visit is not None:
        response = visit.show("refused.html", problem.status, **told)
        response.headers.update(headers)
        return response
    text = house.layout.page("refused.html", live=LIVE in request.headers, **told)
    return HTMLResponse(text, problem.status, headers)


__all__ = ["HEADERS", "House", "Link", "Page", "Pages", "Visit"]
