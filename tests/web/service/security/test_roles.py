"""Who may call what: every route times every role, by the table of the design."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyramidion.errors import ForbiddenError, StateError
from pyramidion.web.dashboard.pages import Page, Pages
from pyramidion.web.routing import App, Routes, mounted, refuse_unguarded
from pyramidion.web.service.app import OPEN
from pyramidion.web.tokens import ANY as ALL_ROLES
from pyramidion.web.tokens import ROLES, needed
from tests.web.service.security.guarded import MODEL, OTHER, STREAM, Guarded, bearer, code_of

DOCS = Path(__file__).parents[4] / "docs" / "service-security.md"
ANY = frozenset(ALL_ROLES)
S, M = "/v1/streams/{stream}", "/v1/streams/{stream}/models/{model}"
ASK = frozenset({"predict", "train"})
TABLE: dict[tuple[str, str], frozenset[str]] = {
    ("GET", "/v1/streams"): ANY,
    ("GET", S): ANY,
    ("PUT", "/v1/streams/{new}"): frozenset({"admin"}),
    ("POST", f"{S}/observations"): frozenset({"observe"}),
    ("POST", f"{S}/features"): ASK,
    ("GET", f"{S}/training-set"): frozenset({"train"}),
    ("GET", f"{S}/snapshot"): ASK,
    ("GET", f"{S}/card"): ASK,
    ("GET", f"{S}/models"): ASK,
    ("GET", M): ASK,
    ("PUT", M): frozenset({"train"}),
    ("DELETE", M): frozenset({"train"}),
    ("POST", f"{M}/predictions"): frozenset({"predict"}),
    ("POST", f"{M}/retrain"): frozenset({"train"}),
    ("GET", f"{M}/export"): frozenset({"predict"}),
    ("GET", f"{M}/loss"): frozenset({"train"}),
    ("GET", f"{S}/schema"): ANY,
    ("GET", f"{S}/pyramid"): ANY,
    ("GET", f"{S}/windows"): ANY,
    ("GET", f"{S}/tables"): ANY,
    ("GET", f"{S}/groups"): ANY,
    ("POST", f"{S}/groups/select"): frozenset({"admin"}),
    ("GET", f"{S}/ledger"): ANY,
    ("GET", f"{S}/ledger/{{window}}"): ANY,
    ("POST", f"{S}/groups"): frozenset({"admin"}),
    ("DELETE", f"{S}/tables/{{table}}"): frozenset({"admin"}),
    ("POST", f"{S}/advance"): frozenset({"admin"}),
    ("POST", f"{S}/reseed"): frozenset({"admin"}),
    ("GET", f"{S}/clock"): ANY,
    ("POST", f"{S}/clock"): frozenset({"admin"}),
    ("GET", f"{S}/exposure"): frozenset({"admin"}),
    ("GET", f"{S}/audit-log"): frozenset({"admin"}),
    ("GET", f"{S}/audit-log/verification"): frozenset({"admin"}),
    ("GET", f"{S}/grants"): frozenset({"admin"}),
    ("GET", f"{S}/vault"): frozenset({"admin"}),
    ("POST", f"{S}/vault/requests"): frozenset({"custodian-request"}),
    ("POST", "/v1/drafts"): frozenset({"admin"}),
    ("POST", "/v1/plans"): frozenset({"admin"}),
    ("GET", "/v1/estimators"): ANY,
    ("GET", "/v1/tokens"): frozenset({"admin"}),
    ("POST", "/v1/tokens"): frozenset({"admin"}),
    ("DELETE", "/v1/tokens/{id}"): frozenset({"admin"}),
    ("GET", "/metrics"): frozenset({"admin"}),
}
OF_ALL = ("/v1/tokens", "/v1/tokens/{id}", "/metrics")
"""What is for admins of all streams alone."""

each_route = pytest.mark.parametrize("route", TABLE, ids=" ".join)
each_role = pytest.mark.parametrize("role", ROLES)


def routes_of(app: App) -> set[tuple[str, str]]:
    return {
        (method, route.path)
        for route in app.routes
        for method in getattr(route, "methods", None) or ("ANY",)
        if route.path not in OPEN and not _is_page(route)
    }


def _is_page(route: object) -> bool:
    """Pages ask for a cookie; tests/web/dashboard has their table."""
    return isinstance(getattr(getattr(route, "endpoint", None), "guard", None), Page)


def address(path: str, stream: str = STREAM) -> str:
    names = {"stream": stream, "new": stream, "model": MODEL, "table": "nix"}
    names |= {"window": "1", "id": "0" * 16}
    return path.format(**names)


def asked(route: tuple[str, str], stream: str = STREAM) -> str:
    """The address of a route; not of what it would take away, and others ask for."""
    if route == ("DELETE", M):
        return address(M, stream).replace(MODEL, "nix")
    return address(route[1], stream)


def test_every_route_is_in_the_table_or_meant_to_be_open_and_the_table_has_no_other(
    guarded: Guarded,
) -> None:
    assert routes_of(guarded.app) == set(TABLE)


def test_the_document_says_of_each_route_who_may_and_of_no_other() -> None:
    lines = re.findall(r"^\| (`(?:/|…).*) \| (.*) \| (.*) \|$", DOCS.read_text("utf-8"), re.M)
    told = {
        (method, full(path)): roles_in(who)
        for paths, methods, who in lines
        for path in re.findall(r"`(.*?)`", paths)
        for method in methods.split(", ")
    }
    assert told.pop(("GET", "/v1/key")) == frozenset()
    known = {(m, p.replace("{new}", "{stream}")): roles for (m, p), roles in TABLE.items()}
    del known["GET", "/metrics"]  # below the table
    assert told == known


def full(path: str) -> str:
    return f"/v1{path.replace('…', '/streams/{stream}')}"


def roles_in(who: str) -> frozenset[str]:
    return ANY if who.startswith("any token") else frozenset(re.findall(r"`([\w-]+)`", who))


def test_a_route_that_says_no_role_cannot_be_added() -> None:
    for kind in (Routes, Pages):
        with pytest.raises(StateError, match=r"/everything says no role; name .* or \*ANY for all"):
            kind().add("GET", "/everything")
        kind().add("GET", "/everything", *ALL_ROLES)
    with pytest.raises(StateError):
        needed("/everything", ())


def test_who_has_a_role_has_none_where_none_is_asked_for(guarded: Guarded) -> None:
    token = guarded.service.tokens.caller(f"Bearer {guarded.token()}")
    with pytest.raises(ForbiddenError):
        token.refuse_without(frozenset())


def test_the_open_routes_are_these_and_no_others() -> None:
    assert {
        "/healthz",
        "/readyz",
        "/v1/key",
        "/openapi.json",
        "/docs",
        "/docs/oauth2-redirect",
        "/redoc",
        "/",
        "/login",
        "/static/{mark}/{name}",
    } >= OPEN


def test_an_app_with_a_route_that_asks_nobody_is_not_made() -> None:
    async def everything(_: Request) -> Response:
        return Response()

    path = "/v1/streams/{stream}/everything"
    for route in (mounted("GET", path, everything), Route(path, everything)):
        with pytest.raises(StateError, match="open to everybody"):
            refuse_unguarded([route], OPEN)


def test_open_routes_tell_nothing_of_streams_or_tokens(guarded: Guarded) -> None:
    for path in OPEN:
        told = guarded.client.get(path)
        assert told.status_code in (200, 404, 405)
        assert STREAM not in told.text
        assert OTHER not in told.text


@each_role
@each_route
def test_a_role_gets_in_where_the_table_says_so(
    guarded: Guarded, route: tuple[str, str], role: str
) -> None:
    answer = guarded.ask(route[0], asked(route), role)
    if role in TABLE[route]:
        assert answer.status_code not in (401, 403, 429, 500)
    else:
        assert (answer.status_code, code_of(answer)) == (403, "ForbiddenError")


@each_route
def test_nobody_gets_in_without_a_token_that_is_known(
    guarded: Guarded, route: tuple[str, str]
) -> None:
    gone = guarded.token()
    guarded.outside.remove(gone.split("_")[1])
    known = guarded.token()
    wrong = known[:-1] + ("A" if known[-1] != "A" else "B")
    strangers: list[dict[str, str]] = [
        {},
        bearer(gone),
        bearer(wrong),
        bearer("pyr_" + "0" * 16 + "_" + "A" * 43),
        {"Authorization": f"Basic {known}"},
        {"Authorization": known},
        bearer(known.upper()),
        bearer(known + "x"),
        bearer(""),
    ]
    for headers in strangers:
        answer = guarded.client.request(route[0], asked(route), headers=headers)
        assert (answer.status_code, code_of(answer)) == (401, "UnknownCallerError")
        assert answer.headers["www-authenticate"] == "Bearer"


@each_route
def test_a_token_of_another_stream_cannot_tell_a_stream_from_none(
    guarded: Guarded, route: tuple[str, str]
) -> None:
    method, path = route
    if "{stream}" not in path and "{new}" not in path:
        return
    token = guarded.token(streams=(OTHER,))
    there = guarded.ask(method, address(path), token=token)
    nowhere = guarded.ask(method, address(path, "nowhere"), token=token)
    assert there.status_code in (403, 404, 422)
    assert (there.status_code, there.content) == (nowhere.status_code, nowhere.content)
    assert STREAM not in there.text


@each_route
def test_a_role_that_may_not_cannot_tell_a_stream_from_none(
    guarded: Guarded, route: tuple[str, str]
) -> None:
    method, path = route
    for role in ROLES:
        if role not in TABLE[route]:
            token = guarded.token(role)
            there = guarded.ask(method, address(path), token=token)
            nowhere = guarded.ask(method, address(path, "nowhere"), token=token)
            assert (there.status_code, there.content) == (403, nowhere.content)


@pytest.mark.parametrize("path", OF_ALL)
def test_an_admin_of_one_stream_has_no_say_over_the_service(guarded: Guarded, path: str) -> None:
    token = guarded.token("admin", streams=(STREAM,))
    for method, known in TABLE:
        if known == path:
            assert guarded.ask(method, address(path), token=token).status_code == 403


def test_a_token_lists_only_its_streams(guarded: Guarded) -> None:
    told = guarded.ask("GET", "/v1/streams", token=guarded.token("observe", streams=(OTHER,)))
    assert told.json() == {"streams": [OTHER]}


def test_an_unknown_address_and_a_wrong_method_have_the_one_shape(guarded: Guarded) -> None:
    assert code_of(guarded.client.get("/v1/nix")) == "MissingError"
    assert code_of(guarded.client.patch("/v1/streams")) == "RequestError"


def test_metrics_are_open_only_where_that_was_said(fresh: Callable[..., Guarded]) -> None:
    assert fresh().client.get("/metrics").status_code == 401
    assert fresh(open_metrics=True).client.get("/metrics").status_code == 200
