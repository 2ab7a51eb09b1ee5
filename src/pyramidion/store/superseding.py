"""Tables that go before their windows do: withdrawn ones, and those in bins of another time.

Bins that were read anew start new tables. The old ones serve until the new ones have filled:
until they count half as many rows. Then the old ones are erased, in every window. They are
erased at once when the window that their bins were read from is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from pyramidion.config.schema import Schema, bare
from pyramidion.counts.arena import Arena
from pyramidion.counts.layout import read_from
from pyramidion.errors import FormatError, KeyHolderError, StorageError
from pyramidion.storage.deletions import Deleted, bins
from pyramidion.storage.fault_points import reach
from pyramidion.storage.table_files import NewFile
from pyramidion.store.lifecycle import Lifecycle

FILLED = 2
"""New tables serve as soon as they count one row for so many in the old ones."""

Call = Callable[[], None]


def _nothing() -> None:
    """Nothing else changes."""


# --- bins of another time -----------------------------------------------------------


def rows_by_bins(store: Lifecycle, but: Collection[int] = ()) -> dict[int, int]:
    """Rows in sealed windows, by the window that their bins were read from (0: even ones)."""
    rows: dict[int, int] = {}
    for row in (row for row in store.tables.windows() if row["window"] not in but):
        names = [name for name in store.tables.names(row) if bare(name) in store.schema.moving]
        if names:
            read = max(map(read_from, names))
            rows[read] = rows.get(read, 0) + row["rows"]
    return rows


def served(store: Lifecycle, but: Collection[int] = ()) -> int:
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


def superseded(store: Lifecycle) -> list[int]:
    """The windows whose bins are not needed any more, for tables in newer ones have filled."""
    if not store.schema.moving:
        return []
    now, taking = served(store), {window.arena.layout.read for window in store.windows.all()}
    return [read for read in rows_by_bins(store) if read < now and read not in taking]


def drop_bins(
    store: Lifecycle, reads: Collection[int], why: str, now: int, *, damaged: bool = False
) -> bool:
    """Erase the tables whose bins were read from some windows, and these bins.

    With ``damaged``, a file that cannot be read is erased whole; otherwise it stops this.
    """
    moving, kept = store.schema.moving, store.readings.of("bins")
    known = {*kept, *rows_by_bins(store)} if moving else set()
    reads = [read for read in reads if read in known]
    if not reads:
        return False

    def after() -> None:
        store.readings.forgotten(reads, "bins")
        store.learn(store.schema)

    drop(
        store,
        lambda name: bare(name) not in moving or read_from(name) not in reads,
        bins(reads),
        why,
        now,
        told="bins of its tables were read anew",
        damaged=damaged,
        keys=store.readings.keys(reads, "bins"),
        before=lambda: store.readings.forget(reads, "bins"),
        after=after,
    )
    return True


# --- erasing tables ------------------------------------------------------------------


def drop(
    store: Lifecycle,
    stays: Callable[[str], bool],
    gone: Deleted,
    why: str,
    now: int,
    *,
    told: str,
    damaged: bool = False,
    keys: Collection[int] = (),
    before: Call = _nothing,
    after: Call = _nothing,
) -> None:
    """Erase the tables of which ``stays`` is not true, in every window.

    A window may have no table left; what was read from it stays until it is forgotten.
    ``before`` changes the catalogue in the same transaction, ``after`` the memory, when that is
    durable. Snapshots expire: ``told`` is why.
    """
    with store.moves, store.arrivals:
        settle(store, now)
        sealed = _sealed(store, stays, damaged)
        populating = {n: _less(w.arena, stays) for n, w in store.populating.items()}
        emptied = [n for n, arena in (sealed | populating).items() if arena is None]
        nodes, taking = _nodes(store, stays, emptied)
        complete, lacking = _complete(store, sealed, stays, nodes)
        written, last = _files(store, complete, sealed, populating), store.last_batch()
        written += _node_files(store, nodes, taking)
        reach("drop.written")

        def changed() -> None:
            before()
            store.tables.supersede("complete")
            for number in emptied:
                _empty(store, number, now)
            store.forget_nodes(n for n, arena in (nodes | taking).items() if arena is None)
            for file in written:
                store.tables.supersede(file.kind, file.window, file.node)
                file.add(after=last if file.kind == "checkpoint" else 0)

        def dropped() -> None:
            after()
            for number, arena in populating.items():
                if arena is None:
                    store.populating.pop(number)
                else:
                    window = store.populating[number]
                    window.arena, window.encoder = arena, store.encoder_of(arena)
                    window.after, window.fresh = last, 0
            for number, arena in taking.items():
                if arena is None:
                    store.nodes.nodes.pop(number)
                else:
                    node = store.nodes.nodes[number]
                    node.arena, node.encoder = arena, store.encoder_of(arena)
                    node.after, node.fresh = last, 0
            store.lacking = lacking
            store.change(complete, told)

        store.erase(gone, why, now, keys=keys, before=changed, after=dropped)
        store.publish()


def settle(store: Lifecycle, now: int) -> None:
    """Finish what was begun: an erasure removes files that nobody knows yet."""
    store.settle()
    for window in store.windows.all():
        if window.closed:
            store.seal(window, now)


def _empty(store: Lifecycle, number: int, now: int) -> None:
    """A window is sealed without a table; within a transaction."""
    store.tables.supersede("checkpoint", number)
    store.tables.supersede("sealed", number)
    store.catalogue.run(
        "UPDATE windows SET state = 'sealed', stop = coalesce(stop, ?) WHERE number = ?",
        now,
        number,
    )


def _less(arena: Arena, stays: Callable[[str], bool]) -> Arena | None:
    names = [name for name in arena.layout.index if stays(name)]
    return arena.only(names) if names else None


def _sealed(
    store: Lifecycle, stays: Callable[[str], bool], damaged: bool
) -> dict[int, Arena | None]:
    """What is left of the windows that have tables to be erased; of ``damaged`` ones, nothing."""
    left: dict[int, Arena | None] = {}
    for row in store.tables.windows():
        if not all(map(stays, store.tables.names(row))):
            try:
                left[row["window"]] = _less(store.tables.of(row), stays)
            except KeyHolderError:
                raise
            except (FormatError, StorageError):
                if not damaged:
                    raise
                left[row["window"]] = None
    return left


def _nodes(
    store: Lifecycle, stays: Callable[[str], bool], gone: Collection[int]
) -> tuple[dict[int, Arena | None], dict[int, Arena | None]]:
    """What is left of nodes that have tables to be erased: sealed ones, and populating ones.

    Nothing is left of one that cannot be read, for its windows do without it; nor of one over a
    window that has no table any more, for it would count rows that nothing else does.
    """
    sealed: dict[int, Arena | None] = dict.fromkeys(store.nodes_over(gone, "sealed"))
    for row in store.tables.nodes("sealed"):
        if row["node"] not in sealed and not all(map(stays, store.tables.names(row))):
            try:
                sealed[row["node"]] = _less(store.tables.of(row), stays)
            except KeyHolderError:
                raise
            except (FormatError, StorageError):
                sealed[row["node"]] = None
    over = store.nodes_over(gone, "populating")
    taking = {
        node.number: None if node.number in over else _less(node.arena, stays)
        for node in store.nodes.all()
    }
    return sealed, taking


def _complete(
    store: Lifecycle,
    sealed: Mapping[int, Arena | None],
    stays: Callable[[str], bool],
    nodes: Mapping[int, Arena | None],
) -> tuple[Arena | None, frozenset[int]]:
    """The complete tables without those that are erased, and the windows that they lack."""
    if store.nodes.levels is not None:
        gone = [number for number, arena in sealed.items() if arena is None]
        left = {number: arena for number, arena in sealed.items() if arena is not None}
        return store.tables.total(but=gone, windows=left, nodes=nodes)
    if store.complete is None or None not in sealed.values():
        complete = None if store.complete is None else _less(store.complete, stays)
        return complete, store.lacking
    others, lacking = store.tables.total(but=sealed)
    held = [arena for arena in (others, *sealed.values()) if arena is not None]
    return Arena.total(held) if held else None, lacking


def _node_files(store: Lifecycle, *kinds: Mapping[int, Arena | None]) -> list[NewFile]:
    """What is left of nodes, sealed ones first."""
    return [
        store.tables.write(arena, kind, node=number)
        for kind, arenas in zip(("sealed", "checkpoint"), kinds, strict=True)
        for number, arena in arenas.items()
        if arena is not None
    ]


def _files(
    store: Lifecycle,
    complete: Arena | None,
    sealed: Mapping[int, Arena | None],
    populating: Mapping[int, Arena | None],
) -> list[NewFile]:
    files = [] if complete is None else [store.tables.write(complete, "complete")]
    for kind, arenas in (("sealed", sealed), ("checkpoint", populating)):
        files += [store.tables.write(a, kind, n) for n, a in arenas.items() if a is not None]
    return files
