"""After an intrusion: what the intruder has is frozen, and nothing goes on from it.

Who has seen the populating tables of a window could subtract them from any later state of
the same tables, and would have the exact counts of the rows in between. So these tables end:

    1  windows and the hot step take no more rows
    2  one erasure: windows with rows are sealed, windows without are dropped with their noise,
       and so are the nodes of a tree that are open; every state before dies with its key, and
       the store key is renewed
    3  a window for the current slot is opened on fresh noise, charged as every birth is

Every row is in exactly one table set, so nothing is charged to the rows that were there.
Nothing that is written from here on opens with a key that was there before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyramidion.storage.deletions import ended
from pyramidion.storage.hot import HotWindow, Step
from pyramidion.storage.table_files import sealed_tables
from pyramidion.storage.table_sets import SetId, State
from pyramidion.store.change import Change, Edit, Erasure, apply
from pyramidion.store.state import StoreState
from pyramidion.store.transitions import close_set, complete_file, summed
from pyramidion.store.window_opener import WindowOpener


@dataclass(frozen=True)
class Reseed:
    """What `reseed` did, by the numbers of windows."""

    sealed: tuple[int, ...]
    dropped: tuple[int, ...]
    """Nobody had come to them: their noise is gone."""
    opened: int


def reseed(store: StoreState, opener: WindowOpener, why: str, now: int, entry: Edit) -> Reseed:
    """End all populating windows and open one on fresh noise; doing it again is harmless.

    The ``entry`` for the audit log is committed with the erasure.
    """
    with store.moves:
        full, empty = end_windows(store, why, now, [entry])
        opened = opener.open(_slot(store, now), now)
        return Reseed(full, empty, opened)


def end_windows(
    store: StoreState, why: str, now: int, edits: Sequence[Edit] = ()
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """End all populating windows, nodes and hot steps in one erasure: those sealed, and dropped."""
    with store.moves:
        store.settle()
        steps = _close_all(store, now)
        change = plan_end(store, steps, why, edits)
        windows = store.open_sets.windows()
        apply(store, change, now)
        full = tuple(window.number for window in windows if window.arena.rows)
        return full, tuple(window.number for window in windows if not window.arena.rows)


def _close_all(store: StoreState, now: int) -> list[Step]:
    """Have no window, node or hot step take another row; the steps."""
    with store.arrivals:
        for tables in store.open_sets.all():
            close_set(store, tables)
            if not tables.level:
                store.passed(tables, now)
        steps = list(store.hot.steps)
        for step in steps:
            step.closed = True
    return steps


@dataclass(frozen=True)
class Close:
    """Hot steps that take no more rows, also after a restart."""

    hot: HotWindow
    steps: Sequence[Step]

    def write(self, at: int) -> tuple[int, ...]:  # noqa: ARG002
        """Note it in the catalogue."""
        self.hot.close(self.steps)
        return ()

    def remember(self) -> None:
        """They were closed before."""


def plan_end(
    store: StoreState, steps: Sequence[Step], why: str, edits: Sequence[Edit] = ()
) -> Change:
    """Plan to seal every closed table set that has rows and to drop the others, in one erasure.

    A crash leaves every window sealed, or none.
    """
    every = store.open_sets.all()
    full = {tables.id: tables.arena for tables in every if tables.arena.rows}
    served = summed(store, full) if full else None
    states: dict[SetId, State] = {
        tables.id: "sealed" if tables.id in full else "erased" for tables in every
    }
    sealed = [owner.number for owner in full if not owner.level]
    empty = [each.number for each in every if not each.level and each.id not in full]
    nodes = [owner.number for owner in full if owner.level]
    return Change(
        "reseed",
        write={
            **{sealed_tables(owner): arena for owner, arena in full.items()},
            **({} if served is None else complete_file(served)),
        },
        states=states,
        edits=[Close(store.hot, steps), *edits],
        erase=Erasure(ended(sealed, empty, nodes), why),
        served=served,
    )


def _slot(store: StoreState, now: int) -> int:
    """The slot of now; if windows are cut by rows, the one after all others."""
    slots = store.open_sets.slots
    if slots is not None:
        return max(slots.at(now), store.open_sets.passed + 1)
    last = store.sets.last_slot("opening")
    return 0 if last is None else last + 1
