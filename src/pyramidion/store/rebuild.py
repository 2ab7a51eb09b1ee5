"""The tables of a sealed window, counted again from its rows onto fresh noise.

This is a second release of the same rows, for who has seen the first one has both. So it is
paid from what the window kept back for it at birth (`rebuild_share`), before the noise is
drawn, and the noise is that of the smaller budget, divided among the tables as the window's
was. It is for tables that were tampered with and that nothing else gives back
(`pyramidion.store.repair`). A crash after the charge wastes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyramidion.counts.arena import Arena
from pyramidion.errors import PrivacyError, StateError
from pyramidion.privacy.table_noise import TableDesign
from pyramidion.rows.hashing import Keys
from pyramidion.rows.observations import Observations
from pyramidion.storage.deletions import rebuilt
from pyramidion.storage.fault_points import reach
from pyramidion.storage.table_files import COMPLETE, sealed_tables
from pyramidion.storage.table_sets import window_id
from pyramidion.store.change import Change, Edit, Erasure, Served, apply
from pyramidion.store.hot_rows import HotRows
from pyramidion.store.state import StoreState
from pyramidion.store.transitions import complete_file

PURPOSE = "rebuild"

Read = Callable[[], Iterator[Observations]]
"""Goes through the rows of a window, as often as it is called."""


@dataclass(frozen=True)
class Rebuild:
    """What was rebuilt, and what the window paid for it, in the ledger's unit."""

    window: int
    rows: int
    unit: str
    charged: Fraction


def rebuild(
    store: StoreState,
    window: int,
    rows: Any,
    share: Fraction | int,
    why: str,
    now: int,
    entry: Edit,
) -> Rebuild:
    """Count a sealed window again, from its hot rows or from rows that are given.

    The ``entry`` for the audit log is committed with the erasure of the former tables.
    """
    with store.moves:
        store.settle()
        taken = _taken(store, window, now)
        if rows is None:
            read = _hot_rows(store, window, taken)
        else:
            read = _given(store, window, rows, taken)
        birth, amount = _birth(store, window, share)
        store.ledger.spend(PURPOSE, amount, [window], now, why)
        reach("rebuild.charged")
        arena = _counted(store, birth, read)
        reach("rebuild.counted")
        apply(store, plan_rebuild(store, window, arena, why, entry), now)
        (unit,) = (line.purpose for line in store.catalogue.lines(window) if line.kind == "budget")
        return Rebuild(window, taken, unit, amount if unit != "none" else Fraction(0))


# --- its rows ----------------------------------------------------------------------------


def _taken(store: StoreState, window: int, now: int) -> int:
    """The rows that a window took; refuses one that is not sealed, or past its time."""
    row = store.sets.row(window_id(window))
    if row is None:
        raise StateError(f"there is no window {window}; status() lists those there are")
    if row["state"] != "sealed":
        raise StateError(
            f"window {window} is {row['state']}, and only the tables of a sealed window are "
            f"rebuilt; reseed() ends a populating one"
        )
    if window in store.past(now):
        raise StateError(f"window {window} is past its retention; advance() erases it")
    return int(row["rows"])


def _hot_rows(store: StoreState, window: int, taken: int) -> Read:
    """The rows of a window that are hot; refuses unless all are."""
    hot = HotRows(store)
    if hot.totals.get(window, 0) < taken:
        raise StateError(
            f"window {window} took {taken} rows and not all of them are hot any more; give all of "
            f"them as rows=, or restore a backup"
        )
    hot.refuse_unreadable([window])
    return lambda: hot.of([window])


def _given(store: StoreState, window: int, rows: Any, taken: int) -> Read:
    """Rows from outside, judged as those that arrive are; refuses unless they are as many.

    When each came is not known, so of a person as many count as the noise of a window hides.
    """
    found = store.door.observations(rows)
    if len(found) != taken:
        raise StateError(
            f"window {window} took {taken} rows and {len(found)} were given; give exactly those "
            f"that it took, each once"
        )
    if found.units is not None:
        found = found.counting(_place_of_each(found.units) < store.hidden)
    return lambda: iter([found])


def _place_of_each(units: Keys) -> NDArray[np.int64]:
    """Which row of its person each row is, from 0 on."""
    order = np.argsort(units, kind="stable")
    people = units[order]
    new = np.r_[True, people[1:] != people[:-1]]
    first = np.flatnonzero(new)[np.cumsum(new) - 1] if units.size else order
    place = np.empty_like(order)
    place[order] = np.arange(units.size) - first
    return place


# --- its tables ----------------------------------------------------------------------------


def _birth(store: StoreState, window: int, share: Fraction | int) -> tuple[TableDesign, Fraction]:
    """The window's tables at what a rebuild may cost, divided as at its birth; and that cost."""
    if isinstance(share, bool) or not isinstance(share, int | Fraction) or not 0 < share <= 1:
        raise PrivacyError(
            "a rebuild takes a share above 0 and at most 1 of what was kept back for it; write "
            "1 or Fraction(1, 2)"
        )
    lines = store.catalogue.lines(window)
    (row,) = (row for row in store.tables.windows() if row["window"] == window)
    names = store.tables.names(row)  # none that was withdrawn, or in bins that are forgotten
    paid = {ln.purpose: ln.amount for ln in lines if ln.kind == "table" and ln.purpose in names}
    kept = sum(ln.amount for ln in lines if ln.kind == "reserve" and ln.purpose == PURPOSE)
    budget = sum(ln.amount for ln in lines if ln.kind == "budget")
    whole = sum(paid.values(), Fraction(0))
    amount = share * (kept or whole)  # where nothing was kept the ledger refuses, and says so
    parts = {
        name: amount * each / whole / budget if budget else Fraction(0)
        for name, each in paid.items()
    }
    encoder = store.encoder_named(parts)
    return store.births.of(window, encoder.schema, encoder).again(parts), Fraction(amount)


def _counted(store: StoreState, birth: TableDesign, read: Read) -> Arena:
    """Noise first, then the rows."""
    arena = birth.arena()
    encoder = store.encoder_of(arena)
    for rows in read():
        arena.add(rows.under(encoder))
    arena.seal()
    return arena


def plan_rebuild(store: StoreState, window: int, arena: Arena, why: str, entry: Edit) -> Change:
    """Plan to put new tables in the place of the old ones, whose keys die."""
    served = Served(*store.tables.total(sets={window_id(window): arena}))
    return Change(
        "rebuild",
        write={sealed_tables(window_id(window)): arena, **complete_file(served)},
        supersede=[COMPLETE],
        edits=[entry],
        erase=Erasure(rebuilt(window), why),
        served=served,
        expires=f"window {window} was rebuilt",
    )
