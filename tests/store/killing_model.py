"""What a store must hold after what was done to it: kept beside it, and never killed.

The counts are kept by naive twins, one cell at a time. Each window's noise is known
from its birth, which the process that drew it tells before the first row can come.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from pyramidion import Settings
from pyramidion.counts.arena import Arena
from pyramidion.privacy.table_noise import TableDesign
from pyramidion.rows.observations import Door
from tests import reference_counts as naive
from tests.store import killing_workload as work

MICRO = 1_000_000
Tables = dict[str, str]
"""Digests of cells, by the name of the table."""
Window = tuple[int, int]
"""A slot and how many windows before had rows there; where rows cut windows, their order and 0."""


def digest(cells: np.ndarray) -> str:
    """Tells cells apart, in few bytes."""
    return blake2b(cells.astype(np.int64).tobytes(), digest_size=12).hexdigest()


@contextmanager
def births_told(tell: Any) -> Iterator[None]:
    """Tell the noise of each new window, before it can take a row."""
    arena = TableDesign.arena

    def told(self: TableDesign, *given: Any) -> Arena:
        born = arena(self, *given)
        index = born.layout.index
        tell({"born": {name: digest(born._flat(index[name])) for name in index}})
        return born

    with patch.object(TableDesign, "arena", told):
        yield


@dataclass
class Batch:
    """An accepted batch: its rows as they lie in the hot window."""

    number: int
    rows: pa.Table
    parts: list[tuple[Window, int]]
    receipt: tuple[int, int, int]
    step: int


@dataclass
class Step:
    """A step of the hot window."""

    slot: int
    rows: int = 0
    closed: bool = False


@dataclass
class Born:
    """The noise of one window, and which of its tables were withdrawn since."""

    tables: Tables
    lost: set[str] = field(default_factory=set)


class Model:
    """What the store must hold."""

    def __init__(self, settings: Settings, secret: bytes) -> None:
        self.settings = settings
        self.retention = settings.retention_us // MICRO
        self.door = Door(work.SCHEMA, settings, secret)
        shapes = self.door.encoder.shapes
        self.layout = TableDesign(settings, shapes, work.SCHEMA.cardinality, secret).layout
        self.batches: dict[int, Batch] = {}
        self.rows: dict[Window, int] = {}
        self.starts: dict[Window, int] = {}
        self.counts: dict[Window, list[naive.NaiveTable]] = {}
        self.ended: dict[int, set[Window]] = {}
        """The windows that had rows when the store was reseeded, by the number of the verb."""
        self.born: list[Born] = []
        self.noise: dict[int, Born] = {}
        """By the number of the window."""
        self.rebuilt: dict[int, int] = {}
        """How often each window was charged for a rebuild, by its number."""
        self.spent: dict[str, list[int]] = {}
        self.withdrawn: set[str] = set()
        self.files: dict[str, dict[int, Any]] = {}
        """The batches of each file of the vault, by its name."""
        self.ledger: list[Any] = []
        self.deletions: list[Any] = []
        self.steps: list[Step] = []

    # --- what is done ----------------------------------------------------------------

    def observed(self, verb: work.Verb, receipt: tuple[int, int, int]) -> None:
        """A batch was accepted; ValueError where its receipt cannot be right."""
        known = self.batches.get(verb.number)
        if known is not None:
            if known.receipt != receipt:
                raise ValueError(f"batch {verb.number} got {receipt}, first {known.receipt}")
            return
        if verb.number != len(self.batches) + 1:
            raise ValueError(f"batch {verb.number} came after {len(self.batches)}")
        good = verb.good
        places = self._places(verb, receipt[2])
        if receipt[:2] != (good.num_rows, verb.bad) or places is None:
            raise ValueError(f"batch {verb.number} got {receipt}")
        found = self.door.observations(good)
        parts, order = [], []
        for window in sorted(set(places)):
            rows = [row for row, place in enumerate(places) if place == window]
            parts.append((window, len(rows)))
            order += rows
            self._count(window, found.take(np.array(rows)))
            self.starts.setdefault(window, self._start(window, verb.now))
        step = self._step_of(verb.now, good.num_rows)
        rows = good.take(pa.array(order))
        self.batches[verb.number] = Batch(verb.number, rows, parts, receipt, step)

    def _places(self, verb: work.Verb, late: int) -> list[Window] | None:
        """The window of each row; None where so many late rows cannot be."""
        if self.settings.window_rows is not None:
            return self._by_rows(verb.good.num_rows)
        slots = self._slots(verb, late)
        return None if slots is None else [(slot, self._before(slot)) for slot in slots]

    def _by_rows(self, rows: int) -> list[Window]:
        last, ended = max(self.rows, default=(0, 0)), set().union(*self.ended.values())
        window, done = last[0] + (last in ended), 0 if last in ended else self.rows.get(last, 0)
        return [(window + (done + row) // work.WINDOW_ROWS, 0) for row in range(rows)]

    def _before(self, slot: int) -> int:
        """How many windows of a slot have ended."""
        return sum((slot, n) in ended for ended in self.ended.values() for n in range(99))

    def _slots(self, verb: work.Verb, late: int) -> list[int] | None:
        slots = [int(time) // work.WINDOW for time in verb.good["t"].to_pylist()]
        current = verb.now // work.WINDOW
        old = sum(slot < current for slot in slots)
        if late == old:
            return [max(slot, current) for slot in slots]
        return slots if late == 0 else None  # their window, all are of one, was still open

    def _start(self, window: Window, now: int) -> int:
        return now if self.settings.window_rows is not None else window[0] * work.WINDOW

    def _count(self, window: Window, found: Any) -> None:
        if window not in self.counts:
            tables = range(len(self.layout.tables))
            self.counts[window] = [naive.NaiveTable.of(self.layout, table) for table in tables]
        self.rows[window] = self.rows.get(window, 0) + len(found)
        for place, table in enumerate(self.counts[window]):
            keys = found.keys(place - 1, 0, len(found)) if place else [0] * len(found)
            table.add_all(keys, found.labels, found.weights)

    def _step_of(self, now: int, rows: int) -> int:
        """The hot step that a batch goes to: a new one by time, or where the last is full."""
        slot, full = now // work.STEP, self.settings.hot_rows is not None
        last = self.steps[-1] if self.steps else None
        over = last is None or last.closed or slot > last.slot
        if over or (full and last is not None and last.rows >= work.STEP_ROWS):
            self.steps.append(Step(slot))
        self.steps[-1].rows += rows
        return len(self.steps) - 1

    def withdrew(self, name: str) -> None:
        """A feature or a group was withdrawn."""
        lost = {table for table in self.layout.index if name in (table, *table.split(","))}
        for born in self.born:
            born.lost |= lost
        if name != work.GROUP:
            self.withdrawn.add(name)

    def reseeded(self, verb: work.Verb) -> None:
        """All windows end, and the hot step takes no more; told again, it is the same."""
        if verb.index not in self.ended:
            before = set().union(*self.ended.values())
            self.ended[verb.index] = set(self.rows) - before
            for step in self.steps:
                step.closed = True

    # --- what must be there ----------------------------------------------------------

    def exact(self, window: Window) -> dict[str, np.ndarray]:
        """The counts of a window, by table."""
        return {
            table.name: np.array(table.listed(), dtype=np.int64).ravel()
            for table in self.counts.get(window, ())
        }

    def states(self, now: int) -> dict[Window, str]:
        """Windows that have rows and are not erased, once all is done that is due."""
        states, ended = {}, set().union(*self.ended.values())
        for window, rows in self.rows.items():
            if self.settings.window_rows is not None:
                over = rows >= work.WINDOW_ROWS
            else:
                over = (window[0] + 1) * work.WINDOW <= now
            if not over and window not in ended:
                states[window] = "populating"
            elif self.starts[window] + self.retention > now:
                states[window] = "sealed"
        return states

    def hot(self, now: int) -> list[Batch]:
        """The batches that are hot, once all is done that is due."""
        limit = self.settings.hot_window_us
        kept = self.retention if limit is None else limit // MICRO
        live = [at for at, step in enumerate(self.steps) if step.slot * work.STEP + kept > now]
        if self.settings.hot_rows is not None:
            while len(live) > 1 and sum(self.steps[at].rows for at in live) > work.HOT_ROWS:
                live.pop(0)
        return [batch for batch in self.batches.values() if batch.step in live]

    def lacking(self, window: Window, after: int) -> set[int]:
        """The batches with rows in a window that a checkpoint up to ``after`` does not have."""
        return {
            batch.number
            for batch in self.batches.values()
            if batch.number > after and window in dict(batch.parts)
        }
