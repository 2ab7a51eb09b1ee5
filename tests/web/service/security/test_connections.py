"""Slow, cut and lying connections: each ends, none takes the others with it."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from pyramidion.web.limits import Limits
from tests.waiting import PATIENCE, wait_for
from tests.web.service.security.guarded import STREAM, Guarded, Listening, read_all

QUICK = Limits(
    header_seconds=0.5,
    body_seconds=0.5,
    unread_seconds=0.5,
    idle_seconds=1,
    connections=8,
    header_bytes=8_192,
)
CALM = replace(
    QUICK, header_seconds=2 * PATIENCE, body_seconds=2 * PATIENCE, unread_seconds=2 * PATIENCE
)
"""For clients that are not slow, on a machine that may be."""
PATH = f"/v1/streams/{STREAM}/observations"

Listens = Callable[[Guarded], Listening]
Makes = Callable[..., Guarded]


Place = tuple[Guarded, Listening]


@pytest.fixture
def quick(fresh: Makes, listening: Listens) -> Place:
    guarded = fresh(QUICK)
    return guarded, listening(guarded)


@pytest.fixture
def bodies(fresh: Makes, listening: Listens) -> Place:
    """It waits for headers, and not for bodies."""
    guarded = fresh(replace(CALM, body_seconds=0.5))
    return guarded, listening(guarded)


@pytest.fixture
def place(fresh: Makes, listening: Listens) -> Place:
    guarded = fresh(CALM)
    return guarded, listening(guarded)


def head(guarded: Guarded, *fields: str, method: str = "POST", path: str = PATH) -> bytes:
    token = guarded.token("observe")
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", *fields]
    return "\r\n".join([*lines, "", ""]).encode()


def told(data: bytes) -> tuple[int, str]:
    """Status and code of the last answer in some bytes."""
    header, _, body = data.rpartition(b"\r\n\r\n")
    status = int(header.rpartition(b"HTTP/1.1 ")[2][:3])
    return status, json.loads(body)["error"]["code"]


def goes_on(listening: Listening) -> None:
    """It answers; by and by, where this machine is slower than what it waits for."""
    asked = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    wait_for(lambda: listening.send(asked).startswith(b"HTTP/1.1 200"))


def cut_off(made: socket.socket, data: bytes, pause: float) -> bool:
    """Whether the service ends a connection that sends the same again and again."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            made.sendall(data)
        except OSError:
            return True
        time.sleep(pause)
    return False


def test_a_connection_that_says_nothing_is_closed(quick: Place) -> None:
    with quick[1].connect() as made:
        assert read_all(made) == b""


def test_a_header_that_comes_in_drops_is_not_waited_for(quick: Place) -> None:
    with quick[1].connect() as made:
        try:
            for byte in b"GET /healthz HTTP/1.1\r\n" + b"x: y\r\n" * 1_000:
                made.sendall(bytes([byte]))
                time.sleep(0.02)
        except OSError:
            pass
        assert read_all(made) == b""
    goes_on(quick[1])


def test_drops_after_an_answer_are_not_waited_for_either(quick: Place) -> None:
    with quick[1].connect() as made:
        made.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        made.recv(65_536)
        assert cut_off(made, b"G", 0.02)


def test_a_body_that_does_not_come_gets_408_and_the_connection_ends(bodies: Place) -> None:
    found = bodies[1].send(head(bodies[0], "Content-Length: 100") + b"[")
    assert told(found) == (408, "SlowError")
    assert b"connection: close" in found.lower()


def test_a_body_that_comes_in_drops_gets_408(bodies: Place) -> None:
    with bodies[1].connect() as made:
        made.sendall(head(bodies[0], "Content-Length: 100000"))
        try:
            for _ in range(1_000):
                made.sendall(b" ")
                time.sleep(0.02)
        except OSError:
            pass
        data = read_all(made)
    assert not data or told(data) == (408, "SlowError")


def test_chunks_without_an_end_get_408(bodies: Place) -> None:
    found = bodies[1].send(head(bodies[0], "Transfer-Encoding: chunked") + b"1\r\n[\r\n")
    assert told(found) == (408, "SlowError")


def test_a_chunked_body_is_read(place: Place) -> None:
    body = b"2\r\n[]\r\n0\r\n\r\n"
    found = place[1].send(head(place[0], "Transfer-Encoding: chunked", "Connection: close") + body)
    assert found.startswith((b"HTTP/1.1 200", b"HTTP/1.1 422"))


def test_chunks_that_lie_are_not_understood(place: Place) -> None:
    begun = head(place[0], "Transfer-Encoding: chunked")
    assert told(place[1].send(begun + b"zz\r\n")) == (400, "RequestError")


def test_both_lengths_are_not_understood(place: Place) -> None:
    fields = "Content-Length: 2", "Content-Length: 3"
    assert told(place[1].send(head(place[0], *fields) + b"[]"))[0] == 400


@pytest.mark.parametrize("hosts", ["", "Host: x\r\nHost: y\r\n"])
def test_a_request_has_one_host(place: Place, hosts: str) -> None:
    assert told(place[1].send(f"GET /healthz HTTP/1.1\r\n{hosts}\r\n".encode()))[0] == 400


def test_trailer_fields_are_refused(place: Place) -> None:
    fields = "Host: x", "Transfer-Encoding: chunked", "Connection: close"
    begun = "\r\n".join([f"POST {PATH} HTTP/1.1", *fields, "", ""]).encode()
    late = f"Authorization: Bearer {place[0].token('observe')}\r\n".encode()
    found = place[1].send(begun + b"2\r\n[]\r\n0\r\n" + late + b"\r\n")
    assert told(found) == (400, "RequestError")


@pytest.mark.parametrize("more", [b"1;" + b"x" * 64, b"0\r\nx: " + b"y" * 64])
def test_what_stands_beside_a_body_is_bounded_too(place: Place, more: bytes) -> None:
    with place[1].connect() as made:
        made.sendall(head(place[0], "Transfer-Encoding: chunked") + more)
        assert cut_off(made, b"z" * 1_024, 0.001)
    goes_on(place[1])


def test_an_answer_that_was_begun_is_whole_whatever_comes_behind_it(place: Place) -> None:
    asked = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
    found = place[1].send(asked + b"GARBAGE\r\n\r\n")
    length = int(found.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
    body = found.partition(b"\r\n\r\n")[2]
    assert json.loads(body[:length])["openapi"]
    assert told(body[length:])[0] == 400


def test_bytes_beyond_the_length_are_no_second_request(place: Place) -> None:
    found = place[1].send(head(place[0], "Content-Length: 2") + b"[]GARBAGE\r\n\r\n")
    assert found.count(b"HTTP/1.1 ") == 2
    assert told(found) == (400, "RequestError")


@pytest.mark.parametrize("length", ["-1", "1e3", "x", "99999999999999999999999999"])
def test_a_length_that_is_none_is_refused(place: Place, length: str) -> None:
    found = place[1].send(head(place[0], f"Content-Length: {length}"))
    assert told(found)[0] in (400, 413)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\n\r\n",
        b"\r\n" * 10_000,
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"x: " + b"y" * 20_000,
    ],
)
def test_what_is_not_http_is_told_so_in_the_one_shape(quick: Place, garbage: bytes) -> None:
    found = quick[1].send(garbage)
    assert not found or told(found) == (400, "RequestError")
    goes_on(quick[1])


def test_a_connection_that_is_cut_in_a_body_takes_nothing_with_it(place: Place) -> None:
    for _ in range(5):
        with place[1].connect() as made:
            made.sendall(head(place[0], "Content-Length: 100") + b"[")
    goes_on(place[1])
    admission = place[0].service.admission
    wait_for(lambda: not admission.held and not any(admission.answering.values()))


HEALTHY = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
SLOW = replace(CALM, connections=3, idle_seconds=600)


def test_oldest_half_open_connection_makes_room(fresh: Makes, listening: Listens) -> None:
    place = listening(fresh(SLOW))
    with place.connect() as idle, place.connect() as first, place.connect() as second:
        idle.sendall(HEALTHY)
        assert idle.recv(65_536).startswith(b"HTTP/1.1 200")
        for each in (first, second):
            each.sendall(b"G")
        wait_for(lambda: len(place.slots) == 3)
        with place.connect() as third:
            assert read_all(first) == b""
            third.sendall(HEALTHY)
            assert third.recv(65_536).startswith(b"HTTP/1.1 200")
            for each, rest in ((second, HEALTHY[1:]), (idle, HEALTHY)):
                each.sendall(rest)
                assert each.recv(65_536).startswith(b"HTTP/1.1 200")


def test_dropped_connections_are_forgotten(fresh: Makes, listening: Listens) -> None:
    place = listening(fresh(SLOW))
    made = [place.connect() for _ in range(50)]  # accepted together: some go before they are made
    for each in made[:-3]:
        assert read_all(each) == b""
    wait_for(lambda: len(place.server.server_state.connections) == len(place.slots) == 3)
    for each in made:
        each.close()
    wait_for(lambda: len(place.server.server_state.connections) == len(place.slots) == 0)


def test_longest_idle_connection_makes_room(fresh: Makes, listening: Listens) -> None:
    place = listening(fresh(SLOW))
    made = [place.connect() for _ in range(3)]
    for each in (made[1], made[0], made[2]):
        each.sendall(HEALTHY)
        assert each.recv(65_536).startswith(b"HTTP/1.1 200")
    goes_on(place)
    assert read_all(made[1]) == b""
    for each in (made[0], made[2]):
        each.sendall(HEALTHY)
        assert each.recv(65_536).startswith(b"HTTP/1.1 200")
    for each in made:
        each.close()


def test_busy_connections_make_no_room(fresh: Makes, listening: Listens) -> None:
    guarded = fresh(SLOW)
    place = listening(guarded)
    made = [place.connect() for _ in range(3)]
    for each in made:
        each.sendall(head(guarded, "Content-Length: 2"))
    wait_for(lambda: guarded.service.admission.answering["observations"] == 3)
    with place.connect() as one_more:
        assert read_all(one_more) == b""
    for each in made:
        each.sendall(b"[]")
        assert each.recv(65_536).startswith(b"HTTP/1.1 200")
        each.close()


def test_an_idle_connection_is_closed(place: Place) -> None:
    with place[1].connect() as made:
        made.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_all(made).count(b"HTTP/1.1 200") == 1


def test_an_answer_that_nobody_reads_is_given_up(quick: Place) -> None:
    listening = quick[1]
    with listening.connect() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        asked = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
        assert cut_off(made, asked, 0.001)
    goes_on(listening)


def test_upgrade_is_refused(place: Place) -> None:
    fields = "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: eA=="
    found = place[1].send(head(place[0], *fields, method="GET", path="/v1/streams"))
    assert told(found) == (400, "RequestError")
    assert b"connection: close" in found


def test_no_answer_says_what_serves(place: Place) -> None:
    found = place[1].send(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert b"\r\nserver:" not in found.lower()
