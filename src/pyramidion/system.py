"""START HERE: a store for one stream of observations, its verbs in the data's order.

create, open            one process owns a store; all is as it was left
observe                 rows in: durable, hot, counted under noise, handed to the vault
replay                  a history of files, by event time, windows rolling as it goes
advance                 what is due: windows seal, hot rows and old windows are erased
snapshot, featurize     the complete tables, and features from them
training_set            hot rows as features and labels, none meeting its own label
add_group, withdraw     tables come and go
status, ledger          what is there, and what it cost
backup, restore         a copy that shares the fate of its keys
"""

from __future__ import annotations

import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar

import pyarrow as pa

from pyramidion.arrivals import Arrivals, Resume, VaultHook
from pyramidion.backup import back_up, copied_back
from pyramidion.batches import Batch
from pyramidion.changes import add_group, take_over, withdraw
from pyramidion.counts.snapshot import Snapshot
from pyramidion.errors import SchemaError, StateError, StorageError
from pyramidion.learn.training_set import TrainingSet, label_of
from pyramidion.lifecycle import Lifecycle
from pyramidion.observations import Errors, Observations
from pyramidion.privacy.ledger import Ledger
from pyramidion.replay import Replay
from pyramidion.rolling import rolled, taken
from pyramidion.schedule import Advance, Schedule
from pyramidion.schema import Schema
from pyramidion.serving import hot_rows, snapshot, without_hot
from pyramidion.settings import Settings
from pyramidion.status import Status, status_of
from pyramidion.storage.home import Home
from pyramidion.storage.hot import Receipt
from pyramidion.storage.keys import holder_at

Clock = Callable[[], float]
T = TypeVar("T")

INTAKE, KEEPER = "pyramidion intake", "pyramidion keeper"
OFTEN = 100_000  # microseconds between looks at what is due, where nothing comes in


class Pyramid:
    """A store: a small hot window of raw rows, and the past as noisy count tables.

    Made by `create` or `open`; closed by `close`, or at the end of a ``with``.
    """

    def __init__(self, home: Home, clock: Clock, vault: VaultHook | None) -> None:
        self._home = home
        self._clock = clock
        self._latest = int(home.catalogue.about("clock", "0"))
        schema = Schema.from_toml(home.catalogue.about("schema"))
        settings = Settings.from_dict(json.loads(home.catalogue.about("settings")))
        self._lifecycle = Lifecycle(home.path, home.catalogue, home.keys, schema, settings)
        self._schedule = Schedule(self._lifecycle)
        self._arrivals = Arrivals(self._lifecycle, vault, threads=os.cpu_count() or 1)
        self._snapshot: Snapshot | None = None
        self._handed_out: weakref.WeakSet[Snapshot] = weakref.WeakSet()
        self._intake = ThreadPoolExecutor(1, INTAKE)
        self._raw: weakref.WeakSet[Snapshot] = weakref.WeakSet()
        self._keeper = ThreadPoolExecutor(1, KEEPER)
        self._kept: Future[Advance] | None = None
        self._looked = 0
        self._closed = False
        self._closing = threading.Lock()
        self._renew("")
        self._lifecycle.changed.append(self._renew)
        self._lifecycle.leaving.append(self._expire_raw)

    # --- a store -------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        path: str | Path,
        schema: Schema,
        settings: Settings,
        *,
        keys: str,
        clock: Clock = time.time,
        vault: VaultHook | None = None,
    ) -> Self:
        """Make a new store. ``keys`` says where its store key is held: outside its directory."""
        if schema.unit is not None:
            raise SchemaError(
                f"the schema protects the people in column {schema.unit!r}, which nothing enforces "
                f"yet; leave `unit` out to protect single observations"
            )
        Lifecycle.refuse_unusable(schema, settings)
        about = {"schema": schema.to_toml(), "settings": json.dumps(settings.to_dict())}
        home = Home.create(Path(path), holder_at(keys), about)
        return cls._opened(home, clock, vault)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        keys: str,
        clock: Clock = time.time,
        vault: VaultHook | None = None,
    ) -> Self:
        """Open a store, as it was acknowledged last; then do what became due meanwhile."""
        home = Home(Path(path), holder_at(keys))
        if home.is_backup:
            home.close()
            raise StateError(f"{path} is a backup; restore it to a new path, and open that")
        return cls._opened(home, clock, vault)

    @classmethod
    def _opened(cls, home: Home, clock: Clock, vault: VaultHook | None) -> Self:
        try:
            home.settle()
            pyramid = cls(home, clock, vault)
        except BaseException:
            home.close()
            raise
        try:
            if home.is_copy:
                take_over(pyramid._lifecycle, pyramid._now())
            home.settled(pyramid._now())
            pyramid.advance()
        except BaseException:
            pyramid.close()
            raise
        return pyramid

    def close(self) -> None:
        """Finish what is being done and let go of the store; nothing is lost without it."""
        with self._closing:
            if self._closed or not self._home.owned:
                return
            self._closed = True
            self._intake.shutdown()
            self._keeper.shutdown()
            try:
                self._arrivals.close()
            finally:  # a full disk must not keep the store locked
                self._lifecycle.close()
                self._home.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _usable(self) -> None:
        if self._closed:
            raise StateError("this store is closed; open it again")
        self._home.refuse_other_process()

    def _now(self) -> int:
        """The clock in microseconds; it never goes back, whatever the system's does."""
        self._latest = max(self._latest, int(self._clock() * 1_000_000))
        return self._latest

    @property
    def path(self) -> Path:
        """The store's directory."""
        return self._home.path

    @property
    def schema(self) -> Schema:
        """What an observation is; groups come and go."""
        return self._lifecycle.schema

    @property
    def settings(self) -> Settings:
        """The knobs, fixed when the store was made."""
        return self._lifecycle.settings

    # --- rows in -------------------------------------------------------------------

    def observe(self, batch: Any, *, key: str | None = None, errors: Errors = "refuse") -> Receipt:
        """Accept rows: when this returns they are durable, hot, counted and handed to the vault.

        Bad rows refuse the whole batch, or are left out and counted in the receipt
        with ``errors="skip"``. A batch sent again with the same ``key``, while it is
        hot, changes nothing and gets the same receipt.
        """
        self._usable()
        now = self._now()
        self._raise_overdue(now)
        receipt = self._do(self._intake, lambda: self._arrivals.take(batch, now, key, errors))
        self._keep(now)
        return receipt

    def replay(self, history: Replay, *, errors: Errors = "refuse") -> Iterator[Receipt]:
        """Observe a history by event time, windows rolling as it goes; goes on where it broke off.

        The store's clock follows the rows, so give it rows that are not older than all it
        has, or they are late; none may be later than now.
        """
        self._usable()

        def take(piece: Any, now: int, resume: Resume) -> Receipt:
            self._latest = max(self._latest, now)
            return self._do(
                self._intake, lambda: self._arrivals.take(piece, now, None, errors, resume)
            )

        return rolled(self._lifecycle, history, take, self._schedule, self._advance, self._now)

    def replayed(self, history: Replay) -> int:
        """How many rows of a history `replay` has observed already."""
        self._usable()
        return taken(self._lifecycle, history)

    # --- time passes ---------------------------------------------------------------

    def advance(self) -> Advance:
        """Do what is due: seal windows, erase hot rows and old windows; says what it did."""
        self._kept = None
        return self._advance(self._now())

    def _advance(self, now: int) -> Advance:
        return self._do(self._keeper, lambda: self._schedule.advance(now))

    def _do(self, thread: ThreadPoolExecutor, verb: Callable[[], T]) -> T:
        """Have a verb done in a thread of its own: Ctrl-C stops who waits, not what is begun."""
        self._usable()
        if threading.current_thread().name.startswith((INTAKE, KEEPER)):
            raise StateError(
                "the store was called from within its own vault hook, which would wait for itself "
                "for ever; note what to do there and do it later"
            )
        try:
            doing = thread.submit(verb)
        except RuntimeError:  # closed meanwhile
            raise StateError("this store is closed; open it again") from None
        return doing.result()

    def _keep(self, now: int) -> None:
        """Have what is due done behind the scenes, so that nobody who observes waits for it."""
        busy = self._kept is not None and not self._kept.done()
        try:
            if not busy and self._schedule.is_due(now):
                self._kept = self._keeper.submit(self._schedule.advance, now)
        except RuntimeError:
            if not self._closed:  # or it was closed meanwhile, and what was observed is
                raise

    def _raise_overdue(self, now: int) -> None:
        """What failed behind the scenes is done first, or its error is raised here."""
        kept = self._kept
        if kept is not None and kept.done():
            self._kept = None
            if kept.exception() is not None:
                self._advance(now)

    # --- features out --------------------------------------------------------------

    def _renew(self, why: str) -> None:
        """A new snapshot when the complete tables change; old ones expire where they must."""
        self._snapshot = snapshot(self._lifecycle)
        if why:
            self._expire_raw()
            for old in list(self._handed_out):
                old.expire(why)
            self._handed_out.clear()
        if self._snapshot is not None:
            self._handed_out.add(self._snapshot)

    def snapshot(self) -> Snapshot:
        """The complete tables: immutable, and expired when a window in them must be forgotten."""
        self._usable()
        now = self._now()
        if now >= self._looked + OFTEN:
            self._looked = now
            self._keep(now)
        found = self._snapshot
        if found is None:
            raise StateError(
                "no window is sealed, so there is nothing to featurize with yet (or any more); "
                "observe on until a count window ends"
            )
        return found

    def featurize(self, rows: Any) -> pa.Table:
        """Features of rows, from the complete tables."""
        return self.snapshot().featurize(rows)

    def training_set(self, label: str | None = None) -> TrainingSet:
        """The hot rows as features and labels, for training: P1, gone when the rows go."""
        chosen, threads = label_of(self.schema, label), os.cpu_count() or 1

        def taken_off() -> Snapshot:  # where windows are moved, so that none moves meanwhile
            raw = without_hot(self._lifecycle, self.snapshot(), threads)
            self._raw.add(raw)
            return raw

        raw = self._do(self._keeper, taken_off)

        def source() -> Iterator[tuple[Observations, Batch]]:
            self._usable()
            try:
                for observations, batch, _ in hot_rows(self._lifecycle):
                    yield observations.under(raw.encoder), batch
            except StorageError:
                if not raw.expired:
                    raise
                raise StateError(
                    "hot rows of this training set have left; take a new one"
                ) from None

        return TrainingSet(raw, source, self.schema, chosen)

    def _expire_raw(self) -> None:
        for raw in list(self._raw):
            raw.expire("hot rows that were taken off it leave")
        self._raw.clear()

    # --- tables come and go ----------------------------------------------------------

    def add_group(self, group: Iterable[str]) -> None:
        """Count features together, from the next window that is not open yet."""
        self._do(self._keeper, lambda: add_group(self._lifecycle, group))

    def withdraw(self, name: str, *, why: str) -> None:
        """Erase a feature or a group now: its tables in every window, its column in hot rows.

        Its share of the budget returns with the next window.
        """
        now = self._now()
        self._do(self._keeper, lambda: withdraw(self._lifecycle, name, why, now))

    # --- what is there ---------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        """What each window has spent."""
        self._usable()
        return self._lifecycle.ledger

    def status(self) -> Status:
        """What the store holds now."""
        self._usable()
        now = self._now()
        return status_of(self._home.path, self._lifecycle, now, self._schedule.is_due(now))

    # --- copies ----------------------------------------------------------------------

    def backup(self, path: str | Path) -> int:
        """Copy the store; the bytes that were copied. A copy made before is brought up to date.

        The copy opens with the same store key, so it ends with the next erasure.
        """
        return self._do(self._keeper, lambda: back_up(self._home, self._lifecycle, Path(path)))

    @classmethod
    def restore(
        cls,
        backup: str | Path,
        path: str | Path,
        *,
        keys: str,
        clock: Clock = time.time,
        vault: VaultHook | None = None,
    ) -> Self:
        """Make a store of a backup, in place of the one it was made of.

        The store key is renewed at once, so that nothing opens the other copies any
        more. Populating windows are sealed as they are and new ones begin; what was left
        of the reserves is given up, since it is not known what was spent.
        """
        home = copied_back(Path(backup), Path(path), holder_at(keys))
        return cls._opened(home, clock, vault)
