"""Numbers for Prometheus: what they say, and what they must not."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from pyramidion import Pyramid
from pyramidion.errors import StorageError
from pyramidion.serve.limits import Limits
from pyramidion.serve.metrics import TYPE
from tests.serve.security.guarded import (
    MARKER,
    MODEL,
    OTHER,
    STREAM,
    Guarded,
)
from tests.store.stores import CUSTODIAN, DAY, SCHEMA, rows, tiny

DOCS = Path(__file__).parents[3] / "docs" / "service-security.md"


def samples(guarded: Guarded, name: str, **labels: str) -> list[Sample]:
    told = guarded.ask("GET", "/metrics", "admin")
    assert told.status_code == 200
    return [
        sample
        for family in text_string_to_metric_families(told.text)
        for sample in family.samples
        if sample.name == f"pyramidion_{name}" and labels.items() <= sample.labels.items()
    ]


def value(guarded: Guarded, name: str, **labels: str) -> float:
    (found,) = samples(guarded, name, **labels)
    return found.value


def test_prometheus_reads_them(guarded: Guarded) -> None:
    told = guarded.ask("GET", "/metrics", "admin")
    assert told.headers["content-type"] == TYPE
    assert list(text_string_to_metric_families(told.text))


def test_requests_are_counted_by_the_route_and_never_by_the_path(guarded: Guarded) -> None:
    route = "/v1/streams/{stream}"
    before = samples(guarded, "request_seconds_count", route=route, method="GET", status="4xx")
    guarded.ask("GET", f"/v1/streams/{MARKER}", "observe")
    guarded.ask("GET", f"/{MARKER}", "observe")
    guarded.client.request(MARKER, "/v1/streams")
    after = value(guarded, "request_seconds_count", route=route, method="GET", status="4xx")
    assert after == (before[0].value if before else 0) + 1
    assert MARKER not in guarded.ask("GET", "/metrics", "admin").text


def test_streams_are_told_apart_and_tokens_and_models_are_not(guarded: Guarded) -> None:
    token = guarded.token("predict", name="Grace")
    guarded.ask("GET", f"/v1/streams/{STREAM}/models/{MODEL}", token=token)
    told = guarded.ask("GET", "/metrics", "admin").text
    assert f'stream="{STREAM}"' in told
    assert f'stream="{OTHER}"' in told
    for text in (token.split("_")[1], "Grace", f'"{MODEL}"', str(guarded.data)):
        assert text not in told


def test_hot_rows_are_those_that_are_hot_now(fresh: Callable[..., Guarded]) -> None:
    guarded = fresh()
    guarded.pyramid().observe(rows(50, guarded.clock.now))
    assert value(guarded, "hot_rows", stream=STREAM) == 50
    assert value(guarded, "hot_age_seconds", stream=STREAM) >= 0
    guarded.clock.pass_(30 * DAY)
    guarded.pyramid().advance()
    assert value(guarded, "hot_rows", stream=STREAM) == 0
    assert samples(guarded, "hot_age_seconds", stream=STREAM) == []


def test_no_total_of_observed_rows_outlives_them(fresh: Callable[..., Guarded]) -> None:
    guarded = fresh()
    size = 4_321
    body = rows(size, guarded.clock.now).to_pylist()
    path = f"/v1/streams/{STREAM}/observations"
    assert guarded.ask("POST", path, "observe", json=body).status_code == 200
    guarded.clock.pass_(30 * DAY)
    guarded.pyramid().advance()
    told = guarded.ask("GET", "/metrics", "admin").text
    numbers = {float(line.rpartition(" ")[2]) for line in told.splitlines() if line[0] != "#"}
    assert size not in numbers


def test_windows_have_an_age_and_what_is_left_of_their_budget(guarded: Guarded) -> None:
    ages = samples(guarded, "window_age_seconds", stream=STREAM)
    assert {sample.labels["state"] for sample in ages} <= {"populating", "sealed"}
    assert all(sample.value >= 0 for sample in ages)
    report = {str(w.number): w for w in guarded.pyramid().ledger.report().windows}
    left = samples(guarded, "budget_left", stream=STREAM)
    assert left
    for sample in left:
        assert sample.value == float(report[sample.labels["window"]].left)
        assert sample.labels["unit"] == report[sample.labels["window"]].unit


def test_models_and_the_snapshot_are_told(guarded: Guarded) -> None:
    assert value(guarded, "models", stream=STREAM, state="available") >= 1
    assert value(guarded, "retrain_failures", stream=STREAM) >= 0
    assert value(guarded, "snapshot_windows", stream=STREAM) >= 1
    assert value(guarded, "snapshot_windows", stream=OTHER) == 0


def test_a_vault_has_its_backlog_told(tmp_path: Path, fresh: Callable[..., Guarded]) -> None:
    guarded = fresh()
    path, keys = guarded.data / "sealed", guarded.service._holder("sealed")
    public = CUSTODIAN.public
    with Pyramid.create(
        path,
        SCHEMA,
        tiny(),
        keys=keys,
        clock=guarded.clock,
        vault=str(tmp_path / "vault"),
        custodian=public,
    ):
        pass
    guarded.service._streams["sealed"] = guarded.service._opened("sealed", guarded.service._open)
    guarded.pyramid("sealed").observe(rows(5, guarded.clock.now))
    assert value(guarded, "vault_waiting_rows", stream="sealed") == 5
    for name in ("files", "bytes", "seconds"):
        assert value(guarded, f"vault_backlog_{name}", stream="sealed") >= 0
    assert samples(guarded, "vault_waiting_rows", stream=STREAM) == []


def test_trouble_of_one_stream_is_told_and_hides_no_other(
    fresh: Callable[..., Guarded], monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded = fresh()
    guarded.create(OTHER)
    broken, whole = guarded.pyramid(), Pyramid.status

    def status(store: Pyramid) -> object:
        if store is broken:
            raise StorageError(f"{MARKER} is gone; restore it")
        return whole(store)

    monkeypatch.setattr(Pyramid, "status", status)
    assert value(guarded, "trouble", stream=STREAM) == 1
    assert value(guarded, "trouble", stream=OTHER) == 0
    assert MARKER not in guarded.ask("GET", "/metrics", "admin").text


def test_who_was_turned_away_is_counted_by_why(fresh: Callable[..., Guarded]) -> None:
    guarded = fresh(Limits(stranger_per_second=0.001, stranger_burst=1))
    for _ in range(3):
        guarded.client.get("/v1/streams")
    assert value(guarded, "turned_away_total", reason="logins") == 2


def test_commits_have_their_sizes_told(fresh: Callable[..., Guarded]) -> None:
    guarded = fresh()
    path = f"/v1/streams/{STREAM}/observations"
    for _ in range(3):
        guarded.ask("POST", path, "observe", json=guarded.rows_json(2))
    assert value(guarded, "commit_requests_sum") == 3


def test_the_document_names_every_number_and_no_other(guarded: Guarded) -> None:
    known = {family.name for family in guarded.service.metrics.registry.collect()}
    told = set(re.findall(r"^\| `(pyramidion_\w+)", DOCS.read_text("utf-8"), re.MULTILINE))
    assert told == {name.removesuffix("_total") for name in known}


def test_two_services_in_one_process_have_their_own(fresh: Callable[..., Guarded]) -> None:
    one, two = fresh(), fresh()
    one.client.get("/healthz")
    found = two.service.metrics.registry.get_sample_value(
        "pyramidion_request_seconds_count",
        {"route": "/healthz", "method": "GET", "status": "2xx"},
    )
    assert found is None
