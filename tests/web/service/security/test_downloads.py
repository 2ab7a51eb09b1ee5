"""A training set whose reader leaves: its place is free again, and nothing of it is kept."""

from __future__ import annotations

import gc
import socket
import struct
from collections.abc import Callable

import pytest

from pyramidion.learn.training_set import TrainingSet
from pyramidion.web.bodies import ARROW
from pyramidion.web.limits import Limits
from tests.store.stores import DAY, rows
from tests.waiting import PATIENCE, wait_for
from tests.web.service.security.guarded import STREAM, Guarded, Listening

PATH = f"/v1/streams/{STREAM}/training-set"
BATCHES, SIZE = 6, 10_000  # rows: more bytes than sockets of this size hold
BUFFER = 16_384


@pytest.fixture
def place(
    fresh: Callable[..., Guarded], listening: Callable[[Guarded], Listening]
) -> tuple[Guarded, Listening]:
    """A service that answers one request at a time, and has much to tell."""
    guarded = fresh(Limits(at_once=1, unread_seconds=2 * PATIENCE))
    store = guarded.pyramid()
    store.observe(rows(200, guarded.clock.now, seed=1))
    guarded.clock.pass_(10 * DAY)
    store.advance()
    for seed in range(BATCHES):  # each goes out by itself
        store.observe(rows(SIZE, guarded.clock.now, seed))
    made = listening(guarded)
    made.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)  # connections inherit it
    return guarded, made


def begun(listening: Listening, token: str, accept: str) -> socket.socket:
    """A download of which the first bytes have come, and no more are read."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
    made.connect(("127.0.0.1", listening.port))
    head = f"GET {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nAccept: {accept}"
    made.sendall(f"{head}\r\n\r\n".encode())
    assert made.recv(200).startswith(b"HTTP/1.1 200")
    return made


def cut(made: socket.socket, how: str) -> None:
    if how == "at once":  # a reset, as of a program that dies
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    made.close()


def kept() -> list[TrainingSet]:
    gc.collect()
    return [each for each in gc.get_objects() if type(each) is TrainingSet]


@pytest.mark.parametrize("accept", ["application/x-ndjson", ARROW])
@pytest.mark.parametrize("how", ["at once", "politely"])
def test_a_download_that_is_cut_gives_its_place_back_and_keeps_nothing(
    place: tuple[Guarded, Listening], how: str, accept: str
) -> None:
    guarded, listening = place
    service, token, before = guarded.service, guarded.token("train"), len(kept())
    made = begun(listening, token, accept)
    assert service.admission.answering["requests"] == 1
    assert service.metrics.in_flight == 1
    assert len(kept()) > before
    cut(made, how)
    wait_for(lambda: not service.admission.answering["requests"])
    wait_for(lambda: not service.metrics.in_flight)
    assert service.admission.held == 0
    wait_for(lambda: len(kept()) <= before)
    again = begun(listening, token, accept)  # there is room for the one that may be answered
    again.close()
    told = [entry.kind for entry in guarded.pyramid().audit_log.entries()]
    assert told.count("rows.read") == 2
