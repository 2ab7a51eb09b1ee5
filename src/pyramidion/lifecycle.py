"""The life of windows, hot steps and keys; nothing else moves them.

    opening -> populating -> sealed -> retired -> erased

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
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyramidion import records
from pyramidion.counts.arena import Arena
from pyramidion.counts.layout import PRIOR
from pyramidion.counts.snapshot import Snapshot
from pyramidion.counts.windows import Slots
from pyramidion.encoding import Encoder
from pyramidion.errors import (
    FormatError,
    PyramidionError,
    SchemaError,
    StateError,
    StorageError,
)
from pyramidion.guarantee import Guarantee
from pyramidion.killpoints import reach
from pyramidion.observations import Door, Observations
from pyramidion.privacy.birth import Birth
from pyramidion.privacy.ledger import Ledger
from pyramidion.schema import Schema
from pyramidion.settings import Settings
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.data_keys import DataKey, DataKeys
from pyramidion.storage.disk import remove
from pyramidion.storage.hot import HotWindow, Parts, Step
from pyramidion.storage.segments import Segments
from pyramidion.storage.tables import TableFiles

AFAR = 1_000_000_000  # batch numbers that are left out after restoring a backup
FOREVER = 1 << 62  # microseconds
LEAD = 10  # the next window's noise is drawn when less than a tenth of the current one is left


@dataclass
class Window:
    """A populating window."""

    number: int
    slot: int
    start: int | None
    """When its slot begins; by rows, when its first row came."""
    stop: int | None
    arena: Arena
    encoder: Encoder
    after: int
    """The checkpoint on disk has all batches up to this one."""
    fresh: int = 0
    """Rows counted since that checkpoint."""
    closed: bool = False
    """Whether it is being sealed: it takes no more rows."""


@dataclass(frozen=True)
class Part:
    """Rows of a batch that go to one window."""

    window: Window
    rows: NDArray[np.int64] | None  # None: all
    late: int


@dataclass
class Advance:
    """What `advance` did."""

    sealed: list[int] = field(default_factory=list)
    steps: int = 0
    rows_erased: int = 0
    retired: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    checkpoints: list[int] = field(default_factory=list)
    opened: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(vars(self).values())


class Lifecycle:
    """All windows of one store, their tables in memory and on disk."""

    def __init__(
        self, folder: Path, catalogue: Catalogue, keys: DataKeys, schema: Schema, settings: Settings
    ) -> None:
        self.moves = threading.RLock()
        self.arrivals = threading.RLock()
        self.catalogue = catalogue
        self.keys = keys
        self.settings = settings
        self.ledger = Ledger(catalogue, settings)
        self.secret = keys.get(int(catalogue.about("secret")))
        self._tables = TableFiles(folder / "tables", self.secret)
        self._segments = Segments(folder / "hot")
        self._slots = Slots.of_windows(settings)
        self._learn(schema)
        self._remove_strangers()
        self.hot = HotWindow(catalogue, keys, self._segments, settings)
        self.populating: dict[int, Window] = {}
        self.complete: Arena | None = None
        self._published = True
        """Whether the complete tables are served as they are."""
        self._passed = -FOREVER
        """The slot of the last window whose time was seen to be over."""
        self._oldest: int | None = None
        """When the oldest window that is not erased began; None: look it up."""
        self.changed: list[Callable[[str], None]] = []
        """Called when the complete tables change; with a reason when older ones must go."""
        self.leaving: list[Callable[[], None]] = []
        """Called before hot rows leave for good; what it raises does not keep them."""
        self._load()

    @staticmethod
    def refuse_unusable(schema: Schema, settings: Settings) -> None:
        """Raise for a schema and settings that no window could be born with."""
        shapes = Door(schema, settings, b"nobody's").encoder.shapes
        Birth(settings, shapes, schema.cardinality, b"nobody's").layout  # noqa: B018

    def _learn(self, schema: Schema) -> None:
        self.schema = schema
        self.door = Door(schema, self.settings, self.secret)
        shares = dict(self.settings.shares or ())
        kept = {name: share for name, share in shares.items() if name in schema.table_names}
        settings = replace(self.settings, shares=kept or None)
        self._birth = Birth(settings, self.door.encoder.shapes, schema.cardinality, self.secret)

    # --- opening a store -----------------------------------------------------------

    def _remove_strangers(self) -> None:
        """Files that nobody needs: erased ones, superseded ones, and what a crash left."""
        with self.arrivals:  # or a file that is being appended to may not be known yet
            for query, folder in (
                ("SELECT file FROM arenas WHERE current = 1", self._tables.folder),
                ("SELECT file FROM steps", self._segments.folder),
            ):
                known = {row["file"] for row in self.catalogue.all(query)}
                found = {path.name for path in folder.iterdir()}
                if found - known:
                    remove(folder, found - known)

    def _load(self) -> None:
        with self.catalogue.transaction():
            self.catalogue.run("UPDATE windows SET state = 'erased' WHERE state = 'opening'")
        for row in self.catalogue.all(
            "SELECT * FROM arenas WHERE current = 1 AND kind <> 'sealed'"
        ):
            arena = self._tables.read(row["file"], self.keys.get(row["key"]))
            if row["kind"] == "complete":
                self.complete = arena
            else:
                self._adopt(row["window"], arena, row["after"])
        self._replay()

    def _adopt(self, number: int, arena: Arena, after: int) -> Window:
        (row,) = self.catalogue.all(
            "SELECT slot, start, stop FROM windows WHERE number = ?", number
        )
        encoder = self.encoder_of(arena)
        window = Window(number, row["slot"], row["start"], row["stop"], arena, encoder, after)
        self.populating[number] = window
        return window

    def encoder_of(self, arena: Arena) -> Encoder:
        """Makes the keys of these tables: a group that began later is not among them."""
        schema = only(self.schema, arena.layout.index)
        return Encoder(schema, self.secret, self.settings.dense_limit)

    def _replay(self) -> None:
        """Count the rows that the checkpoints lack: the same noise, each row once."""
        after = {window.number: window.after for window in self.populating.values()}

        def lacking(number: int, parts: Parts) -> bool:
            return any(number > after.get(window, number) for window, _ in parts)

        for number, table, parts in self.hot.batches(lacking):
            observations = self.door.observations(records.batch_of(table))
            start = 0
            for window, rows in parts:
                found = self.populating.get(window)
                if found is not None and number > found.after:
                    taken = observations.take(np.arange(start, start + rows))
                    found.arena.add(taken.under(found.encoder))
                    found.fresh += rows
                start += rows

    # --- where rows go ---------------------------------------------------------------

    def place(self, observations: Observations, now: int) -> list[Part] | list[int]:
        """The windows that rows go to; or, where some are not open yet, their slots.

        Event time decides. Rows whose window is not populating any more go to the
        current one and are late. By rows, windows fill one after the other.
        """
        if self._slots is None:
            return self._place_by_rows(len(observations))
        times = observations.times
        # Who asked for the time before a window was over may come after it was sealed.
        current = max(self._slots.at(now), self._passed + 1)
        if times is None:
            now = max(now, self._slots.start(current))
            times = np.full(len(observations), now, dtype=np.int64)
        slots = self._slots.all_at(times)
        open_ = {window.slot: window for window in self._taking()}
        one = not slots.size or slots.min() == slots.max()
        targets = {
            slot: slot if slot in open_ or slot >= current else current
            for slot in (slots[:1] if one else np.unique(slots)).tolist()
        }
        missing = sorted({slot for slot in targets.values() if slot not in open_})
        if missing or not targets:
            return missing
        if len(targets) == 1:
            ((slot, target),) = targets.items()
            return [Part(open_[target], None, len(observations) if slot != target else 0)]
        goes = np.array([targets[slot] for slot in slots.tolist()], dtype=np.int64)
        parts = []
        for target in sorted(set(targets.values())):
            rows = np.flatnonzero(goes == target)
            late = int((slots[rows] != target).sum())
            parts.append(Part(open_[target], rows, late))
        return parts

    def _taking(self) -> list[Window]:
        """The windows that take rows, in order."""
        return [window for window in self._windows() if not window.closed]

    def _windows(self) -> list[Window]:
        return sorted(self.populating.values(), key=lambda window: window.number)

    def _place_by_rows(self, rows: int) -> list[Part] | list[int]:
        most, parts, start = int(self.settings.window_rows or 0), list[Part](), 0
        if rows > most:
            raise StateError(
                f"a batch of {rows} rows is more than a window of {most} takes; send it in parts"
            )
        for window in self._taking():
            room = min(most - window.arena.rows, rows - start)
            if room > 0:
                parts.append(Part(window, np.arange(start, start + room), 0))
                start += room
        if start < rows:
            over = "SELECT max(slot) FROM windows WHERE state NOT IN ('opening', 'populating')"
            last = self.catalogue.one(over)  # one that the keeper is opening is not passed over
            slots = [-1 if last is None else last, *(w.slot for w in self.populating.values())]
            return [max(slots) + 1]
        return [Part(parts[0].window, None, 0)] if len(parts) == 1 else parts

    # --- open --------------------------------------------------------------------------

    def open(self, slot: int, now: int) -> int:
        """Open a window: charge, draw, write; when this returns it is durable and takes rows."""
        with self.moves:
            for window in self._taking():
                if window.slot == slot:
                    return window.number
            start = self._slots.start(slot) if self._slots is not None else None
            stop = self._slots.stop(slot) if self._slots is not None else None
            number = int(self.catalogue.one("SELECT coalesce(max(number), 0) + 1 FROM windows"))
            birth = self._birth
            with self.catalogue.transaction():
                self.catalogue.run(
                    "INSERT INTO windows (number, state, slot, start, stop) "
                    "VALUES (?, 'opening', ?, ?, ?)",
                    number,
                    slot,
                    start,
                    stop,
                )
                self.ledger.open(number, birth.shares, now)
            reach("open.charged")
            arena = birth.arena()
            with self._written(arena, "checkpoint", number) as add:
                reach("open.written")
                with self.catalogue.transaction():
                    after = self.last_batch()  # no row before had a window to go to here
                    add(after=after)
                    self.catalogue.run(
                        "UPDATE windows SET state = 'populating' WHERE number = ?", number
                    )
            reach("open.after")
            with self.arrivals:
                self._adopt(number, arena, after)
            return number

    # --- table files ---------------------------------------------------------------------

    def _written(self, arena: Arena, kind: str, window: int | None) -> _NewFile:
        key = DataKey.new(kind)
        return _NewFile(self, kind, window, key, self._tables.write(arena, key.key))

    def _supersede(self, kind: str, window: int | None) -> None:
        self.catalogue.run(
            "UPDATE arenas SET current = 0 WHERE kind = ? AND window IS ?", kind, window
        )

    # --- checkpoint -------------------------------------------------------------------------

    def checkpoint(self, window: Window) -> None:
        """Write populating tables anew, with every row acknowledged so far."""
        with self.moves:
            with self.arrivals:
                copy = window.arena.only(window.arena.layout.index)
                after = self.last_batch()
            reach("checkpoint.copied")
            with self._written(copy, "checkpoint", window.number) as add:
                reach("checkpoint.written")
                with self.catalogue.transaction():
                    self._supersede("checkpoint", window.number)
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
            held = [arena for arena in (self.complete, window.arena) if arena is not None]
            complete = Arena.total(held)
            number = window.number
            with (
                self._written(window.arena, "sealed", number) as add_sealed,
                self._written(complete, "complete", None) as add_complete,
            ):
                reach("seal.written")

                def before() -> None:
                    self._supersede("checkpoint", number)
                    self._supersede("complete", None)
                    add_sealed(after=0)
                    add_complete(after=0)
                    self.catalogue.run(
                        "UPDATE windows SET state = 'sealed', stop = coalesce(stop, ?) "
                        "WHERE number = ?",
                        now,
                        number,
                    )

                def after() -> None:
                    with self.arrivals:
                        self.populating.pop(number)
                    self.complete, self._oldest, self._published = complete, None, False

                what = f"populating states of window {number}"
                self.erase(what, "sealed", now, before=before, after=after)
            reach("seal.after")
            self._publish()

    def _complete(self, complete: Arena | None, why: str) -> None:
        """Other complete tables; older ones must go at once."""
        self.complete, self._oldest, self._published = complete, None, not self.keys.unfinished
        for call in self.changed:
            call(why)

    def _settle(self, now: int) -> None:
        """Finish an erasure that was broken off, then serve what waited for that."""
        if self.keys.unfinished:
            self.keys.finish(now, self._remove_strangers)
            self._publish()

    def _publish(self) -> None:
        """Serve what was sealed, once nothing opens the states before it any more."""
        if not self._published and not self.keys.unfinished:
            self._published = True
            for call in self.changed:
                call("")

    def _abandon(self, window: Window) -> None:
        """A window that nobody came to: its noise is dropped, its charge stays."""
        with self.moves:
            with self.arrivals:
                self.populating.pop(window.number)
            with self.catalogue.transaction():
                self._supersede("checkpoint", window.number)
                self.catalogue.run(
                    "UPDATE windows SET state = 'erased' WHERE number = ?", window.number
                )

    # --- what is due -----------------------------------------------------------------------

    def _over(self, now: int) -> list[Window]:
        """Windows whose time or rows are full, and those whose first row is past retention."""
        most, oldest = self.settings.window_rows, now - self.settings.retention_us
        return [
            window
            for window in self._windows()
            if window.closed
            or (window.stop is not None and window.stop <= now)
            or (most is not None and window.arena.rows >= most)
            or (window.start is not None and window.start <= oldest)
        ]

    def _past(self, now: int, *, remember: bool = False) -> list[int]:
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

    def _full(self) -> list[Window]:
        limit = self.settings.checkpoint_rows
        return [window for window in self._taking() if window.fresh >= limit]

    def _next(self, now: int) -> int | None:
        """The slot to prepare: the current window is nearly over and the next one not open."""
        taking = self._taking()
        if not taking:
            return None
        last = taking[-1]
        if self._slots is None:
            most = int(self.settings.window_rows or 0)
            return last.slot + 1 if (most - last.arena.rows) * LEAD < most else None
        lead = max(self.settings.max_skew_us, self._slots.length // LEAD)
        near = last.slot == self._slots.at(now) and self._slots.stop(last.slot) - now <= lead
        return last.slot + 1 if near and last.arena.rows else None

    def is_due(self, now: int) -> bool:
        """Whether `advance` would do something. Takes no lock, so nobody waits for the answer."""
        return bool(
            self._over(now)
            or self.hot.leaving(now)
            or self._full()
            or self._past(now)
            or self._next(now) is not None
            or self.keys.unfinished
        )

    def advance(self, now: int) -> Advance:
        """Do all that is due."""
        done = Advance()
        with self.moves:
            self._settle(now)
            for window in self._over(now):
                if window.stop is not None and window.stop <= now:
                    self._passed = max(self._passed, window.slot)
                with self.arrivals:
                    window.closed = True  # or rows could come while an empty one is dropped
                if window.arena.rows:
                    self.seal(window, now)
                    done.sealed.append(window.number)
                else:
                    self._abandon(window)
                    done.dropped.append(window.number)
            self._forget(now, done)
            for window in self._full():
                self.checkpoint(window)
                done.checkpoints.append(window.number)
            slot = self._next(now)
            if slot is not None:
                done.opened.append(self.open(slot, now))
        return done

    # --- forgetting ----------------------------------------------------------------------------

    def _forget(self, now: int, done: Advance) -> None:
        """Hot rows whose time is over and windows past retention: one erasure for all."""
        past = self._past(now, remember=True)
        problem: Exception | None = self._retired(past)
        if problem is not None:
            past = []
        with self.arrivals:
            steps = self.hot.leaving(now)
            for step in steps:
                step.closed = True
        if steps:
            problem = self._last_call() or problem
        if not steps and not past:
            if problem is not None:
                raise problem
            return
        done.checkpoints += self._checkpoint_before(steps)
        done.steps, done.rows_erased = len(steps), sum(step.rows for step in steps)
        done.retired = past
        told = [f"hot step {step.number}" for step in steps]
        told += [f"window {number}" for number in past]
        why = "past its time"
        self.erase(", ".join(told), why, now, steps=steps, windows=past)
        if problem is not None:
            raise problem

    def _last_call(self) -> Exception | None:
        for call in self.leaving:
            try:
                call()
            except Exception as problem:  # whatever it is: rows leave when their time is over
                return problem
        return None

    def _retired(self, numbers: list[int]) -> PyramidionError | None:
        """Retire windows; a damaged table file does not keep hot rows from being erased."""
        try:
            if numbers:
                self._retire(numbers)
        except (FormatError, StorageError) as problem:
            return problem
        return None

    def _checkpoint_before(self, steps: Collection[Step]) -> list[int]:
        """Rows may only leave when a checkpoint has them."""
        reach("step.before")
        made = []
        for window in self._taking():
            if any(self._has_after(step, window) for step in steps):
                self.checkpoint(window)
                made.append(window.number)
        reach("step.checkpointed")
        return made

    def _has_after(self, step: Step, window: Window) -> bool:
        return any(
            window.number in dict(batch.parts)
            for batch in step.batches
            if batch.number > window.after
        )

    def _retire(self, numbers: Iterable[int]) -> None:
        """Take windows out of the complete tables; nothing serves them any more."""
        reach("retire.before")
        sealed = [
            number
            for number in numbers
            if self.catalogue.one("SELECT state FROM windows WHERE number = ?", number) == "sealed"
        ]
        if not sealed:
            return
        left = self.catalogue.one("SELECT count(*) FROM windows WHERE state = 'sealed'")
        complete = self._without(sealed) if left > len(sealed) else None
        with self._maybe_written(complete) as add:
            reach("retire.written")
            with self.catalogue.transaction():
                self._supersede("complete", None)
                add(after=0)
                for number in sealed:
                    self.catalogue.run(
                        "UPDATE windows SET state = 'retired' WHERE number = ?", number
                    )
        reach("retire.after")
        self._complete(complete, f"window {sealed[-1]} is past its retention")

    def _without(self, numbers: list[int]) -> Arena:
        """The complete tables without some windows: taken off, or, where one of them cannot be
        read, the sum of the others."""
        complete = self.complete
        if complete is None:
            raise StateError("there are no complete tables to take windows off; reopen the store")
        try:
            for number in numbers:
                complete = complete.less(self._sealed(number))
        except (FormatError, StorageError):
            rows = self.catalogue.all("SELECT number FROM windows WHERE state = 'sealed'")
            others = [row["number"] for row in rows if row["number"] not in numbers]
            return Arena.total(self._sealed(number) for number in others)
        return complete

    def _sealed(self, number: int) -> Arena:
        row = self.catalogue.all(
            "SELECT file, key FROM arenas WHERE kind = 'sealed' AND window = ? AND current = 1",
            number,
        )[0]
        return self._tables.read(row["file"], self.keys.get(row["key"]))

    def _maybe_written(self, complete: Arena | None) -> _NewFile | _NoFile:
        return _NoFile() if complete is None else self._written(complete, "complete", None)

    def erase(
        self,
        what: str,
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

            def forget() -> Collection[int]:
                before()
                for number in windows:
                    self.catalogue.run(
                        "UPDATE windows SET state = 'erased' WHERE number = ?", number
                    )
                    self.catalogue.run("UPDATE arenas SET current = 0 WHERE window = ?", number)
                self.hot.forget(list(steps))
                gone = self.catalogue.all("SELECT key FROM arenas WHERE current = 0")
                self.catalogue.run("DELETE FROM arenas WHERE current = 0")
                held = [key.id for step in steps for key in (step.key, step.once)]
                return [*held, *keys, *(row["key"] for row in gone)]

            def forgotten() -> None:
                self._oldest = None
                with self.arrivals:
                    self.hot.forgotten(list(steps))
                after()

            self.keys.erase(what, why, now, forget, forgotten, self._remove_strangers)

    def forget_file(self, file: str) -> None:
        """Remove a table file that did not get into the catalogue."""
        if self.catalogue.one("SELECT 1 FROM arenas WHERE file = ?", file) is None:
            remove(self._tables.folder, [file])

    def take_over(self, now: int) -> None:
        """Make this copy the only one: from here on nothing opens the others.

        Populating windows are sealed: a table that goes on in two places would
        subtract to exact counts. Batch numbers that the other copy may have given
        are not given again.
        """
        with self.moves:

            def before() -> None:
                self.catalogue.note(copy="restoring", next_batch=self.last_batch() + AFAR)

            if self.catalogue.about("copy", "") == "backup":
                self.erase("keys of other copies", "restored from a backup", now, before=before)
            windows = self.catalogue.all("SELECT DISTINCT window FROM ledger")
            self.ledger.forfeit([row["window"] for row in windows], now, "restored from a backup")
            for window in self._taking():
                if window.arena.rows:
                    self.seal(window, now)
                else:
                    self._abandon(window)
            self.catalogue.note(copy="")

    # --- features ------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot | None:
        """The complete tables, ready to featurize; None while there are none."""
        complete, promise = self.complete, self.guarantee()
        if complete is None or promise is None or not self._published:
            return None
        door = Door(only(self.schema, complete.layout.index), self.settings, self.secret)
        return Snapshot(door, complete, promise)

    def guarantee(self) -> Guarantee | None:
        """What the complete tables promise; None while there are none."""
        if self.complete is None:
            return None
        return self._birth.guarantee(self.complete.layout.tables[0].windows)

    # --- tables come and go -------------------------------------------------------------------

    def add_group(self, group: Iterable[str]) -> None:
        """Count features together, from the next window that is not open yet."""
        with self.moves:
            schema = _schema(self.schema, groups=(*self.schema.groups, tuple(group)))
            with self.catalogue.transaction():
                self.catalogue.note(schema=schema.to_toml())
            with self.arrivals:
                self._learn(schema)

    def withdraw(self, name: str, why: str, now: int) -> None:
        """Erase a feature (its column in hot rows too) or a group: its tables in every window.

        Its share of the budget returns with the next window that is opened.
        """
        with self.moves, self.arrivals:
            self._settle(now)
            schema = less(self.schema, name)
            for window in self._windows():
                if window.closed:
                    self.seal(window, now)
            kept = {PRIOR, *schema.table_names}
            files: list[Any] = []
            sealed = self.catalogue.all(
                "SELECT id, kind, window, file, key, after FROM arenas "
                "WHERE current = 1 AND kind <> 'checkpoint'"
            )
            complete = self.complete.only(kept) if self.complete is not None else None
            for row in sealed:
                if row["kind"] == "complete" and complete is not None:
                    arena = complete
                else:
                    arena = self._sealed(row["window"]).only(kept)
                files.append(self._written(arena, row["kind"], row["window"]))
            populating = {
                number: window.arena.only(kept) for number, window in self.populating.items()
            }
            after = self.last_batch()
            for number, arena in populating.items():
                files.append(self._written(arena, "checkpoint", number))
            feature = name in self.schema.feature_names
            rows = self.hot.rewritten(lambda t: records.without(t, [name])) if feature else []
            old = [step.key.id for step, _ in rows]
            reach("withdraw.written")

            def before() -> None:
                self.catalogue.note(schema=schema.to_toml())
                self.hot.replace(rows)
                for file in files:
                    self._supersede(file.kind, file.window)
                    file.add(after=after if file.kind == "checkpoint" else 0)

            def withdrawn() -> None:
                self._learn(schema)
                if feature:
                    self.hot.replaced(rows)
                for number, arena in populating.items():
                    window = self.populating[number]
                    window.arena, window.encoder = arena, self.encoder_of(arena)
                    window.after, window.fresh = after, 0
                self._complete(complete, f"{name!r} was withdrawn")

            what = f"feature or group {name!r}"
            self.erase(what, why, now, keys=old, before=before, after=withdrawn)
            self._publish()

    def close(self) -> None:
        """Let go of all files."""
        self._segments.close()


class _NewFile:
    """A table file that is written and not yet in the catalogue; removed where that fails."""

    def __init__(
        self, lifecycle: Lifecycle, kind: str, window: int | None, key: DataKey, file: str
    ) -> None:
        self._lifecycle = lifecycle
        self.kind, self.window, self._key, self._file = kind, window, key, file

    def __enter__(self) -> Callable[..., None]:
        return self.add

    def add(self, *, after: int) -> None:
        """Make the file and its key known; within a transaction."""
        self._lifecycle.keys.add(self._key)
        self._lifecycle.catalogue.run(
            "INSERT INTO arenas (kind, window, key, file, after, current) "
            "VALUES (?, ?, ?, ?, ?, 1)",
            self.kind,
            self.window,
            self._key.id,
            self._file,
            after,
        )

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._lifecycle.forget_file(self._file)


class _NoFile:
    def __enter__(self) -> Callable[..., None]:
        return lambda **_: None

    def __exit__(self, *_: object) -> None:
        pass


def _schema(schema: Schema, **changes: Any) -> Schema:
    told = {
        name: getattr(schema, name)
        for name in ("features", "label", "groups", "time", "weight", "unit")
    }
    return Schema(**(told | changes))


def only(schema: Schema, names: Collection[str]) -> Schema:
    """The schema of some tables, groups in the order of their names."""
    features = [feature for feature in schema.features if feature.name in names]
    by_name = {",".join(group): group for group in schema.groups}
    return _schema(
        schema, features=features, groups=[by_name[name] for name in names if name in by_name]
    )


def less(schema: Schema, name: str) -> Schema:
    """The schema without a feature and the groups it is in, or without a group."""
    by_name = {",".join(group): group for group in schema.groups}
    if name in schema.feature_names:
        if name == schema.unit:
            raise SchemaError(
                f"feature {name!r} is also the unit that people are protected by; a stream without "
                f"it needs a store of its own"
            )
        if len(schema.features) == 1:
            raise SchemaError(f"feature {name!r} is the only one; a store must count at least one")
        return _schema(
            schema,
            features=[feature for feature in schema.features if feature.name != name],
            groups=[group for group in schema.groups if name not in group],
        )
    if name in by_name:
        return _schema(schema, groups=[g for g in schema.groups if g != by_name[name]])
    schema.feature(name)  # says which names there are
    raise SchemaError(f"there is no feature or group {name!r}")
