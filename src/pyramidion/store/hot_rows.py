"""The hot rows of one moment, as they were counted: for reading from them, and counting again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import numpy as np

from pyramidion.rows.observations import Observations
from pyramidion.storage import records
from pyramidion.storage.hot import Parts
from pyramidion.store.state import StoreState


class HotRows:
    """The batches that are hot when this is made. Those that arrive later are not among them.

    Rows arrive while others are read. What is read, and what is said about it, must be of the same
    batches, so whoever reads makes one of these and asks nothing else. Hold the lock of moves
    meanwhile: then none of its rows leaves or is erased.
    """

    def __init__(self, store: StoreState) -> None:
        self._store = store
        self._batches = store.hot.stored(lambda _: True)

    @property
    def totals(self) -> dict[int, int]:
        """How many rows are hot, by window."""
        return _summed(batch.lie for batch in self._batches)

    @property
    def came(self) -> dict[int, int]:
        """How many rows came in the steps that are hot, by window: also those of erased people.

        What is decided by this says nothing about who was erased.
        """
        return _summed(batch.parts for batch in self._batches)

    def sizes(self, windows: Collection[int]) -> list[int]:
        """How many rows each piece of `of` had when it came, in the same order: public."""
        return [
            rows
            for window in windows
            for batch in self._batches
            for number, rows in batch.parts
            if number == window
        ]

    def of(self, windows: Collection[int]) -> Iterator[Observations]:
        """The rows of some windows, batch by batch; a blanked one weighs nothing."""
        for window in windows:
            yield from self._of(window)

    def _of(self, window: int) -> Iterator[Observations]:
        store, known = self._store, self._having([window])
        for batch, table, parts in store.hot.batches(lambda number, _: number in known):
            observations, start = store.recounted(batch, records.batch_of(table)), 0
            for number, rows in parts:
                if number == window:
                    yield observations.take(np.arange(start, start + rows))
                start += rows

    def refuse_unreadable(self, windows: Collection[int]) -> None:
        """Raise where a record of some windows cannot be opened, before anything is charged for it.

        Whether a record opens follows from its bytes and key, not from the rows in it: nothing
        is learned about these, and nothing of them is kept.
        """
        self._store.hot.refuse_unreadable(self._having(windows))

    def _having(self, windows: Collection[int]) -> set[int]:
        """The numbers of batches with rows of some windows."""
        return {
            batch.number
            for batch in self._batches
            if any(number in windows for number, _ in batch.parts)
        }


def _summed(batches: Iterable[Parts]) -> dict[int, int]:
    found: dict[int, int] = {}
    for window, rows in (part for parts in batches for part in parts):
        found[window] = found.get(window, 0) + rows
    return found
