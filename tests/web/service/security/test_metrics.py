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
from pyramidion.learn.estimators import estimator_named
from pyramidion.web.limits import Limits
from pyramidion.web.metrics import TYPE
from pyramidion.web.service.app import OPEN
from tests.store.stores import CUSTODIAN, DAY, HOUR, SCHEMA, rows, tiny
from tests.vault.vaults import down, vault_of
from tests.waiting import wait_for
from tests.web.service.security.guarded import (
    MARKER,
    MODEL,
    OTHER,
    STREAM,
    Guarded,
)

DOCS = Path(__file__).parents[4] / "docs" / "service-security.md"


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


OBSERVE = "/v1/streams/{stream}/observations"


def observed_singly(guarded: Guarded, times: int) -> None:
    for _ in range(times):
        told = guarded.ask("POST", OBSERVE.format(stream=STREAM), "observe", json=one_row(guarded))
        assert told.status_code == 200


def one_row(guarded: Guarded) -> list[dict[str, object]]:
    return guarded.rows_json(1)


def requests_told(guarded: Guarded) -> set[float]:
    """All that the numbers say of how often somebody observed."""
    names = ("request_seconds_count", "request_seconds_bucket")
    found = [each for name in names for each in samples(guarded, name, route=OBSERVE)]
    for name in ("sum", "count", "bucket"):
        found += samples(guarded, f"commit_requests_{name}")
    return {sample.value for sample in found}


def test_no_total_of_single_rows_outlives_them(fresh: Callable[..., Guarded]) -> None:
    guarded = fresh()
    observed_singly(guarded, 37)
    assert 37 in requests_told(guarded)
    guarded.clock.pass_(30 * DAY)
    guarded.pyramid().advance()
    assert value(guarded, "hot_rows", stream=STREAM) == 0
    assert requests_told(guarded) == {0.0}


@pytest.mark.parametrize("seconds", [HOUR, DAY])
def test_who_brings_rows_is_counted_from_zero_each_hour_and_hot_step(
    fresh: Callable[..., Guarded], seconds: float
) -> None:
    guarded = fresh()
    observed_singly(guarded, 5)
    guarded.ask("GET", "/v1/streams", "observe")
    guarded.clock.pass_(seconds)
    observed_singly(guarded, 3)  # nobody looked meanwhile: it is not known which came when
    assert requests_told(guarded) == {0.0}
    observed_singly(guarded, 3)
    assert max(requests_told(guarded)) == 3
    assert value(guarded, "request_seconds_count", route="/v1/streams") == 1


def test_numbers_are_not_forgotten_within_the_hour(fresh: Callable[..., Guarded]) -> None:
    guarded = fresh()
    guarded.clock.pass_(HOUR - guarded.clock.now % HOUR)
    requests_told(guarded)
    for minutes in range(1, 5):
        observed_singly(guarded, 2)
        guarded.clock.pass_(60.0)
        assert value(guarded, "commit_requests_sum") == 2 * minutes


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
    assert value(guarded, "retrain_failures", stream=STREAM) == 0
    assert value(guarded, "snapshot_windows", stream=STREAM) >= 1
    assert value(guarded, "snapshot_windows", stream=OTHER) == 0


def test_a_model_that_could_not_be_trained_is_told(fresh: Callable[..., Guarded]) -> None:
    guarded = fresh()
    store = guarded.pyramid()
    folds = {"estimator": {"class": "GaussianNB"}, "cv": 5_000}  # more than there are rows
    store.register("never", estimator_named("CalibratedClassifierCV", folds))
    guarded.fill()
    wait_for(lambda: not store.models["never"].stale)
    assert "could not be trained" in store.models["never"].why
    assert value(guarded, "retrain_failures", stream=STREAM) == 1
    assert value(guarded, "models", stream=STREAM, state="available") == 1
    assert value(guarded, "models", stream=STREAM, state="unavailable") == 1
    store.models.unregister("never")
    assert value(guarded, "retrain_failures", stream=STREAM) == 0


@pytest.fixture
def sealed(tmp_path: Path, fresh: Callable[..., Guarded]) -> Guarded:
    """A service with a stream ``sealed`` that has a vault."""
    guarded = fresh()
    path, keys = guarded.data / "sealed", guarded.service._holder("sealed")
    vault = {"vault": str(tmp_path / "vault"), "custodian": CUSTODIAN.public}
    Pyramid.create(path, SCHEMA, tiny(), keys=keys, clock=guarded.clock, **vault).close()
    guarded.service._streams["sealed"] = guarded.service._opened("sealed", guarded.service._open)
    return guarded


def test_rows_that_wait_for_the_vault_are_told(sealed: Guarded) -> None:
    sealed.pyramid("sealed").observe(rows(5, sealed.clock.now))
    assert value(sealed, "vault_waiting_rows", stream="sealed") == 5
    for name in ("files", "seconds"):
        assert value(sealed, f"vault_backlog_{name}", stream="sealed") == 0
    assert samples(sealed, "vault_waiting_rows", stream=STREAM) == []


def test_a_vault_that_takes_nothing_has_its_backlog_told(sealed: Guarded) -> None:
    store = sealed.pyramid("sealed")
    place = down(store)
    store.observe(rows(5, sealed.clock.now))
    vault_of(store).seal()
    sealed.clock.pass_(90.0)
    assert value(sealed, "vault_backlog_files", stream="sealed") == 1
    assert value(sealed, "vault_backlog_seconds", stream="sealed") == 90
    assert value(sealed, "vault_waiting_rows", stream="sealed") == 0
    place.left = 0  # it is back


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


def test_what_cannot_be_done_when_it_is_due_is_told_and_names_no_stream_to_strangers(
    fresh: Callable[..., Guarded], monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded = fresh()
    guarded.create(OTHER)
    broken, whole = guarded.pyramid(), Pyramid.advance

    def advance(store: Pyramid) -> object:
        if store is broken:
            raise StorageError(f"{MARKER} is full; make room")
        return whole(store)

    ready = guarded.client.get("/readyz")
    assert (ready.status_code, ready.json()) == (200, {"ready": True})
    with monkeypatch.context() as patched:
        patched.setattr(Pyramid, "advance", advance)
        wait_for(lambda: guarded.service.troubles)
        for path in OPEN:
            told = guarded.client.get(path)
            assert not [name for name in (STREAM, OTHER, MARKER) if name in told.text]
        ready = guarded.client.get("/readyz")
        assert (ready.status_code, ready.json()) == (503, {"ready": False, "reasons": ["due"]})
        assert value(guarded, "trouble", stream=STREAM) == 1
        assert value(guarded, "trouble", stream=OTHER) == 0
        assert guarded.client.get("/healthz").status_code == 200
    wait_for(lambda: not guarded.service.troubles)
    assert guarded.client.get("/readyz").status_code == 200


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
