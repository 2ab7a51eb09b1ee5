"""A history replayed into a store: the clock follows the rows, windows roll as it goes.

Batches are cut where count windows end, so that every row meets its own window while that
is populating. Near the end of the history they are also cut where hot steps end, so that the
rows which stay hot lie in the steps they would lie in had they come one by one. Earlier rows
pass through the hot window in larger pieces: fewer erasures, the same tables. Where people are
protected, batches are cut where blocks end: all rows of a batch arrive in one. Where there is a
vault, they are cut where spans of its files end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyramidion.counts.windows import Slots
from pyramidion.privacy.contributions import blocks_of
from pyramidion.rows.history import Replay
from pyramidion.rows.observations import types_for
from pyramidion.storage.hot import Receipt
from pyramidion.store.observe import Resume
from pyramidion.store.schedule import Advance, Schedule
from pyramidion.store.state import StoreState

Take = Callable[[Any, int, Resume], Receipt]
"""Observes a piece at a time of the clock."""


def rolled(
    lifecycle: StoreState,
    history: Replay,
    take: Take,
    schedule: Schedule,
    advance: Callable[[int], Advance],
    clock: Callable[[], int],
) -> Iterator[Receipt]:
    """Observe a history piece by piece, beginning where an earlier call was broken off.

    Rows without an event time come now, by the clock; none comes later than now.
    """
    key, done = _key(lifecycle, history), taken(lifecycle, history)
    now = int(lifecycle.catalogue.about("clock", "0"))
    types = types_for(lifecycle.schema, lifecycle.keyed_by)
    for table, times in history.chunks(skip=done, types=types):
        start = 0
        for stop in _cuts(lifecycle, history, times, table.num_rows):
            # A row from the future must not move the clock: all would be past its time.
            now = max(now, clock() if times is None else min(int(times[start:stop].max()), clock()))
            if schedule.is_due(now):
                advance(now)
            before, done = done, done + stop - start
            yield take(table.slice(start, stop - start), now, (key, before, done))
            start = stop
    advance(now)


def taken(lifecycle: StoreState, history: Replay) -> int:
    """How many rows of a history earlier calls have observed."""
    key = _key(lifecycle, history)
    return lifecycle.catalogue.imported(key) or 0


def _key(lifecycle: StoreState, history: Replay) -> bytes:
    return lifecycle.names.of(history.fingerprint)


def _cuts(
    lifecycle: StoreState, history: Replay, times: NDArray[np.int64] | None, rows: int
) -> list[int]:
    """Where the pieces of a chunk end."""
    settings = lifecycle.settings
    ends = {rows}
    if settings.window_rows is not None:
        ends.update(range(settings.window_rows, rows, settings.window_rows))
    if times is None:
        return sorted(ends)
    windows, steps = Slots.of_windows(settings), Slots.of_steps(settings)
    if windows is not None:
        ends.update(_changes(windows.all_at(times)))
    if lifecycle.catalogue.about("vault", ""):
        spans = Slots(settings.vault_every_us, settings.origin_us)
        ends.update(_changes(spans.all_at(times)))
    blocks = blocks_of(lifecycle.schema, settings)
    if blocks is not None:
        ends.update(_changes(blocks.all_at(times)))
    hot = (settings.hot_window_us or settings.hot_step_us) + settings.hot_step_us
    late = int(np.searchsorted(times, (history.last or 0) - hot))
    if late < rows:
        ends.update(late + end for end in _changes(steps.all_at(times[late:])))
        ends.discard(0)
    return sorted(ends)


def _changes(slots: NDArray[np.int64]) -> list[int]:
    found: list[int] = (np.flatnonzero(np.diff(slots)) + 1).tolist()
    return found
