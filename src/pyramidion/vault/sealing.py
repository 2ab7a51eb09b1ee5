"""From acknowledged batches to sealed files in the backlog, in a thread of its own.

    take ── a file is open: encrypted, its key in memory ── seal ── durable ── catalogue

The rows that wait for a file to be sealed are hot, so nothing is lost with the open files:
`vaulted` in the catalogue is the last batch that is in a sealed one, and the batches after
it are read from the hot window again. What was in an open file that is let go of (after a
crash, a failure, or because hot rows were rewritten) is nowhere else.

A file is sealed when its span is over, at `vault_rows`, before a row of it leaves the hot
window, and when somebody asks. The open files, one for each shape that batches have, are
sealed together, in one transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.counts.windows import Slots
from pyramidion.errors import StateError
from pyramidion.rows.containers import columns_of
from pyramidion.rows.validation import Judge, times_of
from pyramidion.storage.disk import sync
from pyramidion.storage.fault_points import reach
from pyramidion.storage.hot import Parts
from pyramidion.vault.custody import PublicKey
from pyramidion.vault.drafts import GROUP, Draft, SealedFile
from pyramidion.vault.files import know, told_of
from pyramidion.vault.parquet import BLANK, marked
from pyramidion.vault.surroundings import Arrived, Surroundings
from pyramidion.workers import emptied

QUEUED = 4 * GROUP  # rows that wait for the thread; who observes more waits for it


class _RewrittenError(Exception):
    """Hot rows were rewritten while they were being sealed."""


class Sealer:
    """The open files of one vault."""

    def __init__(self, store: Surroundings, custodian: PublicKey, folder: Path) -> None:
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
        query = "SELECT min(since) FROM batches WHERE number > ?"
        found = self._catalogue.one(query, self.vaulted)
        return None if found is None else int(found)

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
        query = "SELECT number, since, arrived, rows FROM batches WHERE number > ?"
        came = {row["number"]: row for row in self._catalogue.all(query, self._taken)}
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
