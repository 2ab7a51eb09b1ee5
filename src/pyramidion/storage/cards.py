"""A reader's card: what opens the shared tables of a stream, until they end.

    header      that of a snapshot, and: name, rows, max_rows, size of the secret
    payload     key (32) | secret | what was studied of all cells, as 64-bit floats

It is signed and ends as a snapshot does: when the first window in the tables retires, or a day
after it was made. It is worth as much as the tables are (P2), so it goes the way of snapshots: to
who has a token for them, over TLS, kept in memory alone. Once newer tables took their place, the
owner has destroyed the key and deleted the chunks, and the card opens nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pyramidion.counts.deadline import Deadline
from pyramidion.counts.estimates import Studied
from pyramidion.counts.guarantee import Guarantee
from pyramidion.counts.layout import Layout, Table
from pyramidion.counts.signing import sign, unsign
from pyramidion.counts.snapshot import Snapshot
from pyramidion.counts.snapshot_file import (
    FORMATS,
    LIFE,
    Clock,
    arena_of,
    door_of,
    promise_of,
    told_of,
)
from pyramidion.errors import ExpiredError, FormatError, StateError
from pyramidion.rows.observations import Door
from pyramidion.storage.blocks import Generation
from pyramidion.storage.ciphers import KEY_BYTES

KIND = "card"


def card_bytes(
    snapshot: Snapshot,
    generation: Generation,
    *,
    stream: str,
    now: int,
    signer: Ed25519PrivateKey,
    life: int = LIFE,
) -> bytes:
    """A card for tables that were published as they are in a snapshot; times in microseconds."""
    expires = now + life if snapshot.expires is None else min(snapshot.expires, now + life)
    if expires <= now:
        raise ExpiredError("a window in these tables is past its retention; take newer ones")
    arena = arena_of(snapshot)
    layout, studied = arena.layout, snapshot.estimates.studied
    header = told_of(snapshot, arena, stream) | {
        "name": generation.name,
        "rows": arena.rows,
        "max_rows": arena.max_rows,
        "weight": layout.weight,
        "labels": layout.labels,
        "sizes": [len(layout.secret), studied.prior.size, studied.strength.shape[1]],
        "made": now,
        "expires": expires,
    }
    numbers = [studied.prior, studied.strength, studied.spread, studied.shift, studied.deviations]
    parts = [np.ascontiguousarray(each, dtype="<f8").tobytes() for each in numbers]
    return sign(signer, KIND, stream, header, b"".join([generation.key, layout.secret, *parts]))


@dataclass(frozen=True)
class Card:
    """What a card says, for who may read the tables."""

    generation: Generation
    layout: Layout
    door: Door
    guarantee: Guarantee
    studied: Studied = field(repr=False)
    rows: int
    max_rows: int
    expires: int
    deadline: Deadline = field(repr=False)


def card_from(
    data: bytes | memoryview, *, stream: str, verifier: Ed25519PublicKey, clock: Clock
) -> Card:
    """The card of a stream in bytes that a service signed; ``clock`` in seconds, as a store's."""
    header, payload = unsign(data, KIND, stream, verifier)
    if header.get("format") not in FORMATS:
        raise FormatError("this card is of a format that this version cannot read; upgrade")
    try:
        return _read(header, payload, clock)
    except (FormatError, StateError):
        raise
    except (LookupError, TypeError, ValueError, OverflowError) as problem:
        raise FormatError("this card cannot be read by this version; upgrade") from problem


def _read(header: Mapping[str, Any], payload: memoryview, clock: Clock) -> Card:
    expires = int(header["expires"])
    deadline = Deadline(expires, clock, latest=int(header["made"]))
    if deadline.passed():
        raise ExpiredError("this card has expired: its time is over; fetch a new one")
    size, columns, labels = map(int, header["sizes"])
    key, secret = bytes(payload[:KEY_BYTES]), bytes(payload[KEY_BYTES : KEY_BYTES + size])
    tables = tuple(Table(**table) for table in header["tables"])
    layout = Layout(tables, int(header["labels"]), secret, int(header["weight"]))
    numbers = np.frombuffer(payload[KEY_BYTES + size :], dtype="<f8").astype(np.float64)
    shapes = [(columns,), (len(tables), labels), *[(len(tables), columns)] * 3]
    stops = np.cumsum([int(np.prod(shape)) for shape in shapes])
    parts = np.split(numbers, stops)
    found = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=False)]
    return Card(
        generation=Generation(str(header["name"]), key),
        layout=layout,
        door=door_of(header, secret),
        guarantee=promise_of(header),
        studied=Studied(*found),
        rows=int(header["rows"]),
        max_rows=int(header["max_rows"]),
        expires=expires,
        deadline=deadline,
    )
