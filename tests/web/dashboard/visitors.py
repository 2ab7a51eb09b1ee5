"""Browsers without a screen: clients that keep cookies and say where a form came from."""

from __future__ import annotations

from typing import Any

import httpx
from starlette.testclient import TestClient

from tests.web.dashboard.filled import word_of
from tests.web.service.security.guarded import Guarded

HERE = {"Origin": "http://testserver", "Sec-Fetch-Site": "same-origin"}


class Visitor:
    """Somebody with a browser of their own."""

    def __init__(self, guarded: Guarded, base_url: str = "http://testserver") -> None:
        self.client = TestClient(
            guarded.app,
            base_url=base_url,
            follow_redirects=False,
            raise_server_exceptions=False,
        )
        self.headers = HERE | {"Origin": base_url}

    def log_in(self, token: str) -> httpx.Response:
        return self.client.post("/login", data={"token": token}, headers=self.headers)

    def get(self, path: str, **given: Any) -> httpx.Response:
        return self.client.get(path, **given)

    def word(self, path: str = "/streams?all=1") -> str:
        return word_of(self.get(path).text)

    def post(self, path: str, **fields: str) -> httpx.Response:
        """Send a form of a page that was read."""
        form = {"csrf": self.word()} | fields
        return self.client.post(path, data=form, headers=self.headers)


def inside(guarded: Guarded, *roles: str, streams: tuple[str, ...] = ("*",)) -> Visitor:
    """Who is logged in with a new token."""
    made = Visitor(guarded)
    assert made.log_in(guarded.token(*roles, streams=streams)).status_code == 303
    return made
