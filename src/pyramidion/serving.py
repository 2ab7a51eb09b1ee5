"""What a store serves: the complete tables, and for training the hot rows less themselves."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from pyramidion import records
from pyramidion.batches import Batch
from pyramidion.counts.snapshot import Snapshot
from pyramidion.errors import StateError
from pyramidion.guarantee import Guarantee
from pyramidion.lifecycle import Lifecycle
from pyramidion.observations import Door, Observations
from pyramidion.storage.hot import Parts


def guarantee(store: Lifecycle) -> Guarantee | None:
    """What the complete tables promise; None while there are none."""
    if store.complete is None:
        return None
    return store.birth.guarantee(store.complete.layout.tables[0].windows)


def snapshot(store: Lifecycle) -> Snapshot | None:
    """The complete tables, ready to featurize; None while there are none."""
    complete, promise = store.complete, guarantee(store)
    if complete is None or promise is None or not store.published:
        return None
    door = Door(store.schema.only(complete.layout.index), store.settings, store.secret)
    return Snapshot(door, complete, promise)


def hot_rows(store: Lifecycle) -> Iterator[tuple[Observations, Batch, Parts]]:
    """The hot rows as the door gives them, batch by batch."""
    for _, table, parts in store.hot.batches():
        batch = records.batch_of(table)
        yield store.door.observations(batch), batch, parts


def without_hot(store: Lifecycle, snapshot: Snapshot, threads: int) -> Snapshot:
    """A snapshot less the exact counts of the hot rows in it: as raw as these (P1)."""
    with store.moves:
        if not snapshot.holds(store.complete):  # a seal whose erasure is not finished, or later
            raise StateError("the complete tables are changing; call advance() and try again")
        return snapshot.without_all(_hot_in(store, snapshot), threads=threads)


def _hot_in(store: Lifecycle, snapshot: Snapshot) -> Iterator[tuple[Observations, Collection[str]]]:
    sealed = store.catalogue.all("SELECT number FROM windows WHERE state = 'sealed'")
    tables = {row["number"]: _tables_of(store, row["number"]) for row in sealed}
    for observations, _, parts in hot_rows(store):
        start = 0
        for window, rows in parts:
            if window in tables:
                taken = observations.take(np.arange(start, start + rows))
                yield taken.under(snapshot.encoder), tables[window]
            start += rows


def _tables_of(store: Lifecycle, window: int) -> set[str]:
    """The tables that a window counts: it paid for them."""
    return {line.purpose for line in store.catalogue.lines(window) if line.kind == "table"}
