"""One shard among those of its stream: what it takes from the others, and what all of them sum to.

Each shard is a store of its own: hot window, vault, ledger, models, and tables with noise of
their own. Rows are disjoint, so what shards spend does not add up; their noise does. What is
sealed may be summed by anybody, free.

A window joins the sum when every shard on the roster has passed its slot, or when it has waited
for `shard_wait`; what comes later joins late. It leaves when its owner forgets it, and when its
retention is over, whatever its owner does. A window is summed whole or not at all, so that all
tables count the same rows. One that cannot be read is missing, and told to be: the sum of the
others is served, which counts fewer rows and says how many.

What is served here is the sum of the stream; training rows are the own hot rows, less themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from pyramidion.counts.arena import Arena
from pyramidion.counts.layout import PRIOR
from pyramidion.errors import ExpiredError, PyramidionError, StateError
from pyramidion.storage import manifests
from pyramidion.storage.manifests import Manifest, Told
from pyramidion.storage.outbox import PendingEntry
from pyramidion.storage.roster import Entries, Held
from pyramidion.storage.tables import tables_at
from pyramidion.store.access import Access
from pyramidion.store.shard import Shard
from pyramidion.store.shard_publisher import AWAY, Giving
from pyramidion.store.state import (
    Leaving,
    Observer,
    StoreState,
    StreamSum,
    call_all,
    raise_first,
)

LOOK = 5_000_000  # microseconds between looks at what the others have told
NOTHING = StreamSum(None, frozenset(), None)

Key = tuple[str, str]
"""A window of the stream: its shard, and what that calls its tables."""


@dataclass(frozen=True)
class ShardStatus:
    """A shard and its stream, as it sees them."""

    stream: str
    name: str
    shards: dict[str, int]
    """The shards that windows wait for, each with its windows in the sum."""
    left: dict[str, int]
    """The same of shards that were removed, and whose windows are still there."""
    rows: int
    """Rows in the sum of the stream."""
    waiting: int
    """Sealed windows that wait for other shards."""
    missing: dict[str, int]
    """The shards of which windows should be in the sum and cannot be read, with how many."""
    problem: str
    """Why the last look at the others failed; empty where it did not."""


class StreamShards:
    """The shards of the stream that a store belongs to: `store.shards`.

    Parameters
    ----------
    access : Access
        The open store.
    shards : Shards, optional
        The sum of the stream; None if the store is not a shard.
    exchange : callable
        Gives the other shards what is sealed and takes what they published, at a time.

    Examples
    --------
    >>> import tempfile
    >>> from pyramidion import Categorical, Label, Pyramid, Schema, Settings, Shard
    >>> site = Categorical("site", domain=["a", "b"])
    >>> schema = Schema(time="time", features=[site], label=Label("click", classes=[0, 1]))
    >>> settings = Settings(epsilon=1.0, shards=2, weights="equal", count_window="1d")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     meeting = {"keys": f"file:{folder}/stream.key", "tables": f"file:{folder}/tables"}
    ...     one, two = (Shard("clicks", name, **meeting) for name in ("one", "two"))
    ...     given = {"keys": f"file:{folder}/one.key", "shard": one}
    ...     with Pyramid.create(f"{folder}/one", schema, settings, **given) as store:
    ...         Pyramid.join(f"{folder}/two", two, keys=f"file:{folder}/two.key").close()
    ...         _ = store.advance()
    ...         print(sorted(store.shards.status().shards))
    ...         store.shards.remove("two", why="the machine is lost")
    ...         print(sorted(store.shards.status().shards))
    ['one', 'two']
    ['one']
    """

    def __init__(
        self, access: Access, shards: Shards | None, exchange: Callable[[int], None]
    ) -> None:
        self._access = access
        self._shards = shards
        self._exchange = exchange

    def status(self) -> ShardStatus | None:
        """Return the shard and its stream as this store sees them; None if it is not a shard."""
        self._access.check_open()
        return None if self._shards is None else self._shards.status()

    def remove(self, name: str, *, why: str) -> None:
        """Remove a shard from the stream, for example a lost one, so that no window waits for it.

        The windows that it has sealed stay in the sum until they retire. Its hot rows and its
        populating window are missing from the sum, as they were before.

        Parameters
        ----------
        name : str
            The shard.
        why : str
            The reason, for the audit log.
        """
        self._access.check_open()
        if self._shards is None:
            raise StateError("this store is no shard of a stream; there is none to remove")
        shards, now = self._shards, self._access.now()

        def remove(_: PendingEntry) -> None:
            shards.remove(name)
            self._exchange(now)

        self._access.record("shard.removed", now, {"name": name, "why": why}, remove)


class Shards(Observer):
    """The sum of a stream, as one of its shards has it. The keeper calls it."""

    def __init__(self, store: StoreState, shard: Shard) -> None:
        self._store = store
        self.shard = shard
        self._roster, self._tables = shard.roster, tables_at(shard.tables)
        self._giving = Giving(store, shard, self._roster, self._tables)
        self._told: dict[str, tuple[Held, Manifest]] = {}
        """The newest manifest that was read of each shard."""
        self._sum: dict[Key, Told] = {}
        """The windows in the sum."""
        self._active: dict[str, bool] = {shard.name: True}
        self._waiting = 0
        self._missing: set[Key] = set()
        """The windows that should be in the sum, and could not be read at the last look."""
        self._unread: set[str] = set()
        """The shards whose newest manifest could not be read at the last look."""
        self._stale = True
        self._looked = 0
        self.problem = ""
        store.stream = NOTHING

    @classmethod
    def of(cls, store: StoreState) -> Shards | None:
        """The shard that a store is, if it is one."""
        shard = Shard.recorded(store.catalogue, store.keys, store.secret, store.pins)
        return None if shard is None else cls(store, shard)

    def close(self) -> None:
        """Let go of the table store."""
        self._tables.close()

    def due(self, now: int) -> bool:
        """Whether there is something to give, to forget or to look at."""
        until = self._store.retires()
        return self._stale or now >= self._looked + LOOK or (until is not None and until <= now)

    def refuse_left(self) -> None:
        """Raise in a shard that was removed: the others do not reckon with its rows any more."""
        if not self._active.get(self.shard.name, False):
            raise StateError(
                f"shard {self.shard.name!r} was removed from stream {self.shard.stream!r}; send "
                f"rows to another one"
            )

    def remove(self, name: str) -> None:
        """Have nobody wait for a shard any more, as for one that is lost; what it sealed stays."""
        self._roster.leave(name)
        self._stale = True

    def advance(self, now: int) -> None:
        """Forget, give and take what is due.

        Where a key cannot be destroyed this raises. A table store or a holder that is away is told
        in the status otherwise, and tried again; nothing is kept longer for it.
        """
        self._looked = now
        self._giving.forget(now)
        self._leave_out(self._past(now), now)
        self.problem, self._stale = self._ahead(), False
        for part in (self._giving.give, self._take):
            try:  # without the lock of moves: who opens a window waits for no table store
                part(now)
            except AWAY as problem:
                self.problem = self.problem or str(problem)

    def _ahead(self) -> str:
        """Whether the own clock is the only one by which windows of others are past their time."""
        if not self._giving.ahead:
            return ""
        return (
            "windows of other shards are past their time by this shard's clock alone, so they are "
            "not forgotten; see that its clock is right"
        )

    def look(self, now: int) -> None:
        """Take what the others have told, for who only reads: nothing is given or forgotten."""
        try:
            self._take(now, reading=True)
        except AWAY as problem:
            self.problem = str(problem)

    def status(self) -> ShardStatus:
        """A shard and its stream."""
        held = {name: sum(key[0] == name for key in self._sum) for name in self._active}
        tables = self._store.served
        return ShardStatus(
            self.shard.stream,
            self.shard.name,
            {name: windows for name, windows in held.items() if self._active[name]},
            {name: windows for name, windows in held.items() if not self._active[name]},
            0 if tables is None else tables.rows,
            self._waiting,
            dict(sorted(Counter(name for name, _ in self._missing).items())),
            self.problem,
        )

    # --- windows leave the sum -----------------------------------------------------------------

    def _past(self, now: int) -> set[Key]:
        """Windows in the sum that are past their retention."""
        retention = self._store.settings.retention_us
        return {key for key, told in self._sum.items() if told.start + retention <= now}

    def rows_leaving(self, leaving: Leaving) -> None:
        """Have the other shards' readers forget windows past their time."""
        self._giving.forget(leaving.now)

    def tables_published(self) -> None:
        """There is something to give to the others."""
        self._stale = True

    def tables_withdrawn(self, why: str) -> None:  # noqa: ARG002
        """Windows that are no longer sealed here leave the sum before it is served.

        If an own window retired, those of its slot in other shards have retired, too.
        """
        self._stale = True
        mine, name = self._giving.windows(), self.shard.name
        gone = {key for key in self._sum if key[0] == name and key[1] not in mine}
        sealed = set(mine.values())
        over = [self._sum[key].slot for key in gone if self._sum[key].number not in sealed]
        gone |= {key for key, told in self._sum.items() if over and told.slot <= max(over)}
        if gone or self._strange():
            self._without(gone)

    def _strange(self) -> bool:
        """Whether the sum has tables that the schema has not any more."""
        tables = self._store.served
        return tables is not None and not set(tables.layout.index) <= self._names()

    def _names(self) -> set[str]:
        return {PRIOR, *self._store.schema.table_names}

    def _leave_out(self, gone: Collection[Key], now: int) -> None:
        """Take windows out of the sum, and have everybody let go of what was made of them."""
        if not gone:
            return
        self._without(gone)
        why, every = "a window of the stream is forgotten", self._store.observers
        with self._store.moves:
            told = [partial(each.tables_withdrawn, why) for each in every if each is not self]
            told += [partial(each.rows_leaving, Leaving((), (), now)) for each in every]
            raise_first(call_all(told))

    def _without(self, gone: Collection[Key]) -> None:
        """Sum the windows that stay anew, those that can be read; the others are missing."""
        stay = {key: told for key, told in self._sum.items() if key not in gone}
        self._sum, self._store.stream = {}, NOTHING
        self._missing = self._missing.union(stay).difference(gone)
        with suppress(*AWAY):  # the next look says why
            self._add(stay, self._roster.entries())

    # --- windows join the sum --------------------------------------------------------------------

    def _take(self, now: int, *, reading: bool = False) -> None:
        """Look what the others have told, and sum what may be."""
        entries = self._roster.entries()
        self._active = {name: member.active for name, member in entries.members.items()}
        problems = self._read(entries, now)
        self._giving.passed = {name: told.passed for name, (_, told) in self._told.items()}
        if not reading:
            self._strike_out(entries, now)
        known, held = self._known(entries, now), self._sum
        gone = {key for key in held if key not in known}
        self._leave_out(gone, now)
        fresh = {key: told for key, told in known.items() if key not in self._sum}
        joining = {key: told for key, told in fresh.items() if self._joins(told, now)}
        self._waiting = len(fresh) - len(joining)
        self._missing = {
            (window.shard, window.file)
            for window in entries.windows
            if window.shard in self._unread and window.until > now
        }.difference(known, self._sum)
        before = len(self._sum)
        problems += self._add(joining, entries) if joining else ()
        if len(self._sum) > before:
            others = [each for each in self._store.observers if each is not self]
            raise_first(call_all([each.tables_published for each in others]))
        if problems:
            raise problems[0]

    def _read(self, entries: Entries, now: int) -> list[PyramidionError]:
        """The manifests that are newer than those read before; one that is lost hides no other."""
        self._told = {name: of for name, of in self._told.items() if name in entries.members}
        self._unread, problems = set(), list[PyramidionError]()
        for name, member in entries.members.items():
            held, newest = self._told.get(name), member.manifest
            if newest is None or (held is not None and held[0] == newest):
                continue
            try:
                self._told[name] = newest, self._manifest(name, newest, now)
            except AWAY as problem:
                self._unread.add(name)
                if member.active or entries.of(name):  # or nothing is missing
                    problems.append(problem)
        return problems

    def _manifest(self, name: str, held: Held, now: int) -> Manifest:
        """What a shard has told; the own is known here."""
        if name == self.shard.name:
            return self._giving.manifest(now)
        try:
            return manifests.get(self._tables, held)
        except ExpiredError as problem:
            raise self._lost(name, "what it has told") from problem

    def _lost(self, name: str, what: str) -> ExpiredError:
        return ExpiredError(
            f"the table store at {self._tables.address} has lost what shard {name!r} gave it "
            f"({what}); that shard gives it again within a minute, see that it runs"
        )

    def _strike_out(self, entries: Entries, now: int) -> None:
        """Shards that were removed leave the roster once nothing of theirs can come any more."""
        settings = self._store.settings
        for name, member in entries.members.items():
            held = self._told.get(name)
            passed = 0 if held is None else held[1].passed * int(settings.window_us or 0)
            over = passed + settings.origin_us + settings.retention_us <= now
            over = over if held is not None else member.manifest is None
            if not member.active and over and not entries.of(name):
                self._roster.forget(name)
                if member.manifest is not None:
                    chunks = manifests.chunks_of(member.manifest)
                    self._tables.delete(member.manifest.name, chunks)

    def _known(self, entries: Entries, now: int) -> dict[Key, Told]:
        """Every window of the stream that can be opened and is within its retention."""
        retention = self._store.settings.retention_us
        opens = {(window.shard, window.file) for window in entries.windows}
        return {
            (name, told.file): told
            for name, (_, manifest) in self._told.items()
            for told in manifest.windows
            if (name, told.file) in opens and told.start + retention > now
        }

    def _joins(self, window: Told, now: int) -> bool:
        """Whether no shard has anything to add to a window's slot, or it has waited enough.

        A shard is not waited for while what it told is lost: it may have passed long ago, and
        who was opened since would serve nothing.
        """
        if now >= window.stop + self._store.settings.shard_wait_us:
            return True
        active = {name for name, active in self._active.items() if active}
        behind = map(self._told.get, active.difference(self._unread.difference(self._told)))
        return all(told is not None and told[1].passed > window.slot for told in behind)

    def _add(self, joining: Mapping[Key, Told], entries: Entries) -> list[PyramidionError]:
        """Add windows to the sum; one that cannot be read is missing, and tried again."""
        total, problems = self._store.served, list[PyramidionError]()
        summed = dict(self._sum)
        for key, told in joining.items():
            try:
                arena = self._arena(key, told, entries)
            except AWAY as problem:
                problems.append(problem)
                continue
            total = arena if total is None else Arena.total([total, arena])
            summed[key] = told
        self._sum = summed
        self._missing = self._missing.union(joining).difference(summed)
        own = {told.number for (name, _), told in summed.items() if name == self.shard.name}
        first = min((told.start for told in summed.values()), default=None)
        ends = None if first is None else first + self._store.settings.retention_us
        self._store.stream = StreamSum(total, frozenset(own), ends)
        return problems

    def _arena(self, key: Key, told: Told, entries: Entries) -> Arena:
        """The tables of a window: the own from here, others' from the table store."""
        shard, file = key
        if shard == self.shard.name:
            arena = self._store.tables.sealed(told.number)
        else:
            shared = entries.of(shard).get(file)
            if shared is None:
                raise ExpiredError(f"a window of shard {shard!r} was forgotten; look again")
            layout = self._told[shard][1].layout(told, self._store.secret)
            tables = self._tables.opened(shared.held.generation, layout)
            try:
                arena = tables.load(rows=told.rows, max_rows=told.max_rows)
            except ExpiredError as problem:
                raise self._lost(shard, "a window") from problem
        names = self._names()
        return arena if set(arena.layout.index) <= names else arena.only(names)
