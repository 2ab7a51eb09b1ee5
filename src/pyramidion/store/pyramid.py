"""START HERE: a store for one stream of observations. Its methods, in the data's order:

create, open, restore   one process owns a store; everything is as it was acknowledged last
join                    one more store for the rows of a stream: a shard of it
observe, observe_all    rows in: durable, hot, counted under noise, taken by the vault
observe_turn            batches of a numbered sequence, each accepted exactly once
replay                  a history of files, by event time; windows roll as it goes
bulk                    windows of the past that are counted elsewhere
advance                 do what is due: seal windows, erase hot rows and old windows, train
snapshot, featurize     the complete tables, and features from them
as_of                   the tables as they were at a moment of the past
training_set            hot rows as features and labels; no row sees its own label
register, predict       models on them, which never outlive the rows they learned from
erase_person            erase one person's hot rows, at once
status, exposure        what the store holds; what could be read between two moments

and, by subject:

models                  the registered models: retrain, unregister, loss, learning_curve, export
groups                  features counted together: add, select, status, withdraw
publisher               the complete tables for readers elsewhere: start, stop, card
shards                  the other shards of a stream: status, remove
vault                   the raw history, sealed to a custodian
admin                   backup, verify, mend, rebuild, reseed, clocks, keys, attach_vault
ledger, audit_log       what was spent, and what was done
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.config.checks import checked_whole
from pyramidion.config.durations import since_epoch
from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.config.spelling import FACT as KEYED
from pyramidion.config.spelling import KEYED_BY
from pyramidion.counts.snapshot import Snapshot
from pyramidion.errors import ExpiredError, FailedError, PyramidionError, StateError
from pyramidion.learn.models import Model
from pyramidion.learn.training_set import TrainingSet
from pyramidion.learn.workload import Merge, Names, Workload
from pyramidion.privacy.ledger import Ledger
from pyramidion.rows.history import Replay
from pyramidion.rows.observations import Errors
from pyramidion.storage.audit_log import AUDIT_LOG, AuditLog
from pyramidion.storage.data_keys import DataKey
from pyramidion.storage.home import Home, Registration
from pyramidion.storage.hot import Receipt
from pyramidion.storage.key_holders import holder_at
from pyramidion.storage.outbox import AuditOutbox, PendingEntry
from pyramidion.storage.spells import FACT, NONE
from pyramidion.storage.tables import tables_at
from pyramidion.store.access import Access
from pyramidion.store.admin import Admin
from pyramidion.store.backup import copied_back, take_over
from pyramidion.store.bins_and_weights import Reading
from pyramidion.store.bulk import Bulk
from pyramidion.store.clocks import ALARM, FOLLOWS, Alarm, Clock, ClockStatus, StoreClock
from pyramidion.store.erase_person import PersonErasure, erase_person
from pyramidion.store.exposure import Component, Exposure, exposure_of, interval
from pyramidion.store.groups import Groups
from pyramidion.store.model_scores import Measures
from pyramidion.store.models import Models
from pyramidion.store.observe import Arrival, Arrivals, Resume
from pyramidion.store.publish import Sharing, TablePublisher
from pyramidion.store.recovery import recover
from pyramidion.store.replay import rolled
from pyramidion.store.schedule import Advance, Due, Schedule
from pyramidion.store.select_groups import Selecting
from pyramidion.store.shard import ABOUT as SHARD
from pyramidion.store.shard import WHERE as MEETING
from pyramidion.store.shard import Shard, founded, joining, refuse_sharing, refuse_unsharded
from pyramidion.store.shards import Shards, StreamShards
from pyramidion.store.snapshots import Serving
from pyramidion.store.state import ForgetPeople, StoreState
from pyramidion.store.status import Status, status_of
from pyramidion.store.timekeeping import Timekeeping
from pyramidion.store.training import Training
from pyramidion.store.vaulting import ABOUT, facts_of, opened_vault
from pyramidion.store.window_opener import WindowOpener
from pyramidion.workers import CLOSED, Threads, emptied

if TYPE_CHECKING:
    from pyramidion.vault.key_pairs import PublicKey
    from pyramidion.vault.vault import Vault

Announce = Callable[[Due], None]
"""Called with what is about to be erased."""

OFTEN = 100_000  # microseconds between looks at what is due, where nothing comes in


def _nothing_said(_: Due) -> None:
    """What is about to be erased is said to nobody."""


class Pyramid:
    """A store: a small hot window of raw rows, and the past as noisy count tables.

    Made by `create` or `open`; closed by `close`, or at the end of a ``with``.

    Parameters
    ----------
    home : Home
        The directory, owned by this process. `create`, `open`, `join` and `restore` make it.
    clock : callable
        Returns seconds since 1970.

    Examples
    --------
    >>> import tempfile
    >>> from pyramidion import Categorical, Label, Pyramid, Schema, Settings
    >>> carrier = Categorical("carrier", domain=["AA", "UA"])
    >>> schema = Schema(features=[carrier], label=Label("late", classes=[0, 1]))
    >>> settings, day = Settings(epsilon=1.0, count_window="1d"), [20_000]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     given = {"keys": f"file:{folder}/key", "clock": lambda: day[0] * 86_400}
    ...     with Pyramid.create(f"{folder}/store", schema, settings, **given) as store:
    ...         print(store.observe({"carrier": ["AA", "UA"], "late": [0, 1]}).accepted)
    ...         day[0] += 1
    ...         print(store.advance().sealed)
    ...         print(store.featurize([{"carrier": "AA"}]).column_names)
    2
    [1]
    ['P(late=1|carrier)']
    """

    def __init__(self, home: Home, clock: Clock) -> None:
        self._home = home
        about = home.catalogue.about
        latest, follows = int(about("clock", "0")), about(FOLLOWS, "system")
        alarm = Alarm.from_json(about(ALARM, ""))
        self._time = StoreClock(clock, latest=latest, follows=follows, alarm=alarm)
        schema = Schema.from_toml(home.catalogue.about("schema"))
        settings = Settings.from_dict(json.loads(home.catalogue.about("settings")))
        self._state = StoreState(
            home.path, home.catalogue, home.keys, schema, settings, self._time.present
        )
        recover(self._state)
        self._shards = Shards.of(self._state)
        cores = os.cpu_count() or 1
        self._selecting = Selecting(self._state, threads=cores)
        self._opener = WindowOpener(self._state, Reading(self._state), self._selecting)
        self._schedule = Schedule(self._state, self._opener)
        self._serving = Serving(self._state, threads=cores)
        self._sharing = Sharing(self._state, self._serving)
        self._training = Training(self._state, self._serving)
        self._measures = Measures(self._training, self._serving)
        self._arrivals = Arrivals(
            self._state, self._opener, self._time, cores, self._training.learn
        )
        self._state.observers = (
            ForgetPeople(self._state),
            *([] if self._shards is None else [self._shards]),  # the sum that is served, first
            self._arrivals,  # the vault seals rows before anything is lost
            self._serving,  # snapshots of these tables; training sets expire
            self._training,  # models learn from the new snapshot
        )
        self._state.with_erasures = (self._sharing,)
        self._threads = Threads()
        self._looked = 0
        self._still = True
        """Whether nothing is sealed, erased or trained behind the scenes: nobody said so yet."""
        self._closed = self._released = False
        self._closing = threading.Lock()
        self._audit_log = AuditLog(home.path / AUDIT_LOG)
        self._outbox = AuditOutbox(home.catalogue, self._audit_log)
        self._timekeeping = Timekeeping(self._state, self._time, self._outbox)
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
        ``custodian``. With a URL for ``tables``, complete tables are published there: see
        `publisher`. A ``shard`` is the first of a new stream, which others `join`.
        """
        refuse_unsharded(settings, shard)
        StoreState.refuse_unusable(schema, settings)
        if tables is not None:
            refuse_sharing(shard)
            tables_at(tables).names()  # or there is no store either
        secret = None if shard is None else founded(shard, Path(path))
        sealed = vault, custodian
        made = cls._created(path, schema, settings, keys, clock, sealed, (shard, secret, None))
        if tables is not None:
            made.publisher.start(tables)
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
                take_over(pyramid._state, now)
            log, present = pyramid._audit_log, pyramid._time.present()
            _begin_log(pyramid._state, log, begun, present)
            pyramid._outbox.make_up()
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
            due = self.admin.due()
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
                self._state.close()
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
        return self._state.schema

    @property
    def settings(self) -> Settings:
        """The knobs, fixed when the store was made."""
        return self._state.settings

    @property
    def keyed_by(self) -> str:
        """By what it knows values of open features: their "text"; in older stores their "type"."""
        return self._state.keyed_by

    # --- by subject ------------------------------------------------------------------

    @property
    def models(self) -> Models:
        """The registered models by name, and what can be done with them besides `predict`."""
        return Models(
            self._access, self._training, self._measures, self._serving, self._refuse_past_rows
        )

    @property
    def groups(self) -> Groups:
        """Features that are counted together: which there are, and how they come and go."""
        return Groups(self._access, self._state, self._selecting, self._settle_elsewhere)

    @property
    def publisher(self) -> TablePublisher:
        """Publishes the complete tables for readers elsewhere."""
        shard = None if self._shards is None else self._shards.shard
        return TablePublisher(self._access, self._sharing, shard)

    @property
    def shards(self) -> StreamShards:
        """The shards of the stream that this store belongs to."""
        return StreamShards(self._access, self._shards, self._meet)

    @property
    def vault(self) -> Vault | None:
        """The vault where the raw history is sealed; None if the store has none.

        The vault has its own methods. What needs the store as well, attaching one and erasing a
        person from its files, is in `admin`: so there is no second class that repeats the vault's
        methods, and a store without a vault has none of them.
        """
        self._usable()
        return self._vault

    @property
    def admin(self) -> Admin:
        """What an operator does: backups, repair, intrusions, clocks, keys, the vault."""
        return Admin(
            self._access,
            home=self._home,
            lifecycle=self._state,
            opener=self._opener,
            schedule=self._schedule,
            timekeeping=self._timekeeping,
            audit_log=self._audit_log,
            vault=lambda: self._vault,
            open_vault=self._open_vault,
            wake=self._wake,
            advance=self.advance,
        )

    @property
    def _access(self) -> Access:
        present, check_open = self._time.present, self._usable
        return Access(self._threads, self._outbox, present, check_open, self._now, self._keep)

    def _wake(self) -> None:
        """Let background work seal and erase what is due from now on."""
        self._still = False

    def _settle_elsewhere(self, now: int) -> None:
        """Have the vault and the other shards follow a withdrawal; in the keeper."""
        self._settle_vault()
        self._meet(now)

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

        rolling = self._state, history, take, self._schedule, self._advance, present

        def receipts() -> Iterator[Receipt]:
            with self._training.sleeping():
                yield from rolled(*rolling)
            self._threads.move(lambda: self._training.catch_up(self._now()))

        return receipts()

    def bulk(self, key: str | None = None) -> Bulk:
        """Take windows of the past whose rows are counted elsewhere, as `pyramidion.spark` does.

        Each is charged, born with its noise and sealed at once; none of its rows is ever hot. Under
        the same ``key`` each window is counted once.
        """
        self._usable()
        self._refuse_alarm()
        return Bulk(self._state, self._threads.move, self._now, key)

    # --- time passes ---------------------------------------------------------------

    def advance(self) -> Advance:
        """Do what is due: seal windows, erase hot rows and old windows, train; says what it did."""
        self._usable()
        self._still = False
        self._threads.expect_nothing()
        return self._advance(self._now())

    def _refuse_alarm(self) -> None:
        """Raise for what would roll windows while clocks disagree."""
        self._now()
        if self._time.alarm is not None:
            raise StateError(
                "a history is not taken while clocks disagree, since windows are not sealed then; "
                "correct or confirm the clock, and go on"
            )

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
        self._outbox.make_up()
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

    # --- the vault -----------------------------------------------------------------

    def _open_vault(self) -> Vault:
        path, log = self._home.path, self._outbox
        self._vault = self._arrivals.vault = opened_vault(self._state, path, log, self._now)
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
            self._refuse_past(self._state.past(now), "window")
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
            self._refuse_past(self._state.hot.leaving(self._now()), "hot step")

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

    # --- somebody asks to be forgotten -------------------------------------------------

    def erase_person(self, person: str | int, *, why: str = "asked for") -> PersonErasure:
        """Erase the hot rows of one person now, as the column of the schema's unit names them.

        Models are trained again without them. What is counted stays, hidden by the noise, until
        its window retires. ``why`` stays in the deletion record; it must not say who.
        """
        self._usable()
        now = self._now()

        def done(entry: PendingEntry) -> PersonErasure:
            erasure = erase_person(self._state, person, why, now, entry)
            self._settle_vault()
            self._training.catch_up(now)
            return erasure

        erasure = self._access.record("person.erased", now, {"why": why}, done)
        self._keep(now)
        return erasure

    # --- what is there ---------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        """What each window has spent."""
        self._usable()
        return self._state.ledger

    @property
    def audit_log(self) -> AuditLog:
        """What was done with the store, in signed entries that nobody can change afterwards."""
        self._usable()
        return self._audit_log

    def status(self) -> Status:
        """What the store holds now."""
        self._usable()
        now = self._now()
        vault = None if self._vault is None else self._vault.status()
        shard = None if self._shards is None else self._shards.status()
        shared, due = self._sharing.status(), self._due(now)
        clock, path = self._time.status(), self._home.path
        return status_of(path, self._state, now, due, clock, vault, shard, shared)

    def exposure(self, start: object, stop: object, *, component: Component = "store") -> Exposure:
        """What an intruder from start to stop could read of the store, an edge or the tables.

        Both are seconds since 1970, a date or ISO text. Where the record is not exact, more is
        told than was exposed, never less, by the store's own clock.
        """
        self._usable()
        now = self._time.present()
        first, last = interval(start, stop, now)
        entries = self._audit_log.entries()
        return exposure_of(self._state, first, last, component, now, log=entries)

    # --- copies ----------------------------------------------------------------------

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


def _begin_log(store: StoreState, log: AuditLog, kind: str, now: int) -> None:
    """Have the log and the catalogue know each other; an entry tells where the log is a new one.

    Its ``former`` is the fingerprint of the log that the store had, if it had one: that is gone.
    """
    former, first = store.catalogue.about("audit_log", ""), log.first
    if former != first:
        log.append(kind, now, store=store.catalogue.about("store"), former=former or None)
        store.catalogue.note(audit_log=first)
