"""The OpenAPI document and the service agree: asked at random, it answers as it says it does."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from requests.adapters import HTTPAdapter
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from pyramidion.web.service.app import OPEN
from tests.waiting import PATIENCE
from tests.web.service.security.guarded import MODEL, OTHER, STREAM, Guarded, Listening, bearer
from tests.web.service.security.test_roles import TABLE, address, routes_of

REFUSED = {400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 431}
"""What may come of a request, besides what its route says."""
NAMES = {"stream": STREAM, "model": MODEL}
"""Half of the requests ask for what is there."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A document, and behind it a service that may be changed."""
    made = Guarded(tmp_path_factory.mktemp("told"))
    made.create(STREAM, OTHER)
    made.fill()
    found = schemathesis.openapi.from_asgi("/openapi.json", made.app)
    found.token = made.token()
    yield found
    made.close()


PATHS = sorted({*TABLE, *(("GET", path) for path in OPEN - {"/docs", "/openapi.json"})})


few = settings(
    max_examples=20,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
each_route = pytest.mark.parametrize("route", PATHS, ids=" ".join)


@each_route
def test_the_service_answers_as_the_document_says(told: Any, route: tuple[str, str]) -> None:
    method, path = route
    if method.lower() not in told.raw_schema["paths"].get(path, {}):
        return

    @few
    @given(case=told[path][method].as_strategy(), known=st.booleans())
    def asked(case: Any, known: bool) -> None:
        if known:
            name_what_is_there(case)
        judge(case, case.call(headers=bearer(told.token), timeout=PATIENCE))

    asked()


def name_what_is_there(case: Any) -> None:
    """Have a case ask for the stream and the model that there are, unless to take them away."""
    parts = case.path_parameters or {}
    if case.method == "DELETE":
        return
    parts.update({name: NAMES[name] for name in NAMES.keys() & parts.keys()})


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The document of a service behind a real socket."""
    made = Guarded(tmp_path_factory.mktemp("heard"))
    made.create(STREAM, OTHER)
    made.fill()
    listening = Listening(made)
    found = schemathesis.openapi.from_url(f"http://127.0.0.1:{listening.port}/openapi.json")
    found.token = made.token()
    yield found
    listening.close()
    made.close()


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=str)
@each_route
def test_behind_a_socket_it_answers_as_the_document_says_also_to_what_that_forbids(
    heard: Any, route: tuple[str, str], mode: GenerationMode
) -> None:
    method, path = route
    if method.lower() not in heard.raw_schema["paths"].get(path, {}):
        return

    @settings(few, max_examples=6)
    @given(case=heard[path][method].as_strategy(generation_mode=mode), known=st.booleans())
    def asked(case: Any, known: bool) -> None:
        if known:
            name_what_is_there(case)
        judge(case, case.call(headers=bearer(heard.token), timeout=PATIENCE))

    try:
        asked()
    except Unsatisfiable:  # it takes nothing that could be wrong
        assert mode is GenerationMode.NEGATIVE


class Whole(HTTPAdapter):
    """Sends a request's header and body in one packet."""

    def init_poolmanager(self, *args: Any, **given: Any) -> None:
        corked = [(socket.IPPROTO_TCP, socket.TCP_CORK, 1)]
        super().init_poolmanager(*args, socket_options=corked, **given)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=str)
def test_observations_in_one_packet_are_answered_as_the_document_says(
    heard: Any, mode: GenerationMode
) -> None:
    session = requests.Session()
    session.mount("http://", Whole())
    observe = heard["/v1/streams/{stream}/observations"]["POST"]
    statuses = set()

    @few
    @given(case=observe.as_strategy(generation_mode=mode))
    def asked(case: Any) -> None:
        name_what_is_there(case)
        answer = case.call(headers=bearer(heard.token), session=session, timeout=PATIENCE)
        statuses.add(answer.status_code)
        judge(case, answer)

    asked()
    session.close()
    assert 422 in statuses


def judge(case: Any, answer: Any) -> None:
    assert answer.status_code in REFUSED or answer.status_code < 400, answer.text
    if answer.status_code >= 400:
        assert set(answer.json()) == {"error"}
    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
    ]
    case.validate_response(answer, checks=checks)


def test_the_document_has_every_route_that_asks_for_a_token(guarded: Guarded) -> None:
    paths = guarded.client.get("/openapi.json").json()["paths"]
    known = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert routes_of(guarded.app) <= known


def test_every_route_that_asks_for_a_token_says_so_in_the_document(guarded: Guarded) -> None:
    paths = guarded.client.get("/openapi.json").json()["paths"]
    for path, methods in paths.items():
        for method, about in methods.items():
            asked = guarded.client.request(method, address(path))
            assert (asked.status_code == 401) == (about.get("security") != []), (method, path)
