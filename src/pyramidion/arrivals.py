"""From a batch to an acknowledgement: durable, hot, counted and handed on, each row once.

    judge the rows ── write the record ──┬── sync ──────────────┬── commit ── the vault takes it
                                         └── count in memory ───┘

A crash before the commit leaves nothing: the record lies beyond the length that the
catalogue knows, and the counts were in memory. A failure takes the counts back. After the
commit a batch is acknowledged, whatever becomes of it in the vault: the vault seals what it
took behind the scenes, knows in the catalogue how far it has come, and reads what it has not
sealed from the hot window again, at the latest before these rows leave.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion import records
from pyramidion.batches import Batch, columns_of, take
from pyramidion.checks import encodable
from pyramidion.errors import ObservationError, StateError
from pyramidion.killpoints import reach
from pyramidion.lifecycle import Leaving, Lifecycle
from pyramidion.observations import Errors, Observations
from pyramidion.people import Counts
from pyramidion.populating import Part
from pyramidion.storage.hot import Appended, Parts, Receipt, Stored


class Taker(Protocol):
    """A vault, as those see it who observe."""

    def ready(self) -> None:
        """Wait until a batch can be taken; what keeps it from sealing is raised here."""

    def take(self, number: int, arrived: int, table: pa.Table, parts: Parts) -> None:
        """Take a batch by its number, once it is hot; it is sealed later."""

    def leave(self, batches: list[int]) -> None:
        """Seal these, where that is not done yet: they leave the hot window."""

    def left(self) -> None:
        """They have left, also those that could not be sealed."""

    def close(self) -> None:
        """Finish what is being sealed."""


Resume = tuple[bytes, int, int]
"""An import, the rows of it that came before a batch, and those that came with it."""

MOST_KEY = 1_000  # letters of an idempotency key


class Arrivals:
    """Takes batches in, one at a time."""

    def __init__(self, lifecycle: Lifecycle, threads: int) -> None:
        self._lifecycle = lifecycle
        self._catalogue = lifecycle.catalogue
        self.vault: Taker | None = None
        self._threads = threads
        lifecycle.leaving.append(self._leave)
        lifecycle.left.append(self._left)
        self.taken: list[Callable[[int, Observations, Batch], None]] = []
        """Called with the rows of each batch, as they came, once acknowledged."""

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
        if self.vault is not None:
            self.vault.ready()
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
                    if self.vault is not None:
                        self.vault.take(number, now, table, _windows(parts, len(found)))
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
            catalogue.note(next_batch=number + 1, clock=now)
            if self.vault is None:  # one that is attached later is not owed this
                catalogue.note(vaulted=number)
        return stored

    def _go_on(self, key: bytes, before: int, after: int) -> None:
        found = self._catalogue.one("SELECT rows FROM imports WHERE input = ?", key) or 0
        if found > before:
            raise StateError(
                "these files are being imported already, so some rows would be counted twice; "
                "wait for the other import to end"
            )
        self._catalogue.run("INSERT OR REPLACE INTO imports VALUES (?, ?)", key, after)

    def _leave(self, leaving: Leaving) -> None:
        if self.vault is not None:
            self.vault.leave([batch.number for step in leaving.steps for batch in step.batches])

    def _left(self) -> None:
        if self.vault is not None:
            self.vault.left()

    def close(self) -> None:
        """Let the vault finish."""
        if self.vault is not None:
            self.vault.close()


def _in_order(table: pa.Table, parts: list[Part]) -> pa.Table:
    """Rows lie in the order of their windows, in the hot window and in the vault."""
    if len(parts) == 1:
        return table
    order = _order(parts)
    columns = [take(column, order) for column in table.columns]
    return pa.table(columns, names=table.column_names)


def _order(parts: list[Part]) -> NDArray[np.int64]:
    return np.concatenate([part.rows for part in parts if part.rows is not None])


def _windows(parts: list[Part], rows: int) -> Parts:
    """Window and rows of each part, in the order they lie."""
    return [(p.window.number, rows if p.rows is None else len(p.rows)) for p in parts]


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
