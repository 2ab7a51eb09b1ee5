"""The state of one store: its parts on disk, its tables in memory, what is served.

Table sets go one way (`pyramidion.storage.table_sets`):

    opening -> populating -> sealed -> retired -> erased

The steps are planned in `pyramidion.store.transitions` and made durable by
`pyramidion.store.change.apply`; this class holds what they work on.

Two locks. `moves` is held by whoever applies a change, `arrivals` by whoever adds rows or changes
which tables take them; `moves` is taken first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.config.spelling import FACT as KEYED
from pyramidion.counts.arena import Arena
from pyramidion.counts.layout import read_from
from pyramidion.errors import KeyHolderError, PrivacyError, StateError
from pyramidion.privacy.ledger import Ledger, Line
from pyramidion.privacy.table_noise import TableDesign
from pyramidion.rows.containers import Batch
from pyramidion.rows.encoding import Encoder
from pyramidion.rows.observations import Door, Observations
from pyramidion.storage.batches import Batches
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.data_keys import DataKeys
from pyramidion.storage.disk import remove
from pyramidion.storage.hot import HotWindow, Step
from pyramidion.storage.names import Names
from pyramidion.storage.pins import Pins
from pyramidion.storage.readings import Purpose, Readings
from pyramidion.storage.records import widths_of
from pyramidion.storage.segments import Segments
from pyramidion.storage.spells import forget_spells
from pyramidion.storage.table_files import TableFiles
from pyramidion.storage.table_sets import SetId, TableSets
from pyramidion.storage.uncounted import Uncounted
from pyramidion.store.change import Also, Change, Edit, Served, apply
from pyramidion.store.contributions import People
from pyramidion.store.window_budget import Births
from pyramidion.store.windows import OpenSets, Part, TableSet

FOREVER = 1 << 62  # microseconds

Call = Callable[[], None]


def _nothing() -> None:
    """Nothing else is done."""


class Leaving(NamedTuple):
    """What is about to be erased: hot steps, and windows that no table has any more."""

    steps: Collection[Step]
    windows: Collection[int]
    now: int


class StreamSum(NamedTuple):
    """The sum of a stream that has several shards, as one of them serves it."""

    tables: Arena | None
    windows: frozenset[int]
    """The own windows that are in it."""
    expires: int | None
    """When the first window in it is past its retention."""


class Dated:
    """The ledger's book in the catalogue, whose lines are dated by the clock."""

    def __init__(self, catalogue: Catalogue, pins: Pins, clock: Callable[[], int]) -> None:
        self.lock, self.lines = catalogue.lock, catalogue.lines
        self._catalogue, self._pins, self._clock = catalogue, pins, clock

    def write(self, lines: Sequence[Line]) -> None:
        """Add lines, durable on return; all or none."""
        at = self._clock()
        with self._catalogue.transaction():
            self._pins.check()
            self._catalogue.write([replace(line, at=at) for line in lines])
            self._pins.seal()


class StoreState:
    """All windows of one store, their tables in memory and on disk."""

    def __init__(
        self,
        folder: Path,
        catalogue: Catalogue,
        keys: DataKeys,
        schema: Schema,
        settings: Settings,
        present: Callable[[], int],
    ) -> None:
        self.present = present
        """The time by the clock, which dates every record. What is due is decided by the store's
        time, ``now``, which a history moves."""
        self.moves = threading.RLock()
        self.arrivals = threading.RLock()
        self.catalogue = catalogue
        self.sets = TableSets(catalogue)
        self.keys = keys
        self.settings = settings
        self.pins = Pins(catalogue, keys)
        self.ledger = Ledger(
            Dated(catalogue, self.pins, lambda: self.present()),
            settings,
            unit=schema.unit,
            retained=self.sets.retained,
            release=self.charge_release,
        )
        self.secret = keys.get(int(catalogue.about("secret")))
        """What keys of values are hashed with. Every snapshot carries it, so it opens nothing."""
        self.names = Names(catalogue, keys, self.secret, self.pins)
        self.keyed_by = catalogue.about(KEYED)
        noted = settings.levels is not None  # nodes and windows are compared by their noise
        self.tables = TableFiles(catalogue, keys, folder / "tables", self.secret, noted=noted)
        self.readings = Readings(catalogue, keys)
        self.uncounted = Uncounted(catalogue, keys)
        self._segments = Segments(folder / "hot", catalogue.health)
        self.learn(schema)
        self.remove_strangers()
        self.hot = HotWindow(catalogue, keys, self._segments, settings)
        self.hot.widths = widths_of(schema)
        self.open_sets = OpenSets(settings, strict=schema.unit is not None)
        self.people = People(schema, settings, int(catalogue.about("clock", "0")))
        self.births = Births(settings, self.readings, self.secret, self.people.hidden)
        self.complete: Arena | None = None
        self.lacking: frozenset[int] = frozenset()
        """Sealed windows that are not in the complete tables: neither file could be read."""
        self.stream: StreamSum | None = None
        """Of a shard, the sum of its stream: served in place of the own complete tables."""
        self.published = True
        """Whether the complete tables are served as they are."""
        self._oldest: int | None = None
        """When the oldest window that is not erased began; None: look it up."""
        self._refunds: list[Call] = []
        """Charges to give back once the key holder is there again."""
        self.observers: Sequence[Observer] = ()
        """Told in this order; see `pyramidion.store.pyramid`."""
        self.with_erasures: Sequence[Edit] = ()
        """Edits that every erasure makes."""

    @staticmethod
    def refuse_unusable(schema: Schema, settings: Settings) -> None:
        """Raise for a schema and settings that no window could be born with."""
        shapes = Door(schema, settings, b"nobody's").encoder.shapes
        Births.refuse_unusable(schema, settings, shapes)

    def learn(self, schema: Schema) -> None:
        """Observe by this schema from now on, in the bins that were read last."""
        self.schema = schema
        cuts = self.readings.cuts(max(self.readings.of("bins"), default=0))
        self.door = Door(schema.cut(cuts), self.settings, self.secret, self.keyed_by)

    def birth(self, window: int, above: Fraction | None = None) -> TableDesign:
        """Everything a window of this number is born with, under nodes that cost so much."""
        return self.births.of(window, self.schema, self.door.encoder, above=above)

    def node_birth(self, window: int, level: int) -> TableDesign:
        """Everything a node of a level is born with, whose first window this is."""
        return self.births.of(window, self.schema, self.door.encoder, level=level)

    def due(self, window: int) -> list[Purpose]:
        """What is to be read from a window of this number."""
        return self.births.due(window, self.schema, self.door.encoder.shapes)

    @property
    def hidden(self) -> int:
        """How many observations the noise of a window hides: k, or all a person can have in it."""
        return self.people.hidden

    # --- what is there -------------------------------------------------------------

    def remove_strangers(self) -> None:
        """Remove files that nobody needs: erased, superseded, or left by a crash."""
        with self.arrivals, self.catalogue.lock:  # or a file that is being written is not known yet
            self.catalogue.health.refuse()  # or the catalogue on disk may know other ones
            for known, folder in (
                (self.tables.current_names(), self.tables.folder),
                (Batches(self.catalogue).segment_files(), self._segments.folder),
            ):
                found = {path.name for path in folder.iterdir()}
                if found - known:
                    remove(folder, found - known)

    def adopt(self, owner: SetId, arena: Arena, after: int) -> None:
        """Have a table set take rows in these tables; they count the batches up to ``after``."""
        held = self.open_sets.sets.get(owner)
        if held is not None:
            held.arena, held.encoder = arena, self.encoder_of(arena)
            held.after, held.fresh = after, 0
            return
        row = self.sets.row(owner)
        if row is None:
            raise StateError(f"{owner} is not in the catalogue; restore it from a backup")
        self.open_sets.sets[owner] = TableSet(
            owner,
            row["slot"],
            row["start"],
            row["stop"],
            arena,
            self.encoder_of(arena),
            after,
            set(self.sets.windows_of(owner)),
        )

    def encoder_of(self, arena: Arena) -> Encoder:
        """Makes the keys of these tables: a group that began later is not among them."""
        return self.encoder_named(arena.layout.index)

    def encoder_named(self, names: Collection[str]) -> Encoder:
        """Makes the keys of the tables of these names, in the bins that these say."""
        cuts = self.readings.cuts(max(map(read_from, names)))
        schema, limit = self.schema.only(names).cut(cuts), self.settings.dense_limit
        return Encoder(schema, self.secret, limit, self.keyed_by)

    def recounted(self, number: int, batch: Batch) -> Observations:
        """Hot rows as they were counted: a blanked one weighs nothing."""
        counted = self.hot.counted(number)
        if counted is None and self.people.unit is not None:
            raise PrivacyError(
                f"which rows of batch {number} count is not known, so a person could have more "
                f"than the noise hides; this is a bug"
            )
        if counted is not None and counted.size != batch.length:
            raise StateError(f"rows of batch {number} were erased while it was read; ask again")
        return self.door.observations(batch).counting(counted)

    def forget_people(self, now: int) -> None:
        """Know no more of people whose block is over."""
        with self.arrivals:
            self.people.forget(now)

    # --- where rows go ---------------------------------------------------------------

    def place(self, observations: Observations, now: int) -> list[Part] | list[int]:
        """The windows that rows belong to; or, if some are not open yet, their slots."""
        return self.open_sets.place(observations, now, self._last_slot)

    def _last_slot(self) -> int:
        """Of windows that are over; one that is being opened is not passed over."""
        last = self.sets.last_slot("opening", "populating")
        return -1 if last is None else last

    def last_batch(self) -> int:
        """The number of the newest acknowledged batch."""
        return int(self.catalogue.about("next_batch", "1")) - 1

    # --- releases ----------------------------------------------------------------------

    def charge_release(self, charge: Call, give_back: Call = _nothing) -> None:
        """Write a charge and end every older copy of the store; then its release may be made.

        A backup or a second copy of the directory has the same rows, and a ledger that does not
        know what was spent since. If it opened, it could release these rows again, on noise of its
        own. So the store key is renewed in the transaction that writes the ``charge``, and the
        older key is destroyed before this returns: before noise is drawn or a row is read.

        Every spend goes this way, and every window that is counted in bulk. Seals renew the key
        by their erasure. A birth alone need not: what it charges is released by the seal.

        Where an older key cannot be destroyed an older copy may still open, so nothing may be
        released: the charge is given back, and this raises.
        """
        with self.moves:
            self.settle()
            try:
                apply(self, Change("charge", edits=[Also(charge)], renew=True), self.present())
            except Exception:
                if self.keys.unfinished:  # it was charged, and nothing was read
                    self._refund(give_back)
                raise

    def _refund(self, give_back: Call) -> None:
        """Give a charge back now, or as soon as the key holder can be reached."""
        try:
            give_back()
        except KeyHolderError:
            self._refunds.append(give_back)

    # --- what is served --------------------------------------------------------------------

    def serve(self, tables: Served, expires: str = "") -> None:
        """Have other complete tables; they are served by `publish`.

        With a reason in ``expires`` all snapshots of earlier ones expire at once.
        """
        self.complete, self.lacking = tables
        self.forget_dates()
        self.published = bool(expires) and not self.keys.unfinished
        if expires:
            raise_first(call_all([partial(o.tables_withdrawn, expires) for o in self.observers]))

    def settle(self) -> None:
        """Finish an erasure that was broken off, then serve what waited for that."""
        if self.keys.unfinished:
            self.keys.finish(self.present, self.remove_strangers)
            while self._refunds:
                self._refunds.pop()()
            self.publish()

    def publish(self) -> None:
        """Serve what was sealed, once nothing opens the states before it any longer."""
        if not self.published and not self.keys.unfinished:
            self.published = True
            raise_first(call_all([observer.tables_published for observer in self.observers]))

    def passed(self, window: TableSet, now: int) -> None:
        """Note that the time of a window is over, if it is; callers hold the lock of arrivals."""
        if window.stop is not None and window.stop <= now:
            self.open_sets.passed = max(self.open_sets.passed, window.slot)
            self.people.seen(window.stop)

    # --- retention ---------------------------------------------------------------------------

    def past(self, now: int, *, remember: bool = False) -> list[int]:
        """Windows past their retention, and such whose erasure was broken off."""
        if self._oldest is not None and self._oldest + self.settings.retention_us > now:
            return []  # the usual case, asked at every turn
        past = self.sets.past(now - self.settings.retention_us)
        if remember:  # only a caller that holds the lock of moves knows that no window changes
            oldest = self.sets.oldest_start(retired=True)
            self._oldest = FOREVER if oldest is None else oldest
        return past

    def forget_dates(self) -> None:
        """Windows have other dates: look again which is the oldest."""
        self._oldest = None

    @property
    def served(self) -> Arena | None:
        """The tables that are served: the complete ones, or the sum of the stream."""
        return self.complete if self.stream is None else self.stream.tables

    def retires(self) -> int | None:
        """When the first window that is served is past its retention; None: there is none."""
        if self.stream is not None:
            return self.stream.expires
        oldest = self.sets.oldest_start()
        return None if oldest is None else oldest + self.settings.retention_us

    def sum_tables(self, windows: Collection[int]) -> None:
        """Of windows that end, names and shares of tables go where they tell what was read;
        within a transaction."""
        if self.settings.weights_share or self.settings.selection_share:
            self.catalogue.sum_tables(windows)

    def forget_past(self) -> None:
        """What is remembered of the past (row totals, times, names) ends with the retention."""
        horizon = self.present() - self.settings.retention_us
        self.hot.forget_past(horizon)
        forget_spells(self.catalogue, horizon)

    def close(self) -> None:
        """Let go of all files."""
        self._segments.close()


# --- observers -------------------------------------------------------------------------------


class Observer:
    """A part of the store that is told when tables or hot rows change; overrides what it needs.

    The order of observers is fixed in `pyramidion.store.pyramid`. All are told, even if one raises;
    the first error is raised then.
    """

    def tables_published(self) -> None:
        """Other complete tables are served from now on."""

    def tables_withdrawn(self, why: str) -> None:
        """Snapshots of earlier complete tables must expire now."""

    def rows_leaving(self, leaving: Leaving) -> None:
        """Hot rows are about to be erased. They are erased even if this raises."""

    def rows_left(self) -> None:
        """The rows of the last `rows_leaving` are erased."""

    def person_leaving(self) -> None:
        """Rows of one person are about to be erased; what was made from hot rows goes first."""


def call_all(calls: Sequence[Callable[[], None]]) -> Exception | None:
    """Call all, even if one raises; the first error."""
    problems = []
    for call in calls:
        try:
            call()
        except Exception as problem:  # the others are called all the same
            problems.append(problem)
    return problems[0] if problems else None


def raise_first(problem: Exception | None) -> None:
    """Raise what `call_all` returned."""
    if problem is not None:
        raise problem


class ForgetPeople(Observer):
    """Forgets who came in a block that is over, when the next rows leave."""

    def __init__(self, store: StoreState) -> None:
        self._store = store

    def rows_leaving(self, leaving: Leaving) -> None:
        """Forget them."""
        self._store.forget_people(leaving.now)
