"""What a store serves: the complete tables, and for training the hot rows less themselves.

Whatever is handed out is remembered as long as somebody has it, so that it can be told to
expire: snapshots when a window in them must be forgotten, everything raw when hot rows leave.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from pyramidion.counts.arena import Arena
from pyramidion.counts.guarantee import Guarantee
from pyramidion.counts.snapshot import Snapshot
from pyramidion.errors import StateError
from pyramidion.learn.reduced import Counted, HotBatch, Reduced, Wanted
from pyramidion.learn.training_set import TrainingSet
from pyramidion.learn.workload import Workload
from pyramidion.rows.observations import Door
from pyramidion.storage import records
from pyramidion.storage.hot import Step
from pyramidion.store.state import Leaving, Observer, StoreState
from pyramidion.store.superseded_bins import in_bins, served


class Perishable(Protocol):
    """What must go when hot rows leave."""

    def expire(self, why: str) -> None:
        """Answer no more."""


def complete_tables(store: StoreState) -> Arena | None:
    """The complete tables that are served: of those in bins of several times, one; or None."""
    if store.served is None:
        return None
    return in_bins(store.served, store.schema, served(store) if store.schema.moving else 0)


def guarantee(store: StoreState) -> Guarantee | None:
    """What the complete tables promise; None while there are none."""
    tables = store.served
    if tables is None:
        return None
    if store.open_sets.levels is None:
        windows = max(table.windows for table in tables.layout.tables)
    else:  # nodes stand for several
        windows = max(store.tables.behind(store.lacking).values(), default=0)
    return replace(store.birth(1).guarantee(windows), unit=store.people.unit)


def snapshot(store: StoreState) -> Snapshot | None:
    """The complete tables, ready to featurize; None while there are none."""
    arena, promise = complete_tables(store), guarantee(store)
    if arena is None or promise is None or not store.published:
        return None
    expires = store.retires()
    return Snapshot(_door(store, arena), arena, promise, source=store.served, expires=expires)


def _door(store: StoreState, arena: Arena) -> Door:
    """Makes the keys of some tables, in their bins."""
    schema = store.schema.only(arena.layout.index).cut(store.readings.cuts(arena.layout.read))
    return Door(schema, store.settings, store.secret, store.keyed_by)


def snapshot_as_of(store: StoreState, moment: int) -> Snapshot:
    """The tables of the sealed windows that had ended by a moment; sums of what is paid for."""
    if store.stream is not None:
        raise StateError(
            "a shard keeps windows of its own alone, and the past of a stream is that of all; "
            "count the history into a store that is no shard"
        )
    sealed = {row["number"]: row for row in store.sets.windows("sealed")}
    later = [number for number, row in sealed.items() if row["stop"] > moment]
    found, lacking = store.tables.total(but=later)
    if found is None or not store.published:
        raise StateError(
            "no window that ended by then is sealed and kept, so there is nothing to featurize "
            "with; ask for a later moment"
        )
    arena = in_bins(found, store.schema, served(store, later) if store.schema.moving else 0)
    counted = sealed.keys() - set(later) - lacking
    promise = replace(store.birth(1).guarantee(len(counted)), unit=store.people.unit)
    expires = min(sealed[number]["start"] for number in counted) + store.settings.retention_us
    return Snapshot(_door(store, arena), arena, promise, expires=expires)


class Serving(Observer):
    """The snapshot that is served now, and all that was handed out."""

    def __init__(self, store: StoreState, threads: int) -> None:
        self._store = store
        self._threads = threads
        self._snapshots: weakref.WeakSet[Snapshot] = weakref.WeakSet()
        self._raw: weakref.WeakSet[Perishable] = weakref.WeakSet()
        self.current: Snapshot | None = None
        """The complete tables; None while there are none."""
        self._renew("")

    def tables_published(self) -> None:
        """Make a new snapshot."""
        self._renew("")

    def tables_withdrawn(self, why: str) -> None:
        """Have all snapshots expire, and make a new one."""
        self._renew(why)

    def rows_leaving(self, leaving: Leaving) -> None:  # noqa: ARG002
        """Have everything expire that was made from hot rows."""
        self._expire_raw()

    def person_leaving(self) -> None:
        """The same."""
        self._expire_raw()

    def _renew(self, why: str) -> None:
        """A new snapshot when the complete tables change; old ones expire where they must."""
        if why:  # first, so that nothing that fails keeps it
            self.current = None
            self._expire_raw()
            for old in list(self._snapshots):
                old.expire(why)
            self._snapshots.clear()
        self.current = snapshot(self._store)
        if self.current is not None:
            self._snapshots.add(self.current)

    @property
    def lacking(self) -> bool:
        """Whether the snapshot could not be made when the tables changed."""
        store = self._store
        return self.current is None and store.served is not None and store.published

    def mend(self) -> None:
        """Make the snapshot that is lacking; by who moves windows, or it could be an old one."""
        if self.lacking:
            self._renew("")

    def _expire_raw(self) -> None:
        for raw in list(self._raw):
            raw.expire("hot rows that it was made of leave")
        self._raw.clear()

    def close(self) -> None:
        """The store closes: nothing raw is left to use."""
        for raw in list(self._raw):
            raw.expire("the store was closed")

    def perishes(self, raw: Perishable) -> None:
        """Have something expire when the next hot rows leave."""
        self._raw.add(raw)

    def snapshot(self) -> Snapshot:
        """The complete tables."""
        if self.current is None:
            raise StateError(
                "no window is sealed, so there is nothing to featurize with yet (or any more); "
                "observe on until a count window ends"
            )
        return self.current

    def as_of(self, moment: int) -> Snapshot:
        """The tables as they were at a moment; by who moves windows."""
        made = snapshot_as_of(self._store, moment)
        self._snapshots.add(made)
        return made

    def reduced(self, wanted: Wanted = lambda _: True) -> Reduced:
        """The snapshot less hot rows in it, for featurizing them: as raw as these (P1)."""
        store = self._store
        with store.moves:
            now = self.snapshot()
            if not now.holds(store.served):  # a seal whose erasure is not finished
                raise StateError("the complete tables are changing; call advance() and try again")

            def read(some: Wanted) -> Iterator[HotBatch]:
                return self.hot_rows(lambda number: wanted(number) and some(number))

            raw = Reduced(now, self._counted(wanted), read, threads=self._threads)
            self.perishes(raw)
            return raw

    def _counted(self, wanted: Wanted) -> Counted:
        store, hot, served = self._store, self._store.hot.stored(wanted), self.snapshot().tables
        files = [row for row in store.tables.windows() if row["window"] not in store.lacking]
        if store.stream is not None:  # of a stream, those that have joined its sum
            files = [row for row in files if row["window"] in store.stream.windows]
        found = {row["window"]: store.tables.names(row).intersection(served) for row in files}
        tables = {number: names for number, names in found.items() if names}
        hidden = sum(rows for batch in hot for window, rows in batch.lie if window in tables)
        return Counted({batch.number: batch.rows for batch in hot}, tables, hidden)

    def hot_rows(self, wanted: Wanted = lambda _: True) -> Iterator[HotBatch]:
        """Hot rows, batch by batch."""
        for number, table, parts in self._store.hot.batches(lambda number, _: wanted(number)):
            batch = records.batch_of(table)
            yield HotBatch(number, self._store.recounted(number, batch), batch, parts)

    def training_set(self, workload: Workload, *, values: bool = False) -> TrainingSet:
        """Hot rows as features and labels: P1, gone when the rows go."""
        unit = self._store.settings.weight_unit
        made = TrainingSet(self.reduced(), self._store.schema, workload, unit, values)
        self.perishes(made)
        return made

    def staying(self, leaving: Iterable[Step], last: int) -> Wanted:
        """The batches up to the last one that stay when some steps leave."""
        gone = {batch.number for step in leaving for batch in step.batches}
        return lambda number: number <= last and number not in gone
