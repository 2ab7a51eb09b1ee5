"""Snapshots over HTTP: signed, told apart by etags, and ending in time."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
import numpy as np
import pytest

from pyramidion.counts.signing import key_from, unsign
from pyramidion.counts.snapshot_file import snapshot_from
from pyramidion.errors import FormatError, StateError
from pyramidion.learn.exports import Revived
from pyramidion.storage.shared import SharedTables
from tests.store.stores import DAY, rows
from tests.waiting import PATIENCE
from tests.web.service.services import Inside, error_of

SNAPSHOT = "/v1/streams/s/snapshot"
CARD = "/v1/streams/s/card"


def key(inside: Inside) -> object:
    return key_from(httpx.get(f"{inside.url}/v1/key", timeout=PATIENCE).json()["ed25519"])


def test_a_snapshot_featurizes_as_the_store_does(shared: Inside) -> None:
    answer = shared.caller("predict").get(SNAPSHOT)
    found = snapshot_from(answer.content, stream="s", verifier=key(shared), clock=shared.clock)
    given = rows(20, shared.clock.now, seed=3)
    store = shared.service._streams["s"].pyramid
    assert np.array_equal(found.array(given), store.snapshot().array(given))
    assert found.guarantee == store.snapshot().guarantee


def test_a_snapshot_says_when_it_ends_and_is_not_to_be_stored(shared: Inside) -> None:
    answer = shared.caller("train").get(SNAPSHOT)
    found = snapshot_from(answer.content, stream="s", verifier=key(shared), clock=shared.clock)
    told = parsedate_to_datetime(answer.headers["expires"]).timestamp()
    assert found.expires is not None
    assert told == found.expires // 1_000_000
    assert told <= shared.clock.now + DAY
    assert answer.headers["cache-control"] == "no-store"


def test_an_etag_spares_the_snapshot_until_the_tables_change(inside: Inside) -> None:
    inside.create()
    inside.fill()
    caller = inside.caller("predict")
    first = caller.get(SNAPSHOT)
    held = {"If-None-Match": first.headers["etag"]}
    again = caller.get(SNAPSHOT, headers=held)
    assert again.status_code == 304
    assert not again.content
    other = {"If-None-Match": f'"x", {first.headers["etag"].removeprefix("W/")}'}
    assert caller.get(SNAPSHOT, headers=other).status_code == 304
    assert caller.get(SNAPSHOT, headers={"If-None-Match": '"x"'}).status_code == 200
    inside.clock.pass_(10 * DAY)
    inside.service._streams["s"].pyramid.advance()
    changed = caller.get(SNAPSHOT, headers=held)
    assert changed.status_code == 200
    assert changed.headers["etag"] != first.headers["etag"]


def test_an_old_snapshot_refuses_and_a_changed_one_is_found_out(shared: Inside) -> None:
    data = shared.caller("predict").get(SNAPSHOT).content
    with pytest.raises(StateError):
        snapshot_from(
            data, stream="s", verifier=key(shared), clock=lambda: shared.clock.now + 2 * DAY
        )
    changed = data[:200] + bytes([data[200] ^ 1]) + data[201:]
    with pytest.raises(FormatError):
        snapshot_from(changed, stream="s", verifier=key(shared), clock=shared.clock)


def test_a_card_opens_the_tables_that_a_stream_shares(shared: Inside, tmp_path: Path) -> None:
    caller, store = shared.caller("predict"), shared.service._streams["s"].pyramid
    assert error_of(caller.get(CARD)) == (409, "StateError")
    store.publisher.start(f"file:{tmp_path}")
    try:
        answer = caller.get(CARD)
        tables = SharedTables(
            answer.content,
            f"file:{tmp_path}",
            stream="s",
            key=key(shared),
            clock=shared.clock,
        )
        given = rows(20, shared.clock.now, seed=3)
        for cached in (True, False):
            found = tables.snapshot(cached=cached)
            assert np.array_equal(found.array(given), store.snapshot().array(given))
        told = parsedate_to_datetime(answer.headers["expires"]).timestamp()
        assert told == tables.expires // 1_000_000
        assert answer.headers["cache-control"] == "no-store"
    finally:
        store.publisher.stop()


def test_there_is_no_snapshot_before_a_window_is_sealed(inside: Inside) -> None:
    inside.create()
    caller = inside.caller("predict")
    assert error_of(caller.get(SNAPSHOT)) == (409, "StateError")
    assert error_of(caller.get(SNAPSHOT, headers={"If-None-Match": '"x"'})) == (409, "StateError")


# --- models for edges -----------------------------------------------------------------------


def test_a_model_leaves_signed_and_the_log_says_so(shared: Inside) -> None:
    store, caller = shared.service._streams["s"].pyramid, shared.caller()
    caller.put("/v1/streams/s/models/m", json={"estimator": "LogisticRegression"})
    answer = caller.get("/v1/streams/s/models/m/export")
    header, payload = unsign(answer.content, "model", "s", key(shared))
    revived = Revived.from_parts(header, bytes(payload), shared.clock)
    given = rows(9, shared.clock.now, seed=5)
    assert np.allclose(
        revived.predict_proba(store.snapshot(), given), store.predict_proba("m", given), atol=1e-6
    )
    assert header["expires"] // 1_000_000 == _seconds(answer)
    assert "model.exported" in {entry.kind for entry in store.audit_log.entries()}


def _seconds(answer: httpx.Response) -> float:
    return parsedate_to_datetime(answer.headers["expires"]).timestamp()


@pytest.mark.parametrize("kind", ["KNeighborsClassifier", "RadiusNeighborsClassifier", "SVC"])
def test_a_model_that_keeps_rows_is_exported_to_nobody(shared: Inside, kind: str) -> None:
    params = {"algorithm": "brute"} if "Neighbors" in kind else {}
    caller = shared.caller()
    made = caller.put(f"/v1/streams/s/models/{kind}", json={"estimator": kind, "params": params})
    assert made.status_code == 200, made.text
    answer = caller.get(f"/v1/streams/s/models/{kind}/export")
    assert error_of(answer) == (409, "PrivacyError")
    assert f"{kind} keeps the rows" in answer.json()["error"]["message"]
    row = {"a": "1", "b": "x"}
    assert caller.post(f"/v1/streams/s/models/{kind}/predictions", json=row).status_code == 200
