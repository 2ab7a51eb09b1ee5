"""An edge: predictions from copies, as long as these live, for who may ask."""

from __future__ import annotations

import json
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pyramidion import Client, Pyramid
from pyramidion.counts.deadline import HighWater
from pyramidion.counts.signing import sign
from pyramidion.errors import FormatError, StateError, StorageError
from pyramidion.web.edge.bodies import LIMITS
from pyramidion.web.edge.copies import HeldModel
from pyramidion.web.tokens import TokenFile, read_tokens
from tests.store.stores import DAY, SECOND, Stand, rows
from tests.waiting import PATIENCE, wait_for
from tests.web.client.service import TOKEN, Service
from tests.web.edge.conftest import ASKER, Edge, line
from tests.web.edge.toys import Toy, export

ARROW = "application/vnd.apache.arrow.stream"
LATE = "models/late/predictions"


def asked(size: int = 3) -> list[dict[str, object]]:
    found: list[dict[str, object]] = rows(size).drop_columns(["t", "y"]).to_pylist()
    return found


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def refused(answer: httpx.Response, status: int, code: str) -> str:
    assert answer.status_code == status, answer.text
    told = answer.json()
    assert set(told) == {"error"}
    assert told["error"]["code"] == code
    message: str = told["error"]["message"]
    return message


# --- predictions ---------------------------------------------------------------------------------


def test_one_row_and_many_are_predicted(edge: Edge) -> None:
    one = edge.post(LATE, asked(1)[0]).json()
    assert one == {
        "model": "late", "version": 1, "classes": [0, 1], "probabilities": [[0.75, 0.25]],
    }  # fmt: skip
    assert edge.post(LATE, asked(3)).json()["probabilities"] == [[0.75, 0.25]] * 3
    assert edge.post(LATE, []).json()["probabilities"] == []


def test_numbers_are_predicted(edge: Edge) -> None:
    told = edge.post("models/delay/predictions", asked(2)).json()
    assert told == {"model": "delay", "version": 1, "predictions": [7.5, 7.5]}


def test_arrow_rows_are_predicted(edge: Edge) -> None:
    answer = edge.http.post(
        f"/v1/streams/flights/{LATE}",
        content=stream(pa.Table.from_pylist(asked(4))),
        headers={"Content-Type": ARROW},
    )
    assert len(answer.json()["probabilities"]) == 4


def test_ready_made_features_are_predicted(edge: Edge) -> None:
    one = edge.post(LATE, {"features": [0.75, 0.5, 0.5, 0.0]}).json()
    assert one["probabilities"] == [[0.25, 0.75]]
    refused(edge.post(LATE, {"features": [0.75, 0.5]}), 422, "SchemaError")
    told = refused(edge.post("models/delay/predictions", {"features": [1]}), 422, "SchemaError")
    assert "send rows" in told
    refused(edge.post(LATE, {"features": ["SECRET"]}), 422, "ObservationError")


def test_features_are_those_of_the_store(edge: Edge, store: Pyramid) -> None:
    told = edge.post("features", asked(5)).json()
    np.testing.assert_allclose(told["rows"], store.snapshot().array(asked(5)))
    assert told["names"] == store.snapshot().names
    assert told["guarantee"] == store.snapshot().guarantee.to_dict()
    answer = edge.post("features", asked(5), headers={"Accept": ARROW})
    assert pa.ipc.open_stream(answer.content).read_all().equals(store.featurize(asked(5)))


def test_a_model_tells_when_it_ends(edge: Edge, service: Service) -> None:
    told = edge.http.get("/v1/streams/flights/models/late").json()
    assert told["expires"] == service.exports["late"][0]["expires"]


# --- copies --------------------------------------------------------------------------------------


def test_newer_models_are_taken(edge: Edge, service: Service, stand: Stand) -> None:
    service.exports["late"] = export(0.5, int(stand.clock.now * SECOND), version=2)
    wait_for(lambda: edge.post(LATE, asked(1)).json()["version"] == 2)
    assert edge.post(LATE, asked(1)).json()["probabilities"] == [[0.5, 0.5]]


def test_models_that_are_the_same_are_not_fetched_again(edge: Edge, service: Service) -> None:
    before = service.counted("GET", "/models/late")
    wait_for(lambda: service.counted("GET", "/models/late") > before + 3)
    assert service.counted("GET", "/models/late/export") == 1


def test_models_that_are_the_same_are_fetched_again_before_they_expire(
    edge: Edge, service: Service, stand: Stand
) -> None:
    service.exports["late"] = export(0.25, int((stand.clock.now + 0.6 * 3600) * SECOND))
    stand.clock.pass_(0.6 * 3600)
    wait_for(lambda: service.counted("GET", "/models/late/export") == 2)
    before = service.counted("GET", "/models/late")
    wait_for(lambda: service.counted("GET", "/models/late") > before)  # so that the copy is there
    stand.clock.pass_(0.6 * 3600)
    assert edge.post(LATE, asked(1)).status_code == 200


def test_a_model_that_the_service_has_no_more_is_dropped(edge: Edge, service: Service) -> None:
    del service.exports["late"]
    wait_for(lambda: edge.post(LATE, asked(1)).status_code == 503)
    assert "no model of this name" in refused(edge.post(LATE, asked(1)), 503, "ExpiredError")
    assert edge.post("models/delay/predictions", asked(1)).status_code == 200


class _Held:
    """A model at hand that has learned from rows which may be erased."""

    classes, version, expires, expired = (0, 1), 1, 1 << 62, False


class _Training:
    """A service whose model is being trained again."""

    def model(self, stream: str, name: str) -> dict[str, Any]:
        return {"name": name, "version": 1, "available": False}

    def export(self, stream: str, name: str) -> bytes:
        raise StateError("it is being trained again")


def test_a_copy_goes_while_the_service_trains_the_model_again() -> None:
    held = HeldModel(_Training(), "flights", "late", lambda *_: pytest.fail("revived"))  # type: ignore[arg-type]
    held._held = _Held()  # type: ignore[assignment]
    assert not held.lacking
    held.renew(HighWater(wall=lambda: 0))
    assert held.lacking


def test_a_model_that_the_service_trains_again_is_dropped(edge: Edge, service: Service) -> None:
    service.training.add("late")
    wait_for(lambda: edge.post(LATE, asked(1)).status_code == 503)
    service.training.clear()
    wait_for(lambda: edge.post(LATE, asked(1)).status_code == 200)


def test_predictions_go_on_without_the_service_and_end_with_the_model(
    edge: Edge, service: Service, stand: Stand
) -> None:
    service.close()
    for _ in range(20):
        assert edge.post(LATE, asked(1)).status_code == 200
    stand.clock.pass_(3599)
    assert edge.post(LATE, asked(1)).status_code == 200
    stand.clock.pass_(1)
    message = refused(edge.post(LATE, asked(1)), 503, "ExpiredError")
    assert message.count(".") == 0
    assert edge.http.get("/readyz").status_code == 503
    lacking = edge.http.get("/readyz").json()["lacking"]
    assert lacking == ["flights/delay", "flights/late", "flights/lost"]
    stand.clock.pass_(-7200)
    refused(edge.post(LATE, asked(1)), 503, "ExpiredError")
    assert edge.post("features", asked(1)).status_code == 200


def test_predictions_end_with_the_snapshot(edge: Edge, service: Service, stand: Stand) -> None:
    service.exports["late"] = export(
        0.5, int(stand.clock.now * SECOND), version=2, life=int(9 * DAY) * SECOND
    )
    wait_for(lambda: edge.post(LATE, asked(1)).json()["version"] == 2)
    service.close()
    stand.clock.pass_(DAY)
    answer = edge.post(LATE, asked(1))
    assert "the tables of stream 'flights' are not at hand" in refused(answer, 503, "ExpiredError")
    assert answer.headers["Retry-After"] == "1"
    refused(edge.post("features", asked(1)), 503, "ExpiredError")


def test_a_service_that_comes_back_is_found(
    edge: Edge, service: Service, store: Pyramid, stand: Stand
) -> None:
    service.close()
    stand.clock.pass_(DAY)
    wait_for(lambda: edge.post(LATE, asked(1)).status_code == 503)
    again = Service(store, stand.clock, service.port)
    again.exports["late"] = export(0.125, int(stand.clock.now * SECOND), version=3)
    wait_for(lambda: edge.post(LATE, asked(1)).status_code == 200)
    assert edge.post(LATE, asked(1)).json()["version"] == 3
    again.close()


def test_a_model_that_another_key_signed_is_not_taken(
    edge: Edge, service: Service, stand: Stand
) -> None:
    service.signer = Ed25519PrivateKey.generate()
    service.exports["late"] = export(0.5, int(stand.clock.now * SECOND), version=2)
    wait_for(lambda: service.counted("GET", "/models/late/export") > 2)
    assert edge.post(LATE, asked(1)).json()["version"] == 1


def test_health_is_told_to_everybody(edge: Edge) -> None:
    for path in ("/healthz", "/readyz"):
        assert httpx.get(f"{edge.http.base_url}{path}", timeout=PATIENCE).status_code == 200


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "token", ["", "Bearer", f"Bearer {ASKER}x", f"Bearer {ASKER[:-1]}", "Bearer pyr__", f"{ASKER}"]
)
@pytest.mark.parametrize("path", ["features", LATE])
def test_strangers_are_refused(edge: Edge, token: str, path: str) -> None:
    answer = edge.post(path, asked(1), headers={"Authorization": token})
    refused(answer, 401, "UnknownCallerError")
    assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_what_is_not_there_is_told(edge: Edge) -> None:
    refused(edge.http.post("/v1/streams/none/features", json=[]), 404, "MissingError")
    refused(edge.post("models/none/predictions", []), 404, "MissingError")
    refused(edge.http.get("/nowhere"), 404, "MissingError")
    refused(edge.http.get(f"/v1/streams/flights/{LATE}"), 405, "RequestError")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"3", b'"x"', b"[1]", b"[[]]", b"\xff", b"[" * 5000, b'{"a":"SECRET"}']
)
def test_bodies_that_are_no_rows_never_surprise(edge: Edge, body: bytes) -> None:
    for path in ("features", LATE):
        answer = edge.http.post(f"/v1/streams/flights/{path}", content=body)
        assert answer.status_code == 422
        assert "SECRET" not in answer.text


def test_a_content_type_that_is_not_spoken_is_refused(edge: Edge) -> None:
    for kind, status, code in (
        ("text/csv", 415, "UnsupportedError"),
        (ARROW, 422, "FormatError"),
    ):
        answer = edge.http.post(
            f"/v1/streams/flights/{LATE}", content=b"a,b", headers={"Content-Type": kind}
        )
        refused(answer, status, code)


def test_too_much_is_refused(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(edge.post(LATE, [{}] * (LIMITS.rows + 1)), 413, "TooLargeError")
    refused(edge.post(LATE, "x" * LIMITS.json_bytes), 413, "TooLargeError")
    monkeypatch.setitem(edge.made.admission._most, "requests", 0)
    answer = edge.post(LATE, asked(1))
    refused(answer, 429, "BusyError")
    assert answer.headers["Retry-After"] == "1"


# --- tokens --------------------------------------------------------------------------------------


def test_tokens_come_and_go_while_it_runs(edge: Edge) -> None:
    edge.hashes.write_text("# nobody\n")
    refused(edge.post(LATE, asked(1)), 401, "UnknownCallerError")
    edge.hashes.write_text(line(ASKER))
    assert edge.post(LATE, asked(1)).status_code == 200


def test_the_services_own_file_of_tokens_is_read(edge: Edge) -> None:
    mark, digest = line(ASKER).split()
    token = {"id": mark, "name": "x", "digest": digest, "made": 1}

    def given(roles: list[str], streams: list[str]) -> httpx.Response:
        told = [token | {"roles": roles, "streams": streams}]
        edge.hashes.write_text(json.dumps({"format": 1, "tokens": told}))
        return edge.post(LATE, asked(1))

    assert given(["predict"], ["*"]).status_code == 200
    assert given(["observe", "predict"], ["flights"]).status_code == 200
    refused(given(["predict"], ["clicks"]), 403, "ForbiddenError")
    refused(given(["observe", "train", "admin"], ["*"]), 403, "ForbiddenError")


@pytest.mark.parametrize("text", ["a", "a b c", "{", '{"format": 2}', "x " + "0" * 63])
def test_a_file_of_hashes_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        read_tokens(text.encode())


def test_a_file_of_hashes_that_is_not_there_lets_nobody_in(edge: Edge, tmp_path: object) -> None:
    with pytest.raises(StorageError):
        TokenFile(edge.hashes.with_name("none")).check()
    edge.hashes.unlink()
    assert edge.post(LATE, asked(1)).status_code == 503


def test_an_edge_looks_again_long_before_a_model_ends(edge: Edge, stand: Stand) -> None:
    edge.copies._every = 7200.0  # longer than the models live
    assert edge.copies._pause() == pytest.approx(3600 / 4, abs=60)
    stand.clock.pass_(3600)
    assert edge.copies._pause() == 0.5


# --- copies that are not those asked for ----------------------------------------------------------


def replied(service: Service, stream: str, header: dict[str, object], payload: bytes) -> None:
    """Have the service's next two answers offer a model that it signed for something else."""
    data = sign(service.signer, "model", stream, header, payload)
    told = json.dumps({"name": "late", "version": header["version"]}).encode()
    service.faults += [
        lambda: (200, told, {"Content-Type": "application/json"}),
        lambda: (200, data, {}),
    ]


@pytest.mark.parametrize(
    ("stream", "name", "age", "trouble"),
    [
        ("clicks", "late", 0, "not of stream 'flights'"),
        ("flights", "delay", 0, "not 'late'"),
        ("flights", "late", 60, "older than the one"),
    ],
)
def test_foreign_or_old_model_is_refused(
    service: Service, stand: Stand, stream: str, name: str, age: int, trouble: str
) -> None:
    now = int(stand.clock.now * SECOND)
    service.exports = {"late": export(0.25, now)}
    time = HighWater(wall=lambda: int(stand.clock.now * SECOND))
    with Client(service.url, token=TOKEN, clock=stand.clock, retries=0) as client:
        model = HeldModel(client, "flights", "late", Toy)
        model.renew(time)
        held = model.current()
        header, payload = export(0.5, now - age * SECOND, version=2)
        replied(service, stream, {"name": name, **header}, payload)
        model.renew(time)
        assert trouble in model.trouble
        assert model.current() is held
        model.renew(time)
        assert model.trouble == ""
