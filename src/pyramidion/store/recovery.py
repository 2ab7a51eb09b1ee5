"""Recovery: bring a store back to where it was when it ended, however it ended.

    complete tables ── checkpoints of what populates ── the rows that came since ── people

Windows that a crash cut short between charge and birth are dropped. A checkpoint has the noise that
its tables were born with, and the counts of rows up to a batch. The rows of later batches are hot,
so they are counted again: the same noise, each row once. If the file of the complete tables is
damaged, they are summed from the sealed windows.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from pyramidion.errors import FormatError, KeyHolderError, StorageError
from pyramidion.storage import records
from pyramidion.storage.batches import Batches
from pyramidion.storage.hot import Parts
from pyramidion.storage.spells import end_replays
from pyramidion.storage.table_files import COMPLETE
from pyramidion.storage.table_sets import SetId
from pyramidion.store.change import Also, Change, Served, apply
from pyramidion.store.state import StoreState


def recover(store: StoreState) -> None:
    """Bring a store to where it was when it ended, however it ended."""
    apply(store, plan_recovery(store), store.present())
    _load_complete(store)
    for row in store.tables.checkpoints():
        owner = SetId(row["level"], row["number"])
        store.adopt(owner, store.tables.of(row), row["after"])
    _replay(store)
    store.forget_people(store.catalogue.last_deletion() or 0)
    recall(store)


def plan_recovery(store: StoreState) -> Change:
    """Plan to drop table sets that were charged and not born, and to end replays of the past."""
    end = Also(lambda: end_replays(store.catalogue, store.present()))
    return Change("recover", states=dict.fromkeys(store.sets.opening(), "erased"), edits=[end])


def _load_complete(store: StoreState) -> None:
    """The complete tables; where their file is damaged, what it was made of, free of charge."""
    rows = sum(row["rows"] for row in store.tables.windows())
    try:
        for row in store.tables.current("complete"):
            store.complete = store.tables.of(row)
        if rows == (0 if store.complete is None else store.complete.rows):
            return
    except KeyHolderError:
        raise
    except (FormatError, StorageError):
        pass  # the sealed windows have it all
    complete, lacking = store.tables.total()
    write = {} if complete is None else {COMPLETE: complete}
    apply(store, Change("recover", write=write, served=Served(complete, lacking)), store.present())


def _replay(store: StoreState) -> None:
    """Count the rows that the checkpoints lack: the same noise, each row once."""
    after: dict[int, int] = {}
    for tables in store.open_sets.all():
        after |= {n: min(tables.after, after.get(n, tables.after)) for n in tables.windows}
    names = _names_by_window(store)

    def lacking(number: int, parts: Parts) -> bool:
        return any(number > after.get(window, number) for window, _ in parts)

    for number, table, parts in store.hot.batches(lacking):
        observations = store.recounted(number, records.batch_of(table))
        start = 0
        for window, rows in parts:
            for tables in store.open_sets.of(window):
                if number > tables.after:
                    taken = observations.take(np.arange(start, start + rows))
                    shared = tables.shared(names.get(window, ()))
                    tables.arena.add(taken.under(tables.encoder), names=shared)
                    tables.fresh += rows
            start += rows


def _names_by_window(store: StoreState) -> dict[int, Collection[str]]:
    """The tables of each window, sealed or populating."""
    sealed: dict[int, Collection[str]] = {
        row["window"]: store.tables.names(row) for row in store.tables.windows()
    }
    return sealed | {w.number: w.arena.layout.index for w in store.open_sets.windows()}


def recall(store: StoreState) -> None:
    """Count the people of the running block again: their rows are hot, or they were erased."""
    arrived = Batches(store.catalogue).all()
    running = {row["number"] for row in arrived if store.people.is_running(row["arrived"])}
    for number, table, _ in store.hot.batches(lambda number, _: number in running):
        counted = store.hot.counted(number)
        if counted is not None:
            store.people.recall(store.door.observations(records.batch_of(table)), counted)
    store.people.fill(store.uncounted.of(store.people.running))
