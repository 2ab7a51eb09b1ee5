"""START HERE: a store for one stream of observations, its verbs in the data's order.

create, open            one process owns a store; all is as it was left
join                    one more store for the rows of a stream: a shard of it
observe, observe_all    rows in: durable, hot, counted under noise, taken by the vault
observe_turn            those of a sequence that its sender numbers, each batch once for good
replay                  a history of files, by event time, windows rolling as it goes
bulk                    windows of the past that are counted elsewhere
advance                 what is due: windows seal, hot rows and old windows are erased
snapshot, featurize     the complete tables, and features from them
share, unshare, card    the complete tables for readers elsewhere, and what opens them
as_of                   the tables as they were at a moment of the past
training_set            hot rows as features and labels, none meeting its own label
register, predict       models on them, which never outlive the rows they saw
add_group, withdraw     tables come and go
select_groups, groups   groups worth counting, chosen privately; how they fare
erase_person            one person's hot rows, at once; and under a grant those in the vault
status, ledger          what is there, and what it cost
audit_log               what was done, in entries that cannot be changed afterwards
exposure                what could be read between two moments
backup, restore         a copy that shares the fate of its keys
vault, attach_vault     the raw history, sealed to a custodian
reseed                  after a break-in: what the intruder has seen is frozen
verify, mend, rebuild   tables that were damaged or tampered with
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.config.checks import checked_whole
from pyramidion.config.durations import since_epoch
from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.config.spelling import FACT as KEYED
from pyramidion.config.spelling import KEYED_BY
from pyramidion.counts.snapshot import Snapshot
from pyramidion.errors import ExpiredError, FailedError, PyramidionError, SchemaError, StateError
from pyramidion.learn.curves import LearningCurve
from pyramidion.learn.losses import Loss
from pyramidion.learn.models import Model
from pyramidion.learn.training_set import TrainingSet
from pyramidion.learn.workload import Merge, Names, Workload
from pyramidion.privacy.ledger import Ledger
from pyramidion.rows.history import Replay
from pyramidion.rows.observations import Errors
from pyramidion.storage.audit_log import AUDIT_LOG, AuditLog, Fact
from pyramidion.storage.data_keys import DataKey
from pyramidion.storage.home import Home, Registration
from pyramidion.storage.hot import Receipt
from pyramidion.storage.keys import holder_at
from pyramidion.storage.outbox import Pending, Untold
from pyramidion.storage.spells import FACT, NONE
from pyramidion.storage.tables import tables_at
from pyramidion.store.backup import back_up, copied_back
from pyramidion.store.bulk import Bulk
from pyramidion.store.changes import add_group, begin_log, take_over, withdraw
from pyramidion.store.clocks import ALARM, FOLLOWS, Alarm, Clock, ClockStatus, StoreClock
from pyramidion.store.erase_person import PersonErasure, erase_person
from pyramidion.store.exposure import Component, Exposure, exposure_of, interval
from pyramidion.store.group_trials import GroupStatus, groups_of
from pyramidion.store.lifecycle import ForgetPeople, Lifecycle
from pyramidion.store.model_scores import Measures
from pyramidion.store.observe import Arrival, Arrivals, Resume
from pyramidion.store.open_window import WindowOpener
from pyramidion.store.private_statistics import Reading
from pyramidion.store.publish import Sharing
from pyramidion.store.rebuild import Rebuild, rebuild
from pyramidion.store.recovery import recover
from pyramidion.store.repair import Damage, mend, verify
from pyramidion.store.replay import rolled, taken
from pyramidion.store.reseed import Reseed, reseed
from pyramidion.store.schedule import Advance, Due, Schedule
from pyramidion.store.select_groups import Selecting, Selection
from pyramidion.store.shard import ABOUT as SHARD
from pyramidion.store.shard import WHERE as MEETING
from pyramidion.store.shard import Shard, founded, joining, refuse_sharing, refuse_unsharded
from pyramidion.store.shards import Shards
from pyramidion.store.snapshots import Serving
from pyramidion.store.status import Status, status_of
from pyramidion.store.timekeeping import Timekeeping
from pyramidion.store.training import Training
from pyramidion.store.vaulting import ABOUT, attach_vault, erase_from_vault, facts_of, opened_vault
from pyramidion.workers import CLOSED, Threads, emptied

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from pyramidion.learn.exports import Export
    from pyramidion.vault.keys import PrivateKey, PublicKey
    from pyramidion.vault.vault import Vault

T = TypeVar("T")
Announce = Callable[[Due], None]
"""Called with what is about to be erased."""

OFTEN = 100_000  # microseconds between looks at what is due, where nothing comes in


def _nothing_said(_: Due) -> None:
    """What is about to be erased is said to nobody."""


class Pyramid:
    """A store: a small hot window of raw rows, and the past as noisy count tables.

    Made by `create` or `open`; closed by `close`, or at the end of a ``with``.
    """

    def __init__(self, home: Home, clock: Clock) -> None:
        self._home = home
        about = home.catalogue.about
        latest, follows = int(about("clock", "0")), about(FOLLOWS, "system")
        alarm = Alarm.from_json(about(ALARM, ""))
        self._time = StoreClock(clock, latest=latest, follows=follows, alarm=alarm)
        schema = Schema.from_toml(home.catalogue.about("schema"))
        settings = Settings.from_dict(json.loads(home.catalogue.about("settings")))
        self._lifecycle = Lifecycle(
            home.path, home.catalogue, home.keys, schema, settings, self._time.present
        )
        recover(self._lifecycle)
        self._shards = Shards.of(self._lifecycle)
        cores = os.cpu_count() or 1
        self._selecting = Selecting(self._lifecycle, threads=cores)
        self._opener = WindowOpener(self._lifecycle, Reading(self._lifecycle), self._selecting)
        self._schedule = Schedule(self._lifecycle, self._opener)
        self._serving = Serving(self._lifecycle, threads=cores)
        self._sharing = Sharing(self._lifecycle, self._serving)
        self._training = Training(self._lifecycle, self._serving)
        self._measures = Measures(self._training, self._serving)
        self._arrivals = Arrivals(
            self._lifecycle, self._opener, self._time, cores, self._training.learn
        )
        self._lifecycle.observers = (
            ForgetPeople(self._lifecycle),
            *([] if self._shards is None else [self._shards]),  # the sum that is served, first
            self._arrivals,  # the vault seals rows before anything is lost
            self._serving,  # snapshots of these tables; training sets expire
            self._training,  # models learn from the new snapshot
        )
        self._lifecycle.with_erasures = (self._sharing,)
        self._threads = Threads()
        self._looked = 0
        self._still = True
        """Whether nothing is sealed, erased or trained behind the scenes: nobody said so yet."""
        self._closed = self._released = False
        self._closing = threading.Lock()
        self._audit_log = AuditLog(home.path / AUDIT_LOG)
        self._untold = Untold(home.catalogue, self._audit_log)
        self._timekeeping = Timekeeping(self._lifecycle, self._time, self._untold)
        self._vault: Vault | None = None
        if home.catalogue.about(ABOUT, ""):
            self._open_vault()

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
        vault: str | None = None,
        custodian: PublicKey | None = None,
        shard: Shard | None = None,
        tables: str | None = None,
    ) -> Self:
        """Make a new store. ``keys`` says where its store key is held: outside its directory.

        With a ``vault``, a directory or a URL for fsspec, every batch is sealed there to the
        ``custodian``. With a URL for ``tables``, complete tables are shared there: see `share`. A
        ``shard`` is the first of a new stream, which others `join`.
        """
        refuse_unsharded(settings, shard)
        Lifecycle.refuse_unusable(schema, settings)
        if tables is not None:
            refuse_sharing(shard)
            tables_at(tables).names()  # or there is no store either
        secret = None if shard is None else founded(shard, Path(path))
        sealed = vault, custodian
        made = cls._created(path, schema, settings, keys, clock, sealed, (shard, secret, None))
        if tables is not None:
            made.share(tables)
        return made

    @classmethod
    def join(
        cls,
        path: str | Path,
        shard: Shard,
        *,
        keys: str,
        clock: Clock = time.time,
        vault: str | None = None,
        custodian: PublicKey | None = None,
    ) -> Self:
        """Make a new store that is one more shard of a stream, and counts as the others do."""
        schema, settings, secret, keyed_by, registration = joining(shard, Path(path))
        sealed = vault, custodian
        of_stream = shard, secret, registration
        return cls._created(path, schema, settings, keys, clock, sealed, of_stream, keyed_by)

    @classmethod
    def _created(
        cls,
        path: str | Path,
        schema: Schema,
        settings: Settings,
        keys: str,
        clock: Clock,
        sealed: tuple[str | None, PublicKey | None],
        of_stream: tuple[Shard | None, bytes | None, Registration | None],
        keyed_by: str = KEYED_BY,
    ) -> Self:
        shard, secret, registration = of_stream
        try:
            about = {"schema": schema.to_toml(), KEYED: keyed_by}
            about |= {"settings": json.dumps(settings.settled().to_dict())}
            about |= facts_of(*sealed, Path(path)) | {FACT: NONE, FOLLOWS: "nothing"}
            meeting = DataKey.new(MEETING)
            about |= {} if shard is None else {SHARD: shard.sealed(meeting)}
            own = [] if shard is None else [meeting]
            home = Home.create(Path(path), holder_at(keys), about, secret, own, registration)
        except BaseException:
            if shard is not None and registration is None:  # or its name would be taken by nobody
                shard.roster.forget(shard.name)
            raise
        return cls._opened(home, clock, begun="store.created")

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        keys: str,
        clock: Clock = time.time,
        train: bool = True,
        advance: bool = True,
        announce: Announce = _nothing_said,
    ) -> Self:
        """Open a store, as it was acknowledged last; then do what became due meanwhile.

        Models are trained again, behind the scenes; with ``train=False`` only when one is asked.
        ``announce`` is called with what is about to be erased, before it is. With ``advance=False``
        nothing is sealed or erased until `advance` is called or rows come, and nothing that is past
        its time is read.
        """
        home = Home(Path(path), holder_at(keys))
        if home.is_backup:
            home.close()
            raise StateError(f"{path} is a backup; restore it to a new path, and open that")
        return cls._opened(home, clock, train, advance=advance, announce=announce)

    @classmethod
    def _opened(
        cls,
        home: Home,
        clock: Clock,
        train: bool = True,
        begun: str = "log.began",
        *,
        advance: bool = True,
        announce: Announce = _nothing_said,
    ) -> Self:
        try:
            home.settle()
            pyramid = cls(home, clock)
        except BaseException:
            home.close()
            raise
        try:
            now = pyramid._now()
            if home.is_copy:
                pyramid._audit_log.append("store.restored", pyramid._time.present())
                take_over(pyramid._lifecycle, now)
            log, present = pyramid._audit_log, pyramid._time.present()
            begin_log(pyramid._lifecycle, log, begun, present)
            pyramid._untold.make_up()
            home.settled(present)
            pyramid._begin(train=train, advance=advance, announce=announce)
        except BaseException:
            pyramid.close()
            raise
        return pyramid

    def _begin(self, *, train: bool, advance: bool, announce: Announce) -> None:
        """Say what is due and do it; or leave all as it is."""
        self._still = not advance
        now = self._now()
        if advance:
            due = self.due()
            if due.erases and self._time.alarm is None:
                announce(due)
            with self._training.sleeping():
                self._advance(now)
        elif self._shards is not None:
            shards = self._shards
            self._threads.move(lambda: shards.look(now))
        self._training.when_asked = not train
        self._keep(now)

    def close(self) -> None:
        """Finish what is being done and let go of the store; nothing is lost without it."""
        with self._closing:
            if self._released or not self._home.owned:
                return
            self._closed = True  # called again after Ctrl-C, it goes on
            self._training.stop()
            self._threads.close()
            self._training.close()
            self._serving.close()
            if self._shards is not None:
                self._shards.close()
            self._sharing.close()
            try:
                with suppress(FailedError):  # what it has not sealed is hot
                    self._arrivals.close()
            finally:  # a full disk must not keep the store locked
                self._audit_log.close()
                self._lifecycle.close()
                self._home.close()
                self._released = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _usable(self) -> None:
        if self._closed:
            raise StateError(CLOSED)
        self._home.refuse_other_process()

    def _now(self) -> int:
        """The store's time in microseconds; it never goes back, whatever the system's does."""
        now = self._time.now()
        if self._time.alarm is not None and not self._still:
            self._timekeeping.note()
        return now

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

    @property
    def keyed_by(self) -> str:
        """By what it knows values of open features: their "text"; in older stores their "type"."""
        return self._lifecycle.keyed_by

    # --- rows in -------------------------------------------------------------------

    def observe(self, batch: Any, *, key: str | None = None, errors: Errors = "refuse") -> Receipt:
        """Accept rows: when this returns they are durable, hot and counted; the vault seals them.

        Bad rows refuse the whole batch, or are left out and counted in the receipt
        with ``errors="skip"``. A batch sent again with the same ``key``, while it is
        hot, changes nothing and gets the same receipt; other rows under it are refused.
        """
        (answer,) = self.observe_all([Arrival(batch, key, errors)])
        if isinstance(answer, PyramidionError):
            raise answer
        return answer

    def observe_turn(
        self, batch: Any, sequence: str, turn: int, *, errors: Errors = "refuse"
    ) -> Receipt:
        """Accept a batch of a sequence that its sender numbers, from 0 on: each once, for good.

        A ``key`` is forgotten with its rows; how far a sequence has come is not, so its name must
        tell nothing of them. The last batch sent again changes nothing, and has its receipt while
        its rows are hot; an earlier one is refused.
        """
        self._usable()
        self._refuse_left()
        checked_whole("turn of a batch", turn, 0, 1 << 62)
        now = self._live()
        receipt = self._threads.take(
            lambda: self._arrivals.take_turn(batch, now, sequence, turn, errors)
        )
        self._keep(self._now())
        return receipt

    def observe_all(self, arrivals: Sequence[Arrival]) -> list[Receipt | PyramidionError]:
        """Accept batches together: as durable as one by one, in one commit for all.

        Each has its own answer, in their order: its receipt, or why it was not accepted. A bad
        one keeps no other out. Two with the same key are one.
        """
        self._usable()
        self._refuse_left()
        now, group = self._live(), list(arrivals)
        answers = self._threads.take(lambda: self._arrivals.take_all(group, now))
        self._keep(self._now())
        return answers

    def _live(self) -> int:
        """When rows arrive that come now, which are no history."""
        self._still = False
        self._home.catalogue.health.refuse()
        self._now()  # what is wrong with the clock is noted before rows come
        if self._threads.failed():  # what failed behind the scenes is done first, or raises here
            self._advance(self._now())
        return self._time.present()

    def replay(self, history: Replay, *, errors: Errors = "refuse") -> Iterator[Receipt]:
        """Observe a history by event time, windows rolling as it goes; goes on where it broke off.

        The store's clock follows the rows, so give it rows that are not older than all it
        has, or they are late; none may be later than now. By the system's clock it stays where they
        end, until rows are observed. Models go when rows they saw leave, and are trained again when
        all is through.
        """
        self._usable()
        self._refuse_left()
        self._still = False
        self._refuse_alarm()
        past, present = self.schema.time is not None, self._time.present

        def take(piece: Any, now: int, resume: Resume) -> Receipt:
            self._refuse_alarm()

            def taken() -> Receipt:
                return self._arrivals.take(piece, now, None, errors, resume, history=past)

            return self._threads.take(taken)

        rolling = self._lifecycle, history, take, self._schedule, self._advance, present

        def receipts() -> Iterator[Receipt]:
            with self._training.sleeping():
                yield from rolled(*rolling)
            self._threads.move(lambda: self._training.catch_up(self._now()))

        return receipts()

    def replayed(self, history: Replay) -> int:
        """How many rows of a history `replay` has observed already."""
        self._usable()
        return taken(self._lifecycle, history)

    def bulk(self, key: str | None = None) -> Bulk:
        """Take windows of the past whose rows are counted elsewhere, as `pyramidion.spark` does.

        Each is charged, born with its noise and sealed at once; none of its rows is ever hot. Under
        the same ``key`` each window is counted once.
        """
        self._usable()
        self._refuse_alarm()
        return Bulk(self._lifecycle, self._threads.move, self._now, key)

    # --- time passes ---------------------------------------------------------------

    def advance(self) -> Advance:
        """Do what is due: seal windows, erase hot rows and old windows, train; says what it did."""
        self._usable()
        self._still = False
        self._threads.expect_nothing()
        return self._advance(self._now())

    def refuse_lost_key(self) -> None:
        """Raise `KeyHolderError` unless the key holder can be reached and has the store's key.

        Rows are read and observed for a while without it; the next hot step, seal or erasure fails.
        """
        self._usable()
        self._threads.move(self._home.keys.must_be_held)

    def confirm_clock(self, *, why: str) -> Advance:
        """Say that the clock is right: the store goes by it, also where its own time was later.

        Then does what is due by it. What came while clocks disagreed is dated by it, too, and what
        was dated in the future is dated now.
        """
        self._settle_clock(lambda: self._timekeeping.confirm(why), why)
        return self.advance()

    def correct_clock(self, *, why: str) -> Advance:
        """Say that the clock was wrong and is right again: the store's own time goes on.

        Then does what is due by it. Refused while the clock is further than `clocks.LIMIT` from it.
        """
        self._settle_clock(lambda: self._timekeeping.correct(why), why)
        return self.advance()

    def _settle_clock(self, settle: Callable[[], None], why: str) -> None:
        self._usable()
        if not why:
            raise SchemaError("the audit log tells why a clock was settled; give a reason")
        self._still = False
        self._now()
        self._threads.move(settle)

    def _refuse_alarm(self) -> None:
        """Raise for what would roll windows while clocks disagree."""
        self._now()
        if self._time.alarm is not None:
            raise StateError(
                "a history is not taken while clocks disagree, since windows are not sealed then; "
                "correct or confirm the clock, and go on"
            )

    def due(self, at: object = None) -> Due:
        """What `advance` would seal and erase at a moment: seconds, a date or ISO text; or now."""
        self._usable()
        now = self._now()
        return self._schedule.due(now if at is None else since_epoch(at), now)

    @property
    def clock(self) -> ClockStatus:
        """What the store goes by, and whether its clocks agree."""
        self._now()
        return self._time.status()

    @property
    def now(self) -> int:
        """The store's time in microseconds since 1970: what is due by it is done."""
        return self._now()

    def _advance(self, now: int) -> Advance:
        self._usable()
        return self._threads.move(lambda: self._advanced(now))

    def _advanced(self, now: int) -> Advance:
        """In the keeper."""
        self._home.catalogue.health.refuse()
        self._training.trained.clear()
        self._timekeeping.note(again=True)
        self._untold.make_up()
        held = self._time.alarm is not None
        done = self._schedule.advance(now, held=held)
        if not held:
            self._meet(now)
        if self._vault is not None:
            self._vault.advance(now, held=held)
        self._serving.mend()
        self._sharing.advance(now)
        self._training.catch_up(now)
        done.trained = sorted(set(self._training.trained))
        return done

    def _keep(self, now: int) -> None:
        """Have what is due done behind the scenes, so that nobody who observes waits for it."""
        if self._still:
            return
        try:
            due = self._due(now) or self._serving.lacking or self._training.due
            if due and not self._threads.keeping:
                self._threads.keep(lambda: self._advanced(now))
        except RuntimeError:
            if not self._closed:  # or it was closed meanwhile, and what was observed is
                raise

    def _due(self, now: int) -> bool:
        held = self._time.alarm is not None
        sealing = self._vault is not None and self._vault.due(now)
        meeting = self._shards is not None and not held and self._shards.due(now)
        sharing = meeting or self._sharing.due(now)
        return sealing or sharing or self._schedule.is_due(now, held=held)

    # --- shards of a stream --------------------------------------------------------

    def _meet(self, now: int) -> None:
        """Give to other shards what is sealed, and take what they gave; in the keeper."""
        if self._shards is not None:
            self._shards.advance(now)

    def _refuse_left(self) -> None:
        if self._shards is not None:
            self._shards.refuse_left()

    def remove_shard(self, name: str, *, why: str) -> None:
        """Have nobody wait for a shard of this stream any more, as for one that is lost.

        What it has sealed stays in the sum until its time; its hot rows and the window that it
        was filling are not there for the others, now as before.
        """
        self._usable()
        if self._shards is None:
            raise StateError("this store is no shard of a stream; there is none to remove")
        shards, now = self._shards, self._now()

        def done(_: Pending) -> None:
            shards.remove(name)
            self._meet(now)

        self._noted("shard.removed", now, {"name": name, "why": why}, done)

    # --- the vault -----------------------------------------------------------------

    @property
    def vault(self) -> Vault | None:
        """Where the raw history is sealed, if it is."""
        self._usable()
        return self._vault

    def attach_vault(self, url: str, custodian: PublicKey) -> Vault:
        """Seal what is observed from now on; a store keeps its vault for good."""
        self._usable()

        def attached() -> Vault:
            with self._lifecycle.moves, self._lifecycle.arrivals:
                attach_vault(self._lifecycle, self._home.path, url, custodian)
                return self._open_vault()

        return self._threads.move(attached)

    def _open_vault(self) -> Vault:
        path, log = self._home.path, self._untold
        self._vault = self._arrivals.vault = opened_vault(self._lifecycle, path, log, self._now)
        return self._vault

    def _settle_vault(self) -> None:
        """Have the vault's open files let go of rows that were erased; in the keeper."""
        if self._vault is not None:
            self._vault.settle()

    # --- features out --------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The complete tables: immutable, and expired when a window in them must be forgotten."""
        self._usable()
        now = self._now()
        if self._still:
            self._refuse_past(self._lifecycle.past(now), "window")
        elif now >= self._looked + OFTEN:
            self._looked = now
            self._keep(now)
        return self._serving.snapshot()

    def _refuse_past(self, past: Sequence[object], what: str) -> None:
        """Raise where reading would show what is past its time, and reading erases nothing."""
        if past:
            several = f"{len(past)} {what}{'s are' if len(past) > 1 else ' is'}"
            raise ExpiredError(
                f"{several} past {'their' if len(past) > 1 else 'its'} time and may not be read "
                f"any more; advance the store, which erases what is past its time"
            )

    def _refuse_past_rows(self) -> None:
        """Raise where hot rows past their time would be read."""
        if self._still:
            self._refuse_past(self._lifecycle.hot.leaving(self._now()), "hot step")

    def as_of(self, moment: object) -> Snapshot:
        """The tables of sealed windows that had ended by a moment: seconds, a date or ISO text.

        For rows of that time, which are in none of them. It expires as `snapshot` does.
        """
        self._usable()
        at = since_epoch(moment)
        return self._threads.move(lambda: self._serving.as_of(at))

    def featurize(self, rows: Any) -> pa.Table:
        """Features of rows, from the complete tables."""
        return self.snapshot().featurize(rows)

    # --- tables for others -----------------------------------------------------------

    def share(self, url: str) -> None:
        """Publish the complete tables at a URL, now and whenever they change.

        There they are encrypted, under a key that dies when newer ones take their place; who has
        a `card` reads them. The URL is kept encrypted, so that a password may stand in it.
        """
        self._usable()
        refuse_sharing(None if self._shards is None else self._shards.shard)
        now = self._now()

        def shared() -> None:
            where = self._sharing.begin(url, now)
            self._untold.append("tables.shared", self._time.present(), where=where)

        self._threads.move(shared)

    def unshare(self) -> None:
        """Publish no more: the keys of what is shared are destroyed, then it is deleted."""
        self._usable()
        now = self._now()

        def ended() -> None:
            where = self._sharing.end(now)
            self._untold.append("tables.unshared", self._time.present(), where=where)

        self._threads.move(ended)

    def card(self, *, stream: str, signer: Ed25519PrivateKey) -> bytes:
        """What opens the shared tables: signed, ends in a day or with the first window in them."""
        self._usable()
        now = self._now()
        self._keep(now)
        return self._sharing.card(stream=stream, now=now, signer=signer)

    def training_set(
        self,
        label: str | None = None,
        *,
        only: Names | None = None,
        without: Names = (),
        merge: Merge | None = None,
        values: bool = False,
    ) -> TrainingSet:
        """The hot rows as features and labels, for training: P1, gone when the rows go.

        With ``values`` also what the rows have themselves, to be learned beside the counts.
        """
        self._usable()
        self._refuse_past_rows()
        workload = Workload.of(self.schema, label, only, without, merge)
        return self._threads.move(lambda: self._serving.training_set(workload, values=values))

    # --- models ----------------------------------------------------------------------

    @property
    def models(self) -> dict[str, Model]:
        """The registered models by name: whether each is available, and if not, why."""
        return self._training.models

    def register(
        self,
        name: str,
        estimator: Any,
        *,
        label: str | None = None,
        only: Names | None = None,
        without: Names = (),
        merge: Merge | None = None,
    ) -> Model:
        """Train a model on the hot window, now and whenever that or the tables change.

        ``only`` and ``without`` choose features and groups, ``merge`` makes classes coarser:
        ``{"new": ["old", "older"]}``. A name that is there already gets the new recipe; the old
        model serves until the new one is trained. What is stored is the recipe alone.
        """
        self._usable()
        self._refuse_past_rows()
        workload, now = Workload.of(self.schema, label, only, without, merge), self._now()
        self._threads.move(lambda: self._training.register(name, estimator, workload, now))
        return self._training.model(name)

    def unregister(self, name: str) -> None:
        """Forget a model and its recipe."""
        self._usable()
        self._threads.move(lambda: self._training.unregister(name))

    def retrain(self, name: str) -> Model:
        """Train a model again now, as after a failure; what serves goes on until it is ready."""
        self._usable()
        self._refuse_past_rows()
        now = self._now()
        self._threads.move(lambda: self._training.retrain(name, now))
        return self._training.model(name)

    def predict(self, name: str, rows: Any) -> NDArray[Any]:
        """The likeliest class of each row, or the expected number: P1, as the model is."""
        return self._asked(name, lambda model: model.predict(self.snapshot(), rows))

    def predict_proba(self, name: str, rows: Any) -> NDArray[Any]:
        """A probability for each class, in the order of ``models[name].classes``: P1."""
        return self._asked(name, lambda model: model.predict_proba(self.snapshot(), rows))

    def _asked(self, name: str, ask: Callable[[Model], NDArray[Any]]) -> NDArray[Any]:
        """An answer; neither it nor an error keeps what the model learned."""
        model = self._model(name)
        try:
            return emptied(lambda: ask(model))
        finally:
            model.ended()

    def _model(self, name: str) -> Model:
        """A model, trained first where it was not yet."""
        self._usable()
        self._refuse_past_rows()
        if self._training.wants(name):
            now = self._now()
            self._threads.move(lambda: self._training.asked(name, now))
        return self._training.model(name).begun()

    def learning_curve(
        self, name: str, *, within: float = 0.05, sizes: Sequence[int] | None = None
    ) -> LearningCurve:
        """A model's loss against the hot rows it learns from: P1, gone when the rows go."""
        self._usable()
        self._refuse_past_rows()
        return self._threads.move(lambda: self._measures.learning_curve(name, within, sizes))

    def export(self, name: str) -> Export:
        """A model for an edge, as a header and bytes without code: P1, for memory alone.

        It ends with the model, and after a `hot_step` at the latest; after five minutes where
        `hot_rows` bounds the hot window or the schema has a unit, since nobody knows when rows
        leave. The audit log tells it.
        """
        self._usable()
        now = self._now()

        def done() -> Export:
            self._training.asked(name, now)
            model, life = self._training.model(name).begun(), self._training.away
            try:
                promise = self._serving.snapshot().guarantee
                exports = import_module("pyramidion.learn.exports")
                parts: Export = exports.exported(model, guarantee=promise, now=now, life=life)
            finally:
                model.ended()
            self._untold.append(
                "model.exported", self._time.present(), name=name, version=parts[0]["version"]
            )
            return parts  # or not, where the log does not tell it

        return self._threads.move(done)

    def loss(self, name: str) -> Loss:
        """A model's loss on the newest hot rows, after those before, beside the prior's: P1."""
        self._usable()
        self._refuse_past_rows()
        now = self._now()
        return self._threads.move(lambda: self._measures.loss(name, now))

    # --- tables come and go ----------------------------------------------------------

    def add_group(self, group: Iterable[str]) -> None:
        """Count features together, from the next window that is not open yet."""
        self._usable()
        self._threads.move(lambda: add_group(self._lifecycle, group))

    def select_groups(self, *, share: Fraction | int = 1) -> Selection:
        """Choose groups worth counting from the hot rows, privately; they begin as `add_group`'s.

        It costs every window with hot rows a ``share`` of what it kept back for this at its birth
        (`selection_share`). Chosen groups are on trial: see `groups`.
        """
        self._usable()
        now = self._now()
        return self._threads.move(lambda: self._selecting.choose(Fraction(share), now))

    def groups(self) -> list[GroupStatus]:
        """The groups: by hand, on trial, kept or dropped, what sealed tables say of them, why."""
        self._usable()
        return self._threads.move(lambda: groups_of(self._lifecycle))

    def withdraw(self, name: str, *, why: str) -> None:
        """Erase a feature or a group now: its tables in every window, its column in hot rows.

        Its share of the budget returns with the next window.
        """
        self._usable()
        now = self._now()

        def done(entry: Pending) -> None:
            withdraw(self._lifecycle, name, why, now, entry)
            self._settle_vault()
            self._meet(now)

        def noted() -> None:
            told: dict[str, Fact] = {"why": why}
            if name not in self._lifecycle.births.chosen:  # known from rows, and the log is kept
                told = {"name": name, **told}
            self._untold.do("tables.withdrawn", self._time.present(), told, done)

        self._threads.move(noted)
        self._keep(now)

    # --- somebody asks to be forgotten -------------------------------------------------

    def erase_person(self, person: str | int, *, why: str = "asked for") -> PersonErasure:
        """Erase the hot rows of one person now, as the column of the schema's unit names them.

        Models are trained again without them. What is counted stays, hidden by the noise, until
        its window retires. ``why`` stays in the deletion record; it must not say who.
        """
        self._usable()
        now = self._now()

        def done(entry: Pending) -> PersonErasure:
            erasure = erase_person(self._lifecycle, person, why, now, entry)
            self._settle_vault()
            self._training.catch_up(now)
            return erasure

        erasure = self._noted("person.erased", now, {"why": why}, done)
        self._keep(now)
        return erasure

    def erase_from_vault(
        self,
        person: str | int,
        grant: str | bytes,
        *,
        key: PrivateKey,
        broker: str,
        why: str = "asked for",
    ) -> list[str]:
        """Make the rows of one person blank in the vault's files of an ``erase`` grant.

        The broker at an address rewrites every granted file, whoever is in it, and no row comes
        here; the new names. Erase the person's hot rows first, or those that are not sealed yet
        come after.
        """
        self._usable()
        now, move = self._now(), self._threads.move
        granted, made = erase_from_vault(
            self._lifecycle, self._vault, person, grant, key, broker, why, move
        )
        told: dict[str, Fact] = {"why": why, "files": len(made), "grant": granted}
        self._noted("person.erased", now, told, lambda _: None)
        return made

    # --- after an intrusion ----------------------------------------------------------

    def reseed(self, *, why: str) -> Reseed:
        """Seal what is populating now, renew the store key, and go on with fresh noise.

        What an intruder copied is frozen: no later state of the same tables exists, and nothing
        written from here on opens with the keys of before. Costs the rows nothing.
        """
        self._usable()
        now = self._now()
        done = self._noted(
            "store.reseeded",
            now,
            {"why": why},
            lambda entry: reseed(self._lifecycle, self._opener, why, now, entry),
        )
        self._keep(now)
        return done

    def verify(self) -> list[Damage]:
        """Read every file: those that are damaged, gone or do not add up; none is best."""
        self._usable()
        return self._threads.move(lambda: verify(self._lifecycle))

    def mend(self) -> list[Damage]:
        """Make damaged tables again from those that are sound, free; what was mended.

        Complete tables are the sum of the windows, so they and all windows but one tell that one.
        """
        self._usable()
        now = self._now()
        mended = self._threads.move(lambda: mend(self._lifecycle, now))
        self._keep(now)
        return mended

    def rebuild(
        self, window: int, rows: Any = None, *, why: str, share: Fraction | int = 1
    ) -> Rebuild:
        """Count a sealed window again, onto fresh noise, and charge it again.

        From its hot rows, while all are hot, or from ``rows``: exactly those that it took. It is
        paid from what the window kept back for it (`rebuild_share`), or a ``share`` of that.
        """
        self._usable()
        now = self._now()
        told: dict[str, Fact] = {"window": window, "why": why}
        done = self._noted(
            "tables.rebuilt",
            now,
            told,
            lambda entry: rebuild(self._lifecycle, window, rows, share, why, now, entry),
        )
        self._keep(now)
        return done

    # --- what is there ---------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        """What each window has spent."""
        self._usable()
        return self._lifecycle.ledger

    @property
    def audit_log(self) -> AuditLog:
        """What was done with the store, in signed entries that nobody can change afterwards."""
        self._usable()
        return self._audit_log

    def note(self, kind: str, **facts: Fact) -> None:
        """Tell the audit log what was done with the store from outside, as a service does."""
        self._usable()
        self._audit_log.append(kind, self._time.present(), **facts)

    def _noted(self, kind: str, now: int, told: dict[str, Fact], verb: Callable[[Pending], T]) -> T:
        """Do a verb in the keeper; the audit log tells it once it is done."""
        at = max(now, self._time.present())
        return self._threads.move(lambda: self._untold.do(kind, at, told, verb))

    def status(self) -> Status:
        """What the store holds now."""
        self._usable()
        now = self._now()
        vault = None if self._vault is None else self._vault.status()
        shard = None if self._shards is None else self._shards.status()
        shared, due = self._sharing.status(), self._due(now)
        clock, path = self._time.status(), self._home.path
        return status_of(path, self._lifecycle, now, due, clock, vault, shard, shared)

    def exposure(self, start: object, stop: object, *, component: Component = "store") -> Exposure:
        """What an intruder from start to stop could read of the store, an edge or the tables.

        Both are seconds since 1970, a date or ISO text. Where the record is not exact, more is
        told than was exposed, never less, by the store's own clock.
        """
        self._usable()
        now = self._time.present()
        first, last = interval(start, stop, now)
        entries = self._audit_log.entries()
        return exposure_of(self._lifecycle, first, last, component, now, log=entries)

    # --- copies ----------------------------------------------------------------------

    def backup(self, path: str | Path) -> int:
        """Copy the store; the bytes that were copied. A copy made before is brought up to date.

        The copy opens with the same store key, so it ends with the next erasure or release.
        """
        self._usable()
        now = self._now()
        return self._threads.move(
            lambda: back_up(self._home, self._lifecycle, Path(path), self._audit_log, now)
        )

    @classmethod
    def restore(
        cls,
        backup: str | Path,
        path: str | Path,
        *,
        keys: str,
        clock: Clock = time.time,
        announce: Announce = _nothing_said,
    ) -> Self:
        """Make a store of a backup, in place of the one it was made of.

        ``announce`` is called with what is past its time by now, before that is erased.
        The store key is renewed at once, so that nothing opens the other copies any
        more. Populating windows are sealed as they are and new ones begin; what was left
        of the reserves is given up, since it is not known what was spent.
        """
        home = copied_back(Path(backup), Path(path), holder_at(keys))
        return cls._opened(home, clock, announce=announce)
