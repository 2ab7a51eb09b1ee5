"""The life of windows, hot steps and keys; nothing else moves them.

    opening -> populating -> sealed -> retired -> erased

Nodes of a tree of windows (`pyramidion.store.nodes`) go the same way: born with their first window,
sealed when no row can come to them any more, and gone with the first of their windows to retire.

- *open*: the ledger is charged, then noise is drawn, then the noisy tables are
  durable; only then may a row be acknowledged into them.
- *checkpoint*: populating tables are written anew under a fresh key, so that reopening
  replays few rows. Two states of one populating table subtract to exact counts, so the
  older one's key dies before any row between them leaves the hot window: every erasure
  destroys the keys of all superseded files.
- *seal*: tables take no more counts and join the complete tables.
- *step*: hot rows whose time is over are erased, after a checkpoint that has them.
- *retire*: a window past its retention leaves the complete tables and is erased.

Two locks. `moves` is held by whoever moves anything, `arrivals` by whoever adds rows or
changes which tables take them; `moves` is taken first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.config.spelling import FACT as KEYED
from pyramidion.counts.arena import Arena
from pyramidion.counts.layout import read_from
from pyramidion.errors import (
    FormatError,
    PrivacyError,
    StateError,
    StorageError,
)
from pyramidion.privacy.birth import Birth
from pyramidion.privacy.ledger import Ledger, Line
from pyramidion.rows.containers import Batch
from pyramidion.rows.encoding import Encoder
from pyramidion.rows.observations import Door, Observations
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.data_keys import DataKeys
from pyramidion.storage.deletions import Deleted, Kind, sealed_window
from pyramidion.storage.disk import remove
from pyramidion.storage.fault_points import reach
from pyramidion.storage.hot import HotWindow, Step
from pyramidion.storage.names import Names
from pyramidion.storage.pins import Pins
from pyramidion.storage.readings import PURPOSES, Purpose, Readings
from pyramidion.storage.records import widths_of
from pyramidion.storage.segments import Segments
from pyramidion.storage.spells import forget_spells
from pyramidion.storage.table_files import TableFiles
from pyramidion.storage.uncounted import Uncounted
from pyramidion.store.contributions import People
from pyramidion.store.nodes import Node, Nodes, purpose
from pyramidion.store.window_budget import Births
from pyramidion.store.windows import Part, Populating, Window

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

    def __init__(self, catalogue: Catalogue, clock: Callable[[], int]) -> None:
        self.lock, self.lines = catalogue.lock, catalogue.lines
        self._catalogue, self._clock = catalogue, clock

    def write(self, lines: Sequence[Line]) -> None:
        """Add lines, durable on return; all or none."""
        at = self._clock()
        self._catalogue.write([replace(line, at=at) for line in lines])


class Lifecycle:
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
        self.keys = keys
        self.settings = settings
        self.ledger = Ledger(
            Dated(catalogue, lambda: self.present()),
            settings,
            unit=schema.unit,
            retained=self._retained,
            release=self.charge_release,
        )
        self.secret = keys.get(int(catalogue.about("secret")))
        """What keys of values are hashed with. Every snapshot carries it, so it opens nothing."""
        self.pins = Pins(catalogue, keys)
        self.names = Names(catalogue, keys, self.secret, self.pins)
        self.keyed_by = catalogue.about(KEYED)
        noted = settings.levels is not None  # nodes and windows are compared by their noise
        self.tables = TableFiles(catalogue, keys, folder / "tables", self.secret, noted=noted)
        self.readings = Readings(catalogue, keys)
        self.uncounted = Uncounted(catalogue, keys)
        self._segments = Segments(folder / "hot", catalogue.health)
        self.learn(schema)
        self._remove_strangers()
        self.hot = HotWindow(catalogue, keys, self._segments, settings)
        self.hot.widths = widths_of(schema)
        self.windows = Populating(settings, strict=schema.unit is not None)
        self.people = People(schema, settings, int(catalogue.about("clock", "0")))
        self.births = Births(settings, self.readings, self.secret, self.people.hidden)
        self.populating = self.windows.windows
        self.nodes = Nodes(settings)
        self.complete: Arena | None = None
        self.lacking: frozenset[int] = frozenset()
        """Sealed windows that are not in the complete tables: neither file could be read."""
        self.stream: StreamSum | None = None
        """Of a shard, the sum of its stream: served in place of the own complete tables."""
        self.published = True
        """Whether the complete tables are served as they are."""
        self._oldest: int | None = None
        """When the oldest window that is not erased began; None: look it up."""
        self.changed: list[Callable[[str], None]] = []
        """Called when the complete tables change; with a reason when older ones must go."""
        self.opening: list[Callable[[int], None]] = []
        """Called with the time before a window is born."""
        self.leaving: list[Callable[[Leaving], None]] = []
        """Called before hot rows leave for good; what it raises does not keep them."""
        self.left: list[Callable[[], None]] = []
        """Called once the rows that `leaving` told of are gone."""
        self.erasing: list[Callable[[Kind], None]] = []
        """Called with what is erased and why, at the end of the transaction that does it."""
        self.dropping: list[Callable[[], Collection[int]]] = []
        """Called within the transaction of an erasure; the keys that each gives die with it."""
        self.parting: list[Callable[[], None]] = []
        """Called before the rows of a person are erased: what was made of them goes first."""

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

    def birth(self, window: int, above: Fraction | None = None) -> Birth:
        """Everything a window of this number is born with, under nodes that cost so much."""
        return self.births.of(window, self.schema, self.door.encoder, above=above)

    def node_birth(self, window: int, level: int) -> Birth:
        """Everything a node of a level is born with, whose first window this is."""
        return self.births.of(window, self.schema, self.door.encoder, level=level)

    def due(self, window: int) -> list[Purpose]:
        """What is to be read from a window of this number."""
        return self.births.due(window, self.schema, self.door.encoder.shapes)

    @property
    def hidden(self) -> int:
        """How many observations the noise of a window hides: k, or all a person can have in it."""
        return self.people.hidden

    def _retained(self) -> set[int]:
        """The windows that are not erased."""
        rows = self.catalogue.all("SELECT number FROM windows WHERE state <> 'erased'")
        return {row["number"] for row in rows}

    # --- what is there -------------------------------------------------------------

    def _remove_strangers(self) -> None:
        """Files that nobody needs: erased ones, superseded ones, and what a crash left."""
        with self.arrivals, self.catalogue.lock:  # or a file that is being written is not known yet
            self.catalogue.health.refuse()  # or the catalogue on disk may know other ones
            for query, folder in (
                ("SELECT file FROM arenas WHERE current = 1", self.tables.folder),
                ("SELECT file FROM steps", self._segments.folder),
            ):
                known = {row["file"] for row in self.catalogue.all(query)}
                found = {path.name for path in folder.iterdir()}
                if found - known:
                    remove(folder, found - known)

    def adopt(self, number: int, arena: Arena, after: int) -> None:
        """Have a window take rows whose tables are there; they have the batches up to ``after``."""
        (row,) = self.catalogue.all(
            "SELECT slot, start, stop FROM windows WHERE number = ?", number
        )
        encoder = self.encoder_of(arena)
        self.populating[number] = Window(
            number, row["slot"], row["start"], row["stop"], arena, encoder, after
        )

    def adopt_node(self, number: int, arena: Arena, after: int) -> None:
        """Have a node take rows, in the same way."""
        (row,) = self.catalogue.all("SELECT level, place FROM nodes WHERE number = ?", number)
        encoder, members = self.encoder_of(arena), set(self.tables.members(number))
        self.nodes.nodes[number] = Node(
            number, row["level"], row["place"], arena, encoder, after, members
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
        """The windows that rows go to; or, where some are not open yet, their slots."""
        return self.windows.place(observations, now, self._last_slot)

    def _last_slot(self) -> int:
        """Of windows that are over; one that the keeper is opening is not passed over."""
        over = "SELECT max(slot) FROM windows WHERE state NOT IN ('opening', 'populating')"
        last = self.catalogue.one(over)
        return -1 if last is None else int(last)

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
                self.keys.renew(charge)
            except Exception:
                if self.keys.unfinished:  # it was charged, and nothing was read
                    give_back()
                raise

    # --- open --------------------------------------------------------------------------

    def open(self, slot: int, now: int) -> int:
        """Open a window: charge, draw, write; when this returns it is durable and takes rows."""
        with self.moves:
            for window in self.windows.taking():
                if window.slot == slot:
                    return window.number
            slots = self.windows.slots
            start = slots.start(slot) if slots is not None else None
            stop = slots.stop(slot) if slots is not None else None
            for call in self.opening:
                call(now)
            number = self.next_window()
            held, born = self._nodes_for(number, slot)
            above = {**held, **{purpose(n): _cost(each) for n, (*_, each) in born.items()}}
            birth = self.birth(number, sum(above.values(), Fraction(0)))
            with self.catalogue.transaction():
                self.catalogue.run(
                    "INSERT INTO windows (number, state, slot, start, stop) "
                    "VALUES (?, 'opening', ?, ?, ?)",
                    number,
                    slot,
                    start,
                    stop,
                )
                self._join(number, slot, born)
                self.ledger.open(number, birth.shares, birth.reserves, now, above)
            reach("open.charged")
            arena = birth.arena()
            nodes = {n: each.arena() for n, (*_, each) in born.items()}
            with ExitStack() as files:
                add = [files.enter_context(self.tables.write(arena, "checkpoint", number))]
                for n, of_node in nodes.items():
                    file = self.tables.write(of_node, "checkpoint", node=n)
                    add.append(files.enter_context(file))
                reach("open.written")
                with self.catalogue.transaction():
                    after = self.last_batch()  # no row before had a window to go to here
                    for known in add:
                        known(after=after)
                    self.catalogue.run(
                        "UPDATE windows SET state = 'populating' WHERE number = ?", number
                    )
                    self.catalogue.run_all(
                        "UPDATE nodes SET state = 'populating' WHERE number = ?",
                        [(each,) for each in nodes],
                    )
            reach("open.after")
            with self.arrivals:
                self.adopt(number, arena, after)
                for n, of_node in nodes.items():
                    self.adopt_node(n, of_node, after)
                for _, _, node in self.nodes.wanted(slot):
                    if node is not None:
                        node.members.add(number)
            return number

    def _nodes_for(
        self, window: int, slot: int
    ) -> tuple[dict[str, Fraction], dict[int, tuple[int, int, Birth]]]:
        """What the nodes cost that take a window's rows already; and those to be born with it."""
        held: dict[str, Fraction] = {}
        born: dict[int, tuple[int, int, Birth]] = {}
        number = int(self.catalogue.one("SELECT coalesce(max(number), 0) FROM nodes"))
        for level, place, node in self.nodes.wanted(slot):
            if node is None:
                number += 1
                born[number] = level, place, self.node_birth(window, level)
            else:
                held[purpose(node.number)] = self._paid(node)
        return held, born

    def _paid(self, node: Node) -> Fraction:
        """What a node cost at its birth, as a share of the budget: its noise is of that."""
        (first, *_) = self.catalogue.all(
            "SELECT window, amount FROM ledger WHERE kind = 'node' AND purpose = ? ORDER BY id",
            purpose(node.number),
        )
        (budget,) = (ln.amount for ln in self.catalogue.lines(first[0]) if ln.kind == "budget")
        if budget:
            return Fraction(first[1]) / budget
        return _cost(self.node_birth(first[0], node.level))

    def _join(self, window: int, slot: int, born: Mapping[int, tuple[int, int, Birth]]) -> None:
        """Note which nodes take a window's rows; within a transaction."""
        for number, (level, place, _) in born.items():
            self.catalogue.run(
                "INSERT INTO nodes VALUES (?, ?, ?, 'opening')", number, level, place
            )
        held = [node.number for *_, node in self.nodes.wanted(slot) if node is not None]
        self.catalogue.run_all(
            "INSERT INTO members VALUES (?, ?)", [(node, window) for node in (*held, *born)]
        )

    def next_window(self) -> int:
        """The number of the window that is opened next."""
        return int(self.catalogue.one("SELECT coalesce(max(number), 0) + 1 FROM windows"))

    # --- checkpoint -------------------------------------------------------------------------

    def checkpoint(self, window: Window | Node) -> None:
        """Write populating tables anew, with every row acknowledged so far."""
        with self.moves:
            with self.arrivals:
                copy = window.arena.only(window.arena.layout.index)
                after = self.last_batch()
            reach("checkpoint.copied")
            with self.tables.write(copy, "checkpoint", **owner(window)) as add:
                reach("checkpoint.written")
                with self.catalogue.transaction():
                    self.tables.supersede("checkpoint", **owner(window))
                    add(after=after)
            reach("checkpoint.after")
            self._remove_strangers()
            with self.arrivals:
                window.fresh, window.after = window.arena.rows - copy.rows, after

    def last_batch(self) -> int:
        """The number of the newest acknowledged batch."""
        return int(self.catalogue.about("next_batch", "1")) - 1

    # --- seal -------------------------------------------------------------------------------

    def seal(self, window: Window, now: int) -> None:
        """Close a window and add it to the complete tables.

        This is an erasure too: every state of the populating table dies with its key, in
        backups as well, before the sealed one is published. A backup that went on from
        there would seal the same noise over other rows, and the two subtract.
        """
        with self.moves:
            reach("seal.before")
            with self.arrivals:
                window.closed = True
                window.arena.seal()
            number = window.number
            complete, lacking = self.summed(windows={number: window.arena})
            with (
                self.tables.write(window.arena, "sealed", number) as add_sealed,
                self.written(complete) as add_complete,
            ):
                reach("seal.written")

                def before() -> None:
                    self.tables.supersede("checkpoint", number)
                    self.tables.supersede("complete")
                    add_sealed()
                    add_complete()
                    self.catalogue.run(
                        "UPDATE windows SET state = 'sealed', stop = coalesce(stop, ?) "
                        "WHERE number = ?",
                        now,
                        number,
                    )

                def after() -> None:
                    with self.arrivals:
                        self.populating.pop(number)
                    self.complete, self.lacking = complete, lacking
                    self._oldest, self.published = None, False

                self.erase(sealed_window(number), "sealed", now, before=before, after=after)
            reach("seal.after")
            self.publish()

    def summed(
        self,
        *,
        windows: Mapping[int, Arena] = MappingProxyType({}),
        nodes: Mapping[int, Arena | None] = MappingProxyType({}),
    ) -> tuple[Arena | None, frozenset[int]]:
        """The complete tables once more windows and nodes are sealed, and what they lack then.

        Flat ones are added; in a tree nodes come to stand for windows.
        """
        if self.nodes.levels is not None:
            return self.tables.total(windows=windows, nodes=nodes)
        held = [arena for arena in (self.complete, *windows.values()) if arena is not None]
        return (Arena.total(held) if windows else self.complete), self.lacking

    def written(self, complete: Arena | None) -> AbstractContextManager[Callable[[], None]]:
        """A file of complete tables; nothing where there are none."""
        if complete is None:
            return nullcontext(_nothing)
        return self.tables.write(complete, "complete")

    # --- nodes ------------------------------------------------------------------------------

    def forget_nodes(self, numbers: Iterable[int], state: str = "erased") -> None:
        """Nodes stand for nothing any more, and the next erasure destroys their keys; within a
        transaction."""
        for number in numbers:
            self.catalogue.run("UPDATE nodes SET state = ? WHERE number = ?", state, number)
            self.catalogue.run("UPDATE arenas SET current = 0 WHERE node = ?", number)

    def nodes_over(self, windows: Collection[int], *states: str) -> list[int]:
        """The nodes in some states that have rows of some windows."""
        query = "SELECT number, state FROM nodes JOIN members ON node = number WHERE window = ?"
        found = [row for window in windows for row in self.catalogue.all(query, window)]
        return sorted({row["number"] for row in found if row["state"] in states})

    def change(self, complete: Arena | None, why: str) -> None:
        """Other complete tables; older ones must go at once."""
        self.complete, self._oldest, self.published = complete, None, not self.keys.unfinished
        with ExitStack() as calls:  # each is called, also where another one fails
            for call in reversed(self.changed):
                calls.callback(call, why)

    def settle(self) -> None:
        """Finish an erasure that was broken off, then serve what waited for that."""
        if self.keys.unfinished:
            self.keys.finish(self.present, self._remove_strangers)
            self.publish()

    def joined(self, complete: Arena | None, lacking: frozenset[int]) -> None:
        """A window that was sealed at birth is in these complete tables; both are durable."""
        self._remove_strangers()
        self.complete, self.lacking = complete, lacking
        self._oldest, self.published = None, False
        self.publish()

    def publish(self) -> None:
        """Serve what was sealed, once nothing opens the states before it any more."""
        if not self.published and not self.keys.unfinished:
            self.published = True
            for call in self.changed:
                call("")

    def passed(self, window: Window, now: int) -> None:
        """Note that the time of a window is over, if it is; by who holds the lock of arrivals."""
        if window.stop is not None and window.stop <= now:
            self.windows.passed = max(self.windows.passed, window.slot)
            self.people.seen(window.stop)

    def close_window(self, window: Window, now: int) -> None:
        """Seal a window, or drop it where nobody came to it."""
        if window.arena.rows:
            self.seal(window, now)
        else:
            self._abandon(window)

    def _abandon(self, window: Window) -> None:
        """A window that nobody came to: its noise is dropped, its charge stays."""
        with self.moves:
            with self.arrivals:
                self.populating.pop(window.number)
            with self.catalogue.transaction():
                self.tables.supersede("checkpoint", window.number)
                self.catalogue.run(
                    "UPDATE windows SET state = 'erased' WHERE number = ?", window.number
                )
                self.sum_tables([window.number])

    # --- retire and erase ---------------------------------------------------------------------

    def past(self, now: int, *, remember: bool = False) -> list[int]:
        """Windows past their retention, and such whose erasure was broken off."""
        if self._oldest is not None and self._oldest + self.settings.retention_us > now:
            return []  # the usual case, asked at every turn
        rows = self.catalogue.all(
            "SELECT number FROM windows WHERE state = 'retired' "
            "OR (state = 'sealed' AND start + ? <= ?) ORDER BY number",
            self.settings.retention_us,
            now,
        )
        oldest = self.catalogue.one(
            "SELECT min(start) FROM windows WHERE state IN ('sealed', 'retired')"
        )
        if remember:  # only who moves windows knows that nobody else does
            self._oldest = FOREVER if oldest is None else oldest
        return [row["number"] for row in rows]

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
        oldest = self.catalogue.one("SELECT min(start) FROM windows WHERE state = 'sealed'")
        return None if oldest is None else int(oldest) + self.settings.retention_us

    def retire(self, numbers: Iterable[int]) -> None:
        """Take windows out of the complete tables; nothing serves them any more."""
        reach("retire.before")
        sealed = [
            number
            for number in numbers
            if self.catalogue.one("SELECT state FROM windows WHERE number = ?", number) == "sealed"
        ]
        if not sealed:
            return
        complete, lacking = self._without(sealed)
        nodes = self.nodes_over(sealed, "populating", "sealed")
        with self.written(complete) as add:
            reach("retire.written")
            with self.catalogue.transaction():
                self.tables.supersede("complete")
                add()
                for number in sealed:
                    self.catalogue.run(
                        "UPDATE windows SET state = 'retired' WHERE number = ?", number
                    )
                for number in nodes:
                    self.catalogue.run(
                        "UPDATE nodes SET state = 'retired' WHERE number = ?", number
                    )
        with self.arrivals:
            for number in nodes:
                self.nodes.nodes.pop(number, None)
        reach("retire.after")
        self.lacking = lacking
        self.change(complete, f"window {sealed[-1]} is past its retention")

    def _without(self, numbers: list[int]) -> tuple[Arena | None, frozenset[int]]:
        """The complete tables without some windows, and which windows they lack then.

        They are taken off; or, where one cannot be read, the others are summed. One that cannot
        be read there does not keep others beyond their time: the complete tables lack it.
        """
        if self.nodes.levels is not None:
            return self.tables.total(but=numbers)
        complete, lacking = self.complete, self.lacking.difference(numbers)
        held = {row["window"] for row in self.tables.windows()}
        if held <= {*numbers, *lacking}:
            return None, lacking
        if complete is None:
            raise StateError("there are no complete tables to take windows off; reopen the store")
        try:
            for number in held.intersection(numbers).difference(self.lacking):
                complete = complete.less(self.tables.sealed(number))
        except (FormatError, StorageError):
            return self.tables.total(but=numbers)
        return complete, lacking

    def erase(
        self,
        gone: Deleted,
        why: str,
        now: int,
        *,
        steps: Collection[Step] = (),
        windows: Collection[int] = (),
        keys: Collection[int] = (),
        before: Callable[[], None] = lambda: None,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        """Destroy the keys of steps, windows and every superseded table file, then the files.

        ``before`` changes the catalogue in the same transaction, ``after`` the memory when
        that is durable: an erasure that breaks off later has happened all the same.
        """
        with self.moves:

            def forget(at: int) -> Collection[int]:
                before()
                for number in windows:
                    self.catalogue.run(
                        "UPDATE windows SET state = 'erased' WHERE number = ?", number
                    )
                    self.catalogue.run("UPDATE arenas SET current = 0 WHERE window = ?", number)
                self.forget_nodes(self.nodes_over(windows, "populating", "sealed", "retired"))
                self.hot.forget(list(steps), at)
                old = self.catalogue.all("SELECT key FROM arenas WHERE current = 0")
                self.catalogue.run("DELETE FROM arenas WHERE current = 0")
                held = [key.id for step in steps for key in (step.key, step.once)]
                self.sum_tables(windows)
                held += self.uncounted.drop(lambda block: self.people.is_over(block, now))
                held += self.readings.keys(windows, *PURPOSES)
                self.readings.forget(windows, *PURPOSES)
                held += [key for drop in self.dropping for key in drop()]
                for call in self.erasing:
                    call(gone.kind)
                return [*held, *keys, *(row["key"] for row in old)]

            def forgotten() -> None:
                self._oldest = None
                self.readings.forgotten(windows, *PURPOSES)
                with self.arrivals:
                    self.hot.forgotten(list(steps))
                after()

            self.keys.erase(gone, why, self.present, forget, forgotten, self._remove_strangers)

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


def owner(held: Window | Node) -> dict[str, int]:
    """Whose a table file is, as `TableFiles` is told."""
    return {"node" if isinstance(held, Node) else "window": held.number}


def _cost(birth: Birth) -> Fraction:
    """What the tables of a node cost, as a share of the budget."""
    return sum(birth.shares.values(), Fraction(0))
