"""Headers that every answer has."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from tests.web.service.security.guarded import STREAM, Guarded, bearer

PATHS = ("/healthz", "/readyz", "/v1/key", "/docs", "/nix", "/v1/streams", f"/v1/streams/{STREAM}")


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_is_kept_by_nobody_and_read_as_what_it_is(guarded: Guarded, path: str) -> None:
    for headers in ({}, bearer(guarded.token())):
        told = guarded.client.get(path, headers=headers).headers
        assert told["x-content-type-options"] == "nosniff"
        assert "no-store" in told["cache-control"] or path == "/v1/key"
        assert "server" not in told
        assert "strict-transport-security" not in told


@pytest.mark.parametrize("path", PATHS)
def test_under_tls_browsers_are_told_to_keep_to_it(guarded: Guarded, path: str) -> None:
    secure = TestClient(guarded.app, base_url="https://testserver")
    assert secure.get(path).headers["strict-transport-security"] == "max-age=31536000"
