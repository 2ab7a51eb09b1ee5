"""The verbs over HTTP: what a store says, once each, and errors as they were raised."""

from __future__ import annotations

import datetime as dt
import json
import threading
from contextlib import ExitStack
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from pyramidion import Client, Pyramid
from pyramidion.errors import (
    BusyError,
    FormatError,
    MissingError,
    ObservationError,
    RequestError,
    SchemaError,
    StateError,
    UnknownCallerError,
    UnreachableError,
)
from pyramidion.web.client import calls
from pyramidion.web.client.answers import Receipt
from pyramidion.web.client.rows import ARROW, JSON, body_of
from tests.ports import free_port
from tests.store.stores import Stand, rows
from tests.web.client.service import TOKEN, Service, refused, said, serving

OBSERVATIONS = "/v1/streams/flights/observations"


def hot(store: Pyramid) -> int:
    return store.status().hot_rows


# --- verbs ------------------------------------------------------------------------------------


def test_rows_are_observed_and_the_receipt_comes_back(
    client: Client, store: Pyramid, stand: Stand
) -> None:
    before = hot(store)
    assert client.observe("flights", rows(5, stand.clock.now)) == Receipt(5, 0, 0)
    assert client.observe("flights", rows(5, stand.clock.now).to_pylist()).accepted == 5
    assert client.observe("flights", rows(1, stand.clock.now).to_pylist()[0]).accepted == 1
    assert hot(store) == before + 11


def test_bad_rows_refuse_the_batch_or_are_left_out(client: Client, stand: Stand) -> None:
    bad = [{**row, "y": 7} for row in rows(2, stand.clock.now).to_pylist()]
    good = rows(3, stand.clock.now, seed=4).to_pylist()
    with pytest.raises(ObservationError) as refusal:
        client.observe("flights", good + bad)
    assert list(refusal.value.problems.values()) == [[3, 4]]
    assert client.observe("flights", good + bad, errors="skip") == Receipt(3, 2, 0)


def test_features_are_those_of_the_store(client: Client, store: Pyramid) -> None:
    assert client.features("flights", rows(9)).equals(store.featurize(rows(9)))


def test_a_training_set_is_the_stores(client: Client, store: Pyramid) -> None:
    mine, (X, y) = client.training_set("flights"), store.training_set()
    np.testing.assert_array_equal(mine.X, X)
    np.testing.assert_array_equal(mine.y, y)
    assert mine.names == store.snapshot().names
    assert (mine.label, len(mine)) == ("y", len(y))
    unpacked, _ = mine
    assert unpacked is mine.X
    pieces = list(client.training_batches("flights"))
    assert len(pieces) > 1
    np.testing.assert_array_equal(np.concatenate([piece.y for piece in pieces]), y)


def test_models_are_registered_asked_and_forgotten(
    client: Client, store: Pyramid, trainer: None
) -> None:
    told = client.register("flights", "m", "LogisticRegression", {"C": 0.5}, without=["b"])
    assert told["available"]
    assert list(client.models("flights")) == ["m"]
    assert client.model("flights", "m")["classes"] == [0, 1]
    asked = rows(6, seed=8)
    np.testing.assert_allclose(
        client.predict_proba("flights", "m", asked), store.predict_proba("m", asked)
    )
    np.testing.assert_array_equal(client.predict("flights", "m", asked), store.predict("m", asked))
    assert client.predict_proba("flights", "m", asked.to_pylist()[0]).shape == (1, 2)
    assert client.retrain("flights", "m")["name"] == "m"
    client.unregister("flights", "m")
    assert client.models("flights") == {}


def test_what_is_there_is_told(client: Client, store: Pyramid) -> None:
    assert client.streams() == ["flights"]
    assert client.status("flights")["rows"] == hot(store)
    assert len(client.windows("flights")) == len(store.status().windows)
    assert client.groups("flights") == [("a", "b")]
    client.withdraw("flights", "a,b", why="not needed")
    assert store.schema.groups == ()


# --- errors -------------------------------------------------------------------------------------


def test_errors_come_back_as_they_were_raised(client: Client, service: Service) -> None:
    with pytest.raises(MissingError, match="no model of this name"):
        client.predict("flights", "nothing", rows(1))
    with pytest.raises(MissingError, match="no stream of this name"):
        client.status("elsewhere")
    for problem in (StateError("a"), FormatError("b"), SchemaError("c")):
        service.faults = [lambda problem=problem: refused(problem)]  # type: ignore[misc]
        with pytest.raises(type(problem), match=str(problem)):
            client.streams()


def test_a_token_that_is_not_known_is_told(service: Service) -> None:
    with Client(service.url, token=TOKEN[:-1]) as stranger, pytest.raises(UnknownCallerError):
        stranger.streams()


def test_codes_that_are_not_known_are_errors_all_the_same(client: Client, service: Service) -> None:
    for code in ("Newer", "annotations", "PyramidionError.__init__", "__doc__"):
        told = {"error": {"code": code, "message": "what it is"}}
        service.faults = [lambda told=told: said(told, 418)]  # type: ignore[misc]
        with pytest.raises(RequestError, match="what it is"):
            client.streams()


@pytest.mark.parametrize("content", [b"", b"<html>", b"[]", b'{"error": 1}', b"\xff", b"{}"])
def test_what_is_no_service_of_ours_is_told(
    client: Client, service: Service, content: bytes
) -> None:
    service.faults = [lambda: (404, content, {})]
    with pytest.raises(UnreachableError, match="not as a service of ours"):
        client.streams()
    service.faults = [lambda: (200, content, {})]
    with pytest.raises(UnreachableError):
        client.streams()


def test_a_redirect_is_not_followed_with_the_token(client: Client, service: Service) -> None:
    service.faults = [lambda: (307, b"", {"Location": "/v1/key"})]
    with pytest.raises(UnreachableError, match="status 307"):
        client.streams()
    assert len(service.asked) == 1


def test_an_address_without_a_scheme_is_refused() -> None:
    with pytest.raises(SchemaError, match="http:// or https://"):
        Client("127.0.0.1:1", token=TOKEN)


def test_a_file_that_holds_no_certificates_is_refused(tmp_path: object) -> None:
    with pytest.raises(SchemaError, match="holds no certificates"):
        Client("https://127.0.0.1:1", token=TOKEN, verify="nowhere.pem")


def test_a_token_is_in_no_message_and_no_repr(service: Service) -> None:
    port = free_port()
    with (
        Client(f"http://127.0.0.1:{port}", token=TOKEN, retries=1) as lost,
        pytest.raises(UnreachableError) as refusal,
    ):
        lost.streams()
    assert TOKEN not in str(refusal.value) + repr(lost) + repr(vars(lost))


# --- tried again ----------------------------------------------------------------------------------


def busy(status: int, after: str = "0") -> object:
    told = {"error": {"code": "BusyError", "message": "too much waits; come back"}}
    return lambda: said(told, status, **{"Retry-After": after})


@pytest.mark.parametrize("status", [429, 503])
def test_what_was_turned_away_is_sent_again(client: Client, service: Service, status: int) -> None:
    service.faults = [busy(status)] * 3  # type: ignore[list-item]
    assert client.streams() == ["flights"]
    assert len(service.asked) == 4


def test_a_service_that_stays_busy_is_told_after_some_tries(service: Service, stand: Stand) -> None:
    service.faults = [busy(429)] * 9  # type: ignore[list-item]
    with Client(service.url, token=TOKEN, retries=2) as client, pytest.raises(BusyError):
        client.streams()
    assert len(service.asked) == 3


def test_it_waits_as_long_as_it_is_asked_to(
    client: Client, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(calls, "time", SimpleNamespace(sleep=waited.append))
    service.faults = [busy(429, "7"), busy(503, "0")]  # type: ignore[list-item]
    client.streams()
    assert waited[0] == 7.0
    assert waited[1] < 0.1


def test_it_does_not_wait_for_ever(client: Client, service: Service) -> None:
    service.faults = [busy(429, "86400")]  # type: ignore[list-item]
    with pytest.raises(BusyError):
        client.streams()


def test_waits_grow_and_differ(
    client: Client, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(calls, "FIRST", 1.0)
    monkeypatch.setattr(calls, "LONGEST", 4.0)
    monkeypatch.setattr(calls, "time", SimpleNamespace(sleep=waited.append))
    for _ in range(20):
        service.faults = [busy(429)] * 5  # type: ignore[list-item]
        client.streams()
    tries = np.array(waited).reshape(20, 5)
    assert (tries.max(axis=0) <= [1, 2, 4, 4, 4]).all()
    assert tries.max(axis=0)[0] < tries.max(axis=0)[2]
    assert (tries.std(axis=0) > 0).all()


def test_rows_whose_receipt_was_lost_are_counted_once(
    client: Client, service: Service, store: Pyramid, stand: Stand
) -> None:
    before = hot(store)
    service.hang_up_after = [OBSERVATIONS] * 2
    assert client.observe("flights", rows(5, stand.clock.now)).accepted == 5
    assert service.counted("POST", "/observations") == 3
    assert hot(store) == before + 5
    keys = {headers["Idempotency-Key"] for headers in service.headers}
    assert len(keys) == 1


def test_every_observe_has_a_key_of_its_own_unless_one_is_given(
    client: Client, service: Service, store: Pyramid, stand: Stand
) -> None:
    before = hot(store)
    for _ in range(2):
        client.observe("flights", rows(2, stand.clock.now))
        client.observe("flights", rows(3, stand.clock.now), key="the same")
    keys = [headers["Idempotency-Key"] for headers in service.headers]
    assert len(set(keys)) == 3
    assert keys[1] == keys[3] == "the same"
    assert hot(store) == before + 2 + 3 + 2


def test_what_must_not_be_done_twice_is_not(client: Client, service: Service) -> None:
    path = "/v1/streams/flights/tables/a%2Cb"
    service.hang_up_after = [path]
    with pytest.raises(UnreachableError):
        client.withdraw("flights", "a,b", why="not needed")
    assert service.counted("DELETE", path) == 1
    service.faults = [busy(429)]  # type: ignore[list-item]
    client.withdraw("flights", "a", why="turned away before, so nothing was done")


def test_a_service_that_comes_back_is_found_again(
    store: Pyramid, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, waited = free_port(), list[float]()
    with serving(store, stand.clock, port) as gone, Client(gone.url, token=TOKEN) as client:
        assert client.streams() == ["flights"]
        gone.close()
        with ExitStack() as back:

            def wait(seconds: float) -> None:
                waited.append(seconds)
                if len(waited) == 2:
                    back.enter_context(serving(store, stand.clock, port))

            monkeypatch.setattr(calls.time, "sleep", wait)
            assert client.streams() == ["flights"]
            assert len(waited) == 2


def test_an_answer_that_does_not_come_is_not_waited_for(service: Service) -> None:
    blocked = threading.Event()
    service.faults = [lambda: blocked.wait(5) and None]  # type: ignore[func-returns-value]
    with Client(service.url, token=TOKEN, timeout=0.2, retries=0) as client:
        with pytest.raises(UnreachableError, match="did not answer in time"):
            client.streams()
        blocked.set()


# --- rows ------------------------------------------------------------------


def test_plain_dicts_go_as_json_and_all_else_as_arrow() -> None:
    assert body_of({"a": "x", "n": 1, "f": 0.5, "b": True, "none": None}).kind == JSON
    assert body_of([{"a": np.int64(3)}]) == (b'[{"a":3}]', JSON)
    assert body_of([{"a": "x"}, {"b": 1}]) == (b'[{"a":"x"},{"b":1}]', JSON)
    frame = pd.DataFrame({"a": [1, 2]})
    for some in (
        {"a": float("nan")},
        {"a": float("inf")},
        [{"a": b"\x00"}],
        {"a": dt.datetime(2026, 1, 1)},
        {"a": [1, 2]},
        frame,
        pl.from_pandas(frame),
        pa.table({"a": [1]}),
        pa.record_batch({"a": [1]}),
    ):
        assert body_of(some).kind == ARROW


def test_what_arrow_carries_is_what_was_given() -> None:
    def back(some: object) -> list[object]:
        found: list[object] = pa.ipc.open_stream(body_of(some).content).read_all().to_pylist()
        return found

    frame = pd.DataFrame({"a": [1.5, None], "b": ["x", "y"]}, index=[7, 8])
    assert back(frame) == [{"a": 1.5, "b": "x"}, {"a": None, "b": "y"}]
    assert back(pl.DataFrame({"b": ["x"]})) == [{"b": "x"}]
    times = [{"a": dt.datetime(2020, 1, 1)}, {"a": None}]
    assert back(times) == times


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, dict, lambda columns: columns])
def test_a_row_keeps_the_type_that_it_was_given(make) -> None:
    values = [700_000_000_000_000_001, 0.5, True, None, "x"]
    frame = make({"a": pl.Series(values, dtype=pl.Object) if make is pl.DataFrame else values})
    sent = body_of(frame)
    assert (sent.kind, json.loads(sent.content)) == (JSON, [{"a": value} for value in values])


@pytest.mark.parametrize(
    "some",
    [
        *(7, "text", [1, 2], object(), [{"a": b"SECRET"}, {"a": 3}]),
        [{"a": b"SECRET"}, {"b": 1}],  # whose row has no such column
        pd.DataFrame({"a": [1, "x"], "b": [b"SECRET", b"y"]}),
        [{"a": dt.datetime(2020, 1, 1)}, {"a": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)}],
    ],
)
def test_what_cannot_be_sent_is_refused_without_a_value(some: object) -> None:
    with pytest.raises(ObservationError) as refusal:
        body_of(some)
    assert "SECRET" not in str(refusal.value)
    assert refusal.value.__context__ is None
