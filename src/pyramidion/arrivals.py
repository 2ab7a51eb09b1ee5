"""From a batch to an acknowledgement: durable, hot, counted and handed on, each row once.

    judge the rows ── write the record ──┬── sync ──────────────┬── commit ── hand to the vault
                                         └── count in memory ───┘

A crash before the commit leaves nothing: the record lies beyond the length that the
catalogue knows, and the counts were in memory. A failure takes the counts back. After the
commit a batch is acknowledged, whatever the vault says: what it did not take is handed on
again before the next batch is accepted, before the rows leave and at the next open; the
vault tells a batch by its number.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion import records
from pyramidion.batches import Batch, columns_of, take
from pyramidion.checks import encodable
from pyramidion.errors import ObservationError, StateError
from pyramidion.killpoints import reach
from pyramidion.lifecycle import Lifecycle
from pyramidion.observations import Errors, Observations
from pyramidion.people import Counts
from pyramidion.populating import Part
from pyramidion.storage.hot import Appended, Parts, Receipt, Stored

VaultHook = Callable[[int, pa.Table], None]
"""Takes a batch by its number, once durable; the same number again after a crash: do nothing."""

Resume = tuple[bytes, int, int]
"""An import, the rows of it that came before a batch, and those that came with it."""

MOST_KEY = 1_000  # letters of an idempotency key


class Arrivals:
    """Takes batches in, one at a time."""

    def __init__(self, lifecycle: Lifecycle, vault: VaultHook | None, threads: int) -> None:
        self._lifecycle = lifecycle
        self._catalogue = lifecycle.catalogue
        self._vault = vault
        self._threads = threads
        self._vaulted = int(self._catalogue.about("vaulted", "0"))
        lifecycle.leaving.append(lambda _: self.hand_on())
        self.taken: list[Callable[[int, Observations, Batch], None]] = []
        """Called with the rows of each batch, as they came, once acknowledged."""
        with suppress(Exception):  # tried again before the next batch is accepted
            self.hand_on()

    def take(
        self,
        data: Any,
        now: int,
        once: str | None = None,
        errors: Errors = "refuse",
        resume: Resume | None = None,
    ) -> Receipt:
        """Accept a batch; all that `Receipt` says is durable when this returns."""
        _refuse_unusable(once)
        lifecycle = self._lifecycle
        latest = now + lifecycle.settings.max_skew_us
        self.hand_on()
        # Read once: a stream that is asked again is empty. Columns only ever become fewer.
        data = Batch(*columns_of(data, lifecycle.schema.columns))
        while True:
            with lifecycle.arrivals:
                receipt = lifecycle.hot.seen(once) if once is not None else None
                door, now = lifecycle.door, lifecycle.people.arrival(now)
            if receipt is not None:
                return receipt
            found, batch = door.arrivals(data, errors, latest=latest)
            if not len(found):
                return Receipt(0, found.refused, 0)
            table = records.table_of(batch)
            slots = self._missing(found, now)
            for slot in slots:
                lifecycle.open(slot, now)
            with lifecycle.arrivals:
                if door is not lifecycle.door or (once and lifecycle.hot.seen(once)):
                    continue  # the schema changed, or the same batch came by another thread
                now = lifecycle.people.arrival(now)
                parts = lifecycle.place(found, now)
                if parts and isinstance(parts[0], Part):
                    table = _in_order(table, parts)
                    receipt = self._take(found, table, parts, now, once, resume)
                    number = lifecycle.last_batch()
                    with suppress(Exception):  # acknowledged all the same; tried again before more
                        self.hand_on(table)
                    break
        for call in self.taken:
            call(number, found, batch)
        return receipt

    def _missing(self, found: Observations, now: int) -> list[int]:
        with self._lifecycle.arrivals:
            places = self._lifecycle.place(found, now)
        return [slot for slot in places if isinstance(slot, int)]

    def _take(
        self,
        found: Observations,
        table: pa.Table,
        parts: list[Part],
        now: int,
        once: str | None,
        resume: Resume | None,
    ) -> Receipt:
        self._refuse_overfull(parts, len(found))
        hot, people = self._lifecycle.hot, self._lifecycle.people
        for part in parts:
            people.refuse_outside(part.window.start, part.window.stop, now)
        number = self._lifecycle.last_batch() + 1
        appended = hot.append(number, table, now)
        counted: list[tuple[Part, Observations]] = []
        counts: Counts | None = None
        try:
            counts = people.count(found, now)
            found = found.counting(counts)
            receipt = _receipt(found, parts, counts)
            lie = counts if counts is None or len(parts) == 1 else counts[_order(parts)]
            for part in parts:
                rows = found if part.rows is None else found.take(part.rows)
                rows = rows.under(part.window.encoder)
                part.window.arena.add(rows, self._threads)
                counted.append((part, rows))
            appended.written.result()
            reach("commit.before")
            stored = self._commit(appended, number, receipt, counted, now, once, resume, lie)
        except BaseException:
            appended.written.exception()
            people.take_back(found, counts)
            for part, rows in counted:
                part.window.arena.take_back(rows, self._threads)
            raise
        reach("commit.after")
        hot.acknowledged(appended, stored)
        for part, rows in counted:
            part.window.fresh += len(rows)
            part.window.start = now if part.window.start is None else part.window.start
        return receipt

    def _refuse_overfull(self, parts: list[Part], rows: int) -> None:
        for part in parts:
            more = rows if part.rows is None else len(part.rows)
            room = part.window.arena.max_rows - part.window.arena.rows
            if more > room:
                raise StateError(
                    f"window {part.window.number} has room for {room} rows and {more} came for it; "
                    f"make a store with shorter windows or a larger `max_rows_per_window`"
                )

    def _commit(
        self,
        appended: Appended,
        number: int,
        receipt: Receipt,
        counted: list[tuple[Part, Observations]],
        now: int,
        once: str | None,
        resume: Resume | None,
        counts: Counts | None,
    ) -> Stored:
        catalogue = self._catalogue
        with catalogue.transaction():
            self._lifecycle.keys.must_be_held()  # or nobody could ever read what is acknowledged
            parts = [(part.window.number, len(rows)) for part, rows in counted]
            stored = self._lifecycle.hot.acknowledge(
                appended, number, receipt, parts, once, now, counts
            )
            for window, rows in parts:
                catalogue.run(
                    "UPDATE windows SET rows = rows + ?, start = coalesce(start, ?) "
                    "WHERE number = ?",
                    rows,
                    now,
                    window,
                )
            if resume is not None:
                self._go_on(*resume)
            if self._vault is None:
                self._vaulted = number
            catalogue.note(next_batch=number + 1, clock=now, vaulted=self._vaulted)
        return stored

    def _go_on(self, key: bytes, before: int, after: int) -> None:
        found = self._catalogue.one("SELECT rows FROM imports WHERE input = ?", key) or 0
        if found > before:
            raise StateError(
                "these files are being imported already, so some rows would be counted twice; "
                "wait for the other import to end"
            )
        self._catalogue.run("INSERT OR REPLACE INTO imports VALUES (?, ?)", key, after)

    def hand_on(self, newest: pa.Table | None = None) -> None:
        """Hand to the vault what it has not got: the newest batch, and any left from a crash."""
        with self._lifecycle.arrivals:
            last = self._lifecycle.last_batch()
            if self._vault is None or self._vaulted >= last:
                return
            if newest is not None and self._vaulted == last - 1:
                self._vault(last, newest)
            else:
                for number, table, _ in self._lifecycle.hot.batches(self._waiting):
                    self._vault(number, table)
                    self._vaulted = number
            self._vaulted = last

    def _waiting(self, number: int, _: Parts) -> bool:
        return number > self._vaulted

    def close(self) -> None:
        """Note how far the vault has got."""
        with self._catalogue.transaction():
            self._catalogue.note(vaulted=self._vaulted)


def _in_order(table: pa.Table, parts: list[Part]) -> pa.Table:
    """Rows lie in the order of their windows, in the hot window and in the vault."""
    if len(parts) == 1:
        return table
    order = _order(parts)
    columns = [take(column, order) for column in table.columns]
    return pa.table(columns, names=table.column_names)


def _order(parts: list[Part]) -> NDArray[np.int64]:
    return np.concatenate([part.rows for part in parts if part.rows is not None])


def _receipt(found: Observations, parts: list[Part], counts: Counts | None) -> Receipt:
    blanked = 0 if counts is None else int(counts.size - counts.sum())
    return Receipt(len(found), found.refused, sum(part.late for part in parts), blanked)


def _refuse_unusable(once: str | None) -> None:
    if once is None:
        return
    if not isinstance(once, str) or not once or len(once) > MOST_KEY:
        raise ObservationError(
            f"an idempotency key must be text of 1 to {MOST_KEY} letters; send one such as a UUID"
        )
    if not encodable(once):
        raise ObservationError("an idempotency key must be valid Unicode; send one such as a UUID")
