"""Files of a store that cannot be trusted: found, and made again from those that can.

Complete tables are the sum of the sealed windows, so either tells of the other: what is lost
of one is in the other, as long as it is not more than one window. All of this is computed from
tables that are private already and costs nothing. Where it is not enough, a window is counted
again from its rows, which costs: see `pyramidion.store.rebuild`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from pyramidion.counts.arena import Arena
from pyramidion.errors import FormatError, KeyHolderError, StateError, StorageError
from pyramidion.storage.deletions import DAMAGED
from pyramidion.storage.table_files import COMPLETE, sealed_tables
from pyramidion.storage.table_sets import SetId, window_id
from pyramidion.store.change import Change, Erasure, Served, apply
from pyramidion.store.state import StoreState

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


def verify(store: StoreState) -> list[Damage]:
    """Read every file; what cannot be read, does not authenticate or does not add up."""
    with store.moves:
        return [*_catalogue(store), *_tables(store), *_hot(store)]


def _catalogue(store: StoreState) -> Iterator[Damage]:
    try:
        changed = store.pins.changed()
    except KeyHolderError:
        raise
    except FormatError as problem:
        yield Damage("catalogue", None, str(problem))
        return
    for fact in changed:
        yield Damage("catalogue", None, f"changed from outside: {fact}")


def _tables(store: StoreState) -> Iterator[Damage]:
    for row in store.tables.current("sealed", "checkpoint", "complete"):
        why = _problem(store, row)
        if why:
            yield Damage(row["kind"], row["number"], why)
    for state in ("sealed", "populating"):
        for row in store.tables.nodes(state):
            why = _problem(store, row)
            if why:
                yield Damage("node", None, why, row["number"])
    total, lacking = store.tables.total()
    if not lacking and not _same(total, store.complete):
        yield Damage("complete", None, NOT_THE_SUM)


def _problem(store: StoreState, row: sqlite3.Row) -> str:
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


def _hot(store: StoreState) -> Iterator[Damage]:
    for number, problem in store.hot.damaged():
        if isinstance(problem, KeyHolderError):
            raise problem
        yield Damage("hot", None, f"batch {number}: {problem}")


def mend(store: StoreState, now: int) -> list[Damage]:
    """Write complete tables and one sealed window anew from what is sound, free; what was mended.

    Where more than one sealed window is damaged they cannot be told apart.
    """
    with store.moves:
        store.settle()
        populating = {node.number for node in store.open_sets.nodes()}
        damaged = [
            each
            for each in _tables(store)
            if each.kind in ("sealed", "complete")
            or (each.kind == "node" and each.node not in populating)
        ]
        lost = {each.window for each in damaged if each.window is not None}
        under = store.sets.nodes_over(lost, "sealed")  # which may stand for it in the complete ones
        if len(lost) > 1 or lost & store.lacking or under:
            numbers = ", ".join(map(str, sorted(lost)))
            raise StateError(
                f"nothing but the rows tells the tables of window {numbers} any more; rebuild() "
                f"it from them, or restore a backup"
            )
        if damaged:
            sealed = {row["number"]: row["level"] for row in store.sets.nodes("sealed")}
            nodes = [SetId(sealed[n.node], n.node) for n in damaged if n.node is not None]
            apply(store, plan_mend(store, lost, nodes), now)
        return damaged


def plan_mend(store: StoreState, lost: Collection[int], nodes: Collection[SetId]) -> Change:
    """Plan to write damaged tables again.

    A window that is lost is what the complete tables have and the other windows have not. A node
    is not needed: its windows have all that it counts.
    """
    others, _ = store.tables.total(but=lost, sets=dict.fromkeys(nodes))
    complete = store.complete if lost else others
    write = {}
    if complete is not None:
        write[COMPLETE] = complete
        for number in lost:
            left = complete if others is None else complete.less(others)
            write[sealed_tables(window_id(number))] = left
    same = complete is store.complete
    return Change(
        "mend",
        write=write,
        supersede=[COMPLETE, *(sealed_tables(window_id(number)) for number in lost)],
        states=dict.fromkeys(nodes, "erased"),
        erase=Erasure(DAMAGED, CANNOT_BE_READ),
        served=None if same else Served(complete, frozenset()),
        expires="" if same else "the complete tables were mended",
    )
