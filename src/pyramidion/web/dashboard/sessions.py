"""Who is logged in: a token that was proven once, and from then on a cookie instead of it.

Sessions live in memory alone and end with the process. What is kept of a cookie is its SHA-256;
the token's secret is not kept at all. A session ends

    idle          some time after the last page that somebody asked for; live updates do not count
    in any case   after half a day
    at once       when somebody logs out, or the token is taken back

A token may be logged in with several browsers, but not with any number.

Sessions are on the server, so that they end at once with their token. Starlette's
`SessionMiddleware` keeps a session in a signed cookie, which nobody can revoke.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.responses import Response

from pyramidion.errors import UnknownCallerError
from pyramidion.web.service.tokens import Tokens
from pyramidion.web.tokens import Token

IDLE = 3_600.0
"""Seconds without a page before a session ends,"""
WHOLE = 12 * 3_600.0
"""and seconds that it lasts at most."""
MOST = 20
"""Sessions of one token at once; one more ends the one that rested longest."""
NAME = "pyramidion"


@dataclass(frozen=True)
class Session:
    """Somebody who is logged in."""

    token: str
    """The id of the token that was shown,"""
    digest: str
    """and the digest of its secret: another one under the same id is not the same."""
    csrf: str
    """Stands in every form; who sends it back has read a page of this session."""
    begun: float
    seen: float


class Sessions:
    """All that are logged in to one service."""

    def __init__(self, tokens: Tokens, clock: Callable[[], float] = time.monotonic) -> None:
        self._tokens = tokens
        self._clock = clock
        self._lock = threading.Lock()
        self._all: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._all)

    def begin(self, text: str) -> tuple[str, Token]:
        """Log in with a token; the cookie's value is told once, here."""
        token = self._tokens.caller(f"Bearer {text.strip()}")
        value, now = secrets.token_urlsafe(32), self._clock()
        with self._lock:
            self._forget(now)
            own = [(s.seen, name) for name, s in self._all.items() if s.token == token.id]
            for _, name in sorted(own)[: max(0, len(own) - MOST + 1)]:
                del self._all[name]
            made = Session(token.id, token.digest, secrets.token_urlsafe(32), now, now)
            self._all[_digest(value)] = made
        return value, token

    def find(self, value: str | None, *, live: bool = False) -> tuple[Session, Token]:
        """The session of a cookie, and its token as it is now; ``live`` does not count as use."""
        name, now = _digest(value or ""), self._clock()
        with self._lock:
            self._forget(now)
            session = self._all.get(name)
        if session is None:
            raise UnknownCallerError("nobody is logged in with this browser; log in with a token")
        token = self._tokens.known(session.token)
        if token is None or not hmac.compare_digest(token.digest, session.digest):
            self.end(value)
            raise UnknownCallerError("the token of this login was taken back; ask for another")
        if not live:
            with self._lock:
                if name in self._all:
                    self._all[name] = replace(session, seen=now)
        return session, token

    def end(self, value: str | None) -> None:
        """Log out."""
        with self._lock:
            self._all.pop(_digest(value or ""), None)

    def _forget(self, now: float) -> None:
        """Drop what is over."""
        for name, session in list(self._all.items()):
            if now - session.seen >= IDLE or now - session.begun >= WHOLE:
                del self._all[name]


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode(errors="replace")).hexdigest()


# --- the cookie ------------------------------------------------------------------------------


def cookie_of(request: Request) -> str | None:
    """What a browser sent as its cookie."""
    return request.cookies.get(_name(request))


def give(request: Request, response: Response, value: str) -> None:
    """Have a browser keep a cookie, for this service alone and out of the reach of scripts."""
    secure = request.url.scheme == "https"
    about = {"httponly": True, "samesite": "strict", "path": "/", "secure": secure}
    response.set_cookie(_name(request), value, **about)  # type: ignore[arg-type]


def take_back(request: Request, response: Response) -> None:
    """Have a browser forget it."""
    secure = request.url.scheme == "https"
    about = {"httponly": True, "samesite": "strict", "path": "/", "secure": secure}
    response.delete_cookie(_name(request), **about)  # type: ignore[arg-type]


def _name(request: Request) -> str:
    """Under TLS a name that browsers take from this host alone, and only over TLS."""
    return f"__Host-{NAME}" if request.url.scheme == "https" else NAME
