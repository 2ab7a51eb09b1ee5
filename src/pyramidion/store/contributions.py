"""Person-level protection: at most k rows of a person count in a block of time.

    |<------------- count window ------------->|
 ---+---------+---------+---------+---------+--+------> arrival
    |  block  |  block  |  block  |  block  |  block

Blocks are slots of arrival time from the store's origin. A row beyond the k-th of its person
in the running block is *blanked*: it is accepted, durable and hot, it is in the public row
totals, and it touches no table. Whether it is depends on rows of the same person alone. A
count window takes rows during at most B blocks, so at most k·B rows of a person are in its
tables, and its noise hides as many.

The counter is hot data: it is in memory alone, for the running block alone. Blocks are no
longer than the hot window and end where hot steps end, so at any moment all rows of the
running block are hot, and the counter is made of them again when a store is opened. Only rows of
people who were erased are not; these people count no more until the block is over.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.errors import PrivacyError
from pyramidion.privacy.contributions import blocks_of, hidden_of
from pyramidion.rows.hashing import Keys
from pyramidion.rows.observations import Observations
from pyramidion.store import contribution_kernels as kernels

Counts = NDArray[np.bool_]
"""Which rows count; the others are blanked."""

LEAST = 1_024  # slots


class People:
    """How many rows of each person were counted in the running block; nothing without a unit.

    Whoever asks holds the lock of arrivals.
    """

    def __init__(self, schema: Schema, settings: Settings, seen: int = 0) -> None:
        self.unit = schema.unit
        self.hidden = hidden_of(schema, settings)
        """How many observations the noise of a window hides."""
        self._k = settings.k
        self._skew = 0 if schema.time is None else settings.max_skew_us
        self._blocks = blocks_of(schema, settings)
        self._seen = seen
        self._block = 0 if self._blocks is None else self._blocks.at(seen)
        self._clear()

    def _clear(self) -> None:
        self._table = _empty(LEAST)
        self._size = 0

    def __len__(self) -> int:
        """How many people are in the counter."""
        return self._size

    # --- time ------------------------------------------------------------------------

    def arrival(self, now: int) -> int:
        """When rows that come now arrive: never before a time that was seen already.

        Who asked for the time before others did may come after them; his block is theirs.
        """
        return now if self.unit is None else max(now, self._seen)

    def seen(self, now: int) -> None:
        """Time has come so far; a counter whose block is over goes."""
        if self._blocks is None:
            return
        self._seen = max(self._seen, now)
        block = self._blocks.at(self._seen)
        if block != self._block:
            self._block = block
            self._clear()

    def forget(self, now: int) -> None:
        """Hot rows leave: if the running block is over by then it goes, and does not come back.

        Not all of time until now is over by that: a history that is replayed goes on from its
        last row.
        """
        if self._blocks is not None and self._blocks.stop(self._block) <= now:
            self.seen(self._blocks.stop(self._block))

    def refuse_outside(self, start: int | None, stop: int | None, now: int) -> None:
        """Raise where a window would take rows in a block that its noise does not reckon with."""
        if self._blocks is None:
            return
        if start is None or stop is None or not start - self._skew <= now < stop:
            raise PrivacyError(
                "rows came for a window whose time has not come or is over, so a person could have "
                "more rows in it than its noise hides; this is a bug"
            )

    # --- rows ------------------------------------------------------------------------

    def count(self, rows: Observations, now: int) -> Counts | None:
        """Which rows count, in the order they came; None without a unit."""
        if self._blocks is None:
            return None
        keys = _units(rows)
        self.seen(now)
        self._grow(keys.size)
        counted = np.empty(keys.size, dtype=np.bool_)
        self._size += kernels.count(self._table, keys, self._k, counted)
        return counted

    def take_back(self, rows: Observations, counted: Counts | None) -> None:
        """Undo `count` of rows that were never acknowledged."""
        if counted is not None:
            kernels.take_back(self._table, _units(rows), counted)

    def recall(self, rows: Observations, counted: Counts) -> None:
        """Rows of the running block, which were counted before the store was closed."""
        keys = _units(rows)[counted]
        self._grow(keys.size)
        self._size += kernels.count(self._table, keys, self._k, np.empty(keys.size, np.bool_))

    def fill(self, keys: Keys) -> None:
        """Have people count no more in the running block, however few of their rows did."""
        if keys.size:
            self._grow(keys.size)
            self._size += kernels.fill(self._table, keys, self._k)

    @property
    def running(self) -> int:
        """The number of the running block."""
        return self._block

    def block_at(self, time: int) -> int:
        """The number of the block that a time lies in."""
        return 0 if self._blocks is None else self._blocks.at(time)

    def is_over(self, block: int, now: int) -> bool:
        """Whether a block is over, for good."""
        return self._blocks is None or self._blocks.stop(block) <= max(now, self._seen)

    def is_running(self, arrived: int) -> bool:
        """Whether rows that arrived then are in the running block."""
        return self._blocks is not None and self._blocks.at(arrived) == self._blocks.at(self._seen)

    def _grow(self, more: int) -> None:
        """Make room for so many more people: half of the slots stay unused."""
        before = slots = self._table[0].size
        while slots < 2 * (self._size + more):
            slots *= 2
        if slots > before:
            larger = _empty(slots)
            kernels.move(self._table, larger)
            self._table = larger


def _empty(slots: int) -> tuple[Any, ...]:
    """Keys, whether a slot is used, counts, and how far a product is shifted to a slot."""
    held, used = np.zeros(slots, dtype=np.uint64), np.zeros(slots, dtype=np.uint8)
    return held, used, np.zeros(slots, dtype=np.int64), np.uint64(65 - slots.bit_length())


def _units(rows: Observations) -> Keys:
    if rows.units is None:
        raise PrivacyError("rows do not say whose they are; make them with this store's own door")
    return rows.units
