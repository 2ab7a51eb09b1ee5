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

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from pyramidion.storage.deletions import ended
from pyramidion.storage.fault_points import reach
from pyramidion.storage.hot import Step
from pyramidion.store.lifecycle import Lifecycle
from pyramidion.store.windows import Window


@dataclass(frozen=True)
class Reseed:
    """What `reseed` did, by the numbers of windows."""

    sealed: tuple[int, ...]
    dropped: tuple[int, ...]
    """Nobody had come to them: their noise is gone."""
    opened: int


def reseed(store: Lifecycle, why: str, now: int) -> Reseed:
    """End all populating windows and begin one on fresh noise; again is harmless."""
    with store.moves:
        full, empty = end_windows(store, why, now)
        opened = store.open(_slot(store, now), now)
        return Reseed(full, empty, opened)


def end_windows(
    store: Lifecycle,
    why: str,
    now: int,
    *,
    also: Callable[[], None] = lambda: None,
    keys: Collection[int] = (),
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """End all populating windows, nodes and hot steps in one erasure: those sealed, and dropped.

    ``also`` changes the catalogue in its transaction; ``keys`` die with it.
    """
    with store.moves:
        store.settle()
        windows, steps = _closed(store, now)
        full = [window for window in windows if window.arena.rows]
        empty = [window for window in windows if not window.arena.rows]
        reach("reseed.closed")
        _end(store, full, empty, steps, why, now, also, keys)
        reach("reseed.ended")
        store.publish()
        return _numbers(full), _numbers(empty)


def _closed(store: Lifecycle, now: int) -> tuple[list[Window], list[Step]]:
    """The windows and steps there are: from here on none of them takes a row."""
    with store.arrivals:
        windows, steps = store.windows.all(), list(store.hot.steps)
        for window in windows:
            window.closed = True
            if window.arena.rows:
                window.arena.seal()
            store.passed(window, now)
        for node in store.nodes.all():
            node.closed = True
            if node.arena.rows:
                node.arena.seal()
        for step in steps:
            step.closed = True
    return windows, steps


def _end(
    store: Lifecycle,
    full: Sequence[Window],
    empty: Sequence[Window],
    steps: Sequence[Step],
    why: str,
    now: int,
    also: Callable[[], None],
    keys: Collection[int],
) -> None:
    """All of it in one erasure: a crash leaves every window sealed, or none."""
    nodes = [node for node in store.nodes.all() if node.arena.rows]
    idle = [node for node in store.nodes.all() if not node.arena.rows]
    complete, lacking = store.summed(
        windows={window.number: window.arena for window in full},
        nodes={node.number: node.arena for node in nodes},
    )
    changes = bool(full or nodes)
    with ExitStack() as files:
        add: list[Callable[..., None]] = [
            files.enter_context(store.tables.write(window.arena, "sealed", window.number))
            for window in full
        ]
        add += [
            files.enter_context(store.tables.write(node.arena, "sealed", node=node.number))
            for node in nodes
        ]
        if changes and complete is not None:
            add.append(files.enter_context(store.tables.write(complete, "complete")))
        reach("reseed.written")

        def before() -> None:
            if changes:
                store.tables.supersede("complete")
            for each in add:
                each()
            ends = dict.fromkeys(_numbers(full), "sealed") | dict.fromkeys(
                _numbers(empty), "erased"
            )
            for number, state in ends.items():
                store.tables.supersede("checkpoint", number)
                store.catalogue.run(
                    "UPDATE windows SET state = ?, stop = coalesce(stop, ?) WHERE number = ?",
                    state,
                    now,
                    number,
                )
            for node in nodes:
                store.tables.supersede("checkpoint", node=node.number)
                store.catalogue.run(
                    "UPDATE nodes SET state = 'sealed' WHERE number = ?", node.number
                )
            store.sum_tables(_numbers(empty))
            store.forget_nodes(node.number for node in idle)
            store.hot.close(steps)
            also()

        def after() -> None:
            with store.arrivals:
                for window in (*full, *empty):
                    store.populating.pop(window.number)
                for node in (*nodes, *idle):
                    store.nodes.nodes.pop(node.number)
            if changes:
                store.complete, store.lacking, store.published = complete, lacking, False

        gone = ended(_numbers(full), _numbers(empty), [node.number for node in nodes])
        store.erase(gone, why, now, keys=keys, before=before, after=after)


def _slot(store: Lifecycle, now: int) -> int:
    """The slot of now; by rows, the one after all that were."""
    slots = store.windows.slots
    if slots is not None:
        return max(slots.at(now), store.windows.passed + 1)
    last = "SELECT coalesce(max(slot), -1) FROM windows WHERE state <> 'opening'"
    return int(store.catalogue.one(last)) + 1


def _numbers(windows: Sequence[Window]) -> tuple[int, ...]:
    return tuple(window.number for window in windows)
