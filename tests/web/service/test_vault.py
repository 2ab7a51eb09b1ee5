"""The vault over HTTP: what it holds, and drafts of requests that are signed elsewhere."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from pyramidion import FormatError, Grant, PrivateKey, broker_at, open_grant
from pyramidion.vault.broker_server import BrokerServer
from pyramidion.vault.documents import Request
from tests.store.stores import CUSTODIAN, DAY, rows
from tests.web.service.services import Inside, error_of

VAULT = "/v1/streams/s/vault"


@pytest.fixture
def vaulted(inside: Inside, tmp_path: Path) -> Inside:
    """A service whose stream has a vault, and rows in it."""
    inside.create()
    store = inside.service._streams["s"].pyramid
    store.admin.attach_vault(str(tmp_path / "sealed"), CUSTODIAN.public)
    store.observe(rows(5, inside.clock.now))
    inside.clock.pass_(60)
    return inside


def asked(inside: Inside, key: PrivateKey, broker: PrivateKey) -> dict[str, Any]:
    times = {"from": inside.clock.now - DAY, "to": inside.clock.now}
    keys = {"key": key.public.to_text(), "broker": broker.public.to_code()}
    said = {"columns": ["a"], "reason": "case 1", "engineer": "Ada"}
    return times | keys | said


def test_the_status_tells_what_is_held_and_not_where(vaulted: Inside, tmp_path: Path) -> None:
    store = vaulted.service._streams["s"].pyramid
    assert store.vault is not None
    store.vault.seal()
    answer = vaulted.caller("admin").get(VAULT)
    assert answer.json()["rows"] == 5
    assert str(tmp_path) not in answer.text


def test_a_stream_without_a_vault_says_so(shared: Inside) -> None:
    assert error_of(shared.caller("admin").get(VAULT)) == (404, "MissingError")


def test_a_draft_is_signed_by_who_asks_and_opens_what_the_custodian_grants(
    vaulted: Inside,
) -> None:
    store, key, caller = (
        vaulted.service._streams["s"].pyramid,
        PrivateKey.new(),
        vaulted.caller("custodian-request"),
    )
    with broker_at(store.path) as broker:
        server = BrokerServer(broker)
        server.start()
        try:
            body = asked(vaulted, key, key) | {"broker": broker.public.to_code()}
            draft = caller.post(f"{VAULT}/requests", json=body)
            assert draft.status_code == 200, draft.text
            with pytest.raises(FormatError):
                Request.from_json(draft.text)
            request = Request.from_draft(draft.text, key)
            now = int(time.time() * 1e6)  # the broker goes by the system's clock
            grant = Grant.make(request, CUSTODIAN, now=now, expires=now + 10**9)
            with open_grant(grant.to_json(), key, server.address) as found:
                assert found.read_all().column("a").to_pylist() == rows(5)["a"].to_pylist()
        finally:
            server.stop()
    assert "vault.requested" in {entry.kind for entry in store.audit_log.entries()}


def test_a_draft_for_another_key_cannot_be_signed(vaulted: Inside) -> None:
    key = PrivateKey.new()
    draft = vaulted.caller("custodian-request").post(
        f"{VAULT}/requests", json=asked(vaulted, key, PrivateKey.new())
    )
    with pytest.raises(FormatError):
        Request.from_draft(draft.text, PrivateKey.new())


@pytest.mark.parametrize(
    "wrong",
    [
        {"columns": ["nix"]},
        {"columns": []},
        {"columns": "a"},
        {"reason": " "},
        {"reason": 5},
        {"engineer": ""},
        {"key": "x"},
        {"key": "{}"},
        {"broker": "AAAA"},
        {"from": None},
        {"to": "never"},
        {"from": [1]},
        {"nix": 1},
    ],
)
def test_a_request_that_cannot_be_drafted_is_refused(vaulted: Inside, wrong: Any) -> None:
    body = asked(vaulted, PrivateKey.new(), PrivateKey.new()) | wrong
    answer = vaulted.caller("custodian-request").post(f"{VAULT}/requests", json=body)
    assert answer.status_code == 422, answer.text
    error_of(answer)
