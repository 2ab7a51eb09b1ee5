"""A snapshot on its way to a client, an edge or Spark: signed, compressed, and ending in time.

    header      format, stream, made, expires, schema, cuts, settings, tables, guarantee, etag
    payload     length of the secret | the secret | the arena of the complete tables, by zstd

Everything in it is P2 or public: the complete tables and their prior as they are served, their
bin edges and noise scales, row totals, the schema and the settings that features depend on. No
raw row, no populating table, no single window, no ledger goes along. The *secret* that keys are
hashed with does, or nobody could look a value up; tables promise the same to whoever knows how
keys are hashed, for their noise does not depend on it (see docs/client.md).

It ends at `expires`: when the first window in it retires, or a day after it was made, whichever
comes first, so that a withdrawn table is gone everywhere a day later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from hashlib import sha256
from typing import Any

import pyarrow as pa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pyramidion.config.bins import Cuts, Read
from pyramidion.config.schema import Continuous, Schema
from pyramidion.config.settings import Settings
from pyramidion.config.spelling import BY_TEXT, BY_TYPE
from pyramidion.counts.arena import Arena
from pyramidion.counts.deadline import Deadline, HighWater
from pyramidion.counts.guarantee import Guarantee
from pyramidion.counts.signing import canonical, sign, unsign
from pyramidion.counts.snapshot import Snapshot
from pyramidion.errors import ExpiredError, FormatError, StateError
from pyramidion.rows.observations import Door

Clock = Callable[[], float] | HighWater
"""Seconds since 1970; or a clock that several snapshots share, and that never goes back."""

KIND = "snapshot"
FORMATS = {1: BY_TYPE, 2: BY_TEXT}
"""The format says by what a stream knows values: no older version reads them otherwise."""
LIFE = 86_400_000_000
"""Microseconds that a snapshot lives at most: what was withdrawn is gone everywhere then."""

NEEDED = (
    "epsilon", "delta", "k", "max_rows_per_window", "p_min", "weight_unit", "dense_limit",
    "estimate", "backoff_deviation", "columns", "passthrough",
)  # fmt: skip
"""The settings that features depend on, and those that say whether these are in order."""

_LEVEL = 1  # of zstd: noise does not shrink more at higher ones, and they take three times as long


def snapshot_bytes(
    snapshot: Snapshot, *, stream: str, now: int, signer: Ed25519PrivateKey, life: int = LIFE
) -> bytes:
    """A snapshot as bytes that `snapshot_from` reads; ``now`` and ``life`` in microseconds."""
    expires = now + life if snapshot.expires is None else min(snapshot.expires, now + life)
    if expires <= now:
        raise ExpiredError("a window in this snapshot is past its retention; take a new one")
    arena = arena_of(snapshot)
    parts, secret = arena.to_parts(), arena.layout.secret
    raw = b"".join(parts)
    told = told_of(snapshot, arena, stream) | {"size": len(raw)}
    tag = etag(told, snapshot.expires, bytes(parts[-1]))
    header = told | {"made": now, "expires": expires, "etag": tag}
    packed = pa.Codec("zstd", compression_level=_LEVEL).compress(raw, asbytes=True)
    return sign(signer, KIND, stream, header, len(secret).to_bytes(2, "little") + secret + packed)


def etag_of(snapshot: Snapshot, *, stream: str) -> str:
    """The etag that `snapshot_bytes` writes, without making them."""
    arena = arena_of(snapshot)
    parts = arena.to_parts()
    told = told_of(snapshot, arena, stream) | {"size": sum(map(len, parts))}
    return etag(told, snapshot.expires, bytes(parts[-1]))


def etag(told: Mapping[str, object], expires: int | None, checksum: bytes) -> str:
    """The same for the same tables under the same schema, whenever they are asked for."""
    return sha256(canonical({**told, "retires": expires}) + checksum).hexdigest()[:32]


def snapshot_from(
    data: bytes | memoryview, *, stream: str, verifier: Ed25519PublicKey, clock: Clock
) -> Snapshot:
    """The snapshot of a stream in bytes that the service signed; ``clock`` in seconds.

    It refuses to featurize from its expiry on, whatever becomes of the network and the clock.
    """
    header, payload = unsign(data, KIND, stream, verifier)
    if header.get("format") not in FORMATS:
        raise FormatError("this snapshot is of a format that this version cannot read; upgrade")
    try:
        return _read(header, payload, clock)
    except (FormatError, StateError):
        raise
    except (LookupError, TypeError, ValueError, OSError, OverflowError) as problem:
        raise FormatError("this snapshot cannot be read by this version; upgrade") from problem


# --- out ------------------------------------------------------------------------------------


def arena_of(snapshot: Snapshot) -> Arena:
    """The tables of a snapshot that has not expired."""
    snapshot._fresh()
    arena: Arena | None = vars(snapshot).get("_arena")
    if arena is None:
        raise ExpiredError("this snapshot has just expired; take a new one")
    return arena


def told_of(snapshot: Snapshot, arena: Arena, stream: str) -> dict[str, object]:
    """What the header says, but for the time."""
    schema, settings = snapshot._door.schema, snapshot._door.settings.to_dict()
    keyed_by = snapshot.encoder.hasher.keyed_by
    return {
        "format": next(number for number, rule in FORMATS.items() if rule == keyed_by),
        "stream": stream,
        "schema": schema.to_dict(),
        "cuts": _cuts(schema),
        "settings": {name: _plain(settings[name]) for name in NEEDED},
        "tables": [asdict(table) for table in arena.layout.tables],
        "guarantee": snapshot.guarantee.to_dict(),
    }


def _cuts(schema: Schema) -> dict[str, object]:
    """Edges that were read from rows; a schema file has only those that were declared."""
    numbers = [feature for feature in schema.features if isinstance(feature, Continuous)]
    found = {feature.name: feature.read for feature in numbers if feature.read is not None}
    found |= {la.name: Read(la.read, la.edges) for la in schema.labels if la.read and la.edges}
    edges = {name: list(read.edges) for name, read in found.items()}
    return {"window": max((read.window for read in found.values()), default=0), "edges": edges}


def _plain(value: object) -> object:
    """JSON has no infinity."""
    return "inf" if value == math.inf else value


# --- in -------------------------------------------------------------------------------------


def _read(header: Mapping[str, Any], payload: memoryview, clock: Clock) -> Snapshot:
    made, expires = int(header["made"]), int(header["expires"])
    deadline = Deadline(expires, clock, latest=made)  # however far the clock was set back
    if deadline.passed():
        raise ExpiredError("this snapshot has expired: its time is over; fetch a new one")
    length = int.from_bytes(payload[:2], "little")
    secret, packed = bytes(payload[2 : 2 + length]), payload[2 + length :]
    raw = pa.Codec("zstd").decompress(packed, decompressed_size=int(header["size"]))
    arena = Arena.from_bytes(raw, secret)
    door, promise = door_of(header, secret), promise_of(header)
    return Snapshot(door, arena, promise, made=made, expires=expires, deadline=deadline)


def door_of(header: Mapping[str, Any], secret: bytes) -> Door:
    """Makes keys as the store does whose schema, settings and bins a header tells."""
    told = {name: math.inf if v == "inf" else v for name, v in header["settings"].items()}
    cuts = {name: tuple(map(float, edges)) for name, edges in header["cuts"]["edges"].items()}
    schema = Schema.from_dict(header["schema"]).cut(Cuts(int(header["cuts"]["window"]), cuts))
    return Door(schema, Settings.from_dict(told), secret, FORMATS[header["format"]])


def promise_of(header: Mapping[str, Any]) -> Guarantee:
    """What a header says that the tables promise."""
    told = header["guarantee"]
    epsilon = math.inf if told["epsilon"] is None else told["epsilon"]
    return Guarantee(**{**told, "epsilon": epsilon})
