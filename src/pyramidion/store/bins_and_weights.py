"""Reading weights and bin edges from hot rows, privately, before a new window is born.

The rows of one window are read, and that window pays, in full, from what it kept back at its
birth; what is read is used from the next window on. The charge is durable before a row is
looked at. What is read from a window is forgotten with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from fractions import Fraction

from pyramidion.errors import FormatError, StorageError
from pyramidion.privacy import weights
from pyramidion.privacy.budget import budget_of
from pyramidion.privacy.quantiles import FEWEST_ROWS, read_cuts
from pyramidion.rows.observations import Observations
from pyramidion.storage.fault_points import reach
from pyramidion.storage.readings import Purpose, Values
from pyramidion.store.hot_rows import HotRows
from pyramidion.store.state import StoreState

TOLD = {"weights": "quantiles of counts per key", "bins": "bin edges"}


class Reading:
    """Reads what is due whenever a window is about to be opened."""

    def __init__(self, store: StoreState) -> None:
        self._store = store

    def read(self, now: int) -> None:
        """Read what is due; by whoever opens a window."""
        number = self._store.sets.next_window()
        for purpose in self._store.due(number):
            hot = HotRows(self._store)
            source = self._source(purpose, hot)
            if source is not None:
                with suppress(FormatError, StorageError):  # a damaged file stops no new window
                    self._read(purpose, source, hot, now)

    def _source(self, purpose: Purpose, hot: HotRows) -> int | None:
        """The newest window that kept back a budget for this and has rows enough that are hot."""
        came = hot.came
        for window in sorted(came.keys() & self._kept(), reverse=True):
            if came[window] >= FEWEST_ROWS and self._store.ledger.can_pay(window, purpose):
                return window
        return None

    def _kept(self) -> set[int]:
        """Windows that are kept: rows may be hot longer than their window is."""
        return self._store.sets.countable()

    def _read(self, purpose: Purpose, window: int, hot: HotRows, now: int) -> None:
        store = self._store
        hot.refuse_unreadable([window])
        amount = store.ledger.left(window, purpose) if store.settings.private else Fraction(0)
        store.ledger.spend(purpose, amount, [window], now, TOLD[purpose])
        reach("read.spent")
        values = self._values(purpose, hot.of([window]), amount)
        with store.catalogue.transaction():
            reading = store.readings.add(window, purpose, values)
        store.readings.learned(reading)
        reach("read.kept")
        with store.arrivals:
            store.learn(store.schema)

    def _values(self, purpose: Purpose, rows: Iterable[Observations], amount: Fraction) -> Values:
        store = self._store
        k, unit = store.hidden, budget_of(store.settings)[0]
        if purpose == "bins" or unit == "none":
            edges = read_cuts(rows, store.schema, budget=amount, unit=unit, k=k)
            return {column: list(cuts) for column, cuts in edges.items()}
        shapes, settings = store.door.encoder.shapes, store.settings
        read = weights.read(rows, settings, shapes=shapes, budget=amount, unit=unit, k=k)
        return {table: [quantile] for table, quantile in read.items()}
