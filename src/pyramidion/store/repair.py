"""Files of a store that cannot be trusted: found, and made again from those that can.

Complete tables are the sum of the sealed windows, so either tells of the other: what is lost
of one is in the other, as long as it is not more than one window. All of this is computed from
tables that are private already and costs nothing. Where it is not enough, a window is counted
again from its rows, which costs: see `pyramidion.store.rebuild`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from pyramidion.counts.arena import Arena
from pyramidion.errors import FormatError, KeyHolderError, StateError, StorageError
from pyramidion.storage.deletions import DAMAGED
from pyramidion.store.lifecycle import Lifecycle

NOT_THE_SUM = "the complete tables are not the sum of the sealed windows"
CANNOT_BE_READ = "could not be read"


@dataclass(frozen=True)
class Damage:
    """A file that is damaged, gone or not what it should be."""

    kind: str
    """``sealed`` or ``checkpoint`` tables of a window, those of a ``node``, the ``complete`` ones,
    ``hot`` rows, or a fact of the ``catalogue``."""
    window: int | None
    """Whose tables they are; None for nodes, complete tables and hot rows."""
    why: str
    node: int | None = None


def verify(store: Lifecycle) -> list[Damage]:
    """Read every file; what cannot be read, does not authenticate or does not add up."""
    with store.moves:
        return [*_catalogue(store), *_tables(store), *_hot(store)]


def _catalogue(store: Lifecycle) -> Iterator[Damage]:
    try:
        changed = store.pins.changed()
    except KeyHolderError:
        raise
    except FormatError as problem:
        yield Damage("catalogue", None, str(problem))
        return
    for fact in changed:
        yield Damage("catalogue", None, f"changed from outside: {fact}")


def _tables(store: Lifecycle) -> Iterator[Damage]:
    for row in store.tables.current("sealed", "checkpoint", "complete"):
        why = _problem(store, row)
        if why:
            yield Damage(row["kind"], row["window"], why)
    for state in ("sealed", "populating"):
        for row in store.tables.nodes(state):
            why = _problem(store, row)
            if why:
                yield Damage("node", None, why, row["node"])
    total, lacking = store.tables.total()
    if not lacking and not _same(total, store.complete):
        yield Damage("complete", None, NOT_THE_SUM)


def _problem(store: Lifecycle, row: sqlite3.Row) -> str:
    try:
        found = store.tables.checked(row) if row["kind"] == "sealed" else store.tables.of(row)
    except KeyHolderError:
        raise
    except (FormatError, StorageError) as problem:
        return str(problem)
    return "" if row["kind"] != "complete" or _same(found, store.complete) else NOT_THE_SUM


def _same(one: Arena | None, other: Arena | None) -> bool:
    """Whether two sets of sealed tables have the same cells."""
    if one is None or other is None:
        return one is other
    index = one.layout.index
    return (
        one.rows == other.rows
        and index.keys() == other.layout.index.keys()
        and all(
            np.array_equal(one.cells(index[name]), other.cells(other.layout.index[name]))
            for name in index
        )
    )


def _hot(store: Lifecycle) -> Iterator[Damage]:
    for number, problem in store.hot.damaged():
        if isinstance(problem, KeyHolderError):
            raise problem
        yield Damage("hot", None, f"batch {number}: {problem}")


def mend(store: Lifecycle, now: int) -> list[Damage]:
    """Write complete tables and one sealed window anew from what is sound, free; what was mended.

    Where more than one sealed window is damaged they cannot be told apart.
    """
    with store.moves:
        store.settle()
        damaged = [
            each
            for each in _tables(store)
            if each.kind in ("sealed", "complete")
            or (each.kind == "node" and each.node not in store.nodes.nodes)
        ]
        lost = {each.window for each in damaged if each.window is not None}
        under = store.nodes_over(lost, "sealed")  # the complete tables may have these in its place
        if len(lost) > 1 or lost & store.lacking or under:
            numbers = ", ".join(map(str, sorted(lost)))
            raise StateError(
                f"nothing but the rows tells the tables of window {numbers} any more; rebuild() "
                f"it from them, or restore a backup"
            )
        if damaged:
            nodes = [each.node for each in damaged if each.node is not None]
            _write_anew(store, lost, nodes, now)
        return damaged


def _write_anew(store: Lifecycle, lost: set[int], nodes: Collection[int], now: int) -> None:
    """The window that is lost is what the complete tables have and the others do not.

    A node is not needed: its windows have all that it counts.
    """
    others, _ = store.tables.total(but=lost, nodes=dict.fromkeys(nodes))
    complete = store.complete if lost else others
    with ExitStack() as files:
        add: list[Callable[..., None]] = []
        if complete is not None:
            add.append(files.enter_context(store.tables.write(complete, "complete")))
            for number in lost:
                found = complete if others is None else complete.less(others)
                add.append(files.enter_context(store.tables.write(found, "sealed", number)))

        def before() -> None:
            store.tables.supersede("complete")
            store.forget_nodes(nodes)
            for number in lost:
                store.tables.supersede("sealed", number)
            for each in add:
                each()

        def after() -> None:
            if complete is not store.complete:
                store.lacking = frozenset()
                store.change(complete, "the complete tables were mended")

        store.erase(DAMAGED, CANNOT_BE_READ, now, before=before, after=after)
    store.publish()
