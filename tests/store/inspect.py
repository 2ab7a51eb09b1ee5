"""What tests look at inside a store that no public verb shows.

This is the only file in `tests` that knows how a `Pyramid` is built; `tests/test_project.py` checks
that. If the internals of the store move, change the functions here and nothing else. If a public
verb shows the same (`store.now`, `store.ledger`, `store.status()`, `store.vault`), use the verb.

    on disk      catalogue, change_catalogue, keys, hot, table_files, readings
    tables       windows, nodes, table_sets, populating, sealed, served, lacking, birth
    encoding     door, encoder, secret
    background   settled, keep, last_batch, checkpoint, open_window
    spies        born, told, parts
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyramidion import Pyramid
from pyramidion.counts.arena import Arena
from pyramidion.privacy.table_noise import TableDesign
from pyramidion.rows.encoding import Encoder
from pyramidion.rows.observations import Door
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.data_keys import DataKeys
from pyramidion.storage.hot import HotWindow
from pyramidion.storage.readings import Readings
from pyramidion.storage.segments import Segments
from pyramidion.storage.table_files import TableFiles
from pyramidion.storage.table_sets import SetId, TableSets
from pyramidion.store.contributions import People
from pyramidion.store.model_scores import Measures
from pyramidion.store.observe import Arrivals
from pyramidion.store.publish import Sharing
from pyramidion.store.schedule import Schedule
from pyramidion.store.shards import Shards
from pyramidion.store.snapshots import Serving
from pyramidion.store.state import Leaving, Observer, StoreState
from pyramidion.store.training import Training
from pyramidion.store.transitions import checkpoint_tables
from pyramidion.store.window_opener import WindowOpener
from pyramidion.store.windows import TableSet
from pyramidion.workers import Threads

# --- on disk ----------------------------------------------------------------------------


def catalogue(store: Pyramid) -> Catalogue:
    """The catalogue: facts (`about`), ledger lines (`lines`) and SQL (`one`, `all`, `run`)."""
    return store._state.catalogue


def change_catalogue(store: Pyramid, sql: str, *values: object) -> None:
    """Change windows, table files or the ledger as the store itself would: authenticated."""
    with store._state.catalogue.transaction():
        store._state.catalogue.run(sql, *values)
        authenticate(store)


def authenticate(store: Pyramid) -> None:
    """Authenticate windows, table files and the ledger as they are, as the store itself does."""
    store._state.pins.seal()


def keys(store: Pyramid) -> DataKeys:
    """The data keys, and the holder of the store key."""
    return store._state.keys


def hot(store: Pyramid) -> HotWindow:
    """The hot window: its steps, and its batches as (number, table, parts)."""
    return store._state.hot


def table_files(store: Pyramid) -> TableFiles:
    """The files of count tables: checkpoints, sealed and complete tables."""
    return store._state.tables


def readings(store: Pyramid) -> Readings:
    """The private statistics by window: bins, weights and selected groups."""
    return store._state.readings


# --- tables -----------------------------------------------------------------------------


def windows(store: Pyramid) -> Mapping[int, TableSet]:
    """The populating windows by number."""
    return {tables.number: tables for tables in store._state.open_sets.windows()}


def nodes(store: Pyramid) -> list[TableSet]:
    """The populating nodes of a tree of windows, by number."""
    return store._state.open_sets.nodes()


def table_sets(store: Pyramid) -> TableSets:
    """Windows and nodes as the catalogue has them."""
    return store._state.sets


def populating(store: Pyramid, number: int | None = None) -> Arena:
    """The tables of a populating window; without a number, of the only one."""
    (number,) = windows(store) if number is None else (number,)
    return windows(store)[number].arena


def sealed(store: Pyramid, number: int) -> Arena:
    """The tables of a sealed window, read from disk."""
    return table_files(store).sealed(number)


def served(store: Pyramid) -> Arena | None:
    """The tables that are served: the complete ones, in a shard the sum of the stream."""
    return store._state.served


def lacking(store: Pyramid) -> frozenset[int]:
    """The sealed windows that the complete tables lack, because a file could not be read."""
    return store._state.lacking


def birth(store: Pyramid, number: int, level: int = 0) -> TableDesign:
    """The layout, shares and noise of a window to come, or of a node that begins with it."""
    if level:
        return store._state.node_birth(number, level)
    return store._state.birth(number)


# --- encoding ---------------------------------------------------------------------------


def door(store: Pyramid) -> Door:
    """What turns batches into observations, by the schema of now."""
    return store._state.door


def encoder(store: Pyramid, arena: Arena) -> Encoder:
    """What makes the keys of these tables, which may be older than the schema of now."""
    return store._state.encoder_of(arena)


def secret(store: Pyramid) -> bytes:
    """The secret of the stream, with which values are hashed."""
    return store._state.secret


# --- background -------------------------------------------------------------------------


def settled(store: Pyramid) -> Pyramid:
    """Wait until the store's background work is done; return the store."""
    if store._threads.kept is not None:
        store._threads.kept.result()
    return store


def keep(store: Pyramid) -> None:
    """Start the background work that is due, as every verb does at its end."""
    store._keep(store.now)


def checkpoint(store: Pyramid, tables: TableSet) -> None:
    """Write the tables of a populating window or node again."""
    checkpoint_tables(store._state, tables, store.now)


def open_window(store: Pyramid, slot: int | None = None, now: int | None = None) -> int:
    """Open the window of a slot, or of now; its number."""
    slots, now = store._state.open_sets.slots, store.now if now is None else now
    if slot is None:
        assert slots is not None
        slot = slots.at(now)
    return store._opener.open(slot, now)


def last_batch(store: Pyramid) -> int:
    """The number of the newest acknowledged batch."""
    return store._state.last_batch()


# --- spies ------------------------------------------------------------------------------


def born(store: Pyramid, monkeypatch: Any) -> list[Arena]:
    """Copies of the tables of windows as they are born from now on: noise alone."""
    copies: list[Arena] = []
    adopt = store._state.adopt

    def spy(owner: SetId, arena: Arena, after: int) -> Any:
        if not owner.level:
            copies.append(arena.only(arena.layout.index))
        return adopt(owner, arena, after)

    monkeypatch.setattr(store._state, "adopt", spy)
    return copies


class Told(Observer):
    """Records what observers are told, and calls something then."""

    def __init__(self, leaving: Callable[[Leaving], object] = lambda _: None) -> None:
        self.published = 0
        self.withdrawn: list[str] = []
        self._leaving = leaving

    def tables_published(self) -> None:
        self.published += 1

    def tables_withdrawn(self, why: str) -> None:
        self.withdrawn.append(why)

    def rows_leaving(self, leaving: Leaving) -> None:
        self._leaving(leaving)


def told(store: Pyramid, leaving: Callable[[Leaving], object] = lambda _: None) -> Told:
    """An observer that is told last; ``leaving`` is called when rows leave."""
    spy = Told(leaving)
    store._state.observers = (*store._state.observers, spy)
    return spy


@dataclass(frozen=True)
class Parts:
    """The working parts of a store, for tests that call, delay or break one of them."""

    lifecycle: StoreState
    """The state of the store: its tables, keys, catalogue and locks."""
    schedule: Schedule
    """Decides what is due."""
    arrivals: Arrivals
    """Takes batches."""
    segments: Segments
    """Reads and writes the files of hot rows."""
    people: People
    """Bounds what one person contributes; how many observations the noise hides."""
    opener: WindowOpener
    """Opens windows."""
    serving: Serving
    """Makes snapshots and training sets."""
    training: Training
    """Trains the registered models."""
    measures: Measures
    """Losses and learning curves."""
    threads: Threads
    """Runs background work."""
    sharing: Sharing
    """Publishes complete tables."""
    shards: Shards | None
    """Sums the tables of a stream's shards; None if the store is not a shard."""


def parts(store: Pyramid) -> Parts:
    """The working parts of a store."""
    lifecycle = store._state
    return Parts(
        lifecycle=lifecycle,
        schedule=store._schedule,
        arrivals=store._arrivals,
        segments=lifecycle._segments,
        people=lifecycle.people,
        opener=store._opener,
        serving=store._serving,
        training=store._training,
        measures=store._measures,
        threads=store._threads,
        sharing=store._sharing,
        shards=store._shards,
    )
