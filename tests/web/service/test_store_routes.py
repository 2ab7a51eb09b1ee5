"""What a stream holds and cost, what an admin does with it, and that streams are apart."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest

from pyramidion.config.settings import Settings
from pyramidion.config.toml import written
from pyramidion.counts.signing import key_from
from pyramidion.counts.snapshot_file import LIFE
from pyramidion.web.service.service import Service
from tests.store import inspect
from tests.store.stores import DAY, SCHEMA, TINY, Clock, rows
from tests.waiting import PATIENCE, wait_for
from tests.web.service.services import Inside, error_of, told_rows

STREAM = "/v1/streams/s"


def test_the_status_says_what_is_held_and_not_where(shared: Inside) -> None:
    answer = shared.caller("observe").get(STREAM)
    told = answer.json()
    assert told["stream"] == "s"
    assert told["hot_rows"] == 200
    assert "path" not in told
    assert str(shared.data) not in answer.text


def test_windows_tables_groups_and_ledger_are_told(shared: Inside) -> None:
    caller, store = shared.caller("predict"), shared.service._streams["s"].pyramid
    windows = caller.get(f"{STREAM}/windows").json()["windows"]
    assert [each["state"] for each in windows] == ["sealed", "populating"]
    tables = caller.get(f"{STREAM}/tables").json()["tables"]
    assert {each["name"] for each in tables} >= {"a", "b", "a,b"}
    groups = caller.get(f"{STREAM}/groups").json()
    assert groups["groups"] == [["a", "b"]]
    assert [(each["name"], each["state"]) for each in groups["trials"]] == [("a,b", "by hand")]
    assert caller.get(f"{STREAM}/ledger").json() == json.loads(
        json.dumps(store.ledger.report().to_dict())
    )


def test_a_group_is_added_and_withdrawn(inside: Inside) -> None:
    inside.create(schema=SCHEMA)
    inside.fill()
    caller = inside.caller("admin")
    gone = caller.delete(f"{STREAM}/tables/a,b", params={"why": "a test"})
    assert "a,b" not in gone.json()["tables"]
    assert caller.get(f"{STREAM}/groups").json() == {"groups": [], "trials": []}
    back = caller.post(f"{STREAM}/groups", json={"features": ["a", "b"]})
    assert back.json()["groups"] == [["a", "b"]]


def test_an_admin_has_groups_chosen_and_windows_pay(inside: Inside) -> None:
    inside.create(schema=SCHEMA.less("a,b"), selection_share=0.2, selection_groups=1)
    inside.fill()
    admin, reader = inside.caller("admin"), inside.caller("predict")
    assert reader.post(f"{STREAM}/groups/select", json={}).status_code == 403
    for wrong in ({"share": 0}, {"share": "1"}, {"share": True}, {"more": 1}):
        assert admin.post(f"{STREAM}/groups/select", json=wrong).status_code == 422
    done = admin.post(f"{STREAM}/groups/select", json={"share": 0.5}).json()
    assert (done["groups"], done["unit"]) == (["a,b"], "rho")
    assert done["charged"] > 0
    (trial,) = reader.get(f"{STREAM}/groups").json()["trials"]
    assert (trial["name"], trial["state"], trial["gain"]) == ("a,b", "trial", None)
    admin.post(f"{STREAM}/groups/select", json={"share": 0.5})
    refused = admin.post(f"{STREAM}/groups/select", json={"share": 0.5})
    assert refused.status_code == 409
    assert "left for selection" in refused.json()["error"]["message"]


def test_a_withdrawal_needs_a_reason_and_a_table(shared: Inside) -> None:
    caller = shared.caller("admin")
    assert caller.delete(f"{STREAM}/tables/a").status_code == 422
    assert caller.delete(f"{STREAM}/tables/nix", params={"why": "x"}).status_code == 422


def test_advance_seals_what_is_due(inside: Inside) -> None:
    inside.create()
    caller = inside.caller("admin", "observe")
    caller.post(f"{STREAM}/observations", json=told_rows(3, inside.clock.now))
    inside.clock.pass_(11 * DAY)
    caller.post(f"{STREAM}/advance")
    states = [w["state"] for w in caller.get(f"{STREAM}/windows").json()["windows"]]
    assert states[0] == "sealed"


def test_what_is_due_is_done_when_nobody_calls(inside: Inside) -> None:
    inside.create()
    caller = inside.caller("observe")
    caller.post(f"{STREAM}/observations", json=told_rows(3, inside.clock.now))
    inside.clock.pass_(11 * DAY)
    store = inside.service._streams["s"].pyramid
    wait_for(lambda: inspect.served(store) is not None)


def test_a_reseed_needs_a_reason_and_freezes_what_was_there(inside: Inside) -> None:
    inside.create()
    inside.fill()
    caller = inside.caller("admin")
    assert error_of(caller.post(f"{STREAM}/reseed", json={})) == (422, "FormatError")
    done = caller.post(f"{STREAM}/reseed", json={"why": "a test"})
    assert done.status_code == 200
    kinds = {json.loads(line)["kind"] for line in caller.get(f"{STREAM}/audit-log").iter_lines()}
    assert "store.reseeded" in kinds


def test_an_exposure_is_between_two_moments(shared: Inside) -> None:
    caller, now = shared.caller("admin"), shared.clock.now
    told = caller.get(f"{STREAM}/exposure", params={"from": now - DAY, "to": now})
    assert told.status_code == 200, told.text
    store = shared.service._streams["s"].pyramid
    assert told.json() == json.loads(json.dumps(store.exposure(now - DAY, now).to_dict()))
    assert caller.get(f"{STREAM}/exposure").status_code == 422
    assert caller.get(f"{STREAM}/exposure?from=x&to=y").status_code == 422
    wrong = {"from": now - DAY, "to": now, "component": "nix"}
    assert caller.get(f"{STREAM}/exposure", params=wrong).status_code == 422


def test_the_audit_log_is_told_whole(shared: Inside) -> None:
    store = shared.service._streams["s"].pyramid
    lines = shared.caller("admin").get(f"{STREAM}/audit-log").text.splitlines(keepends=True)
    assert lines == list(store.audit_log.export())
    assert lines


# --- streams ------------------------------------------------------------------------------


def test_a_stream_is_made_once(inside: Inside) -> None:
    inside.create()
    body = {"schema": SCHEMA.to_toml(), "settings": TINY}
    again = inside.caller("admin").put(STREAM, json=body)
    assert error_of(again) == (409, "StateError")


@pytest.mark.parametrize("name", [".service", "-x", "x" * 65, "a b", "%2e%2e", "é"])
def test_a_stream_cannot_have_any_name(shared: Inside, name: str) -> None:
    body = {"schema": SCHEMA.to_toml(), "settings": TINY}
    answer = shared.caller("admin").put(f"/v1/streams/{name}", json=body)
    assert answer.status_code in (404, 405, 422)
    error_of(answer)
    assert {path.name for path in shared.data.iterdir()} <= {".service", "s"}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"schema": 1, "settings": {}},
        {"schema": "x", "settings": {}},
        {"schema": __file__, "settings": TINY},
        {"schema": SCHEMA.to_toml(), "settings": {}},
        {"schema": SCHEMA.to_toml(), "settings": TINY | {"nix": 1}},
        {"schema": SCHEMA.to_toml(), "settings": TINY | {"epsilon": "x"}},
        {"schema": SCHEMA.to_toml(), "settings": TINY | {"epsilon": -1}},
    ],
)
def test_a_stream_that_cannot_be_made_leaves_nothing(
    shared: Inside, body: dict[str, object]
) -> None:
    answer = shared.caller("admin").put("/v1/streams/new", json=body)
    assert answer.status_code == 422
    error_of(answer)
    assert not (shared.data / "new").exists()


def test_a_schema_file_makes_a_stream(inside: Inside) -> None:
    file = f"{SCHEMA.to_toml()}\n{written({'settings': TINY})}"
    kind = {"Content-Type": "application/toml"}
    made = inside.caller("admin").put(STREAM, content=file, headers=kind)
    assert made.status_code == 201, made.text
    assert inside.service._streams["s"].pyramid.schema == SCHEMA
    bare = inside.caller("admin").put("/v1/streams/t", content=SCHEMA.to_toml(), headers=kind)
    assert error_of(bare) == (422, "FormatError")


def test_the_path_of_a_schema_file_is_not_read(inside: Inside) -> None:
    file = inside.data / "schema.toml"
    file.write_text(f"{SCHEMA.to_toml()}\n{written({'settings': TINY})}")
    caller = inside.caller("admin")
    asked = caller.put(STREAM, json={"schema": str(file), "settings": TINY})
    assert error_of(asked) == (422, "FormatError")
    kind = {"Content-Type": "application/toml"}
    asked = caller.put(STREAM, content=str(file), headers=kind)
    assert error_of(asked) == (422, "FormatError")


def test_two_streams_do_not_see_each_other(inside: Inside) -> None:
    inside.create("one")
    inside.create("two")
    mine = inside.caller(streams=["one"])
    assert mine.get("/v1/streams").json() == {"streams": ["one"]}
    assert mine.get("/v1/streams/one").status_code == 200
    hidden, missing = mine.get("/v1/streams/two"), mine.get("/v1/streams/nix")
    assert error_of(hidden) == error_of(missing) == (404, "MissingError")
    assert hidden.text == missing.text
    mine.post("/v1/streams/one/observations", json=told_rows(5, inside.clock.now))
    both = inside.caller("observe")
    key = {"Idempotency-Key": "k"}
    for name in ("one", "two"):
        taken = both.post(
            f"/v1/streams/{name}/observations",
            json=told_rows(2, inside.clock.now),
            headers=key,
        )
        assert taken.json()["accepted"] == 2
    assert both.get("/v1/streams/one").json()["hot_rows"] == 7
    assert both.get("/v1/streams/two").json()["hot_rows"] == 2
    keys = inside.data.parent / "keys"
    assert {path.name for path in keys.iterdir()} >= {"one.key", "two.key"}
    assert (keys / "one.key").read_bytes() != (keys / "two.key").read_bytes()


def test_an_admin_of_some_streams_makes_no_others_and_no_tokens(inside: Inside) -> None:
    caller = inside.caller("admin", streams=["mine"])
    body = {"schema": SCHEMA.to_toml(), "settings": TINY}
    assert error_of(caller.put("/v1/streams/other", json=body)) == (403, "ForbiddenError")
    assert caller.put("/v1/streams/mine", json=body).status_code == 201
    assert error_of(caller.get("/v1/tokens")) == (403, "ForbiddenError")


# --- the service ----------------------------------------------------------------------------


def test_tokens_are_made_listed_and_taken_back(inside: Inside) -> None:
    admin = inside.caller("admin")
    made = admin.post("/v1/tokens", json={"name": "eve", "roles": ["observe"], "streams": ["s"]})
    assert made.status_code == 201
    eve = inside.known(made.json()["token"])
    assert eve.get("/v1/streams").status_code == 200
    listed = admin.get("/v1/tokens")
    (mine,) = [token for token in listed.json()["tokens"] if token["name"] == "eve"]
    assert "digest" not in listed.text
    assert made.json()["token"].rpartition("_")[2] not in listed.text
    assert admin.delete(f"/v1/tokens/{mine['id']}").json()["removed"] == mine
    assert error_of(eve.get("/v1/streams")) == (401, "UnknownCallerError")
    assert error_of(admin.delete(f"/v1/tokens/{mine['id']}")) == (404, "MissingError")


def test_health_and_the_public_key_are_told_to_anybody(inside: Inside) -> None:
    told = httpx.get(f"{inside.url}/healthz", timeout=PATIENCE)
    assert told.json() == {"alive": True}
    assert httpx.get(f"{inside.url}/readyz", timeout=PATIENCE).json()["ready"]
    key = key_from(httpx.get(f"{inside.url}/v1/key", timeout=PATIENCE).json()["ed25519"])
    assert key.public_bytes_raw() == inside.service.signer.public_key().public_bytes_raw()


def test_what_no_route_takes_is_refused_in_the_same_shape(shared: Inside) -> None:
    caller = shared.caller()
    assert error_of(caller.get("/nix")) == (404, "MissingError")
    assert error_of(caller.patch(STREAM)) == (405, "RequestError")
    assert error_of(caller.get(f"{STREAM}/")) == (404, "MissingError")


def test_a_stream_may_live_by_a_clock_of_its_own(tmp_path: Path) -> None:
    real, simulated = Clock(), Clock()
    simulated.pass_(1_000 * DAY)
    keys = f"file:{tmp_path}/keys/{{stream}}.key"
    settings = Settings(**TINY)
    with Service(tmp_path / "data", keys=keys, clock=real, clocks={"s": simulated}) as service:
        ours, other = (service.create(name, SCHEMA, settings) for name in ("s", "t"))
        assert service.now == other.now == other.pyramid.status().at
        assert ours.now == ours.pyramid.status().at == other.now + 1_000 * DAY * 1_000_000
        ours.pyramid.observe(rows(50, simulated.now))
        simulated.pass_(10 * DAY)
        ours.pyramid.advance()
        _, _, ends = ours.packed(service.signer)
        assert ours.now < ends <= ours.now + LIFE
    with Service(tmp_path / "data", keys=keys, clock=real, clocks={"s": simulated}) as service:
        simulated.pass_(3_600)
        ours, other = service.every
        ours.pyramid.observe(rows(50, simulated.now))
        simulated.pass_(3_600)
        left = ((ours.pyramid.snapshot().expires or 0) - ours.now) / 1_000_000
        told = service.metrics.exposition().decode()
        (line,) = re.findall(r'^pyramidion_snapshot_expires_seconds.*"s". (.*)$', told, re.M)
        assert float(line) == left > 0
        assert (ours.now, other.now) == (ours.pyramid.status().at, other.pyramid.status().at)
        assert ours.now > other.now
