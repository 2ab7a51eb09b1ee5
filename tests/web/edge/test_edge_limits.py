"""What an edge limits and tells: rates, connections, headers, metrics, logs, its document."""

from __future__ import annotations

import contextlib
import io
import json
import socket
from dataclasses import replace
from typing import Any

import httpx
import pytest

from pyramidion.web.limits import Admission, JsonMemory
from pyramidion.web.logs import logged
from tests.waiting import PATIENCE, wait_for
from tests.web.client.service import Service
from tests.web.edge.conftest import ASKER, LIMITS, Edge, line
from tests.web.edge.test_edge import LATE, asked, refused

MARKER = "Zq7marker"
NO_HEADER, NO_BODY = replace(LIMITS, header_seconds=0.5), replace(LIMITS, body_seconds=0.5)


def limited(edge: Edge, **given: Any) -> None:
    """Give an edge other limits of how often."""
    made = Admission(replace(LIMITS, **given))
    made.refused = edge.made.metrics.turned_away
    edge.made.admission = made


def connect(edge: Edge) -> socket.socket:
    port = httpx.URL(str(edge.http.base_url)).port
    return socket.create_connection(("127.0.0.1", port or 0), timeout=PATIENCE)


def came(made: socket.socket) -> bytes:
    """What comes until the other side closes."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := made.recv(65_536):
            parts.append(part)
    return b"".join(parts)


# --- how often ------------------------------------------------------------------------------------


def test_a_token_that_asks_too_often_is_told_when_to_come_back(edge: Edge) -> None:
    limited(edge, per_second=1e-3, burst=2)
    assert [edge.post(LATE, asked(1)).status_code for _ in range(2)] == [200, 200]
    answer = edge.post(LATE, asked(1))
    refused(answer, 429, "BusyError")
    assert 1 <= int(answer.headers["Retry-After"]) <= 1_000


def test_json_is_counted_by_the_memory_of_its_values(edge: Edge) -> None:
    body = json.dumps(asked(5)).encode()
    need = JsonMemory().add(body)
    limited(edge, held_bytes=2 * need)
    edge.made.admission.hold(2 * need - len(body))  # another body, beside which the bytes fit
    refused(edge.post(LATE, asked(5)), 429, "BusyError")
    edge.made.admission.release(2 * need - len(body))
    assert edge.post(LATE, asked(5)).status_code == 200
    assert edge.made.admission.held == 0


def test_one_token_does_not_wait_for_another(edge: Edge) -> None:
    limited(edge, per_second=1e-6, burst=1)
    other = "pyr_00000000000000bb_" + "r" * 43
    edge.hashes.write_text(line(ASKER) + line(other))
    assert edge.post(LATE, asked(1)).status_code == 200
    assert edge.post(LATE, asked(1)).status_code == 429
    given = {"Authorization": f"Bearer {other}"}
    assert edge.post(LATE, asked(1), headers=given).status_code == 200


def test_logins_that_fail_are_limited_and_those_that_succeed_are_not(edge: Edge) -> None:
    limited(edge, stranger_burst=3)
    wrong = {"Authorization": f"Bearer {ASKER}x"}
    told = [edge.post(LATE, asked(1), headers=wrong).status_code for _ in range(5)]
    assert told == [401] * 3 + [429] * 2
    assert edge.post(LATE, asked(1)).status_code == 200


# --- connections ----------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [NO_HEADER])
@pytest.mark.parametrize("begun", [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: "])
def test_an_unfinished_header_is_not_held_for_ever(edge: Edge, begun: bytes) -> None:
    with connect(edge) as made:
        made.sendall(begun)
        assert came(made) == b""


@pytest.mark.parametrize("limits", [NO_BODY])
def test_a_body_that_does_not_come_is_not_waited_for(edge: Edge) -> None:
    head = (
        f"POST /v1/streams/flights/{LATE} HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n"
        f"Authorization: Bearer {ASKER}\r\n\r\n["
    )
    with connect(edge) as made:
        made.sendall(head.encode())
        assert came(made).startswith(b"HTTP/1.1 408")


def test_connections_have_a_number(edge: Edge) -> None:
    with contextlib.ExitStack() as held:
        some = [held.enter_context(connect(edge)) for _ in range(LIMITS.connections + 5)]
        assert came(some[0]) == b""
        assert httpx.get(f"{edge.http.base_url}/healthz", timeout=PATIENCE).status_code == 200


def test_what_is_not_http_is_refused_in_the_one_shape(edge: Edge) -> None:
    with connect(edge) as made:
        made.sendall(b"nonsense\r\n\r\n")
        head, _, body = came(made).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert json.loads(body)["error"]["code"] == "RequestError"


def test_long_fields_are_refused_in_the_one_shape(edge: Edge) -> None:
    answer = edge.http.get("/healthz", params={"x": "y" * LIMITS.query_bytes})
    refused(answer, 431, "LongError")


# --- what is told ---------------------------------------------------------------------------------


def metrics(edge: Edge) -> httpx.Response:
    return edge.http.get("/metrics")


def service_file(roles: list[str], streams: list[str]) -> str:
    mark, digest = line(ASKER).split()
    token = {"id": mark, "name": "x", "digest": digest, "made": 1}
    return json.dumps({"format": 1, "tokens": [token | {"roles": roles, "streams": streams}]})


def test_metrics_are_for_admins_of_all_streams(edge: Edge) -> None:
    refused(metrics(edge), 403, "ForbiddenError")
    refused(httpx.get(f"{edge.http.base_url}/metrics", timeout=PATIENCE), 401, "UnknownCallerError")
    edge.hashes.write_text(service_file(["admin"], ["flights"]))
    refused(metrics(edge), 403, "ForbiddenError")
    edge.hashes.write_text(service_file(["admin"], ["*"]))
    assert metrics(edge).status_code == 200


def test_metrics_tell_how_requests_and_copies_stand(edge: Edge, service: Service) -> None:
    edge.post(LATE, asked(1))
    edge.hashes.write_text(service_file(["admin", "predict"], ["*"]))
    told = metrics(edge).text
    route = "/v1/streams/{stream}/models/{model}/predictions"
    counted = 'pyramidion_request_seconds_count{method="POST",route="%s",status="2xx"} 1.0'
    assert counted % route in told
    assert 'pyramidion_models{state="available",stream="flights"} 3.0' in told
    assert 'pyramidion_trouble{stream="flights"} 0.0' in told
    assert 'pyramidion_snapshot_expires_seconds{stream="flights"}' in told
    assert "late" not in told
    service.close()
    wait_for(lambda: 'pyramidion_trouble{stream="flights"} 1.0' in metrics(edge).text)


def test_logs_tell_who_asked_what_and_no_value(edge: Edge) -> None:
    found = io.StringIO()
    with logged(found):
        edge.post(LATE, {"a": MARKER, "b": "x"})
        edge.post(LATE, {MARKER: [MARKER]})
        edge.http.get(f"/{MARKER}?{MARKER}={MARKER}")
        edge.post(LATE, asked(1), headers={"Authorization": f"Bearer {ASKER}{MARKER}"})
    assert MARKER not in found.getvalue()
    assert ASKER.rpartition("_")[2] not in found.getvalue()
    told = [json.loads(each) for each in found.getvalue().splitlines()]
    requests = [each for each in told if each["event"] == "request"]
    assert [each["status"] for each in requests] == [200, 422, 404, 401]
    assert [each.get("token") for each in requests] == ["00000000000000aa"] * 2 + [None] * 2


def looks(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One for each look of an edge at what it copies, from now on."""
    look, seen = edge.copies.look, list[int]()
    monkeypatch.setattr(edge.copies, "look", lambda: (look(), seen.append(1)))
    return seen


def test_logs_tell_once_that_a_service_is_gone(
    edge: Edge, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = io.StringIO()
    with logged(found):
        service.close()
        wait_for(lambda: all(each.trouble for each in edge.copies.told()))
        seen = looks(edge, monkeypatch)
        wait_for(lambda: len(seen) > 3)
    lines = [json.loads(each) for each in found.getvalue().splitlines()]
    events = [each["event"] for each in lines if each["level"] == "warning"]
    assert events.count("model late cannot be renewed") == 1


def test_a_file_of_hashes_that_is_damaged_lets_nobody_in(edge: Edge) -> None:
    edge.hashes.write_text("{")
    answer = edge.post(LATE, asked(1))
    assert "cannot tell who calls" in refused(answer, 503, "TokensError")


def test_the_page_of_the_document_needs_nobody_else(edge: Edge) -> None:
    answer = edge.http.get("/docs")
    assert answer.status_code == 200
    assert "src=" not in answer.text
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    refused(edge.http.get("/redoc"), 404, "MissingError")


def test_answers_are_not_kept_by_others(edge: Edge) -> None:
    for answer in (edge.post(LATE, asked(1)), edge.http.get("/healthz"), edge.http.get("/x")):
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
