"""Rows, or rewritten files, on their way from a broker to an engineer.

Sealed, in order, whole or seen to be cut.

    opening     the broker's signature, and the stream's key, sealed to the engineer (HPKE)
    frames      length, then AES-GCM of a kind and a piece; the nonce counts, and the grant, the
                broker and the challenge are bound in

    FILE        the name of the file that the next batches are from
    PART        a piece of a batch, of which more follows
    BATCH       the last piece of a batch: an Arrow IPC stream
    SEALED      the last piece of a file that was rewritten: encrypted Parquet
    ENVELOPE    the envelope of that file
    FAULT       why the stream ends here, before its end
    END         nothing is missing

Who records it has nothing; a frame that is changed, moved, repeated or left out does not
open; a stream that stops before END or FAULT was cut off.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from hashlib import sha256
from typing import Protocol

import pyarrow as pa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pyramidion.errors import FormatError, PyramidionError
from pyramidion.vault.documents import Grant
from pyramidion.vault.envelope import canonical
from pyramidion.vault.key_pairs import PrivateKey, PublicKey

FILE, PART, BATCH, FAULT, END = b"F", b"P", b"B", b"X", b"E"
SEALED, ENVELOPE = b"S", b"V"
PIECE = 1 << 20  # bytes of a frame: little to hold, much to a call
_LENGTH, _TAG, _SIGNATURE = 4, 16, 64  # bytes


class Readable(Protocol):
    """What frames are read from."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end."""


def challenge_context(grant: Grant) -> bytes:
    """What a challenge is bound to."""
    return b"pyramidion vault challenge\n" + grant.digest.encode()


def context_of(grant: Grant, token: bytes) -> bytes:
    """What a stream is bound to: this grant, with its broker and engineer, and this opening."""
    return canonical({"grant": grant.digest, "opening": sha256(b"stream" + token).hexdigest()})


class Sealer:
    """Makes a stream's bytes, on the broker's side."""

    def __init__(self, grant: Grant, token: bytes, broker: PrivateKey) -> None:
        key = os.urandom(32)
        self._context = context_of(grant, token)
        self._cipher, self._count = AESGCM(key), 0
        sealed = grant.key.seal(key, self._context)
        self.opening = _framed(broker.sign(self._context + sealed) + sealed)

    def frame(self, kind: bytes, piece: bytes = b"") -> bytes:
        """One frame."""
        nonce = self._count.to_bytes(12, "big")
        self._count += 1
        return _framed(self._cipher.encrypt(nonce, kind + piece, self._context))


def pieces(batch: pa.RecordBatch) -> Iterator[tuple[bytes, bytes]]:
    """A batch as the kinds and pieces of its frames."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return cut(sink.getvalue(), BATCH)


def cut(data: pa.Buffer | bytes, kind: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Bytes as the kinds and pieces of frames, of which the last one has this kind."""
    view = memoryview(data)
    last = max(0, (len(view) - 1) // PIECE)
    for number in range(last + 1):
        piece = bytes(view[number * PIECE : (number + 1) * PIECE])
        yield (kind if number == last else PART), piece


def fault(error: PyramidionError) -> tuple[bytes, bytes]:
    """The kind and piece of the frame that says why there is no more."""
    told = {"kind": type(error).__name__, "error": str(error)}
    return FAULT, json.dumps(told).encode()


class Opener:
    """Reads a stream, on the engineer's side."""

    def __init__(self, source: Readable, grant: Grant, token: bytes, key: PrivateKey) -> None:
        self._source, self._count = source, 0
        self._context = context_of(grant, token)
        self._cipher = AESGCM(self._opening(grant.broker, key))

    def _opening(self, broker: PublicKey, key: PrivateKey) -> bytes:
        data = self._raw()
        signature, sealed = data[:_SIGNATURE], data[_SIGNATURE:]
        if not broker.signed(signature, self._context + sealed):
            raise FormatError(
                "these rows do not come from the broker that the grant names; check the address, "
                "and who answers there"
            )
        return key.open(sealed, self._context)

    def frames(self) -> Iterator[tuple[bytes, bytes]]:
        """Kinds and pieces up to the last one, which is END or FAULT."""
        kind = b""
        while kind not in (END, FAULT):
            nonce = self._count.to_bytes(12, "big")
            self._count += 1
            try:
                plain = self._cipher.decrypt(nonce, self._raw(), self._context)
            except InvalidTag:
                raise FormatError(
                    "a piece of the rows was changed or left out on its way; open the grant again"
                ) from None
            kind = plain[:1]
            yield kind, plain[1:]

    def _raw(self) -> bytes:
        size = int.from_bytes(self._exactly(_LENGTH), "big")
        if not 0 < size <= PIECE + 1 + _TAG:
            raise FormatError("this is no stream of rows; check the broker's address")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            part = self._source.read(size)
            if not part:
                raise FormatError(
                    "the rows were cut off on their way, and what came is not all; open the grant "
                    "again"
                )
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def _framed(data: bytes) -> bytes:
    return len(data).to_bytes(_LENGTH, "big") + data
