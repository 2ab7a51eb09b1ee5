"""A store wakes: windows that a crash cut short are undone, tables are read, hot rows counted.

    complete tables ── checkpoints of what populates ── the rows that came since ── people

A checkpoint has the noise that its tables were born with, and the counts of rows up to a batch.
The rows of later batches are hot, so they are counted again: the same noise, each row once.
Where the file of the complete tables is damaged, the sealed windows have it all.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from pyramidion.errors import FormatError, KeyHolderError, StorageError
from pyramidion.storage import records
from pyramidion.storage.hot import Parts
from pyramidion.storage.spells import end_replays
from pyramidion.store.lifecycle import Lifecycle


def awaken(store: Lifecycle) -> None:
    """Bring a store to where it was when it ended, however it did."""
    with store.catalogue.transaction():
        begun = store.catalogue.all("SELECT number FROM windows WHERE state = 'opening'")
        store.sum_tables([row["number"] for row in begun])
        store.catalogue.run("UPDATE windows SET state = 'erased' WHERE state = 'opening'")
        store.catalogue.run("UPDATE nodes SET state = 'erased' WHERE state = 'opening'")
        end_replays(store.catalogue, store.present())
    _load_complete(store)
    for row in store.tables.current("checkpoint"):
        store.adopt(row["window"], store.tables.of(row), row["after"])
    for row in store.tables.nodes("populating"):
        store.adopt_node(row["node"], store.tables.of(row), row["after"])
    _replay(store)
    store.leaving.append(lambda leaving: store.forget_people(leaving.now))
    store.forget_people(int(store.catalogue.one("SELECT max(at) FROM deletions") or 0))
    recall(store)


def _load_complete(store: Lifecycle) -> None:
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
    store.complete, store.lacking = store.tables.total()
    if store.complete is not None:
        with store.tables.write(store.complete, "complete") as add, store.catalogue.transaction():
            store.tables.supersede("complete")
            add()


def _replay(store: Lifecycle) -> None:
    """Count the rows that the checkpoints lack: the same noise, each row once."""
    after = {window.number: window.after for window in store.populating.values()}
    for node in store.nodes.all():
        after |= {n: min(node.after, after.get(n, node.after)) for n in node.members}
    names = _names_by_window(store)

    def lacking(number: int, parts: Parts) -> bool:
        return any(number > after.get(window, number) for window, _ in parts)

    for number, table, parts in store.hot.batches(lacking):
        observations = store.recounted(number, records.batch_of(table))
        start = 0
        for window, rows in parts:
            found = store.populating.get(window)
            if found is not None and number > found.after:
                taken = observations.take(np.arange(start, start + rows))
                found.arena.add(taken.under(found.encoder))
                found.fresh += rows
            for node in store.nodes.of(window):
                if number > node.after:
                    taken = observations.take(np.arange(start, start + rows))
                    shared = node.shared(names.get(window, ()))
                    node.arena.add(taken.under(node.encoder), names=shared)
                    node.fresh += rows
            start += rows


def _names_by_window(store: Lifecycle) -> dict[int, Collection[str]]:
    """The tables of each window, sealed or populating."""
    sealed = {row["window"]: store.tables.names(row) for row in store.tables.windows()}
    return sealed | {n: window.arena.layout.index for n, window in store.populating.items()}


def recall(store: Lifecycle) -> None:
    """Count the people of the running block again: their rows are hot, or they were erased."""
    arrived = store.catalogue.all("SELECT number, arrived FROM batches")
    running = {row["number"] for row in arrived if store.people.is_running(row["arrived"])}
    for number, table, _ in store.hot.batches(lambda number, _: number in running):
        counted = store.hot.counted(number)
        if counted is not None:
            store.people.recall(store.door.observations(records.batch_of(table)), counted)
    store.people.fill(store.uncounted.of(store.people.running))
