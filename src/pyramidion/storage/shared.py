"""Shared tables, read: by who has a card, from where their owner published them.

card = client.card("flights")                          signed, ends in a day at most
with SharedTables(card, "redis://...", stream="flights", key=client.key()) as shared:
    shared.snapshot()                                  all tables, loaded: cached
    shared.snapshot(cached=False)                      none: each row's cells, in one round trip
"""

from __future__ import annotations

import time
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pyramidion.counts.remote import FarArena
from pyramidion.counts.signing import key_from
from pyramidion.counts.snapshot import Snapshot
from pyramidion.counts.snapshot_file import Clock
from pyramidion.errors import ExpiredError
from pyramidion.storage.cards import card_from
from pyramidion.storage.tables import TableStore, tables_at


class SharedTables:
    """The tables that a card opens, in the table store at a URL.

    ``stream`` is the stream that the card must be of, ``key`` the service's public key, which
    cards are signed with. Whatever is read is what
    the owner wrote, or an error; and nothing is from the card's end on.
    """

    def __init__(
        self,
        card: bytes,
        tables: str | TableStore,
        *,
        stream: str,
        key: Ed25519PublicKey | str,
        clock: Clock = time.time,
    ) -> None:
        verifier = key_from(key) if isinstance(key, str) else key
        self._card = card_from(card, stream=stream, verifier=verifier, clock=clock)
        self._store = tables_at(tables) if isinstance(tables, str) else tables
        self._found = self._store.opened(self._card.generation, self._card.layout)

    @property
    def expires(self) -> int:
        """When the card ends, in microseconds since 1970."""
        return self._card.expires

    def snapshot(self, *, cached: bool = True) -> Snapshot:
        """The complete tables: loaded into memory, or read row by row where they are.

        Features are the same to the last bit.
        """
        card = self._card
        if card.deadline.passed():
            raise ExpiredError("this card has expired: its time is over; fetch a new one")
        counted = {"rows": card.rows, "max_rows": card.max_rows}
        return Snapshot(
            card.door,
            self._found.load(**counted) if cached else FarArena(card.layout, **counted),
            card.guarantee,
            expires=card.expires,
            deadline=card.deadline,
            studied=card.studied,
            fetch=None if cached else self._found.buckets,
        )

    def close(self) -> None:
        """Let go of the connections; snapshots that were loaded go on until they end."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
