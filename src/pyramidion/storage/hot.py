"""The hot window on disk: batches of raw rows in steps, each step under a key of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from pyramidion import records
from pyramidion.counts.windows import Slots
from pyramidion.settings import Settings
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.data_keys import DataKey, DataKeys
from pyramidion.storage.segments import Segments

Parts = Sequence[tuple[int, int]]
"""Window and rows of each part of a batch, in the order the rows lie there."""

STEP, ONCE = "hot step", "idempotency keys of a hot step"


@dataclass
class Step:
    """One step of the hot window."""

    number: int
    slot: int
    start: int
    file: str
    key: DataKey
    once: DataKey
    """Keys the digests of idempotency keys, which so die with the step."""
    rows: int = 0
    length: int = 0
    known: bool = True
    """Whether the catalogue has it."""
    closed: bool = False
    """Whether it is about to leave, and takes no more rows."""


@dataclass(frozen=True)
class Receipt:
    """What became of a batch: rows accepted, refused, and of the accepted ones those that came
    after their window was sealed and were counted in the populating one."""

    accepted: int
    refused: int
    late: int


@dataclass
class Appended:
    """A record that is being written and not yet acknowledged."""

    step: Step
    start: int
    written: Future[int]
    """Its length, once it is durable."""

    @property
    def length(self) -> int:
        """Bytes of the record; waits until it is durable."""
        return self.written.result()


class HotWindow:
    """Raw rows of the last steps; nothing else on this machine has raw rows."""

    def __init__(
        self, catalogue: Catalogue, keys: DataKeys, segments: Segments, settings: Settings
    ) -> None:
        self._catalogue = catalogue
        self._keys = keys
        self._segments = segments
        self._settings = settings
        self._slots = Slots.of_steps(settings)
        self.steps = [
            self._step(row) for row in catalogue.all("SELECT * FROM steps ORDER BY number")
        ]
        for step in self.steps:
            segments.cut(step.file, step.length)

    def _step(self, row: sqlite3.Row) -> Step:
        key, once = (
            DataKey(row[name], purpose, self._keys.get(row[name]))
            for name, purpose in (("key", STEP), ("once", ONCE))
        )
        place = row["number"], row["slot"], row["start"], row["file"]
        return Step(*place, key, once, row["rows"], row["length"])

    @property
    def rows(self) -> int:
        """Raw rows that are kept."""
        return sum(step.rows for step in self.steps)

    # --- in -------------------------------------------------------------------------

    def append(self, number: int, table: pa.Table, now: int) -> Appended:
        """Write a batch; it counts for nothing until `acknowledge` is in a transaction."""
        step = self._current(now)
        written = self._segments.append(
            step.file,
            step.length,
            partial(records.to_bytes, table),
            step.key.key,
            f"batch {number}",
        )
        return Appended(step, step.length, written)

    def _current(self, now: int) -> Step:
        slot, most = self._slots.at(now), self._settings.step_rows
        last = self.steps[-1] if self.steps else None
        takes = last is not None and not last.closed and last.slot >= slot
        if last is not None and takes and (most is None or last.rows < most):
            return last
        key, once = DataKey.new(STEP), DataKey.new(ONCE)
        number, start = int(self._catalogue.about("next_step", "1")), self._slots.start(slot)
        return Step(number, slot, start, _file(key), key, once, known=False)

    def acknowledge(
        self,
        appended: Appended,
        number: int,
        receipt: Receipt,
        parts: Parts,
        once: str | None,
        now: int,
    ) -> None:
        """Make a batch known; within a transaction."""
        step, run = appended.step, self._catalogue.run
        if not step.known:
            self._keys.add(step.key)
            self._keys.add(step.once)
            run(
                "INSERT INTO steps (number, slot, start, key, once, file) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                step.number,
                step.slot,
                step.start,
                step.key.id,
                step.once.id,
                step.file,
            )
            self._catalogue.note(next_step=step.number + 1)
        run(
            "UPDATE steps SET rows = rows + ?, length = ? WHERE number = ?",
            receipt.accepted,
            appended.start + appended.length,
            step.number,
        )
        run(
            "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            number,
            step.number,
            appended.start,
            appended.length,
            receipt.accepted,
            receipt.refused,
            receipt.late,
            now,
            None if once is None else _digest(step, once),
        )
        for place, (window, rows) in enumerate(parts):
            run("INSERT INTO parts VALUES (?, ?, ?, ?)", number, place, window, rows)

    def acknowledged(self, appended: Appended, rows: int) -> None:
        """After the transaction: from here on the batch is hot."""
        step = appended.step
        step.rows, step.length = step.rows + rows, appended.start + appended.length
        if not step.known:
            step.known = True
            self.steps.append(step)

    def seen(self, once: str) -> Receipt | None:
        """The receipt of a batch that came under this key already, while it is hot."""
        for step in reversed(self.steps):
            rows = self._catalogue.all(
                "SELECT rows, refused, late FROM batches WHERE once = ?", _digest(step, once)
            )
            if rows:
                return Receipt(rows[0]["rows"], rows[0]["refused"], rows[0]["late"])
        return None

    # --- out ------------------------------------------------------------------------

    def batches(self, after: int = 0) -> Iterator[tuple[int, pa.Table, Parts]]:
        """Batches by number, with their raw rows and the windows these went to."""
        by_number = {step.number: step for step in self.steps}
        for row in self._catalogue.all(
            "SELECT number, step, start, length FROM batches WHERE number > ? ORDER BY number",
            after,
        ):
            step, number = by_number[row["step"]], row["number"]
            data = self._segments.read(
                step.file, row["start"], row["length"], step.key.key, f"batch {number}"
            )
            yield number, records.from_bytes(data), self._parts(number)

    def _parts(self, number: int) -> Parts:
        rows = self._catalogue.all(
            "SELECT window, rows FROM parts WHERE batch = ? ORDER BY place", number
        )
        return [(row["window"], row["rows"]) for row in rows]

    def leaving(self, now: int) -> list[Step]:
        """The steps whose time is over, or that are more than the rows to be kept."""
        limit, most = self._settings.hot_window_us, self._settings.hot_rows
        limit = self._settings.retention_us if limit is None else limit
        due = [step for step in self.steps if step.start + limit <= now]
        left = [step for step in self.steps if step not in due]
        while most is not None and len(left) > 1 and sum(step.rows for step in left) > most:
            due.append(left.pop(0))
        return due

    def forget(self, steps: Sequence[Step]) -> None:
        """Drop steps from the catalogue; within the transaction that drops their keys."""
        for step in steps:
            run, number = self._catalogue.run, step.number
            run(
                "DELETE FROM parts WHERE batch IN (SELECT number FROM batches WHERE step = ?)",
                number,
            )
            run("DELETE FROM batches WHERE step = ?", number)
            run("DELETE FROM steps WHERE number = ?", number)

    def forgotten(self, steps: Sequence[Step]) -> None:
        """After the transaction: these steps are over; their files go later."""
        self._segments.forget()
        gone = {step.number for step in steps}
        self.steps = [step for step in self.steps if step.number not in gone]

    # --- rewriting --------------------------------------------------------------------

    def rewritten(
        self, change: Callable[[pa.Table], pa.Table]
    ) -> list[tuple[Step, Step, list[Any]]]:
        """Each step with its rows changed, in a new file under a new key, not yet known."""
        made = []
        for old in self.steps:
            key = DataKey.new(STEP)
            new = Step(old.number, old.slot, old.start, _file(key), key, old.once, old.rows)
            places = []
            for row in self._catalogue.all(
                "SELECT number, start, length FROM batches WHERE step = ? ORDER BY number",
                old.number,
            ):
                context = f"batch {row['number']}"
                data = self._segments.read(
                    old.file, row["start"], row["length"], old.key.key, context
                )
                make = partial(records.to_bytes, change(records.from_bytes(data)))
                written = self._segments.append(new.file, new.length, make, key.key, context)
                length = written.result()
                places.append((new.length, length, row["number"]))
                new.length += length
            made.append((old, new, places))
        return made

    def replace(self, made: Sequence[tuple[Step, Step, list[Any]]]) -> None:
        """Make rewritten steps known in place of the old ones; within a transaction."""
        for old, new, places in made:
            self._keys.add(new.key)
            self._catalogue.run(
                "UPDATE steps SET key = ?, file = ?, length = ? WHERE number = ?",
                new.key.id,
                new.file,
                new.length,
                old.number,
            )
            for start, length, number in places:
                self._catalogue.run(
                    "UPDATE batches SET start = ?, length = ? WHERE number = ?",
                    start,
                    length,
                    number,
                )

    def replaced(self, made: Sequence[tuple[Step, Step, list[Any]]]) -> None:
        """After the transaction: these are the steps; the old files go later."""
        self._segments.forget()
        self.steps = [new for _, new, _ in made]


def _file(key: DataKey) -> str:
    return f"{key.id:016x}.rows"


def _digest(step: Step, once: str) -> bytes:
    """An idempotency key as the catalogue keeps it: keyed by what dies with the rows."""
    return blake2b(once.encode(), key=step.once.key, person=b"idempotency", digest_size=16).digest()
