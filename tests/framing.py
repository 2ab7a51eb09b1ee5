"""Requests that try to have their body, or what follows, read as another request.

Each case is one request whose body is `SMUGGLED`, a request for `TARGET`. The service and the edge
must answer it once, or refuse it and close; `TARGET` must never be asked for.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from pyramidion.web.logs import logged
from tests.waiting import PATIENCE

TARGET = "/docs"
SMUGGLED = f"GET {TARGET} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
LAST = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
"""Sent behind every case, so that the server closes the connection in the end."""
SIZE = len(SMUGGLED)
LENGTH = f"Content-Length: {SIZE}"
CHUNKED = "Transfer-Encoding: chunked"
CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (SIZE, SMUGGLED)
SEEDS = range(6)

Case = tuple[Sequence[str], bytes]
"""Header fields and the bytes behind the header."""

ONE_REQUEST: dict[str, Case] = {
    "length": ([LENGTH], SMUGGLED),
    "length with blanks": ([f"Content-Length: \t{SIZE} \t"], SMUGGLED),
    "length with zeros": ([f"Content-Length: 000{SIZE}"], SMUGGLED),
    "chunks": ([CHUNKED], CHUNKS),
    "chunks in capitals": (["TRANSFER-encoding: CHUNKED"], CHUNKS),
    "many chunks": ([CHUNKED], b"".join(b"1\r\n%c\r\n" % c for c in SMUGGLED) + b"0\r\n\r\n"),
    "chunk extensions": (
        [CHUNKED],
        b'%x;a=b;c="d"\r\n%s\r\n0;last\r\n\r\n' % (SIZE, SMUGGLED),
    ),
    "upgrade without connection": ([LENGTH, "Upgrade: websocket"], SMUGGLED),
    "connection without upgrade": ([LENGTH, "Connection: upgrade"], SMUGGLED),
    "upgrade to nothing": ([LENGTH, "Connection: upgrade", "Upgrade:"], SMUGGLED),
    "expect something else": ([LENGTH, "Expect: 200-ok"], SMUGGLED),
    "expect continue": ([LENGTH, "Expect: 100-continue"], SMUGGLED),
    "expect continue in chunks": ([CHUNKED, "Expect: 100-continue"], CHUNKS),
}
"""Read as one request: it is answered, and so is `LAST`."""

AMBIGUOUS: dict[str, Case] = {
    "upgrade": ([LENGTH, "Connection: upgrade", "Upgrade: x"], SMUGGLED),
    "upgrade first": (["Upgrade: x", "Connection: upgrade", LENGTH], SMUGGLED),
    "upgrade among others": ([LENGTH, "Connection: a, Upgrade , b", "Upgrade: x, y/1"], SMUGGLED),
    "upgrade in a second field": (
        ["Connection: keep-alive", LENGTH, "Upgrade: x", "Connection: upgrade"],
        SMUGGLED,
    ),
    "upgrade before keep-alive": (
        ["Connection: upgrade", "Upgrade: x", LENGTH, "Connection: keep-alive"],
        SMUGGLED,
    ),
    "upgrade and close": ([LENGTH, "Connection: close, upgrade", "Upgrade: x"], SMUGGLED),
    "upgrade in chunks": ([CHUNKED, "Connection: upgrade", "Upgrade: x"], CHUNKS),
    "upgrade without a body": (["Connection: upgrade", "Upgrade: x"], b""),
    "upgrade of a proxy": ([LENGTH, "Proxy-Connection: upgrade", "Upgrade: x"], SMUGGLED),
    "websocket": (
        [LENGTH, "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: eA=="],
        SMUGGLED,
    ),
    "h2c": (
        [LENGTH, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AA"],
        SMUGGLED,
    ),
    "length and chunks": ([LENGTH, CHUNKED], b"0\r\n\r\n" + SMUGGLED),
    "chunks and length": ([CHUNKED, LENGTH], b"0\r\n\r\n" + SMUGGLED),
    "two lengths": ([LENGTH, LENGTH], SMUGGLED),
    "two different lengths": (["Content-Length: 0", LENGTH], SMUGGLED),
    "a list of lengths": ([f"Content-Length: {SIZE}, {SIZE}"], SMUGGLED),
    "a signed length": ([f"Content-Length: +{SIZE}"], SMUGGLED),
    "no length in the field": (["Content-Length: "], SMUGGLED),
    "a length in parts": (["Content-Length: 3 3"], SMUGGLED),
    "a hexadecimal length": (["Content-Length: 0x21"], SMUGGLED),
    "a length beyond 64 bits": ([f"Content-Length: {2**64 + SIZE}"], SMUGGLED),
    "a blank before the colon": ([f"Content-Length : {SIZE}"], SMUGGLED),
    "a folded length": ([f"Content-Length:\r\n {SIZE}"], SMUGGLED),
    "a length folded on": ([LENGTH + "\r\n 0"], SMUGGLED),
    "a folded field": ([LENGTH, "X: a\r\n b"], SMUGGLED),
    "a folded coding": (["Transfer-Encoding:\r\n chunked"], CHUNKS),
    "a coding in a fold": ([LENGTH, "X: a\r\n Transfer-Encoding: chunked"], SMUGGLED),
    "a line feed": (["X: a\nContent-Length: 0", LENGTH], SMUGGLED),
    "line feeds alone": ([LENGTH + "\nX: a\n\n"], SMUGGLED),
    "a carriage return": (["X: a\rContent-Length: 0", LENGTH], SMUGGLED),
    "two carriage returns": ([LENGTH, "X: a\r"], SMUGGLED),
    "a null byte": ([LENGTH, "X: a\0b"], SMUGGLED),
    "a field without colon": (["Content-Length"], SMUGGLED),
    "a coding before the colon": (["Transfer-Encoding : chunked"], CHUNKS),
    "a vertical tab": (["Transfer-Encoding: \x0bchunked"], CHUNKS),
    "an unknown coding": (["Transfer-Encoding: xchunked"], CHUNKS),
    "identity": (["Transfer-Encoding: identity"], CHUNKS),
    "identity behind": (["Transfer-Encoding: chunked, identity"], CHUNKS),
    "identity before": (["Transfer-Encoding: identity, chunked"], CHUNKS),
    "gzip": (["Transfer-Encoding: gzip, chunked"], CHUNKS),
    "chunked twice": ([CHUNKED, CHUNKED], CHUNKS),
    "chunked in a list": (["Transfer-Encoding: chunked, chunked"], CHUNKS),
    "identity in a second field": ([CHUNKED, "Transfer-Encoding: identity"], CHUNKS),
    "chunked in a second field": (["Transfer-Encoding: identity", CHUNKED], CHUNKS),
    "a parameter": (["Transfer-Encoding: chunked;q=1"], CHUNKS),
    "a quoted coding": (['Transfer-Encoding: "chunked"'], CHUNKS),
    "no coding in the field": (["Transfer-Encoding: "], CHUNKS),
    "a second host": ([LENGTH, "Host: y"], SMUGGLED),
}
"""Refused for the header: one answer, 400."""

MALFORMED: dict[str, bytes] = {
    "an extension with a line feed": b"2;\nab\r\n0\r\n\r\n" + SMUGGLED,
    "an extension with a carriage return": b"2;\rab\r\n0\r\n\r\n" + SMUGGLED,
    "a prefix": b"0x2\r\nab\r\n0\r\n\r\n" + SMUGGLED,
    "a blank behind the size": b"2 \r\nab\r\n0\r\n\r\n" + SMUGGLED,
    "a negative size": b"-2\r\nab\r\n0\r\n\r\n" + SMUGGLED,
    "a size beyond 64 bits": b"10000000000000002\r\nab\r\n0\r\n\r\n" + SMUGGLED,
    "no size": b"\r\n" + SMUGGLED,
    "no end of a chunk": b"2\r\nab0\r\n\r\n" + SMUGGLED,
    "a longer chunk": b"2\r\nabc\r\n0\r\n\r\n" + SMUGGLED,
    "line feeds": b"2\nab\n0\n\n" + SMUGGLED,
    "a length in the trailer": b"2\r\nab\r\n0\r\n%b\r\n\r\n" % LENGTH.encode() + SMUGGLED,
    "a coding in the trailer": b"2\r\nab\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    "an upgrade in the trailer": b"0\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n" + SMUGGLED,
    "a close in the trailer": b"0\r\nConnection: close\r\n\r\n" + SMUGGLED,
    "a host in the trailer": b"0\r\nHost: y\r\n\r\n" + SMUGGLED,
    "any field in the trailer": b"0\r\nX: y\r\n\r\n" + SMUGGLED,
}
"""Chunks that are refused: 400, perhaps behind an answer that did not wait for the body."""

NOT_READ: dict[str, bytes] = {
    "CONNECT": b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n" + SMUGGLED,
    "CONNECT with a length": (
        b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n%b\r\n\r\n" % LENGTH.encode() + SMUGGLED
    ),
    "HTTP/0.9": b"GET /healthz HTTP/0.9\r\nHost: x\r\n\r\n" + SMUGGLED,
    "no version": b"GET /healthz\r\n" + SMUGGLED,
    "HTTP/1.2": b"GET /healthz HTTP/1.2\r\nHost: x\r\n\r\n" + SMUGGLED,
    "HTTP/2.0": b"GET /healthz HTTP/2.0\r\nHost: x\r\n\r\n" + SMUGGLED,
    "HTTP/2 with prior knowledge": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SMUGGLED,
    "a version in small letters": b"GET /healthz http/1.1\r\nHost: x\r\n\r\n" + SMUGGLED,
    "tabs in the first line": b"GET\t/healthz\tHTTP/1.1\r\nHost: x\r\n\r\n" + SMUGGLED,
    "a fold behind the first line": b"GET /healthz HTTP/1.1\r\n Host: x\r\n\r\n" + SMUGGLED,
    "chunks in HTTP/1.0": (
        b"GET /healthz HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS
    ),
}
"""Refused whole: one answer, 400."""

ASKED = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
SEVERAL: dict[str, tuple[bytes, list[int]]] = {
    "HTTP/1.0": (ASKED.replace(b"1.1", b"1.0") + SMUGGLED, [200]),
    "HTTP/1.0 that would stay": (
        b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + SMUGGLED,
        [200],
    ),
    "behind a close": (LAST + SMUGGLED, [200]),
    "blank lines before": (b"\r\n\r\n" + ASKED, [200, 200]),
    "several": (ASKED * 5, [200] * 6),
    "several and garbage": (ASKED * 3 + b"GARBAGE\r\n\r\n", [200, 200, 200, 400]),
    "several and an upgrade": (
        ASKED * 3
        + b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        [200, 200, 200, 400],
    ),
    "garbage behind a length": (
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n%b\r\n\r\n%bGARBAGE\r\n\r\n"
        % (LENGTH.encode(), SMUGGLED),
        [200, 400],
    ),
}
"""Requests behind each other, and what is answered; the request for `TARGET` behind a close is not
one, since the sender was told to send no more."""


def posted(path: str, case: Case, token: str | None) -> bytes:
    """A case as a POST to a path."""
    fields, body = case
    who = [] if token is None else [f"Authorization: Bearer {token}"]
    lines = [f"POST {path} HTTP/1.1", "Host: x", *who, *fields, "", ""]
    return "\r\n".join(lines).encode() + body


def segmentations() -> Iterator[tuple[str, Callable[[bytes], list[bytes]]]]:
    """Ways to cut what arrives: not at all, everywhere, and at random places."""
    yield "whole", lambda data: [data]
    yield "bytes", lambda data: [bytes([byte]) for byte in data]
    for seed in SEEDS:
        yield f"seed {seed}", _cutter(random.Random(seed))


def _cutter(chance: random.Random) -> Callable[[bytes], list[bytes]]:
    def cut(data: bytes) -> list[bytes]:
        places = sorted(chance.sample(range(1, len(data)), min(8, len(data) - 1)))
        return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]

    return cut


class Cutting:
    """Connections to whose parser every received piece comes in smaller pieces."""

    def __init__(self) -> None:
        self.cut: Callable[[bytes], list[bytes]] = lambda data: [data]

    def kind(self, kind: type[Any]) -> type[Any]:
        """Such connections."""
        cutting = self

        class Cut(kind):  # type: ignore[misc]
            def data_received(self, data: bytes) -> None:
                for piece in cutting.cut(data):
                    if not self.transport.is_closing():
                        super().data_received(piece)

        return Cut


def statuses(port: int, data: bytes) -> list[int]:
    """Send bytes over one connection until it is closed; the statuses of all final answers."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as made:
        with contextlib.suppress(OSError):
            made.sendall(data)
        parts = []
        with contextlib.suppress(ConnectionResetError):
            while part := made.recv(65_536):
                parts.append(part)
    return list(_read(b"".join(parts)))


def _read(data: bytes) -> Iterator[int]:
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        version, status = first.split(" ")[:2]
        assert version == "HTTP/1.1"
        if status == "100":
            continue
        fields = dict(line.lower().split(": ", 1) for line in lines)
        data = data[int(fields["content-length"]) :]
        yield int(status)


class Server(Protocol):
    """A service or an edge behind a socket."""

    port: int
    path: str
    """Where rows are posted,"""
    token: str
    """by whom,"""
    unreadable: int
    """and how it answers a body that is no rows."""
    cutting: Cutting


def answers_once(server: Server, name: str) -> None:
    """Check one of `ONE_REQUEST`."""
    for token, status in ((None, 401), (server.token, server.unreadable)):
        data = posted(server.path, ONE_REQUEST[name], token) + LAST
        for how, found in asked(server, data):
            assert found == [status, 200], how


def refuses_header(server: Server, name: str) -> None:
    """Check one of `AMBIGUOUS`."""
    for token in (None, server.token):
        for how, found in asked(server, posted(server.path, AMBIGUOUS[name], token) + LAST):
            assert found == [400], how


def refuses_chunks(server: Server, name: str) -> None:
    """Check one of `MALFORMED`."""
    for token in (None, server.token):
        data = posted(server.path, ([CHUNKED], MALFORMED[name]), token) + LAST
        for how, found in asked(server, data):
            assert found in ([400], [401, 400] if token is None else []), how


def refuses_request(server: Server, name: str) -> None:
    """Check one of `NOT_READ`."""
    for how, found in asked(server, NOT_READ[name] + LAST):
        assert found == [400], how


def answers_in_order(server: Server, name: str) -> None:
    """Check one of `SEVERAL`."""
    data, expected = SEVERAL[name]
    for how, found in asked(server, data + LAST):
        assert found == expected, how


def asked(server: Server, data: bytes) -> Iterator[tuple[str, list[int]]]:
    """Send bytes in every segmentation; nothing in them is handled as a request for `TARGET`."""
    log = io.StringIO()
    with logged(log):
        for how, cut in segmentations():
            server.cutting.cut = cut
            yield how, statuses(server.port, data)
    routes = [json.loads(line).get("route") for line in log.getvalue().splitlines()]
    assert TARGET not in routes


CHECKS = [
    *((answers_once, name) for name in ONE_REQUEST),
    *((refuses_header, name) for name in AMBIGUOUS),
    *((refuses_chunks, name) for name in MALFORMED),
    *((refuses_request, name) for name in NOT_READ),
    *((answers_in_order, name) for name in SEVERAL),
]
