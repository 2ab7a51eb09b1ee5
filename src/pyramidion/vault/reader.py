"""What an engineer does with a grant: present it to the broker, and receive its rows.

    open_grant      presents the grant, answers the challenge, and gives the rows as they come
    rewrite_files   the same with a grant to erase: its files without one person's rows, encrypted
    revoke_grant    takes a revocation to the broker
    hello           who answers at an address

The rows come from the broker that the grant names, or not at all, and all of them, or an
error says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Self
from urllib.parse import urlsplit

import pyarrow as pa

from pyramidion import errors
from pyramidion.errors import FormatError, PyramidionError, SchemaError, StateError, StorageError
from pyramidion.vault.documents import Grant
from pyramidion.vault.envelope import Envelope
from pyramidion.vault.erase_person import Order, Rewritten
from pyramidion.vault.key_pairs import PrivateKey, PublicKey, coded, decoded
from pyramidion.vault.parquet import ARRIVED, BATCH
from pyramidion.vault.stream import BATCH as WHOLE
from pyramidion.vault.stream import (
    ENVELOPE,
    FAULT,
    FILE,
    PART,
    SEALED,
    Opener,
    challenge_context,
)

PATIENCE = 120.0  # seconds that a broker may need for a file
_LONGEST = 1 << 20  # bytes of an answer that is not rows

Line = tuple[HTTPResponse, HTTPConnection]


@dataclass(frozen=True)
class Hello:
    """Who answers at an address."""

    broker: PublicKey
    store: str
    custodian: str


def hello(address: str) -> Hello:
    """Ask who is there."""
    told = _asked(address, "GET", "/hello")
    return Hello(
        PublicKey.from_code(told.get("broker")), str(told.get("store")), str(told.get("custodian"))
    )


def revoke_grant(text: str | bytes, address: str) -> str:
    """Take a revocation to a broker; the id of the grant that is over."""
    return str(_asked(address, "POST", "/revocations", text).get("revoked"))


def read_grant(text: str | bytes) -> Grant:
    """A grant that was not changed since the custodian it names signed it."""
    return Grant.from_json(text, PublicKey.from_code(Grant.read(text).get("custodian")))


def open_grant(grant_text: str | bytes, key: PrivateKey, address: str) -> GrantedRows:
    """The rows of a grant, for who has the key that the request was made with."""
    grant = read_grant(grant_text)
    grant.refuse_unless("read")
    line, opener = _opened(grant, grant_text, key, address, "/open", lambda _: {})
    return GrantedRows(grant, line, opener)


def rewrite_files(
    grant_text: str | bytes, key: PrivateKey, address: str, order: Order
) -> Iterator[Rewritten]:
    """The files of a grant to erase, each without the rows of the person in the order."""
    grant = read_grant(grant_text)
    grant.refuse_unless("erase")
    line, opener = _opened(
        grant, grant_text, key, address, "/erase", lambda t: {"order": order.seal(grant, t)}
    )
    name, parts = "", list[bytes]()
    try:
        for kind, piece in opener.frames():
            if kind == FILE:
                name, parts = piece.decode(), []
            elif kind == FAULT:
                raise _error(json.loads(piece))
            elif kind in (PART, SEALED):
                parts.append(piece)
            elif kind == ENVELOPE:
                yield Rewritten(name, b"".join(parts), Envelope.from_bytes(piece))
    finally:
        _hang_up(line)


def _opened(
    grant: Grant,
    grant_text: str | bytes,
    key: PrivateKey,
    address: str,
    path: str,
    more: Callable[[bytes], dict[str, bytes]],
) -> tuple[Line, Opener]:
    """A stream of the broker, after its challenge is answered; ``more`` goes with the answer."""
    if grant.key != key.public:
        raise SchemaError(
            "this grant is for another key than the one given; give the key file of its request"
        )
    told = _asked(address, "POST", "/grants", grant_text)
    token = key.open(decoded(told.get("challenge"), "a challenge"), challenge_context(grant))
    body = {name: coded(data) for name, data in ({"answer": token} | more(token)).items()}
    connection, response = _sent(address, "POST", path, json.dumps(body).encode())
    return (response, connection), Opener(_Source(response, address), grant, token, key)


class GrantedRows:
    """Rows on their way: read them once, one way or another, and in a ``with`` block."""

    def __init__(self, grant: Grant, line: Line, opener: Opener) -> None:
        self.grant = grant
        self._line, self._opener = line, opener
        self._read = False

    @property
    def most(self) -> int:
        """How many rows the granted files have; those that arrived at other times do not come."""
        return sum(file.header.rows for file in self.grant.files)

    def by_file(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Batches as they come, each with the name of its file."""
        if self._read:
            raise StateError("these rows were read already; open the grant again")
        self._read = True
        name, parts = "", []
        with self:
            for kind, piece in self._opener.frames():
                if kind == FILE:
                    name = piece.decode()
                elif kind == FAULT:
                    raise _error(json.loads(piece))
                elif kind in (PART, WHOLE):
                    parts.append(piece)
                if kind == WHOLE:
                    yield name, _batch(b"".join(parts))
                    parts = []

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Batches as they come."""
        return (batch for _, batch in self.by_file())

    def read_all(self) -> pa.Table:
        """All rows as one table; where a file lacks a column it is null."""
        tables = [pa.Table.from_batches([batch]) for batch in self.batches()]
        if not tables:
            names = dict.fromkeys([*self.grant.columns, BATCH, ARRIVED])
            return pa.table({name: pa.nulls(0) for name in names})
        return pa.concat_tables(tables, promote_options="permissive")

    def to_pandas(self) -> Any:
        """All rows as a pandas data frame."""
        return self.read_all().to_pandas()

    def close(self) -> None:
        """Let go of the broker, which is told at once: the response holds the line by itself."""
        _hang_up(self._line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _hang_up(line: Line) -> None:
    for end in line:
        end.close()


def _batch(data: bytes) -> pa.RecordBatch:
    try:
        with pa.ipc.open_stream(pa.BufferReader(data)) as reader:
            return reader.read_next_batch()
    except (pa.ArrowException, StopIteration):
        pass
    raise FormatError("the broker sent rows that do not read; upgrade pyramidion on both sides")


# --- HTTP ---------------------------------------------------------------------------------


class _Source:
    """A response's bytes, with errors of the network in our words."""

    def __init__(self, response: HTTPResponse, address: str) -> None:
        self._response, self._address = response, address

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end."""
        try:
            return self._response.read(size)
        except (OSError, HTTPException):
            raise _away(self._address) from None


def _asked(address: str, method: str, path: str, body: str | bytes = b"") -> dict[str, Any]:
    connection, response = _sent(address, method, path, body)
    try:
        told = json.loads(_Source(response, address).read(_LONGEST))
    except ValueError:
        told = None
    finally:
        connection.close()
    if not isinstance(told, dict):
        raise FormatError(f"no broker answers at {address}; check the address")
    return told


def _sent(
    address: str, method: str, path: str, body: str | bytes
) -> tuple[HTTPConnection, HTTPResponse]:
    """The connection and its answer, where that is no refusal."""
    connection = _connection(address)
    try:
        connection.request(method, path, body.encode() if isinstance(body, str) else body)
        response = connection.getresponse()
        if response.status == 200:
            return connection, response
        told: Any = None
        with suppress(ValueError):
            told = json.loads(response.read(_LONGEST))
        raise _error(told)
    except PyramidionError:
        connection.close()
        raise
    except (OSError, HTTPException):
        connection.close()
        raise _away(address) from None


def _connection(address: str) -> HTTPConnection:
    parts = urlsplit(address if "//" in address else f"//{address}")
    try:
        port = parts.port
    except ValueError:
        port = None
    if not parts.hostname or parts.scheme not in ("", "http", "https"):
        raise SchemaError(f"{address} is no broker's address; write http://HOST:PORT")
    made = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    return made(parts.hostname, port, timeout=PATIENCE)


def _away(address: str) -> StorageError:
    return StorageError(f"no broker answers at {address}; start one, or check the address")


_KINDS = ("SchemaError", "StateError", "FormatError", "StorageError", "KeyHolderError")


def _error(told: Any) -> PyramidionError:
    """What a broker refuses with, as the error that it was there."""
    told = told if isinstance(told, dict) else {}
    sentence = str(told.get("error", "the broker is busy or gives no reason; try it again"))
    kind = told.get("kind")
    made: type[PyramidionError] = getattr(errors, kind) if kind in _KINDS else StateError
    return made(sentence)
