"""A page shows what its token may read by the API's rules, and nothing else."""

from __future__ import annotations

import re

import pytest

from pyramidion.web.dashboard.pages import Page
from pyramidion.web.tokens import ROLES
from tests.web.dashboard.visitors import Visitor, inside
from tests.web.service.security.guarded import MODEL, OTHER, STREAM, Guarded

S = "/streams/{stream}"
ANY = frozenset(ROLES)
ADMIN, ASK = frozenset({"admin"}), frozenset({"predict", "train"})
TABLE: dict[tuple[str, str], frozenset[str]] = {
    ("GET", "/streams"): ANY,
    ("POST", "/logout"): ANY,
    ("GET", S): ANY,
    ("GET", f"{S}/windows"): ANY,
    ("GET", f"{S}/ledger"): ANY,
    ("GET", f"{S}/ledger/{{window}}"): ANY,
    ("GET", f"{S}/tables"): ANY,
    ("GET", f"{S}/groups"): ANY,
    ("GET", f"{S}/deletions"): ANY,
    ("GET", f"{S}/models"): ASK,
    ("POST", f"{S}/models/{{model}}/loss"): frozenset({"train"}),
    ("GET", f"{S}/exposure"): ADMIN,
    ("GET", f"{S}/exposure/report"): ADMIN,
    ("GET", f"{S}/vault"): ADMIN,
    ("GET", f"{S}/audit-log"): ADMIN,
    ("POST", f"{S}/audit-log"): ADMIN,
    ("GET", "/first-steps"): ADMIN,
    ("POST", "/first-steps/draft"): ADMIN,
    ("POST", "/first-steps/plan"): ADMIN,
    ("POST", "/first-steps/create"): ADMIN,
    ("GET", f"{S}/first-steps"): ANY,
    ("POST", f"{S}/first-steps/rows"): frozenset({"observe"}),
    ("POST", f"{S}/first-steps/model"): frozenset({"train"}),
    ("POST", f"{S}/first-steps/prediction"): frozenset({"predict"}),
}
each_page = pytest.mark.parametrize("page", TABLE, ids=" ".join)
each_role = pytest.mark.parametrize("role", ROLES)


def address(path: str, stream: str = STREAM) -> str:
    return path.format(stream=stream, window=1, model=MODEL)


def asked(visitor: Visitor, page: tuple[str, str], stream: str = STREAM) -> tuple[int, str]:
    method, path = page
    ask = visitor.get if method == "GET" else visitor.post
    told = ask(address(path, stream))
    return told.status_code, told.text


def told_by(text: str) -> str:
    """What a page says, less the session's word, which is another for each."""
    return re.sub(r'name="csrf" value="[^"]+"', "", text)


def test_every_page_is_in_the_table_with_its_roles(guarded: Guarded) -> None:
    found = {}
    for route in guarded.app.routes:
        page = getattr(getattr(route, "endpoint", None), "guard", None)
        if isinstance(page, Page):
            found[page.method, page.path] = page.roles or ANY
    assert found == TABLE


@each_role
@each_page
def test_a_role_sees_a_page_where_the_table_says_so(
    guarded: Guarded, page: tuple[str, str], role: str
) -> None:
    status, text = asked(inside(guarded, role), page)
    if role in TABLE[page]:
        assert status in (200, 303, 422)  # a report without an interval
    else:
        assert status == 403
        assert "data-number" not in text


@each_page
def test_nobody_sees_a_page_without_a_login(guarded: Guarded, page: tuple[str, str]) -> None:
    method, path = page
    visitor = Visitor(guarded)
    for cookie in ("", "pyramidion=nix", "pyramidion="):
        headers = visitor.headers | ({"Cookie": cookie} if cookie else {})
        told = visitor.client.request(method, address(path), headers=headers)
        assert (told.status_code, told.headers.get("location")) == (303, "/")
        assert not told.content
    live = visitor.client.request(method, address(path), headers=visitor.headers | {"X-Live": "1"})
    assert live.status_code == 401
    assert STREAM not in live.text


@each_page
def test_a_token_is_no_cookie(guarded: Guarded, page: tuple[str, str]) -> None:
    method, path = page
    token = guarded.token()
    visitor = Visitor(guarded)
    for headers in ({"Authorization": f"Bearer {token}"}, {"Cookie": f"pyramidion={token}"}):
        told = visitor.client.request(method, address(path), headers=visitor.headers | headers)
        assert told.status_code == 303


@each_page
def test_a_login_for_another_stream_cannot_tell_a_stream_from_none(
    guarded: Guarded, page: tuple[str, str]
) -> None:
    if "{stream}" not in page[1]:
        return
    visitor = inside(guarded, streams=(OTHER,))
    there, nowhere = asked(visitor, page), asked(visitor, page, "nowhere")
    assert there[0] == 404
    assert told_by(there[1]) == told_by(nowhere[1])
    assert STREAM not in there[1]


def test_a_login_sees_the_streams_that_its_token_is_for(guarded: Guarded) -> None:
    one = inside(guarded, "observe", streams=(OTHER,))
    assert one.get("/streams").headers["location"] == f"/streams/{OTHER}"
    assert STREAM not in one.get("/streams?all=1").text
    none = inside(guarded, "observe", streams=("nowhere",))
    told = none.get("/streams").text
    assert "no stream that your token is for" in told
    assert STREAM not in told
    assert OTHER not in told
    every = inside(guarded).get("/streams").text
    assert f'href="/streams/{STREAM}"' in every
    assert f'href="/streams/{OTHER}"' in every


def test_what_a_token_may_not_read_is_named_with_the_role_that_may(guarded: Guarded) -> None:
    told = inside(guarded, "observe").get(f"/streams/{STREAM}").text
    for path in ("models", "exposure", "vault", "audit-log"):
        assert f'href="/streams/{STREAM}/{path}"' not in told
    assert "for tokens with the role admin" in told
    assert "for tokens with the role predict or train" in told


def test_a_loss_is_a_read_of_raw_rows_that_the_log_tells(guarded: Guarded) -> None:
    log = guarded.pyramid().audit_log
    visitor, before = inside(guarded, "train"), log.length
    told = visitor.post(f"/streams/{STREAM}/models/{MODEL}/loss")
    assert told.status_code == 200
    assert 'data-ends="120"' in told.text
    entry = next(iter(log.entries(before)))
    assert (entry.kind, entry.facts["what"]) == ("rows.read", "loss")


def test_a_model_that_is_not_there_says_so(guarded: Guarded) -> None:
    told = inside(guarded, "train").post(f"/streams/{STREAM}/models/nix/loss")
    assert "there is no model of this name" in told.text
