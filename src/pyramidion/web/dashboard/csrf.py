"""What came from a page of this service, and what another site had a browser send.

A browser sends cookies along with whatever any site has it send. So whatever changes something is
a POST that must come from here by three signs: the browser says so (``Sec-Fetch-Site``, or
``Origin`` in older ones), the cookie is ``SameSite=Strict``, and the form has the session's own
word in it, which no other site can read.
"""

from __future__ import annotations

import hmac
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request

from pyramidion.errors import ForbiddenError, FormatError
from pyramidion.web.bodies import body_of, kind_of
from pyramidion.web.dashboard.sessions import Session
from pyramidion.web.errors import UnsupportedError
from pyramidion.web.limits import Limits
from pyramidion.web.routing import in_thread

FORM = "application/x-www-form-urlencoded"
WORD = "csrf"
"""The field of a form that has the session's word."""
FIELDS = 100
"""Fields of a form at most."""
LOGIN_BYTES, FORM_BYTES = 4_096, 8 << 20
"""Of a form: of nobody who is known yet, and of others. A part of a file is percent-encoded."""
SMALL = 1 << 14  # bytes of a form that are read at once, as other bodies are
ELSEWHERE = "this was not sent from a page of this service; open the page here and send it again"

Form = dict[str, str]


def refuse_elsewhere(request: Request) -> None:
    """Raise unless a browser says that a page of this service sent it."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None and site != "same-origin":
        raise ForbiddenError(ELSEWHERE)
    if site is None and origin is None:
        raise ForbiddenError(ELSEWHERE)
    if origin is not None and not _own(origin, request):
        raise ForbiddenError(ELSEWHERE)


def _own(origin: str, request: Request) -> bool:
    try:
        told = urlsplit(origin)
    except ValueError:
        return False
    return (told.scheme, told.netloc.lower()) == (
        request.url.scheme,
        request.headers.get("host", "").lower(),
    )


async def form_of(request: Request, limits: Limits, most: int = FORM_BYTES) -> Form:
    """The fields of a form; of one that stands twice, the last."""
    if kind_of(request) != FORM:
        raise UnsupportedError(f"unsupported content type; send {FORM}")
    body = await body_of(request, limits, most)
    return _fields(body) if len(body) <= SMALL else await in_thread(lambda: _fields(body))


def _fields(body: bytes) -> Form:
    try:
        told = parse_qs(
            body.decode(), keep_blank_values=True, strict_parsing=bool(body), max_num_fields=FIELDS
        )
    except ValueError:
        raise FormatError("the form cannot be read; open the page again, and send it") from None
    return {name: values[-1] for name, values in told.items()}


def refuse_wordless(form: Form, session: Session) -> None:
    """Raise unless a form has the session's word in it."""
    if not hmac.compare_digest(form.get(WORD, "").encode(), session.csrf.encode()):
        raise ForbiddenError(ELSEWHERE)
