"""Bytes that a service signed: snapshots, cards and models of a stream.

    PYRAMIDION SIGNED | 1 | length of kind, header, payload | kind | header | payload | signature

The signature (Ed25519) is over the SHA-256 digest of all that stands before it, so the kind,
the header and the payload belong together: none can be changed, cut or swapped. The header
names the stream. A reader names the kind and the stream that it expects, so a file of another
stream is refused although the same service signed it. Nothing is parsed before the signature
was verified.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pyramidion.errors import FormatError

MAGIC = b"PYRAMIDION SIGNED"
VERSION = 1
_HEAD = struct.Struct("<17sIHIQ")
_SIGNATURE = 64  # bytes
_CONTEXT = b"pyramidion signed 1\0"
_KEY = "ed25519:"


def sign(
    signer: Ed25519PrivateKey,
    kind: str,
    stream: str,
    header: Mapping[str, object],
    payload: bytes | memoryview,
) -> bytes:
    """Sign a header and a payload of some kind, of a stream.

    >>> signer = Ed25519PrivateKey.generate()
    >>> data = sign(signer, "snapshot", "flights", {"made": 1}, b"tables")
    >>> header, payload = unsign(data, "snapshot", "flights", signer.public_key())
    >>> header, bytes(payload)
    ({'made': 1, 'stream': 'flights'}, b'tables')
    """
    told, named = canonical({**header, "stream": stream}), kind.encode()
    head = _HEAD.pack(MAGIC, VERSION, len(named), len(told), len(payload))
    body = b"".join((head, named, told, payload))
    return body + signer.sign(_CONTEXT + sha256(body).digest())


def unsign(
    data: bytes | memoryview, kind: str, stream: str, verifier: Ed25519PublicKey
) -> tuple[dict[str, Any], memoryview]:
    """Return the header and the payload of what `sign` made, if kind, stream and key are these."""
    view = memoryview(data).cast("B")
    if bytes(view[: len(MAGIC)]) != MAGIC:
        raise FormatError(f"these bytes are no signed {kind}; give those that the service sent")
    if len(view) < _HEAD.size + _SIGNATURE:
        raise FormatError(f"this {kind} was cut off on its way; fetch it again")
    _, version, *lengths = _HEAD.unpack(view[: _HEAD.size])
    if version > VERSION:
        raise FormatError(
            f"this {kind} is of format {version}, this version reads up to {VERSION}; upgrade"
        )
    body = view[:-_SIGNATURE]
    _refuse_unsigned(body, view[-_SIGNATURE:], kind, verifier)
    if _HEAD.size + sum(lengths) != len(body):
        raise FormatError(f"this {kind} is not as long as it says; fetch it again")
    named = _HEAD.size + lengths[0]
    found = bytes(body[_HEAD.size : named]).decode()
    if found != kind:
        raise FormatError(f"this is a signed {found} and no {kind}; give the other file")
    header: dict[str, Any] = json.loads(bytes(body[named : named + lengths[1]]))
    if header.get("stream") != stream:
        raise FormatError(
            f"this {kind} is not of stream {stream!r}: the service signed it for another; fetch "
            f"that of the stream"
        )
    return header, body[named + lengths[1] :]


def _refuse_unsigned(
    body: memoryview, signature: memoryview, kind: str, verifier: Ed25519PublicKey
) -> None:
    try:
        verifier.verify(bytes(signature), _CONTEXT + sha256(body).digest())
    except InvalidSignature:
        good = False
    else:
        good = True
    if not good:
        raise FormatError(
            f"this {kind} was changed on its way, or another key signed it; fetch it again, and "
            f"see that the key is the service's"
        )


def refuse_older(kind: str, made: int, newest: int) -> None:
    """Raise for a copy that was signed before one that was already taken: an old one, replayed."""
    if made < newest:
        raise FormatError(
            f"this {kind} is older than the one that was taken before it; fetch it again, and see "
            f"that nothing between here and the service stores its answers"
        )


def canonical(told: Mapping[str, object]) -> bytes:
    """Plain values as JSON that is the same for the same values."""
    return json.dumps(told, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def key_text(key: Ed25519PublicKey) -> str:
    """A public key as text, to be compared by people and pinned by clients.

    >>> key_text(key_from("ed25519:" + "00" * 32)) == "ed25519:" + "00" * 32
    True
    """
    return _KEY + key.public_bytes_raw().hex()


def key_from(text: str) -> Ed25519PublicKey:
    """A public key from what `key_text` gave, or from its digits alone."""
    try:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(text.strip().removeprefix(_KEY)))
    except ValueError:
        pass
    raise FormatError(
        "this is no public key of a service; give the 64 hexadecimal digits that its /v1/key says"
    )
