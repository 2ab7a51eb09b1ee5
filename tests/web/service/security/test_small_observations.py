"""Single rows over a real socket: answers, limits, pieces, pipelining, what is logged."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from pyramidion.web.limits import Limits
from tests.waiting import wait_for
from tests.web.service.security.guarded import (
    MARKER,
    OTHER,
    STREAM,
    Guarded,
    Listening,
    captured,
    lines_of,
    read_all,
)

Fresh = Callable[..., Guarded]
Listen = Callable[[Guarded], Listening]


def request(
    token: str | None, body: bytes, *fields: str, stream: str = STREAM, close: bool = True
) -> bytes:
    head = [f"POST /v1/streams/{stream}/observations HTTP/1.1", "Host: test", *fields]
    head += [f"Content-Length: {len(body)}"]
    head += [f"Authorization: Bearer {token}"] if token else []
    head += ["Connection: close"] if close else []
    return ("\r\n".join(head) + "\r\n\r\n").encode() + body


def told(answer: bytes) -> tuple[bytes, dict[bytes, bytes], bytes]:
    """Status, fields save the time of day, and body of the only answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.split(b"\r\n")
    fields = dict(line.split(b": ", 1) for line in lines)
    assert len(fields) == len(lines)
    assert fields.pop(b"date")
    assert int(fields[b"content-length"]) == len(body)
    return status, fields, body


def one(guarded: Guarded, **changed: Any) -> bytes:
    (row,) = guarded.rows_json(1)
    return json.dumps(row | changed, default=str).encode()


def at_rest(guarded: Guarded) -> None:
    """Nothing is held, answered or waited for any more."""
    service = guarded.service
    wait_for(lambda: service.metrics.in_flight == 0)
    assert service.admission.held == 0
    assert service.admission.answering == {"requests": 0, "observations": 0}


BODIES = {
    "a row": (b"200", lambda guarded: one(guarded)),
    "rows": (b"200", lambda guarded: json.dumps(guarded.rows_json(3), default=str).encode()),
    "no row": (b"200", lambda _: b"[]"),
    "no JSON": (b"422", lambda _: b"["),
    "bytes": (b"422", lambda _: b"\xff\xfe"),
    "a number": (b"422", lambda _: b"7"),
    "a bad row": (b"422", lambda guarded: one(guarded, y="perhaps" + MARKER)),
    "another column": (b"200", lambda guarded: one(guarded, more=MARKER)),
    "deep": (b"422", lambda _: b"[" * 9_000),
}


@pytest.mark.parametrize(("status", "body"), BODIES.values(), ids=BODIES)
def test_body_is_answered_without_its_values(
    fresh: Fresh, listening: Listen, status: bytes, body: Any
) -> None:
    guarded = fresh()
    behind, token, data = listening(guarded), guarded.token("observe"), body(guarded)
    line, fields, answer = told(behind.send(request(token, data)))
    assert line[9:12] == status
    assert fields[b"content-type"] == b"application/json"
    assert fields[b"cache-control"] == b"no-store"
    assert fields[b"x-content-type-options"] == b"nosniff"
    assert MARKER.encode() not in answer
    at_rest(guarded)


FIELDS = [
    (b"ObservationError", ()),
    (b"ObservationError", ("Content-Type: application/json; charset=utf-8",)),
    (b"ObservationError", ("X-Forwarded-Proto: https",)),
    (b"ObservationError", ("Expect: 100-continue",)),
    (b"UnsupportedError", ("Content-Type: text/plain",)),
    (b"UnsupportedError", ("Content-Encoding: gzip",)),
    (b"RequestError", ("Upgrade: h2c", "Connection: Upgrade")),
    (b"LongError", ("X-Long: " + "x" * 40_000,)),
    (b"LongError", tuple(f"X-{n}: 1" for n in range(120))),
]


@pytest.mark.parametrize(("code", "fields"), FIELDS, ids=lambda given: str(given)[:40])
def test_header_fields_are_checked(
    guarded: Guarded, listening: Listen, code: bytes, fields: tuple[str, ...]
) -> None:
    behind, token = listening(guarded), guarded.token("observe")
    answer = behind.send(request(token, b"[{}]", *fields))
    assert b'"code":"%b"' % code in answer


@pytest.mark.parametrize(
    "role", ["observe", "train", "predict", "admin", "custodian-request", None]
)
@pytest.mark.parametrize("stream", [STREAM, OTHER, "nowhere", "%66lights", "a%2Fb"])
def test_role_and_stream_are_checked(
    guarded: Guarded, listening: Listen, role: str | None, stream: str
) -> None:
    token = None if role is None else guarded.token(role, streams=(STREAM,))
    status, _, body = told(listening(guarded).send(request(token, b"[{}]", stream=stream)))
    if "%2F" in stream:
        wanted = b"404"
    elif role is None:
        wanted = b"401"
    elif role != "observe":
        wanted = b"403"
    else:
        wanted = b"422" if "lights" in stream else b"404"
    assert status[9:12] == wanted
    assert (b"ObservationError" in body) == (wanted == b"422")


def test_idempotency_key_counts_once(fresh: Fresh, listening: Listen) -> None:
    guarded = fresh()
    behind, token, body = listening(guarded), guarded.token("observe"), one(guarded)
    asked = request(token, body, "Idempotency-Key: the same")
    answers = {told(behind.send(asked))[2] for _ in range(3)}
    assert len(answers) == 1
    assert guarded.pyramid().status().hot_rows == 1


def test_rates_and_memory_are_limited(fresh: Fresh, listening: Listen) -> None:
    guarded = fresh(Limits(per_second=0.001, burst=3))
    behind, token, body = listening(guarded), guarded.token("observe"), one(guarded)
    statuses = [told(behind.send(request(token, body)))[0] for _ in range(4)]
    assert [status[9:12] for status in statuses] == [b"200", b"200", b"200", b"429"]
    full = fresh(Limits(held_bytes=3_000))
    behind, token = listening(full), full.token("observe")
    full.service.admission.hold(2_900)
    status, fields, _ = told(behind.send(request(token, one(full))))
    assert (status[9:12], fields[b"retry-after"]) == (b"429", b"1")
    full.service.admission.release(2_900)
    at_rest(full)


def piecewise(behind: Listening, pieces: Iterable[bytes], pause: Callable[[], object]) -> bytes:
    """The status of the answer to a request that comes in pieces."""
    with behind.connect() as made:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            made.sendall(piece)
            pause()
        return told(read_all(made))[0][9:12]


def test_request_in_pieces_is_read_whole(fresh: Fresh, listening: Listen) -> None:
    guarded = fresh()
    behind, token = listening(guarded), guarded.token("observe")
    head, _, body = request(token, one(guarded)).partition(b"\r\n\r\n")
    begun = lambda: wait_for(lambda: guarded.service.metrics.in_flight)  # noqa: E731
    pauses = iter([lambda: None, begun, lambda: None, lambda: None])
    pieces = (head[:20], head[20:] + b"\r\n\r\n", body[:5], body[5:])
    assert piecewise(behind, pieces, lambda: next(pauses)()) == b"200"
    at_rest(guarded)


def test_client_that_leaves_within_the_body_is_forgotten(fresh: Fresh, listening: Listen) -> None:
    guarded = fresh()
    behind, token = listening(guarded), guarded.token("observe")
    head, _, body = request(token, one(guarded)).partition(b"\r\n\r\n")
    for _ in range(3):
        with behind.connect() as made:
            made.sendall(head + b"\r\n\r\n" + body[:5])
    assert told(behind.send(request(token, one(guarded))))[0].startswith(b"HTTP/1.1 200")
    at_rest(guarded)


def test_pipelined_requests_are_answered_in_turn(fresh: Fresh, listening: Listen) -> None:
    guarded = fresh()
    behind, token = listening(guarded), guarded.token("observe")
    good, bad = one(guarded), b"["
    asked = [request(token, good, close=False), request(token, bad, close=False)] * 20
    asked += [request(token, bad, close=False)] * 60  # answered at once: not one within another
    asked += [request(token, good)]
    answers = behind.send(b"".join(asked))
    assert answers.count(b"HTTP/1.1 200") == 21
    assert answers.count(b"FormatError") == 80
    found = [part[:3] for part in answers.split(b"HTTP/1.1 ")[1:]]
    assert found == [b"200", b"422" if b"422" in answers else b"400"] * 20 + [found[1]] * 60 + [
        b"200"
    ]
    assert guarded.pyramid().status().hot_rows == 21
    at_rest(guarded)


def test_malformed_bytes_are_refused_after_the_answer(fresh: Fresh, listening: Listen) -> None:
    guarded = fresh()
    token = guarded.token("observe")
    asked = request(token, one(guarded), close=False) + b"\x00\x01\x02\r\n\r\n"
    answers = listening(guarded).send(asked)
    assert answers.startswith(b"HTTP/1.1 200")
    assert answers.count(b"HTTP/1.1 400") == 1


def test_client_that_leaves_before_the_answer_has_its_row_counted(
    fresh: Fresh, listening: Listen
) -> None:
    guarded = fresh()
    behind, token = listening(guarded), guarded.token("observe")
    for _ in range(5):
        with behind.connect() as made:
            made.sendall(request(token, one(guarded), close=False))
    assert told(behind.send(request(token, one(guarded))))[0].startswith(b"HTTP/1.1 200")
    at_rest(guarded)
    assert guarded.pyramid().status().hot_rows == 6


def test_request_is_logged_and_counted(fresh: Fresh, listening: Listen) -> None:
    guarded = fresh()
    behind, token = listening(guarded), guarded.token("observe")
    with captured() as log:
        behind.send(request(token, one(guarded, a=MARKER)))
    (line,) = [line for line in lines_of(log) if line["event"] == "request"]
    wanted = ("/v1/streams/{stream}/observations", 200, token.split("_")[1])
    assert (line["route"], line["status"], line["token"]) == wanted
    assert MARKER not in log.getvalue()
    found = guarded.service.metrics.exposition().decode()
    count = next(line for line in found.splitlines() if "seconds_count" in line and "2xx" in line)
    assert count.endswith(" 1.0")


def test_connection_keeps_no_body(fresh: Fresh) -> None:
    guarded, made = fresh(), list[Any]()

    def noting(kind: type[Any]) -> type[Any]:
        class Noted(kind):  # type: ignore[misc]
            def __init__(self, *args: Any, **given: Any) -> None:
                super().__init__(*args, **given)
                made.append(self)

        return Noted

    behind, token = Listening(guarded, noting), guarded.token("observe")
    try:
        with behind.connect() as line:
            line.sendall(request(token, one(guarded), close=False))
            assert line.recv(65_536).startswith(b"HTTP/1.1 200")
            assert [bytes(each.cycle.body) for each in made] == [b""]
    finally:
        behind.close()
