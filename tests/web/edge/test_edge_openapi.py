"""The OpenAPI document of an edge and the edge agree: asked at random, over a real socket."""

from __future__ import annotations

import json
from typing import Any

import httpx
import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.waiting import PATIENCE
from tests.web.edge.conftest import ASKER, Edge
from tests.web.edge.test_edge import LATE, asked
from tests.web.edge.test_edge_limits import service_file

REFUSED = {400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 431}
"""What may come of a request, besides what its route says."""
NAMES = {"stream": "flights", "model": "late"}
"""Half of the requests ask for what is there."""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
ROUTES = {
    ("POST", "/v1/streams/{stream}/features"),
    ("POST", "/v1/streams/{stream}/models/{model}/predictions"),
    ("GET", "/v1/streams/{stream}/models/{model}"),
    ("GET", "/metrics"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
}


def document(edge: Edge) -> dict[str, Any]:
    told: dict[str, Any] = httpx.get(f"{edge.http.base_url}/openapi.json", timeout=PATIENCE).json()
    return told


def test_the_document_has_every_route_and_says_which_ask_for_a_token(edge: Edge) -> None:
    paths = document(edge)["paths"]
    assert {(m.upper(), path) for path, methods in paths.items() for m in methods} == ROUTES
    for method, path in ROUTES:
        where = path.format(**NAMES)
        status = httpx.request(method, f"{edge.http.base_url}{where}", timeout=PATIENCE).status_code
        assert (status == 401) == (paths[path][method.lower()]["security"] != []), path


@pytest.mark.parametrize("route", sorted(ROUTES), ids=" ".join)
def test_an_edge_answers_as_its_document_says(edge: Edge, route: tuple[str, str]) -> None:
    edge.hashes.write_text(service_file(["admin", "predict"], ["*"]))
    method, path = route
    told = schemathesis.openapi.from_url(f"{edge.http.base_url}/openapi.json")

    @settings(
        max_examples=20,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=told[path][method].as_strategy(), known=st.booleans())
    def ask(case: Any, known: bool) -> None:
        parts = case.path_parameters or {}
        if known:
            parts.update({name: NAMES[name] for name in NAMES.keys() & parts.keys()})
        answer = case.call(headers={"Authorization": f"Bearer {ASKER}"}, timeout=PATIENCE)
        assert answer.status_code in REFUSED or answer.status_code < 400, answer.text
        if answer.status_code >= 400:
            assert set(json.loads(answer.content)) == {"error"}
        case.validate_response(answer, checks=CHECKS)

    ask()


def test_good_answers_have_the_shapes_that_the_document_says(edge: Edge) -> None:
    components = document(edge)["components"]
    for name, answer in (
        ("Features", edge.post("features", asked(2))),
        ("Predictions", edge.post(LATE, asked(2))),
        ("Predictions", edge.post("models/delay/predictions", asked(2))),
        ("EdgeModel", edge.http.get("/v1/streams/flights/models/late")),
        ("Error", edge.post(LATE, 3)),
    ):
        shape = {"$ref": f"#/components/schemas/{name}", "components": components}
        jsonschema_rs.validate(shape, answer.json())
