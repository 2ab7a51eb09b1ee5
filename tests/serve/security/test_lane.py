"""Small observations on their short way: the same answers, the same bounds, the same traces."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from pyramidion.web import connections
from pyramidion.web.limits import Limits
from pyramidion.web.service.lane import Lane
from pyramidion.web.service.routing import SMALL
from tests.serve.security.guarded import (
    MARKER,
    OTHER,
    STREAM,
    Guarded,
    Listening,
    captured,
    lines_of,
    read_all,
)
from tests.waiting import PATIENCE, wait_for

Fresh = Callable[..., Guarded]
Listen = Callable[[Guarded], Listening]
ODD = "Forwarded: for=somebody"
"""A field that the lane leaves to others, and that says nothing to them."""


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


def took(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the lane took each request that it was asked for."""
    found: list[bool] = []

    def noted(lane: Lane, cycle: Any) -> bool:
        found.append(take(lane, cycle))
        return found[-1]

    take = Lane.take
    monkeypatch.setattr(Lane, "take", noted)
    return found


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
    "a row": lambda guarded: one(guarded),
    "rows": lambda guarded: json.dumps(guarded.rows_json(3), default=str).encode(),
    "no row": lambda _: b"[]",
    "no JSON": lambda _: b"[",
    "bytes": lambda _: b"\xff\xfe",
    "a number": lambda _: b"7",
    "a bad row": lambda guarded: one(guarded, late="perhaps" + MARKER),
    "another column": lambda guarded: one(guarded, more=MARKER),
    "deep": lambda _: b"[" * 9_000,
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_each_body_has_the_answer_that_it_has_elsewhere(
    fresh: Fresh, listening: Listen, monkeypatch: pytest.MonkeyPatch, body: Any
) -> None:
    guarded = fresh()
    behind, token, data = listening(guarded), guarded.token("observe"), body(guarded)
    taken = took(behind, monkeypatch)
    here = told(behind.send(request(token, data)))
    there = told(behind.send(request(token, data, ODD)))
    assert taken == [True, False]
    assert here == there
    assert MARKER.encode() not in here[2]
    at_rest(guarded)


FIELDS = [
    (),
    ("Content-Type: application/json; charset=utf-8",),
    ("Content-Type: text/csv",),
    ("Content-Type: text/plain",),
    ("Content-Type: application/json", "Content-Type: text/csv"),
    ("Content-Encoding: gzip",),
    ("X-Forwarded-Proto: https",),
    ("Expect: 100-continue",),
    ("Upgrade: h2c", "Connection: Upgrade"),
    ("Authorization: Bearer pyr_0000000000000000_nobody",),
    ("X-Long: " + "x" * 40_000,),
    tuple(f"X-{n}: 1" for n in range(120)),
]


@pytest.mark.parametrize("fields", FIELDS, ids=lambda fields: str(fields)[:40])
def test_fields_have_the_meaning_that_they_have_elsewhere(
    guarded: Guarded, listening: Listen, fields: tuple[str, ...]
) -> None:
    behind, token = listening(guarded), guarded.token("observe")
    body = b"[{}]"  # refused as a row, and told why
    here = behind.send(request(token, body, *fields))
    there = behind.send(request(token, body, *fields, ODD))
    assert here.partition(b"date")[0] == there.partition(b"date")[0]
    assert here.rpartition(b"\r\n\r\n")[2] == there.rpartition(b"\r\n\r\n")[2]


@pytest.mark.parametrize(
    "role", ["observe", "train", "predict", "admin", "custodian-request", None]
)
@pytest.mark.parametrize("stream", [STREAM, OTHER, "nowhere", "%66lights", "a%2Fb"])
def test_who_may_and_where_is_as_elsewhere(
    guarded: Guarded, listening: Listen, role: str | None, stream: str
) -> None:
    token = None if role is None else guarded.token(role, streams=(STREAM,))
    behind = listening(guarded)
    here = told(behind.send(request(token, b"[{}]", stream=stream)))
    there = told(behind.send(request(token, b"[{}]", ODD, stream=stream)))
    assert here == there
    assert (b"ObservationError" in here[2]) == (role == "observe" and "lights" in stream)


def test_a_key_counts_once_on_both_ways(fresh: Fresh, listening: Listen) -> None:
    guarded = fresh()
    behind, token, body = listening(guarded), guarded.token("observe"), one(guarded)
    key = "Idempotency-Key: the same"
    asked = [request(token, body, key), request(token, body, key, ODD), request(token, body, key)]
    answers = {told(behind.send(each))[2] for each in asked}
    assert len(answers) == 1
    assert guarded.pyramid().status().hot_rows == 1


def test_rates_and_places_are_those_of_all(fresh: Fresh, listening: Listen) -> None:
    guarded = fresh(Limits(per_second=0.001, burst=3))
    behind, token, body = listening(guarded), guarded.token("observe"), one(guarded)
    statuses = [told(behind.send(request(token, body, *odd)))[0] for odd in ((), (ODD,)) * 2]
    assert [status[9:12] for status in statuses] == [b"200", b"200", b"200", b"429"]
    full = fresh(Limits(held_bytes=10))
    behind, token = listening(full), full.token("observe")
    status, fields, _ = told(behind.send(request(token, one(full))))
    assert (status[9:12], fields[b"retry-after"]) == (b"429", b"1")
    at_rest(full)


def piecewise(behind: Listening, pieces: Iterable[bytes], pause: Callable[[], object]) -> bytes:
    """The status of the answer to a request that comes in pieces."""
    with behind.connect() as made:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            made.sendall(piece)
            pause()
        return told(read_all(made))[0][9:12]


def test_a_body_right_behind_its_header_is_waited_for(
    fresh: Fresh, listening: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SOON", 2 * PATIENCE)
    guarded = fresh()
    behind, token = listening(guarded), guarded.token("observe")
    taken = took(behind, monkeypatch)
    head, _, body = request(token, one(guarded)).partition(b"\r\n\r\n")
    pieces = (head[:20], head[20:] + b"\r\n\r\n", body[:5], body[5:])
    assert piecewise(behind, pieces, lambda: time.sleep(0.05)) == b"200"
    assert taken == [True]
    at_rest(guarded)


def test_a_body_that_takes_longer_or_is_large_is_for_others(
    fresh: Fresh, listening: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SOON", 0.01)
    guarded = fresh()
    behind, token = listening(guarded), guarded.token("observe")
    taken = took(behind, monkeypatch)
    head, _, body = request(token, one(guarded)).partition(b"\r\n\r\n")
    begun = lambda: wait_for(lambda: guarded.service.metrics.in_flight)  # noqa: E731
    pieces = iter([begun, lambda: None, lambda: None])  # the header alone is with others
    assert piecewise(behind, (head + b"\r\n\r\n", body[:5], body[5:]), lambda: next(pieces)()) == (
        b"200"
    )
    assert taken == []
    many = json.dumps(guarded.rows_json(SMALL // 20), default=str).encode()
    assert told(behind.send(request(token, many)))[0].startswith(b"HTTP/1.1 200")
    assert len(many) > SMALL
    assert not any(taken)


def test_who_leaves_before_the_body_is_there_hurts_nobody(
    fresh: Fresh, listening: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SOON", 2 * PATIENCE)
    guarded = fresh()
    behind, token = listening(guarded), guarded.token("observe")
    head, _, body = request(token, one(guarded)).partition(b"\r\n\r\n")
    for _ in range(3):
        with behind.connect() as made:
            made.sendall(head + b"\r\n\r\n" + body[:5])
    assert told(behind.send(request(token, one(guarded))))[0].startswith(b"HTTP/1.1 200")
    at_rest(guarded)


def test_requests_one_behind_the_other_are_answered_in_turn(
    fresh: Fresh, listening: Listen
) -> None:
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


def test_what_is_no_http_behind_a_request_is_told_after_its_answer(
    fresh: Fresh, listening: Listen
) -> None:
    guarded = fresh()
    token = guarded.token("observe")
    asked = request(token, one(guarded), close=False) + b"\x00\x01\x02\r\n\r\n"
    answers = listening(guarded).send(asked)
    assert answers.startswith(b"HTTP/1.1 200")
    assert answers.count(b"HTTP/1.1 400") == 1


def test_who_leaves_before_the_answer_has_the_row_counted_and_hurts_nobody(
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


def test_it_is_logged_and_counted_as_all_others(fresh: Fresh, listening: Listen) -> None:
    guarded = fresh()
    behind, token = listening(guarded), guarded.token("observe")
    with captured() as log:
        for odd in ((), (ODD,)):
            behind.send(request(token, one(guarded, carrier=MARKER), *odd))
    lines = [line for line in lines_of(log) if line["event"] == "request"]
    assert len(lines) == 2
    assert [set(line) for line in lines] == [set(lines[0])] * 2
    assert {(line["route"], line["status"], line["token"]) for line in lines} == {
        ("/v1/streams/{stream}/observations", 200, token.split("_")[1])
    }
    assert MARKER not in log.getvalue()
    found = guarded.service.metrics.exposition().decode()
    count = next(line for line in found.splitlines() if "seconds_count" in line and "2xx" in line)
    assert count.endswith(" 2.0")


def test_a_connection_keeps_nothing_of_a_body_that_was_taken(
    fresh: Fresh, listening: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded = fresh()
    behind, token, cycles = listening(guarded), guarded.token("observe"), list[Any]()
    take = Lane.take
    monkeypatch.setattr(Lane, "take", lambda lane, it: (cycles.append(it), take(lane, it))[1])
    with behind.connect() as made:
        made.sendall(request(token, one(guarded), close=False))
        assert made.recv(65_536).startswith(b"HTTP/1.1 200")
        assert [bytes(cycle.body) for cycle in cycles] == [b""]
