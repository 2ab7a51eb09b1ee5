"""The OpenAPI document and the page of it: whole, true, and without the outside world."""

from __future__ import annotations

import re
from typing import Any

import httpx
import jsonschema_rs
import pytest

from pyramidion.web.service.app import ALL
from tests.waiting import PATIENCE
from tests.web.service.services import Inside

ROUTES = [route for routes in ALL for route in routes.all]


@pytest.fixture(scope="module")
def document(shared: Inside) -> dict[str, Any]:
    told: dict[str, Any] = httpx.get(f"{shared.url}/openapi.json", timeout=PATIENCE).json()
    return told


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": told
        for path, methods in document["paths"].items()
        for method, told in methods.items()
    }


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_says_who_may_and_what_it_gives(route: Any, document: dict[str, Any]) -> None:
    told = operations(document)[f"{route.method} /v1{route.path}"]
    assert told["security"] == [{"token": []}]
    assert told["x-roles"] == sorted(route.roles)
    assert told["summary"]
    given = [a for code, a in told["responses"].items() if code in ("200", "201")]
    assert len(given) == 1
    assert given[0]["content"]
    assert "content" in told["responses"]["default"]
    parts = {p["name"] for p in told["parameters"] if p["in"] == "path"}
    assert parts == set(re.findall(r"{(\w+)}", route.path))


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_route_that_reads_a_body_says_so(route: Any) -> None:
    reads = bool({"body_of", "rows_of", "struct_of"} & set(route.endpoint.__code__.co_names))
    assert reads == ("takes" in route.about)


def test_every_shape_that_is_named_is_there(document: dict[str, Any]) -> None:
    named = set(re.findall(r"#/components/schemas/(\w+)", str(document)))
    assert named == set(document["components"]["schemas"])


def test_what_is_open_asks_for_no_token(document: dict[str, Any]) -> None:
    open_ = {name for name, told in operations(document).items() if not told.get("security")}
    assert open_ <= {"GET /healthz", "GET /readyz", "GET /v1/key"}


def test_the_page_has_every_route_and_loads_nothing(
    shared: Inside, document: dict[str, Any]
) -> None:
    answer = httpx.get(f"{shared.url}/docs", timeout=PATIENCE)
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    for path in document["paths"]:
        assert f"<code>{path}</code>" in answer.text
    assert not re.search(r"<script|src=|https?://", answer.text)


def test_answers_have_the_shapes_that_the_document_says(
    shared: Inside, document: dict[str, Any]
) -> None:
    caller = shared.caller()
    caller.put("/v1/streams/s/models/m", json={"estimator": "LogisticRegression"})
    row = {"a": "1", "b": "x"}
    answers = {
        "Status": caller.get("/v1/streams/s"),
        "Features": caller.post("/v1/streams/s/features", json=row),
        "Model": caller.get("/v1/streams/s/models/m"),
        "Predictions": caller.post("/v1/streams/s/models/m/predictions", json=row),
        "Groups": caller.get("/v1/streams/s/groups"),
        "Loss": caller.get("/v1/streams/s/models/m/loss"),
        "Error": caller.get("/v1/streams/nix"),
    }
    for name, answer in answers.items():
        shape = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        jsonschema_rs.validate(shape, answer.json())
