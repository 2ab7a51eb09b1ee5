"""Tokens: hashed at rest, compared in constant time, refused loudly when their file is damaged."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyramidion.errors import PyramidionError, UnknownCallerError
from pyramidion.web.service.tokens import Tokens
from pyramidion.web.tokens import ROLES, TokensError
from tests.web.service.security.guarded import Guarded, captured, code_of, lines_of


def added(tokens: Tokens, *roles: str) -> str:
    return tokens.add("somebody", roles or ROLES, (), 0)


def test_the_file_holds_no_secret_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    token = added(Tokens.of(tmp_path))
    file = tmp_path / ".service" / "tokens.json"
    secret = token.split("_", 2)[2]
    assert secret not in file.read_text()
    assert hashlib.sha256(secret.encode()).hexdigest() in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_secrets_are_compared_in_constant_time_whoever_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = Tokens.of(tmp_path)
    token = added(tokens)
    compared: list[int] = []
    whole = hmac.compare_digest

    def compare(a: str, b: str) -> bool:
        compared.append(len(a))
        return whole(a, b)

    monkeypatch.setattr("pyramidion.web.tokens.hmac.compare_digest", compare)
    tokens.caller(f"Bearer {token}")
    for wrong in (None, "", "Bearer x", f"Bearer pyr_{'0' * 16}_{'A' * 43}"):
        with pytest.raises(UnknownCallerError):
            tokens.caller(wrong)
    assert compared == [64] * 5


def test_a_running_service_sees_tokens_come_and_go(fresh: Callable[..., Guarded]) -> None:
    guarded = fresh()
    token = guarded.token("admin")
    assert guarded.ask("GET", "/v1/streams", token=token).status_code == 200
    guarded.outside.remove(token.split("_")[1])
    assert guarded.ask("GET", "/v1/streams", token=token).status_code == 401


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"[]",
        b"{",
        b'{"format": 2, "tokens": []}',
        b'{"format": 1, "tokens": [{}]}',
        b'{"format": 1, "tokens": 7}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_lets_nobody_in_and_says_so(
    fresh: Callable[..., Guarded], damage: bytes
) -> None:
    guarded = fresh()
    token = guarded.token("admin")
    file = guarded.data / ".service" / "tokens.json"
    file.write_bytes(damage)
    with captured() as log:
        answer = guarded.ask("GET", "/v1/streams", token=token)
    assert (answer.status_code, code_of(answer)) == (503, "TokensError")
    told = [line for line in lines_of(log) if line["event"] == "nobody is let in"]
    assert "damaged" in told[0]["trouble"]


def edited(tokens: Path, **changes: object) -> None:
    told = json.loads(tokens.read_text())
    told["tokens"][0] |= changes
    tokens.write_text(json.dumps(told))


@pytest.mark.parametrize(
    "change",
    [
        {"digest": "é" * 64},
        {"digest": None},
        {"digest": ""},
        {"id": "../x"},
        {"roles": ["root"]},
        {"roles": []},
        {"streams": [7]},
        {"made": "now"},
        {"name": None},
    ],
)
def test_an_entry_that_no_version_wrote_lets_nobody_in(
    tmp_path: Path, change: dict[str, object]
) -> None:
    token = added(Tokens.of(tmp_path))
    edited(tmp_path / ".service" / "tokens.json", **change)
    with pytest.raises(TokensError):
        Tokens.of(tmp_path).caller(f"Bearer {token}")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_file_that_others_may_use_lets_nobody_in(tmp_path: Path, mode: int) -> None:
    tokens = Tokens.of(tmp_path)
    token = added(tokens)
    os.chmod(tmp_path / ".service" / "tokens.json", mode)
    with pytest.raises(TokensError):
        tokens.caller(f"Bearer {token}")
    os.chmod(tmp_path / ".service" / "tokens.json", 0o600)
    assert tokens.caller(f"Bearer {token}").name == "somebody"


@given(st.one_of(st.none(), st.text(max_size=200)))
def test_whatever_stands_in_the_header_is_known_or_refused(
    guarded: Guarded, header: str | None
) -> None:
    with pytest.raises(UnknownCallerError):
        guarded.service.tokens.caller(header)


def test_two_who_add_tokens_at_once_lose_none(tmp_path: Path) -> None:
    def add() -> None:
        tokens = Tokens.of(tmp_path)
        for _ in range(10):
            added(tokens, "observe")

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Tokens.of(tmp_path)) == 40


def test_who_comes_and_goes_is_logged_by_id_without_name_or_secret(
    fresh: Callable[..., Guarded],
) -> None:
    guarded = fresh()
    admin = guarded.token("admin", name="Mallory")
    guarded.ask("GET", "/v1/streams", token=admin)
    with captured() as log:
        body = {"name": "Grace", "roles": ["train"], "streams": ["flights"]}
        made = guarded.ask("POST", "/v1/tokens", token=admin, json=body).json()["token"]
        mark = made.split("_")[1]
        guarded.ask("DELETE", f"/v1/tokens/{mark}", token=admin)
    told = lines_of(log)
    events = [
        (line["event"], line["token"])
        for line in told
        if "roles" in line or "removed" in line["event"]
    ]
    assert events == [("token added", mark), ("token removed", mark)]
    asked = [(line["route"], line["token"]) for line in told if line["event"] == "request"]
    own = admin.split("_")[1]
    assert asked == [("/v1/tokens", own), ("/v1/tokens/{id}", own)]
    for secret in ("Grace", "Mallory", made.split("_", 2)[2], admin.split("_", 2)[2]):
        assert secret not in log.getvalue()


def test_tokens_are_listed_without_their_digests(guarded: Guarded) -> None:
    token = guarded.token("observe")
    told = guarded.ask("GET", "/v1/tokens", "admin")
    digest = hashlib.sha256(token.split("_", 2)[2].encode()).hexdigest()
    assert digest not in told.text
    assert all(set(t) == {"id", "name", "roles", "streams", "made"} for t in told.json()["tokens"])


def test_the_program_makes_a_token_for_each_role(tmp_path: Path) -> None:
    for role in ROLES:
        words = ["tokens", "add", "x", "--role", role, "--data", str(tmp_path)]
        made = subprocess.run(
            [sys.executable, "-m", "pyramidion", *words], capture_output=True, text=True, check=True
        )
        assert Tokens.of(tmp_path).caller(f"Bearer {made.stdout.strip()}").roles == (role,)


@pytest.mark.parametrize("name", ["", "a/b", "x" * 65, "a\nb", " a"])
def test_a_name_that_does_not_fit_a_log_line_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(PyramidionError):
        Tokens.of(tmp_path).add(name, ["observe"], (), 0)
