"""From acknowledged batches to sealed files in the backlog, in a thread of its own.

    take ── a file is open: encrypted, its key in memory ── seal ── durable ── catalogue

The rows that wait for a file to be sealed are hot, so nothing is lost with the open files:
`vaulted` in the catalogue is the last batch that is in a sealed one, and the batches after
it are read from the hot window again. The rows of an open file that is dropped (after a
crash, a failure, or because hot rows were rewritten) are nowhere else.

A file is sealed when its span is over, at `vault_rows`, before a row of it leaves the hot
window, and when somebody asks. The open files, one for each shape that batches have, are
sealed together, in one transaction.

A file is encrypted from its first byte. Rows go into it a row group at a time, so that few wait
in memory. Its key is in its `Draft` alone, until it is sealed to the custodian and dropped.
(Python cannot wipe memory: copies of it may stay there until the process ends or they are
overwritten. While a file is open, its rows are hot, so the key opens nothing that this machine
could not read anyway.) A crash leaves a file that nobody can open, now or later; the next open
removes it.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyramidion.config.settings import Settings
from pyramidion.counts.windows import Slots
from pyramidion.errors import SchemaError, StateError
from pyramidion.rows.containers import columns_of
from pyramidion.rows.validation import Judge, times_of
from pyramidion.storage.batches import Batches
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.ciphers import new_key
from pyramidion.storage.data_keys import DataKey, DataKeys
from pyramidion.storage.deletions import Deleted
from pyramidion.storage.disk import explained, sync, write_durably
from pyramidion.storage.fault_points import reach
from pyramidion.storage.hot import HotWindow, Parts
from pyramidion.storage.outbox import AuditOutbox
from pyramidion.vault.envelope import Envelope, Header
from pyramidion.vault.files import (
    LOCK,
    NAME,
    SealedFile,
    envelope_of,
    know,
    name_of,
    parquet_of,
    told_of,
)
from pyramidion.vault.key_pairs import PublicKey
from pyramidion.vault.parquet import (
    ARRIVED,
    BATCH,
    BLANK,
    GROUP,
    OWN,
    digest_of,
    encrypting,
    marked,
)
from pyramidion.workers import emptied

Arrived = tuple[int, int]
"""When the first and the last row of a batch arrived; the same, but for rows of a history."""


class Erase(Protocol):
    """How keys are destroyed: the lifecycle's way."""

    def __call__(
        self,
        gone: Deleted,
        why: str,
        now: int,
        *,
        keys: Sequence[int],
        before: Callable[[], None],
    ) -> None:
        """Destroy keys of the store, with a deletion record, and change the catalogue."""


@dataclass(frozen=True)
class StoreParts:
    """The parts of a store that its vault works with."""

    catalogue: Catalogue
    keys: DataKeys
    hot: HotWindow
    settings: Settings
    arrivals: AbstractContextManager[object]
    erase: Erase
    now: Callable[[], int]
    """The store's time, by which things are due."""
    present: Callable[[], int]
    """The time by the clock, which dates records."""
    folder: Path
    log: AuditOutbox
    time: str | None
    """The column of the event time."""


# --- one file ------------------------------------------------------------------------------------


PIECES = 256  # tables that wait at most; a table of one row takes 10 KB
BUFFER = 1 << 20  # bytes


class Draft:
    """One file, from its first row to its envelope."""

    def __init__(self, folder: Path, store: str, schema: pa.Schema, arrived: int) -> None:
        self.name = name_of(arrived)
        self.rows = 0
        self._folder = folder
        self._store = store
        self._schema = schema
        self._key = new_key()
        self._sink: _Sink | None = None
        self._writer: Any = None
        self._waiting: list[pa.Table] = []
        self._arrivals: list[int] = []
        self._batches: list[int] = []

    def add(self, table: pa.Table, batches: Sequence[int], arrivals: Sequence[int]) -> None:
        """Take marked rows of batches that arrived then."""
        self._waiting.append(table)
        self.rows += table.num_rows
        self._batches = _ends([*self._batches, *batches])
        self._arrivals = _ends([*self._arrivals, *arrivals])
        if sum(piece.num_rows for piece in self._waiting) >= GROUP:
            self._flush()
        elif len(self._waiting) >= PIECES:
            self._waiting = [pa.concat_tables(self._waiting).combine_chunks()]

    def _flush(self) -> _Sink:
        """Write what waits as a row group; the first one begins the file."""
        if self._sink is None:
            self._sink = _Sink(self._folder / parquet_of(self.name))
            like = pa.concat_tables(self._waiting)
            self._writer = encrypting(
                self._sink.stream, like, self._key, store=self._store, name=self.name
            )
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=GROUP)
            self._waiting = []
        return self._sink

    def seal(self, custodian: PublicKey, *, lock: bool) -> SealedFile:
        """Write what is left and the envelope, both durable; nobody here has the key any more."""
        sink = self._flush()
        self._writer.close()
        sink.settle()
        header = Header(
            name=self.name,
            store=self._store,
            custodian=custodian.fingerprint,
            first=self._arrivals[0],
            last=self._arrivals[-1],
            first_batch=self._batches[0],
            last_batch=self._batches[-1],
            rows=self.rows,
            size=sink.size,
            columns=tuple(name for name in self._schema.names if name not in OWN),
            digest=sink.digest,
        )
        key = DataKey.new(LOCK) if lock else None
        envelope = Envelope.seal(
            header, self._key, custodian, lock=None if key is None else key.key
        )
        self._key = b""
        data = envelope.to_bytes()
        write_durably(self._folder / envelope_of(self.name), [data])
        return SealedFile(header, digest_of(data), key)

    def drop(self, *, files: bool = True) -> None:
        """Let go of it: its key is gone, and so are its ``files``."""
        self._key, self._waiting = b"", []
        if self._writer is not None:
            with suppress(Exception):  # what it cannot write any more is not wanted either
                self._writer.close()
        if self._sink is not None:
            self._sink.close()
        with explained(self._folder):
            for name in (parquet_of(self.name), envelope_of(self.name)) if files else ():
                (self._folder / name).unlink(missing_ok=True)


def sealed_whole(
    folder: Path, store: str, table: pa.Table, custodian: PublicKey, *, lock: bool
) -> SealedFile:
    """Rows that were read from a vault, with the columns that it adds, in a file of their own."""
    missing = [name for name in OWN if name not in table.column_names]
    if missing:
        raise SchemaError(f"rows of the vault lack {missing[0]}; give them as they were read")
    batches, arrivals = (pc.min_max(table[name]).as_py() for name in (BATCH, ARRIVED))
    draft = Draft(folder, store, table.schema, arrivals["min"])
    try:
        draft.add(table, [*batches.values()], [*arrivals.values()])
        sealed = draft.seal(custodian, lock=lock)
        sync(folder)
    except BaseException:
        draft.drop()
        raise
    return sealed


def store_sealed(folder: Path, data: bytes, envelope: Envelope, lock: DataKey | None) -> SealedFile:
    """Make a file that was sealed elsewhere durable in a folder."""
    name, sealed = envelope.header.name, envelope.to_bytes()
    if not NAME.fullmatch(name):
        raise SchemaError("no vault names a file like that; check which broker answers")
    write_durably(folder / parquet_of(name), [data])
    write_durably(folder / envelope_of(name), [sealed])
    return SealedFile(envelope.header, digest_of(sealed), lock)


class _Sink:
    """A new file that Arrow writes by itself: Python is not asked for each of a thousand pages."""

    def __init__(self, path: Path) -> None:
        self._path, self.size, self.digest = path, 0, ""
        with explained(path):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            self.stream = pa.BufferedOutputStream(pa.OSFile(str(path), "wb"), BUFFER)

    def settle(self) -> None:
        """Make the bytes durable, and digest them; their name is once the folder is synced."""
        with explained(self._path):
            self.stream.close()
            os.fsync(self._descriptor)
            self.size = os.fstat(self._descriptor).st_size
            with mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ) as data:
                self.digest = digest_of(data)
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        with suppress(OSError):
            self.stream.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _ends(numbers: list[int]) -> list[int]:
    return [min(numbers), max(numbers)]


# --- the open files ------------------------------------------------------------------------------


QUEUED = 4 * GROUP  # rows that wait for the thread; who observes more waits for it


class _RewrittenError(Exception):
    """Hot rows were rewritten while they were being sealed."""


class Sealer:
    """The open files of one vault."""

    def __init__(self, store: StoreParts, custodian: PublicKey, folder: Path) -> None:
        self._catalogue, self._keys, self._hot = store.catalogue, store.keys, store.hot
        self._settings, self._arrivals = store.settings, store.arrivals
        self._log, self._present, self._time = store.log, store.present, store.time
        self._custodian, self._folder = custodian, folder
        self._store = store.catalogue.about("store")
        self._slots = Slots(store.settings.vault_every_us, store.settings.origin_us)
        self._drafts: dict[pa.Schema, Draft] = {}
        self._slot = 0
        self.vaulted = self._taken = int(store.catalogue.about("vaulted", "0"))
        self.since = self._waiting_since()
        """When the oldest batch arrived that is in no sealed file."""
        self.sealed: list[Callable[[Sequence[SealedFile]], None]] = []
        """Called with files once they are in the catalogue."""
        self._failed = False
        self._rewrites = self._seen = 0
        self._queued, self._room = 0, threading.Condition()
        self._thread = ThreadPoolExecutor(1, "pyramidion sealer")
        store.hot.rewrote.append(self._rewritten)

    def _rewritten(self) -> None:
        """Hot rows are other ones now; by who holds the lock of arrivals, so nobody waits here."""
        self._rewrites += 1
        with suppress(RuntimeError):  # closed: nothing is open
            self._thread.submit(self._forget_rewritten)

    def _waiting_since(self) -> int | None:
        return Batches(self._catalogue).first_since(self.vaulted)

    # --- by those who observe ---------------------------------------------------------------

    def ready(self) -> None:
        """Wait for room; raises, again, what keeps files from being sealed."""
        if self._failed:
            self.seal()
        with self._room:
            self._room.wait_for(lambda: self._queued < QUEUED)

    def take(self, number: int, arrived: Arrived, table: pa.Table, parts: Parts) -> None:
        """Have the next batch, which is durable and hot, written beside what goes on.

        By who holds the lock of arrivals: the rows are those that are hot now.
        """
        if self.since is None:
            self.since = arrived[0]
        with self._room:
            self._queued += table.num_rows
        self._thread.submit(self._take, self._rewrites, number, arrived, table, parts)

    def _take(
        self, rewrites: int, number: int, arrived: Arrived, table: pa.Table, parts: Parts
    ) -> None:
        try:
            if not self._failed:
                emptied(lambda: self._add_next(rewrites, number, arrived, table, parts))
        except Exception:  # tried again, and raised, before more is observed
            self._failed = True
            self._drop()
        finally:
            with self._room:
                self._queued -= table.num_rows
                self._room.notify_all()

    # --- by everybody -----------------------------------------------------------------------

    def due(self, now: int) -> bool:
        """Whether a span is over of which rows wait."""
        return self.since is not None and self._slots.at(self.since) < self._slots.at(now)

    def seal(self, now: int | None = None) -> None:
        """Seal every acknowledged batch, or those of spans that are over now.

        When this returns they are durable in the backlog. Who holds the lock of arrivals, or is
        in a transaction, must not call this.
        """
        self._done(lambda: self._seal_all(now))

    def settle(self) -> None:
        """Wait until no row is held here that was rewritten or erased in the hot window before.

        Who holds the lock of arrivals, or is in a transaction, must not call this.
        """
        self._done(self._forget_rewritten)

    def _done(self, verb: Callable[[], None]) -> None:
        try:
            doing: Future[None] = self._thread.submit(emptied, verb)
        except RuntimeError:
            raise StateError("this store is closed; open it again") from None
        doing.result()

    def close(self) -> None:
        """Seal what would take long to read again; the rest is hot, and read at the next open."""
        with suppress(Exception):  # all of it is hot
            self._done(self._close)
        self._thread.shutdown()

    # --- in the thread ------------------------------------------------------------------------

    def _close(self) -> None:
        if sum(draft.rows for draft in self._drafts.values()) >= GROUP:
            self._seal_all()
        self._drop()

    def _seal_all(self, now: int | None = None) -> None:
        while True:
            try:
                self._catch_up()
                if now is None or self._slot < self._slots.at(now):
                    self._seal()
                with self._arrivals:  # what left the hot window unsealed is not waited for
                    self.since = self._waiting_since()
                self._failed = False
                return
            except _RewrittenError:
                self._drop()
            except BaseException:
                again = self._seen != self._rewrites  # a file may have gone while it was read
                self._failed = not again
                self._drop()
                if not again:
                    raise

    def _add_next(
        self, rewrites: int, number: int, arrived: Arrived, table: pa.Table, parts: Parts
    ) -> None:
        try:
            self._forget_rewritten()
            if rewrites != self._seen or number - 1 > self._taken:  # others are hot now
                self._catch_up()
            elif number > self._taken:
                self._add(number, arrived, table, parts)
        except _RewrittenError:
            self._drop()

    def _forget_rewritten(self) -> None:
        if self._seen != self._rewrites:
            self._drop()

    def _catch_up(self) -> None:
        """Read acknowledged batches that are not in open files from the hot window."""
        self._forget_rewritten()
        came = {row["number"]: row for row in Batches(self._catalogue).after(self._taken)}
        if came:
            for number, table, parts in self._hot.batches(lambda n, _: n in came):
                table, parts = _whole(table, parts, came[number]["rows"])
                arrived = came[number]["since"], came[number]["arrived"]
                self._add(number, arrived, table, parts)

    def _add(self, number: int, arrived: Arrived, table: pa.Table, parts: Parts) -> None:
        slot, rows = self._slots.at(arrived[1]), sum(draft.rows for draft in self._drafts.values())
        most = self._settings.vault_rows
        if rows and (slot != self._slot or rows + table.num_rows > most):
            self._seal()
            rows = 0
        table = marked(table, number, self._arrivals_of(table, arrived), parts)
        draft = self._drafts.get(table.schema)
        if draft is None:
            draft = Draft(self._folder, self._store, table.schema, arrived[0])
            self._drafts[table.schema] = draft
        draft.add(table, [number], arrived)
        self._slot, self._taken = slot, number
        if rows + table.num_rows >= most:
            self._seal()

    def _arrivals_of(self, table: pa.Table, arrived: Arrived) -> NDArray[np.int64] | int:
        """When each row arrived: one of a history at the time that it says."""
        first, last = arrived
        if first == last or self._time is None:
            return last
        (column,) = columns_of(table, [self._time])[0].values()
        times = times_of(self._time, column, Judge(table.num_rows))
        return np.clip(times, first, last)

    def _seal(self) -> None:
        if not self._drafts:
            return
        locked = self._settings.vault_retention_us is not None
        files = [draft.seal(self._custodian, lock=locked) for draft in self._drafts.values()]
        sync(self._folder)
        reach("vault.written")
        with self._arrivals:
            with self._catalogue.transaction():
                if self._seen != self._rewrites:
                    raise _RewrittenError
                for file in files:
                    know(self._catalogue, self._keys, file)
                    self._log.note("vault.sealed", self._present(), **told_of(file.header))
                self._catalogue.note(vaulted=self._taken)
            reach("vault.committed")
            self._drafts.clear()
            self.vaulted = self._taken
            self.since = self._waiting_since()
        for call in self.sealed:
            call(files)

    def _drop(self) -> None:
        """Let go of the open files; their rows are read from the hot window again."""
        drafts, self._drafts = self._drafts, {}
        self._taken, self._seen = self.vaulted, self._rewrites
        known = self._catalogue.health.failed  # by the catalogue on disk, perhaps
        for draft in drafts.values():
            draft.drop(files=not known)


def _whole(table: pa.Table, parts: Parts, came: int) -> tuple[pa.Table, Parts]:
    """A batch with a blank row for each that was erased: its file tells how many came, no more."""
    gone = came - table.num_rows
    if gone <= 0:
        return table, parts
    blank = [pa.nulls(gone, field.type) for field in table.schema]
    rows = pa.concat_tables([table, pa.Table.from_arrays(blank, schema=table.schema)])
    return rows, [*parts, (BLANK, gone)]
