"""Routes that are asked most: found without FastAPI, and in nothing else different."""

from __future__ import annotations

from typing import Any

import pytest

from pyramidion.web.service.app import ALL, App
from pyramidion.web.service.routing import PREFIX
from tests.serve.security.guarded import MODEL, STREAM, Guarded, code_of

OFTEN = [route for routes in ALL for route in routes.all if route.often]
OBSERVE = f"/v1/streams/{STREAM}/observations"
STRANGER = "pyr_nobody"
PREDICT = f"/v1/streams/{STREAM}/models/{MODEL}/predictions"


def scope(method: str, path: str) -> dict[str, Any]:
    return {"type": "http", "method": method, "path": path}


def test_each_is_found_with_the_names_in_its_path(guarded: Guarded) -> None:
    assert {PREFIX + route.path for route in OFTEN} == {
        "/v1/streams/{stream}/observations",
        "/v1/streams/{stream}/models/{model}/predictions",
    }
    asked = scope("POST", PREDICT)
    assert isinstance(guarded.app, App)
    assert guarded.app.shortcuts.of(asked) is not None
    assert asked["path_params"] == {"stream": STREAM, "model": MODEL}
    assert asked["route"].path == "/v1/streams/{stream}/models/{model}/predictions"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", OBSERVE),
        ("POST", OBSERVE + "/"),
        ("POST", "/v1/streams//observations"),
        ("POST", f"/v2/streams/{STREAM}/observations"),
        ("POST", f"/v1/stream/{STREAM}/observations"),
        ("POST", f"/v1/streams/{STREAM}/models//predictions"),
        ("POST", "observations"),
        ("POST", ""),
    ],
)
def test_what_is_not_one_of_them_is_for_fastapi(guarded: Guarded, method: str, path: str) -> None:
    assert isinstance(guarded.app, App)
    assert guarded.app.shortcuts.of(scope(method, path)) is None
    if path.startswith("/"):
        answer = guarded.ask(method, path, json=[])
        assert answer.status_code in (404, 405)
        assert code_of(answer) in ("MissingError", "RequestError")


@pytest.mark.parametrize("path", [OBSERVE, PREDICT])
@pytest.mark.parametrize("body", [b"", b"[", b"{}", b"[{}]", b'{"features": []}', b"7", b"\xff"])
def test_the_answer_is_the_one_that_fastapi_would_give(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, path: str, body: bytes
) -> None:
    def told() -> Any:
        answers = [
            guarded.ask("POST", path, content=body, headers={"Content-Type": kind})
            for kind in ("application/json", "text/plain")
        ]
        answers.append(guarded.ask("POST", path, content=body, token=STRANGER))
        answers.append(guarded.ask("POST", path, "train", content=body))
        return [(each.status_code, dict(each.headers), each.content) for each in answers]

    short = told()
    assert isinstance(guarded.app, App)
    monkeypatch.setattr(guarded.app.shortcuts, "of", lambda _: None)
    assert told() == short


def test_both_ways_are_counted_as_the_same_route(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted() -> float:
        name = "pyramidion_request_seconds_count"
        labels = {
            "route": "/v1/streams/{stream}/observations",
            "method": "POST",
            "status": "4xx",
        }
        return guarded.service.metrics.registry.get_sample_value(name, labels) or 0.0

    before = counted()
    guarded.ask("POST", OBSERVE, content=b"[")
    assert counted() == before + 1
    assert isinstance(guarded.app, App)
    monkeypatch.setattr(guarded.app.shortcuts, "of", lambda _: None)
    guarded.ask("POST", OBSERVE, content=b"[")
    assert counted() == before + 2
    assert guarded.service.metrics.in_flight == 0
