"""What a shard gives: its sealed windows, published for the others; and how it takes them back.

    1  tables are written to the table store, under a name and a key of their own
    2  the roster keeps the key: from here on they can be opened
    3  a manifest tells the others that they are there

A crash before 2 leaves chunks that nothing opens, one before 3 a key that nobody looks for; both
are found again, since the roster says what is published and the catalogue what is sealed. To take
a window back its key goes first.

A table store may lose what it has, all or a part, and say nothing. So every minute each owner looks
whether every chunk of its own is there, and gives again what is not.

Only what is sealed is given, and only once nothing opens a populating state of it any more.

Every hour the manifest is told again, also where nothing is new: that is how others know that a
shard is alive. Who is alive forgets its own windows. Those of others that are past their time by
the own clock are forgotten where another shard that is alive has come as far, or where none is: one
shard whose clock is ahead forgets nothing for the others, and one that is lost keeps nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress

from pyramidion.counts.windows import Slots
from pyramidion.errors import (
    ExpiredError,
    FormatError,
    KeyHolderError,
    PyramidionError,
    StateError,
    StorageError,
    UnreachableError,
)
from pyramidion.storage import manifests
from pyramidion.storage.blocks import Blocks
from pyramidion.storage.fault_points import reach
from pyramidion.storage.manifests import Laid, Manifest, Told
from pyramidion.storage.roster import Entries, Held, Roster, SharedWindow
from pyramidion.storage.table_sets import window_id
from pyramidion.storage.tables import TableStore
from pyramidion.store.shard import Shard
from pyramidion.store.state import StoreState

AWAY = (StorageError, UnreachableError, FormatError, ExpiredError)
"""What a table store that is down, full, emptied or tampered with raises."""
SWEEP = 60_000_000  # microseconds between looks whether all is there that was given
BEAT = 3_600_000_000  # microseconds after which a manifest is told again
SILENT = 2 * BEAT  # and after which a shard that told nothing is not counted as alive


class Giving:
    """Publishes the sealed windows of one shard."""

    def __init__(self, store: StoreState, shard: Shard, roster: Roster, tables: TableStore) -> None:
        self._store = store
        self._shard = shard
        self._roster, self._tables = roster, tables
        self._owner = shard.owner(store.secret)
        self._former = f"{shard.stream}.{shard.name}"
        """The owner in names that were not hashed yet; tables under these are given again."""
        self._laid: dict[str, tuple[int, Laid]] = {}
        """The most rows and the layout of the own tables, by what these are called."""
        self._told: tuple[Held, Manifest] | None = None
        self._retell = False
        """Whether the table store has lost what was told."""
        self._swept: int | None = None
        """When the table store had all that it should; None: not at the last look."""
        self._shared: tuple[SharedWindow, ...] | None = None
        """The published windows of the stream, as they were at the last look."""
        self._beat: int | None = None
        """When the manifest was told last; None: not since the store was opened."""
        self._heard: dict[str, tuple[int, int]] = {}
        """Of the other active shards, what each told last, by number, and when that was seen."""
        self.passed: dict[str, int] = {}
        """The first slot that rows can still come to in other shards, as these told."""
        self.ahead: set[str] = set()
        """Shards with windows that are past their time by no clock but the own."""

    def windows(self) -> dict[str, int]:
        """The numbers of the own sealed windows, by what their tables are called."""
        return {row["file"]: row["window"] for row in self._store.tables.windows()}

    # --- take back -------------------------------------------------------------------------------

    def forget(self, now: int) -> None:
        """Destroy the keys of own windows that are sealed no more, and of all past retention.

        Raises where that cannot be done; a holder that is away while nothing is due is none's harm.
        """
        try:
            entries = self._roster.entries()
            self._shared = entries.windows
            self._hear(entries, now)
        except KeyHolderError:
            if self._shared is None or self._over(now):
                raise
            return
        gone = self._over(now)
        if not gone:
            return
        self._roster.drop(gone)
        reach("share.forgotten")
        for window in gone:
            with suppress(*AWAY):  # nothing opens it, and a later sweep finds it
                self._tables.delete(window.held.name, window.held.length)

    def _over(self, now: int) -> list[SharedWindow]:
        """Of the keys that were there at the last look, those that are to go."""
        mine, name = self.windows(), self._shard.name
        own = [window for window in self._shared or () if window.shard == name]
        others = [window for window in self._shared or () if window.shard != name]
        past = [window for window in others if window.until <= now]
        over = [window for window in past if self._is_agreed(window.until, now)]
        self.ahead = {window.shard for window in past if window not in over}
        return over + [
            window
            for window in own
            if window.until <= now
            or window.file not in mine
            or window.until != self._until(mine[window.file])  # dated anew by another clock
        ]

    def _hear(self, entries: Entries, now: int) -> None:
        """Note which of the others have told something since the last look."""
        heard = self._heard
        self._heard = {
            name: heard[name]
            if name in heard and heard[name][0] == member.serial
            else (member.serial, now)
            for name, member in entries.members.items()
            if member.active and name != self._shard.name
        }

    def _is_agreed(self, until: int, now: int) -> bool:
        """Whether it is as late for another shard that is alive, or none is."""
        settings = self._store.settings
        slots = Slots(int(settings.window_us or 1), settings.origin_us)
        alive = [name for name, (_, seen) in self._heard.items() if now < seen + SILENT]
        return not alive or any(self.passed.get(name, 0) >= slots.at(until) for name in alive)

    def _until(self, number: int) -> int:
        return self._facts(number)["start"] + self._store.settings.retention_us

    def _sweep(self, entries: Entries) -> set[str]:
        """Delete what crashes left; the own windows that the table store does not have whole."""
        found, own = self._tables.names(), entries.of(self._shard.name)
        member = entries.members.get(self._shard.name)
        known = {window.held.name for window in own.values()}
        if member is not None and member.manifest is not None:
            told = member.manifest
            known.add(told.name)
            there = self._ours(told.name) and told.name in found
            self._retell |= not there or not self._tables.has(told.name, manifests.lengths_of(told))
        for name, chunks in found.items():
            own_name = self._ours(name) or name.rpartition(".")[0] == self._former
            if own_name and name not in known:
                self._tables.delete(name, chunks)
        return {
            file
            for file, number in self.windows().items()
            if file in own and not self._there(own[file], number, found)
        }

    def _ours(self, name: str) -> bool:
        return name.rpartition(".")[0] == self._owner

    def _there(self, window: SharedWindow, number: int, found: Collection[str]) -> bool:
        """Whether a window is published whole, under a name that tells nothing."""
        name = window.held.name
        return self._ours(name) and name in found and self._whole(window, number)

    def _whole(self, window: SharedWindow, number: int) -> bool:
        """Whether all chunks of a published window are there, to their last bytes."""
        _, told = self._laid_of(window.file, number)
        lengths = Blocks(manifests.layout_of(told, self._store.secret)).lengths
        return self._tables.has(window.held.name, lengths)

    # --- give ------------------------------------------------------------------------------------

    def give(self, now: int) -> None:
        """Publish what is sealed, and again what was lost, then tell the others."""
        store, entries = self._store, self._roster.entries()
        if store.keys.unfinished or not store.published:
            return  # a populating state of it could still be opened
        member = entries.members.get(self._shard.name)
        self._recall(None if member is None else member.manifest)
        published, problems = entries.of(self._shard.name), list[PyramidionError]()
        swept, self._swept = self._swept, None
        fresh = self.windows().keys() - published
        if fresh or swept is None or not swept <= now < swept + SWEEP:
            fresh, swept = fresh | self._sweep(entries), now
        for file, number in self.windows().items():
            if file in fresh:
                try:
                    self._publish(number, file, now, published.get(file))
                except AWAY as problem:  # a damaged file of one keeps no other
                    problems.append(problem)
        self._tell(now)
        if problems:
            raise problems[0]
        self._swept = swept

    def _publish(self, number: int, file: str, now: int, lost: SharedWindow | None) -> None:
        """Publish a window, in place of what is left of it where it was published before."""
        until = self._until(number)
        arena = self._store.tables.sealed(number)
        reach("share.before")
        life = max(1.0, (until - now) / 1e6)
        made = self._tables.publish(arena, owner=self._owner, life=life)
        reach("share.put")
        held = Held(made.name, made.key, Blocks(arena.layout).count)
        self._roster.keep(SharedWindow(self._shard.name, file, until, held), lost)
        reach("share.kept")
        if lost is not None:
            with suppress(*AWAY):  # nothing opens it, and a later sweep finds it
                self._tables.delete(lost.held.name, lost.held.length)

    def _facts(self, number: int) -> dict[str, int]:
        row = self._store.sets.row(window_id(number))
        if row is None:
            raise StateError(f"window {number} is not in the catalogue; restore it from a backup")
        return {name: row[name] for name in ("number", "slot", "start", "stop", "rows")}

    def _tell(self, now: int) -> None:
        """Write a new manifest where there is something new in it."""
        member = self._roster.entries().members.get(self._shard.name)
        if member is None:
            raise KeyHolderError(
                f"stream {self._shard.stream!r} has no shard {self._shard.name!r} on its roster "
                f"any more; restore the key holder, or join the stream with a new store"
            )
        manifest = self.manifest(now)
        beaten = self._beat is not None and self._beat <= now < self._beat + BEAT
        if beaten and not self._retell and self._told == (member.manifest, manifest):
            return
        held = manifests.put(self._tables, manifest, self._owner)
        reach("share.written")
        self._roster.tell(self._shard.name, held)
        reach("share.told")
        self._told, self._retell, self._beat = (held, manifest), False, now
        if member.manifest is not None:
            with suppress(*AWAY):
                chunks = manifests.chunks_of(member.manifest)
                self._tables.delete(member.manifest.name, chunks)

    def _recall(self, held: Held | None) -> None:
        """What was told last; it spares reading all tables to know how they are laid out."""
        if held is None or (self._told is not None and self._told[0] == held):
            return
        with suppress(*AWAY):
            told = manifests.get(self._tables, held)
            self._told = held, told
            self._laid |= {w.file: (w.max_rows, told.layouts[w.layout]) for w in told.windows}

    def manifest(self, now: int) -> Manifest:
        """What there is to tell."""
        store, published = self._store, self._roster.entries().of(self._shard.name)
        windows = {file: n for file, n in self.windows().items() if file in published}
        self._laid = {file: self._laid_of(file, number) for file, number in windows.items()}
        told = [
            (Told(file, **self._facts(number), max_rows=most, layout=0), layout)
            for file, number in windows.items()
            for most, layout in [self._laid[file]]
        ]
        settings = json.dumps(store.settings.to_dict())
        schema = store.schema.to_toml()
        passed = self._passed(now)
        bare = Manifest(self._shard.name, schema, settings, passed, (), (), store.keyed_by)
        return manifests.with_windows(bare, told)

    def _laid_of(self, file: str, number: int) -> tuple[int, Laid]:
        if file in self._laid:
            return self._laid[file]
        arena = self._store.tables.sealed(number)
        return arena.max_rows, manifests.laid(arena.layout)

    def _passed(self, now: int) -> int:
        """The first slot that a row can still come to: no window before it will take any.

        What was told stays told: who only looks at a store goes by an older time.
        """
        settings = self._store.settings
        slots = Slots(int(settings.window_us or 1), settings.origin_us)
        with self._store.arrivals:
            first = min([slots.at(now), *(each.slot for each in self._store.open_sets.windows())])
        return first if self._told is None else max(first, self._told[1].passed)
