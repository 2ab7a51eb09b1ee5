"""Opening a window: what it is born with is read first, privately and at a charge.

    1  weights and bin edges that are due are read from hot rows
    2  groups are selected from hot rows, if that is due
    3  the window is charged, its noise drawn, its tables written

Steps 1 and 2 spend what earlier windows reserved for them.
"""

from __future__ import annotations

from pyramidion.store.bins_and_weights import Reading
from pyramidion.store.select_groups import Selecting
from pyramidion.store.state import StoreState
from pyramidion.store.transitions import open_window


class WindowOpener:
    """Opens the windows of one store."""

    def __init__(self, store: StoreState, reading: Reading, selecting: Selecting) -> None:
        self._store, self._reading, self._selecting = store, reading, selecting

    def open(self, slot: int, now: int) -> int:
        """Open the window of a slot, unless it takes rows already; its number."""
        with self._store.moves:
            for window in self._store.open_sets.taking():
                if window.slot == slot:
                    return window.number
            self._reading.read(now)
            self._selecting.choose_if_due(now)
            return open_window(self._store, slot, now)
