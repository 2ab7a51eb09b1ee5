"""Rows on their way: nothing to a bystander, all or an error to the engineer; and the address."""

from __future__ import annotations

import io
import json
import socket
import threading
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyramidion.errors import FormatError, SchemaError, StateError, StorageError
from pyramidion.vault import broker_server
from pyramidion.vault.broker_server import CONNECTIONS, LONGEST
from pyramidion.vault.documents import Grant
from pyramidion.vault.key_pairs import PrivateKey
from pyramidion.vault.reader import hello, open_grant, revoke_grant
from pyramidion.vault.stream import END, FILE, Opener, Sealer, pieces
from tests.vault.desk import CANARY, CUSTODIAN, ENGINEER, OTHER, Desk
from tests.waiting import PATIENCE as LONG
from tests.waiting import wait_for

BROKER = PrivateKey.new()
TOKEN = bytes(32)


def grant(broker: PrivateKey = BROKER) -> Grant:
    made = Grant(
        *("id", "request", "s", CUSTODIAN.public, broker.public, "Ada", ENGINEER.public),
        *("read", 0, 1, ("carrier",), "a bug", 0, 1, ()),
    )
    return made


GRANT = grant()


def frames(token: bytes = TOKEN, broker: PrivateKey = BROKER) -> list[bytes]:
    """A stream of one file with two batches."""
    sealer = Sealer(GRANT, token, broker)
    batch = pa.record_batch({"carrier": [CANARY]})
    plain = [(FILE, b"hour-0"), *pieces(batch), *pieces(batch), (END, b"")]
    return [sealer.opening, *(sealer.frame(kind, piece) for kind, piece in plain)]


def kinds(data: bytes, key: PrivateKey = ENGINEER, token: bytes = TOKEN) -> bytes:
    return b"".join(kind for kind, _ in Opener(io.BytesIO(data), GRANT, token, key).frames())


FRAMES = frames()
WHOLE = b"".join(FRAMES)


def test_a_stream_comes_through() -> None:
    assert kinds(WHOLE) == b"FBBE"


def test_a_bystander_has_nothing() -> None:
    assert CANARY.encode() not in WHOLE
    assert b"hour-0" not in WHOLE
    with pytest.raises(FormatError, match="sealed to another key"):
        kinds(WHOLE, OTHER)


@given(st.integers(0, len(WHOLE) - 1))
def test_a_stream_that_is_cut_off_anywhere_is_found_out(length: int) -> None:
    with pytest.raises(FormatError):
        kinds(WHOLE[:length])


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_a_stream_that_is_changed_anywhere_is_found_out(place: int, flip: int) -> None:
    changed = bytearray(WHOLE)
    changed[place] ^= flip
    with pytest.raises(FormatError):
        kinds(bytes(changed))


@given(st.permutations(range(len(FRAMES))))
def test_frames_in_another_order_are_found_out(order: list[int]) -> None:
    if order == sorted(order):
        return
    with pytest.raises(FormatError):
        kinds(b"".join(FRAMES[place] for place in order))


def test_a_frame_that_is_left_out_or_repeated_is_found_out() -> None:
    for changed in ([*FRAMES[:2], *FRAMES[3:]], [*FRAMES[:3], *FRAMES[2:]]):
        with pytest.raises(FormatError, match="changed or left out"):
            kinds(b"".join(changed))


def test_rows_of_another_broker_are_refused() -> None:
    with pytest.raises(FormatError, match="do not come from the broker"):
        kinds(b"".join(frames(broker=OTHER)))


def test_a_stream_that_was_recorded_is_refused_when_it_is_played_again() -> None:
    with pytest.raises(FormatError, match="do not come from the broker"):
        kinds(WHOLE, token=bytes(range(32)))


# --- the address ------------------------------------------------------------------------------


def asked(
    address: str, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, str]:
    parts = urlsplit(address)
    connection = HTTPConnection(str(parts.hostname), parts.port, timeout=LONG)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_a_broker_says_who_it_is(desk: Desk) -> None:
    with desk.served() as address:
        found = hello(address)
    assert found.broker == desk.broker.public
    assert (found.store, found.custodian) == ("s", CUSTODIAN.public.fingerprint)


def test_an_error_is_a_sentence_with_a_status(desk: Desk) -> None:
    with desk.served() as address:
        told = {
            path: asked(address, "POST", path, b"{}")
            for path in ("/grants", "/open", "/revocations", "/nothing")
        }
    assert {path: status for path, (status, _) in told.items()} == {
        "/grants": 422,
        "/open": 409,
        "/revocations": 422,
        "/nothing": 404,
    }
    assert all(";" in json.loads(body)["error"] for _, body in told.values())


@pytest.mark.parametrize("length", [str(LONGEST + 1), "-1", "many", "²"])
def test_a_body_that_is_too_long_is_not_read(desk: Desk, length: str) -> None:
    with desk.served() as address:
        parts = urlsplit(address)
        with socket.create_connection((str(parts.hostname), int(parts.port or 0)), LONG) as line:
            line.sendall(f"POST /grants HTTP/1.0\r\nContent-Length: {length}\r\n\r\n".encode())
            assert line.recv(12) == b"HTTP/1.0 422"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection ends because it waited too long."""
    monkeypatch.setattr(broker_server._Handler, "timeout", 10 * LONG)


@pytest.mark.usefixtures("patient")
def test_a_thousand_connections_do_not_make_a_thousand_threads(desk: Desk) -> None:
    with desk.served() as address:
        parts = urlsplit(address)
        where = (str(parts.hostname), int(parts.port or 0))
        lines = [socket.create_connection(where, LONG) for _ in range(CONNECTIONS + 1)]
        try:
            assert lines[-1].recv(12) == b"HTTP/1.0 503"
        finally:
            for line in lines:
                line.close()


def test_nothing_is_printed_of_what_is_asked(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    with desk.served() as address:
        asked(address, "POST", "/grants", CANARY.encode())
        asked(address, "GET", f"/{CANARY}")
        asked(address, "BREW", "/coffee")
    assert capfd.readouterr() == ("", "")


def test_where_no_broker_is_an_error_says_so(desk: Desk) -> None:
    with desk.served() as address:
        pass
    with pytest.raises(StorageError, match="no broker answers at"):
        hello(address)
    with pytest.raises(StorageError, match="no broker answers at"):
        open_grant(desk.grant().to_json(), ENGINEER, address)
    for bad in ("ftp://somewhere", "http://", "file:///etc/passwd"):
        with pytest.raises(SchemaError, match="no broker's address"):
            hello(bad)


def test_a_revocation_is_taken_to_the_broker(desk: Desk) -> None:
    from pyramidion.vault.documents import Revocation

    made = desk.grant()
    with desk.served() as address:
        text = Revocation.make(made.id, CUSTODIAN, now=1).to_json()
        assert revoke_grant(text, address) == made.id
        with pytest.raises(StateError, match="taken back"):
            desk.rows(made, address)


def answering() -> list[threading.Thread]:
    """The threads that answer somebody."""
    return [each for each in threading.enumerate() if "process_request_thread" in each.name]


@pytest.mark.usefixtures("patient")
def test_an_engineer_who_leaves_early_leaves_no_thread_behind(desk: Desk) -> None:
    # 30 MB, more than the buffers of a connection hold: who answers waits for the reader.
    desk.envelopes[0] = desk.seal("large", 0, batches=8, rows=60_000, random=64)
    made = desk.grant(0)
    with desk.served() as address:
        for _ in range(CONNECTIONS + 4):
            with desk.rows(made, address) as rows:
                next(rows.batches())
                assert answering()
            wait_for(lambda: answering() == [])
        assert hello(address).store == "s"
