"""A temporary store for an audit, with a clock of its own, read as an attacker would read it.

Everything here goes by the verbs of a real store: create, observe, advance. What an audit
sees besides is what whoever has its directory and its key sees: tables of any kind, the
catalogue, the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.counts.arena import Arena
from pyramidion.errors import StateError
from pyramidion.privacy.ledger import WindowReport
from pyramidion.storage.table_sets import window_id
from pyramidion.store.audit.canaries import Words
from pyramidion.store.audit.ways import ways
from pyramidion.store.pyramid import Pyramid
from pyramidion.store.state import StoreState
from pyramidion.store.windows import TableSet

DAY = 86_400
START = 1_000 * DAY  # where a window begins, whatever their length here
TIMES = {
    "count_window": "10d",
    "retention": "10000d",
    "hot_window": "3d",
    "hot_step": "1d",
    "hot_rows": None,
    "hot_step_rows": None,
    "max_skew": "1h",
    "origin": 0.0,
    "unit_block": None,
}
"""An audit's windows and steps are these, so that they end when it says."""

Cells = list[NDArray[np.int64]]
"""cells[hash row, bucket, label] of each table, the prior's first."""


def for_trial(settings: Settings, schema: Schema, *, rows: int, buckets: int) -> Settings:
    """The same privacy on the clock of an audit, with room for its rows.

    Without a unit, which no audit has, no noise depends on lengths of time; none does on the
    width of a sketch. Shares of tables that
    the audit's schema does not have are left out.
    """
    most = max(settings.max_rows_per_window, rows)
    shares = {
        name: of for name, of in dict(settings.shares or ()).items() if name in schema.table_names
    }
    changes = TIMES | {"max_rows_per_window": most, "buckets": buckets, "shares": shares or None}
    return replace(settings, **changes)  # type: ignore[arg-type]


class Trial:
    """A store that lives as long as its trial."""

    def __init__(self, store: Pyramid, clock: list[float]) -> None:
        self.store = store
        self._clock = clock
        self._ways = cycle(ways().values())

    @property
    def lifecycle(self) -> StoreState:
        """What an attacker in the process has: tables, keys and catalogue."""
        return self.store._state

    # --- verbs ---------------------------------------------------------------------------

    def observe(self, rows: pa.Table) -> None:
        """Observe rows, each batch by another way in, and wait for what that sets off."""
        folder = self.store.path.parent
        self.store.observe(next(self._ways)(rows.to_pylist(), folder) if rows.num_rows else rows)
        kept = self.store._threads.kept
        if kept is not None:
            kept.result()

    def open(self) -> TableSet:
        """Open the current window before a row comes, as the store prepares the next one."""
        slots, now = self.lifecycle.open_sets.slots, self.store._now()
        if slots is None:
            raise StateError("the windows of an audit end by time; use settings of `for_trial`")
        number = self.store._opener.open(slots.at(now), now)
        return self.lifecycle.open_sets.sets[window_id(number)]

    def pass_days(self, days: int) -> None:
        """Let time pass, and have done what is due."""
        self._clock[0] += days * DAY
        self.store.advance()

    def end_window(self) -> None:
        """Let the current window end: it is sealed."""
        self.pass_days(10 - int(self._clock[0] / DAY) % 10)

    # --- what there is to read ---------------------------------------------------------------

    def keys(self, rows: pa.Table) -> list[Words]:
        """The keys of rows in each table but the prior."""
        found = self.lifecycle.door.rows(rows)
        return [found.keys(table, 0, len(found)) for table in range(len(found.shapes))]

    def on_disk(self, window: int) -> Cells:
        """The state of a populating or sealed window that is on the disk."""
        tables = self.lifecycle.tables
        (row,) = (r for r in tables.current("checkpoint", "sealed") if r["number"] == window)
        return cells_of(tables.of(row))

    def released(self) -> Arena:
        """The complete tables, as a snapshot has them."""
        return self.store.snapshot()._arena

    def charged(self, window: int) -> WindowReport | None:
        """What the ledger says of a window; None: nothing."""
        report = self.store.ledger.report()
        return next((found for found in report.windows if found.number == window), None)

    def spent(self, window: int) -> Fraction:
        """What the ledger says that the tables of a window cost; readings are not audited."""
        found = self.charged(window)
        lines = () if found is None else found.lines
        return sum((line.amount for line in lines if line.kind == "table"), Fraction(0))


def cells_of(arena: Arena) -> Cells:
    """The cells of all tables, also of a populating window: an attacker asks nobody."""
    return [
        arena._flat(number).astype(np.int64).reshape(table.rows, table.width, arena.layout.labels)
        for number, table in enumerate(arena.layout.tables)
    ]


@contextmanager
def trial(schema: Schema, settings: Settings) -> Iterator[Trial]:
    """A store in a temporary directory; nothing of it or its key is left."""
    clock = [float(START)]
    with TemporaryDirectory(prefix="pyramidion-audit-") as folder:
        path, keys = Path(folder) / "store", f"file:{folder}/store.key"
        with Pyramid.create(path, schema, settings, keys=keys, clock=lambda: clock[0]) as store:
            yield Trial(store, clock)
