"""Bins that are read again from rows, and the tables in earlier bins.

New bins start new tables. The old ones serve until the new ones have filled: until they count half
as many rows. Then the old ones are erased, in every window. They are erased at once when the window
that their bins were read from is erased.
"""

from __future__ import annotations

from collections.abc import Collection

from pyramidion.config.schema import Schema, bare
from pyramidion.counts.arena import Arena
from pyramidion.counts.layout import read_from
from pyramidion.storage.deletions import bins
from pyramidion.store.change import Also
from pyramidion.store.state import StoreState
from pyramidion.store.transitions import drop_tables

FILLED = 2
"""New tables serve as soon as they count one row for so many in the old ones."""


def rows_by_bins(store: StoreState, but: Collection[int] = ()) -> dict[int, int]:
    """Rows in sealed windows, by the window that their bins were read from (0: even ones)."""
    rows: dict[int, int] = {}
    for row in (row for row in store.tables.windows() if row["window"] not in but):
        names = [name for name in store.tables.names(row) if bare(name) in store.schema.moving]
        if names:
            read = max(map(read_from, names))
            rows[read] = rows.get(read, 0) + row["rows"]
    return rows


def served(store: StoreState, but: Collection[int] = ()) -> int:
    """The window that the bins of the tables were read from which are served.

    Some windows may be left out, as if they were not sealed yet.
    """
    rows = rows_by_bins(store, but)
    found, *later = sorted(rows) or [0]
    for newer in later:
        if rows[newer] * FILLED >= rows[found]:
            found = newer
    return found


def in_bins(arena: Arena, schema: Schema, read: int) -> Arena:
    """The tables in the bins that were read from one window, and those that have no such bins."""
    chosen = [n for n in arena.layout.index if bare(n) not in schema.moving or read_from(n) == read]
    return arena if len(chosen) == len(arena.layout.index) else arena.only(chosen)


def superseded(store: StoreState) -> list[int]:
    """The windows whose bins are not needed any more, for tables in newer ones have filled."""
    if not store.schema.moving:
        return []
    now, taking = served(store), {window.arena.layout.read for window in store.open_sets.windows()}
    return [read for read in rows_by_bins(store) if read < now and read not in taking]


def drop_bins(
    store: StoreState, reads: Collection[int], why: str, now: int, *, damaged: bool = False
) -> bool:
    """Erase the tables whose bins were read from some windows, and these bins.

    With ``damaged``, a file that cannot be read is erased whole; otherwise this raises.
    """
    moving, kept = store.schema.moving, store.readings.of("bins")
    known = {*kept, *rows_by_bins(store)} if moving else set()
    reads = [read for read in reads if read in known]
    if not reads:
        return False

    def remember() -> None:
        store.readings.forgotten(reads, "bins")
        store.learn(store.schema)

    forget = Also(
        lambda: store.readings.forget(reads, "bins"),
        remember,
        store.readings.keys(reads, "bins"),
    )
    drop_tables(
        store,
        lambda name: bare(name) not in moving or read_from(name) not in reads,
        bins(reads),
        why,
        now,
        expires="bins of its tables were read again",
        damaged=damaged,
        edits=[forget],
    )
    return True
