"""Logging in and out: what a cookie is, and when a session ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyramidion.errors import UnknownCallerError
from pyramidion.web.dashboard.sessions import IDLE, MOST, WHOLE, Sessions
from pyramidion.web.service.tokens import Tokens
from tests.web.dashboard.visitors import Visitor, inside
from tests.web.service.security.guarded import STREAM, Guarded, captured, lines_of


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens.of(tmp_path)


def test_a_session_ends_when_nobody_looked_for_a_while(tokens: Tokens) -> None:
    time = Time()
    sessions = Sessions(tokens, time)
    value, _ = sessions.begin(tokens.add("ada", ["admin"], [], 0))
    time.now = IDLE - 1
    sessions.find(value)
    time.now += IDLE - 1
    sessions.find(value)
    time.now += IDLE
    with pytest.raises(UnknownCallerError):
        sessions.find(value)
    assert len(sessions) == 0


def test_live_updates_do_not_keep_a_session_open(tokens: Tokens) -> None:
    time = Time()
    sessions = Sessions(tokens, time)
    value, _ = sessions.begin(tokens.add("ada", ["admin"], [], 0))
    time.now = IDLE - 1
    sessions.find(value, live=True)
    time.now = IDLE
    with pytest.raises(UnknownCallerError):
        sessions.find(value, live=True)


def test_a_session_ends_however_often_somebody_looks(tokens: Tokens) -> None:
    time = Time()
    sessions = Sessions(tokens, time)
    value, _ = sessions.begin(tokens.add("ada", ["admin"], [], 0))
    while time.now < WHOLE - IDLE / 2:
        time.now += IDLE / 2
        sessions.find(value)
    time.now += IDLE / 2
    with pytest.raises(UnknownCallerError):
        sessions.find(value)


def test_a_session_ends_when_its_token_is_taken_back(tokens: Tokens) -> None:
    sessions = Sessions(tokens)
    token = tokens.add("ada", ["admin"], [], 0)
    value, known = sessions.begin(token)
    assert sessions.find(value)[1] == known
    tokens.remove(known.id)
    with pytest.raises(UnknownCallerError, match="taken back"):
        sessions.find(value)
    assert len(sessions) == 0


def test_one_token_has_so_many_sessions_and_the_one_that_rested_longest_goes(
    tokens: Tokens,
) -> None:
    time = Time()
    sessions = Sessions(tokens, time)
    token = tokens.add("ada", ["admin"], [], 0)
    other, _ = sessions.begin(tokens.add("bob", ["admin"], [], 0))
    values = []
    for _ in range(MOST + 1):
        time.now += 1
        values.append(sessions.begin(token)[0])
    assert len(sessions) == MOST + 1
    with pytest.raises(UnknownCallerError):
        sessions.find(values[0])
    for value in (*values[1:], other):
        sessions.find(value)


def test_neither_cookies_nor_secrets_are_kept(tokens: Tokens) -> None:
    sessions = Sessions(tokens)
    token = tokens.add("ada", ["admin"], [], 0)
    value, _ = sessions.begin(token)
    kept = repr(vars(sessions)["_all"])
    assert value not in kept
    assert token[len("pyr_") + 17 :] not in kept


def test_a_cookie_is_for_this_host_alone_and_out_of_the_reach_of_scripts(guarded: Guarded) -> None:
    told = Visitor(guarded).log_in(guarded.token()).headers["set-cookie"]
    name, *about = [part.strip() for part in told.split(";")]
    assert name.startswith("pyramidion=")
    assert {part.lower() for part in about} == {"httponly", "path=/", "samesite=strict"}


def test_under_tls_a_cookie_is_kept_to_tls_and_its_host(guarded: Guarded) -> None:
    visitor = Visitor(guarded, "https://testserver")
    told = visitor.log_in(guarded.token()).headers["set-cookie"]
    name, *about = [part.strip() for part in told.split(";")]
    assert name.startswith("__Host-pyramidion=")
    assert {"httponly", "path=/", "samesite=strict", "secure"} == {p.lower() for p in about}
    assert visitor.get(f"/streams/{STREAM}").status_code == 200


def test_every_login_gets_another_cookie_and_ends_the_one_before(guarded: Guarded) -> None:
    visitor, token = Visitor(guarded), guarded.token()
    visitor.log_in(token)
    first = visitor.client.cookies["pyramidion"]
    visitor.log_in(token)
    assert visitor.client.cookies["pyramidion"] != first
    cookie = {"Cookie": f"pyramidion={first}"}
    assert Visitor(guarded).get("/streams", headers=cookie).status_code == 303


def test_a_wrong_token_gets_the_login_again_and_no_cookie(guarded: Guarded) -> None:
    for wrong in ("", "nix", guarded.token()[:-1] + "!", "Bearer " + guarded.token()):
        told = Visitor(guarded).log_in(wrong)
        assert told.status_code == 401
        assert "set-cookie" not in told.headers
        assert 'action="/login"' in told.text
        assert not wrong or wrong not in told.text


def test_wrong_tokens_are_counted_with_those_of_the_api(guarded: Guarded) -> None:
    limits = guarded.service.limits
    found = {Visitor(guarded).log_in("nix").status_code for _ in range(limits.stranger_burst + 5)}
    assert found == {401, 429}
    assert Visitor(guarded).log_in(guarded.token()).status_code == 303


def test_who_logs_out_is_out_here_and_in_the_browser(guarded: Guarded) -> None:
    visitor = inside(guarded)
    cookie = visitor.client.cookies["pyramidion"]
    gone = visitor.post("/logout")
    assert (gone.status_code, gone.headers["location"]) == (303, "/")
    assert "pyramidion" not in visitor.client.cookies
    again = Visitor(guarded).get("/streams", headers={"Cookie": f"pyramidion={cookie}"})
    assert (again.status_code, again.headers["location"]) == (303, "/")


def test_a_token_that_is_taken_back_ends_what_is_on_the_screen(guarded: Guarded) -> None:
    visitor, token = Visitor(guarded), guarded.token()
    visitor.log_in(token)
    path = f"/streams/{STREAM}"
    assert visitor.get(path, headers={"X-Live": "1"}).status_code == 200
    guarded.outside.remove(token.split("_")[1])
    told = visitor.get(path, headers={"X-Live": "1"})
    assert told.status_code == 401
    assert "data-number" not in told.text
    assert visitor.get(path).headers["location"] == "/"


def test_the_log_tells_the_token_of_a_visit_and_nothing_of_the_cookie(guarded: Guarded) -> None:
    token = guarded.token()
    with captured() as log:
        visitor = Visitor(guarded)
        visitor.log_in(token)
        visitor.get(f"/streams/{STREAM}")
        cookie = visitor.client.cookies["pyramidion"]
    lines = [line for line in lines_of(log) if line["event"] == "request"]
    assert [line["route"] for line in lines] == ["/login", "/streams/{stream}"]
    assert {line["token"] for line in lines} == {token.split("_")[1]}
    assert cookie not in log.getvalue()
    assert token not in log.getvalue()
