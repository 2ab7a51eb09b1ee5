"""What another site has a browser send is refused, whatever cookies come with it."""

from __future__ import annotations

import pytest

from tests.web.dashboard.visitors import HERE, Visitor, inside
from tests.web.service.security.guarded import MODEL, STREAM, Guarded

CHANGES = ("/logout", f"/streams/{STREAM}/audit-log", f"/streams/{STREAM}/models/{MODEL}/loss")
ELSEWHERE: list[dict[str, str]] = [
    {},
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "https://testserver"},
    {"Origin": "http://testserver:81"},
    {"Origin": "http://testserver.evil.example"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "http://testserver", "Sec-Fetch-Site": "cross-site"},
    {"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"},
    {"Origin": "http://["},
]


@pytest.mark.parametrize("path", CHANGES)
@pytest.mark.parametrize("headers", ELSEWHERE, ids=str)
def test_a_form_that_another_site_sends_is_refused(
    guarded: Guarded, path: str, headers: dict[str, str]
) -> None:
    visitor = inside(guarded)
    form = {"csrf": visitor.word()}
    assert visitor.client.post(path, data=form, headers=headers).status_code == 403
    assert visitor.get(f"/streams/{STREAM}").status_code == 200  # still logged in


@pytest.mark.parametrize("path", CHANGES)
def test_a_form_without_the_word_of_its_session_is_refused(guarded: Guarded, path: str) -> None:
    visitor, other = inside(guarded), inside(guarded)
    for form in ({"x": "y"}, {"csrf": ""}, {"csrf": "nix"}, {"csrf": other.word()}, {"csrf": "é"}):
        assert visitor.client.post(path, data=form, headers=HERE).status_code == 403


@pytest.mark.parametrize("headers", ELSEWHERE, ids=str)
def test_nobody_is_logged_in_by_another_site(guarded: Guarded, headers: dict[str, str]) -> None:
    visitor = Visitor(guarded)
    told = visitor.client.post("/login", data={"token": guarded.token()}, headers=headers)
    assert told.status_code == 403
    assert "set-cookie" not in told.headers


@pytest.mark.parametrize("path", CHANGES)
def test_nothing_is_changed_by_a_get(guarded: Guarded, path: str) -> None:
    visitor = inside(guarded)
    before = guarded.pyramid().audit_log.length
    told = visitor.get(path)
    assert told.status_code in (200, 405)
    assert guarded.pyramid().audit_log.length == before
    assert visitor.get(f"/streams/{STREAM}").status_code == 200


def test_a_form_is_a_form_and_not_too_long(guarded: Guarded) -> None:
    visitor = inside(guarded)
    word = visitor.word()
    for kind in ("application/json", "text/plain", "multipart/form-data; boundary=x"):
        headers = HERE | {"Content-Type": kind}
        told = visitor.client.post("/logout", content=f"csrf={word}", headers=headers)
        assert told.status_code == 415
    many = {f"f{n}": "x" for n in range(200)} | {"csrf": word}
    assert visitor.client.post("/logout", data=many, headers=HERE).status_code == 422


def test_the_right_form_is_taken_from_browsers_old_and_new(guarded: Guarded) -> None:
    path = f"/streams/{STREAM}/audit-log"
    for headers in (HERE, {"Origin": "http://testserver"}, {"Sec-Fetch-Site": "same-origin"}):
        visitor = inside(guarded)
        form = {"csrf": visitor.word()}
        told = visitor.client.post(path, data=form, headers=headers)
        assert told.status_code == 200
        assert "Sound." in told.text


def test_a_login_is_short_and_longer_ones_are_not_read(guarded: Guarded) -> None:
    visitor = Visitor(guarded)
    assert visitor.log_in("%" * 5_000).status_code == 413
    assert visitor.log_in("x" * 2_000).status_code == 401
