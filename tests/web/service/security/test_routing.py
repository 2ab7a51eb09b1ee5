"""Which requests find a route, in which order routes are tried, and how they are counted."""

from __future__ import annotations

import pytest

from pyramidion.web.service.app import FREQUENT
from tests.web.service.security.guarded import MODEL, STREAM, Guarded, code_of

OBSERVE = f"/v1/streams/{STREAM}/observations"
PREDICT = f"/v1/streams/{STREAM}/models/{MODEL}/predictions"


def test_frequent_routes_come_first(guarded: Guarded) -> None:
    first = [route.path for route in guarded.app.routes[:2]]
    assert first == [f"/v1{path}" for path in sorted(FREQUENT, reverse=True)]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", OBSERVE, 405),
        ("HEAD", f"/v1/streams/{STREAM}/schema", 405),
        ("HEAD", "/healthz", 405),
        ("POST", OBSERVE + "/", 404),
        ("POST", "/v1/streams//observations", 404),
        ("POST", f"/v2/streams/{STREAM}/observations", 404),
        ("POST", f"/v1/stream/{STREAM}/observations", 404),
        ("POST", f"/v1/streams/{STREAM}/models//predictions", 404),
        ("GET", "/redoc", 404),
    ],
)
def test_other_requests_find_no_route(
    guarded: Guarded, method: str, path: str, status: int
) -> None:
    answer = guarded.ask(method, path)
    assert answer.status_code == status
    if method != "HEAD":
        assert code_of(answer) == {404: "MissingError", 405: "RequestError"}[status]
    if status == 405:
        assert answer.headers["allow"] == ("POST" if path == OBSERVE else "GET")


@pytest.mark.parametrize(("status", "method"), [("4xx", "POST"), ("4xx", "GET")])
def test_request_is_counted_by_its_route(guarded: Guarded, status: str, method: str) -> None:
    def counted() -> float:
        labels = {"route": "/v1/streams/{stream}/observations", "method": method, "status": status}
        name = "pyramidion_request_seconds_count"
        return guarded.service.metrics.registry.get_sample_value(name, labels) or 0.0

    before = counted()
    guarded.ask(method, OBSERVE, content=b"[")
    assert counted() == before + 1
    assert guarded.service.metrics.in_flight == 0


@pytest.mark.parametrize("path", [OBSERVE, PREDICT])
@pytest.mark.parametrize("body", [b"", b"[", b"{}", b"[{}]", b'{"features": []}', b"7", b"\xff"])
def test_bad_bodies_are_refused_in_order(guarded: Guarded, path: str, body: bytes) -> None:
    """First who, then what they may, then what they sent."""
    kinds = {"application/json": 422, "text/plain": 415}
    for kind, status in kinds.items():
        headers = {"Content-Type": kind}
        assert guarded.ask("POST", path, content=body, headers=headers).status_code == status
        stranger = guarded.ask("POST", path, content=body, headers=headers, token="pyr_nobody")  # noqa: S106
        assert stranger.status_code == 401
        other = guarded.ask("POST", path, "train", content=body, headers=headers)
        assert other.status_code == 403
