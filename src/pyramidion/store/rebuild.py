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
from pyramidion.privacy.birth import Birth
from pyramidion.rows.hashing import Keys
from pyramidion.rows.observations import Observations
from pyramidion.storage.deletions import rebuilt
from pyramidion.storage.fault_points import reach
from pyramidion.store.hot_rows import HotRows
from pyramidion.store.lifecycle import Lifecycle

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
    store: Lifecycle, window: int, rows: Any, share: Fraction | int, why: str, now: int
) -> Rebuild:
    """Count a sealed window again, from its hot rows or from rows that are given."""
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
        complete, lacking = store.tables.total(windows={window: arena})
        reach("rebuild.counted")
        _swap(store, window, arena, complete, lacking, why, now)
        reach("rebuild.after")
        store.publish()
        (unit,) = (line.purpose for line in store.catalogue.lines(window) if line.kind == "budget")
        return Rebuild(window, taken, unit, amount if unit != "none" else Fraction(0))


# --- its rows ----------------------------------------------------------------------------


def _taken(store: Lifecycle, window: int, now: int) -> int:
    """The rows that a window took; refuses one that is not sealed, or past its time."""
    found = store.catalogue.all("SELECT state, rows FROM windows WHERE number = ?", window)
    if not found:
        raise StateError(f"there is no window {window}; status() tells which there are")
    if found[0]["state"] != "sealed":
        raise StateError(
            f"window {window} is {found[0]['state']}, and only the tables of a sealed window are "
            f"rebuilt; reseed() ends a populating one"
        )
    if window in store.past(now):
        raise StateError(f"window {window} is past its retention; advance() erases it")
    return int(found[0]["rows"])


def _hot_rows(store: Lifecycle, window: int, taken: int) -> Read:
    """The rows of a window that are hot; refuses unless all are."""
    hot = HotRows(store)
    if hot.totals.get(window, 0) < taken:
        raise StateError(
            f"window {window} took {taken} rows and not all of them are hot any more; give all of "
            f"them as rows=, or restore a backup"
        )
    hot.refuse_unreadable([window])
    return lambda: hot.of([window])


def _given(store: Lifecycle, window: int, rows: Any, taken: int) -> Read:
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


def _birth(store: Lifecycle, window: int, share: Fraction | int) -> tuple[Birth, Fraction]:
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


def _counted(store: Lifecycle, birth: Birth, read: Read) -> Arena:
    """Noise first, then the rows."""
    arena = birth.arena()
    encoder = store.encoder_of(arena)
    for rows in read():
        arena.add(rows.under(encoder))
    arena.seal()
    return arena


def _swap(
    store: Lifecycle,
    window: int,
    arena: Arena,
    complete: Arena | None,
    lacking: frozenset[int],
    why: str,
    now: int,
) -> None:
    """New tables in place of the old ones, whose keys die."""
    with (
        store.tables.write(arena, "sealed", window) as add_sealed,
        store.written(complete) as add_complete,
    ):
        reach("rebuild.written")

        def before() -> None:
            store.tables.supersede("sealed", window)
            store.tables.supersede("complete")
            add_sealed()
            add_complete()

        def after() -> None:
            store.lacking = lacking
            store.change(complete, f"window {window} was rebuilt")

        store.erase(rebuilt(window), why, now, before=before, after=after)
