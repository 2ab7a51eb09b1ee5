"""The hot rows of one window, as they were counted: for reading from them, and counting again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from pyramidion import records
from pyramidion.lifecycle import Lifecycle
from pyramidion.observations import Observations
from pyramidion.storage.hot import Parts


def totals(store: Lifecycle) -> dict[int, int]:
    """How many rows are hot, by window."""
    return _summed(batch.lie for batch in store.hot.stored(lambda _: True))


def came(store: Lifecycle) -> dict[int, int]:
    """How many rows came in the steps that are hot, by window: also those of erased people.

    What is decided by this says nothing about who was erased.
    """
    return _summed(batch.parts for batch in store.hot.stored(lambda _: True))


def _summed(batches: Iterable[Parts]) -> dict[int, int]:
    found: dict[int, int] = {}
    for window, rows in (part for parts in batches for part in parts):
        found[window] = found.get(window, 0) + rows
    return found


def rows_of(store: Lifecycle, window: int) -> Iterator[Observations]:
    """The hot rows of a window, batch by batch; a blanked one weighs nothing."""

    def wanted(_: int, parts: Parts) -> bool:
        return any(number == window for number, _ in parts)

    for batch, table, parts in store.hot.batches(wanted):
        observations, start = store.recounted(batch, records.batch_of(table)), 0
        for number, rows in parts:
            if number == window:
                yield observations.take(np.arange(start, start + rows))
            start += rows
