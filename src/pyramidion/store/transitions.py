"""The steps in the life of table sets and hot rows, each planned as a `Change`.

    charge        the ledger is charged for a window; its noise is drawn after that
    open          the noisy tables are durable; from then on rows may be acknowledged into them
    checkpoint    populating tables are written again, so that reopening counts few rows
    seal          tables take no more counts and join the complete tables
    abandon       a table set that no row came to is dropped; its charge stays
    retire        windows past their retention leave the complete tables
    expire        retired windows and hot rows past their time are erased
    drop          some tables are erased in every table set, as those of a withdrawn feature

A ``plan_`` function reads the state and returns a `Change`; it writes nothing. The function
without the prefix plans and applies.

Two states of one populating table subtract to exact counts. So the key of the older one dies before
any row between them leaves the hot window: every erasure destroys the keys of all superseded files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pyramidion.counts.arena import Arena
from pyramidion.errors import FormatError, KeyHolderError, StateError, StorageError
from pyramidion.privacy.table_noise import TableDesign
from pyramidion.storage.data_keys import PAST
from pyramidion.storage.deletions import Deleted, expired, sealed_set
from pyramidion.storage.hot import HotWindow, Step
from pyramidion.storage.table_files import COMPLETE, TableFile, checkpoint, sealed_tables
from pyramidion.storage.table_sets import NewSet, SetId, State, window_id
from pyramidion.store.change import Also, Change, Edit, Erasure, Served, apply
from pyramidion.store.state import StoreState
from pyramidion.store.windows import TableSet, purpose

# --- open ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Opening:
    """A window to be opened, and the nodes over it that begin with it."""

    number: int
    charge: Change
    births: Mapping[SetId, TableDesign]
    """What the window and the new nodes are born with."""
    join: Mapping[SetId, int]
    """Nodes that populate already, and count this window from now on."""


def plan_charge(state: StoreState, slot: int, now: int) -> Opening:
    """Plan the charge for a window in a slot, and for the nodes that begin with it."""
    number = state.sets.next_window()
    held: dict[str, Fraction] = {}
    join: dict[SetId, int] = {}
    nodes: dict[SetId, TableDesign] = {}
    begin: list[NewSet] = []
    next_node = state.sets.next_node()
    for level, place, node in state.open_sets.wanted(slot):
        if node is not None:
            held[purpose(node.id)] = _paid(state, node)
            join[node.id] = number
        else:
            owner = SetId(level, next_node + len(nodes))
            nodes[owner] = state.node_birth(number, level)
            begin.append(NewSet(owner, place, windows=(number,)))
    above = held | {purpose(owner): cost_of(birth) for owner, birth in nodes.items()}
    birth = state.birth(number, sum(above.values(), Fraction(0)))
    slots = state.open_sets.slots
    start, stop = (None, None) if slots is None else (slots.start(slot), slots.stop(slot))
    window = NewSet(window_id(number), slot, start, stop, (number,))

    def charge() -> None:
        state.ledger.open(number, birth.shares, birth.reserves, now, above)

    change = Change("charge", begin=[window, *begin], edits=[Also(charge)])
    return Opening(number, change, {window_id(number): birth, **nodes}, join)


def plan_open(state: StoreState, opening: Opening, tables: Mapping[SetId, Arena]) -> Change:
    """Plan the birth of table sets whose noise was drawn."""
    return Change(
        "open",
        write={checkpoint(owner): arena for owner, arena in tables.items()},
        through=state.last_batch(),  # no row before had a window to go to here
        join=opening.join,
        states=dict.fromkeys(tables, "populating"),
        populating=tables,
    )


def open_window(state: StoreState, slot: int, now: int) -> int:
    """Open a window: charge, draw noise, write. On return it is durable and takes rows."""
    with state.moves:
        opening = plan_charge(state, slot, now)
        apply(state, opening.charge, now)
        tables = {owner: birth.arena() for owner, birth in opening.births.items()}
        apply(state, plan_open(state, opening, tables), now)
        return opening.number


def _paid(state: StoreState, node: TableSet) -> Fraction:
    """What a node cost at its birth, as a share of the budget; its noise follows from that."""
    first, amount = state.catalogue.first_line("node", purpose(node.id))
    (budget,) = (line.amount for line in state.catalogue.lines(first) if line.kind == "budget")
    return amount / budget if budget else cost_of(state.node_birth(first, node.level))


def cost_of(birth: TableDesign) -> Fraction:
    """What the tables of a node cost, as a share of the budget."""
    return sum(birth.shares.values(), Fraction(0))


# --- checkpoint ------------------------------------------------------------------------------


def plan_checkpoint(state: StoreState, tables: TableSet) -> Change:
    """Plan to write populating tables again, with every row acknowledged so far."""
    with state.arrivals:
        copy = tables.arena.only(tables.arena.layout.index)
        return Change("checkpoint", write={checkpoint(tables.id): copy}, through=state.last_batch())


def checkpoint_tables(state: StoreState, tables: TableSet, now: int) -> None:
    """Write populating tables again."""
    with state.moves:
        apply(state, plan_checkpoint(state, tables), now)


# --- seal ------------------------------------------------------------------------------------


def close_set(state: StoreState, tables: TableSet) -> None:
    """Have a table set take no more rows, in memory."""
    with state.arrivals:
        tables.closed = True
        if tables.arena.rows:
            tables.arena.seal()


def plan_seal(state: StoreState, tables: TableSet) -> Change:
    """Plan to add a closed table set to the complete tables.

    This is an erasure too: every populating state dies with its key, also in backups, before the
    sealed tables are served. A backup that went on from such a state would seal the same noise over
    other rows, and the two subtract.
    """
    served = summed(state, {tables.id: tables.arena})
    return Change(
        "seal",
        write={sealed_tables(tables.id): tables.arena, **complete_file(served)},
        states={tables.id: "sealed"},
        erase=Erasure(sealed_set(*tables.id), "sealed"),
        served=served,
    )


def plan_abandon(tables: TableSet) -> Change:
    """Plan to drop a table set that no row came to: its noise goes, its charge stays."""
    return Change("abandon", states={tables.id: "erased"})


def seal(state: StoreState, tables: TableSet, now: int) -> None:
    """Close a table set and add it to the complete tables; drop it if no row came to it."""
    with state.moves:
        close_set(state, tables)
        change = plan_seal(state, tables) if tables.arena.rows else plan_abandon(tables)
        apply(state, change, now)


def nodes_over(state: StoreState, now: int) -> list[TableSet]:
    """Nodes that no more rows can come to."""
    if not state.open_sets.nodes():
        return []
    by_rows = state.open_sets.slots is None
    last = (state.sets.last_slot("opening") or 0) if by_rows else -1
    return state.open_sets.nodes_over(now, last)


def summed(state: StoreState, sealed: Mapping[SetId, Arena]) -> Served:
    """The complete tables with more table sets sealed.

    Without a tree the new tables are added; in a tree nodes come to stand for windows.
    """
    if state.open_sets.levels is not None:
        return Served(*state.tables.total(sets=sealed))
    tables = [arena for arena in (state.complete, *sealed.values()) if arena is not None]
    return Served(Arena.total(tables) if sealed else state.complete, state.lacking)


def complete_file(served: Served) -> dict[TableFile, Arena]:
    """The file of complete tables to write, if there are any."""
    return {} if served.complete is None else {COMPLETE: served.complete}


# --- retire and expire -------------------------------------------------------------------------


def plan_retire(state: StoreState, numbers: Collection[int]) -> Change | None:
    """Plan to take sealed windows out of the complete tables; None if none of them is sealed."""
    sealed = [number for number in numbers if state.sets.state(window_id(number)) == "sealed"]
    if not sealed:
        return None
    served = _without(state, sealed)
    nodes = state.sets.nodes_over(sealed, "populating", "sealed")
    return Change(
        "retire",
        write=complete_file(served),
        supersede=[COMPLETE],
        states=dict.fromkeys([*map(window_id, sealed), *nodes], "retired"),
        served=served,
        expires=f"window {sealed[-1]} is past its retention",
    )


def retire(state: StoreState, numbers: Collection[int], now: int) -> None:
    """Take windows out of the complete tables; nothing serves them any longer."""
    change = plan_retire(state, numbers)
    if change is not None:
        apply(state, change, now)


def _without(state: StoreState, numbers: Sequence[int]) -> Served:
    """The complete tables without some windows.

    Their tables are subtracted; if one cannot be read, the others are summed instead. A window that
    cannot be read there does not keep others beyond their time: the complete tables lack it.
    """
    if state.open_sets.levels is not None:
        return Served(*state.tables.total(but=numbers))
    complete, lacking = state.complete, state.lacking.difference(numbers)
    held = {row["window"] for row in state.tables.windows()}
    if held <= {*numbers, *lacking}:
        return Served(None, lacking)
    if complete is None:
        raise StateError("there are no complete tables to subtract windows from; reopen the store")
    try:
        for number in held.intersection(numbers).difference(state.lacking):
            complete = complete.less(state.tables.sealed(number))
    except (FormatError, StorageError):
        return Served(*state.tables.total(but=numbers))
    return Served(complete, lacking)


@dataclass(frozen=True)
class Leave:
    """Hot steps that are erased."""

    hot: HotWindow
    steps: Sequence[Step]

    def write(self, at: int) -> Collection[int]:
        """Forget them; their keys die."""
        self.hot.forget(self.steps, at)
        return [key.id for step in self.steps for key in (step.key, step.once)]

    def remember(self) -> None:
        """They are over."""
        self.hot.forgotten(self.steps)


@dataclass(frozen=True)
class Rewrite:
    """Hot steps that were written again, in place of the old ones, whose keys die."""

    hot: HotWindow
    steps: Sequence[tuple[Step, Step]]

    def write(self, at: int) -> Collection[int]:  # noqa: ARG002
        """Make the new files known."""
        self.hot.replace(self.steps)
        return [old.key.id for old, _ in self.steps]

    def remember(self) -> None:
        """These are the steps."""
        if self.steps:
            self.hot.replaced(self.steps)


def plan_expire(state: StoreState, steps: Sequence[Step], windows: Collection[int]) -> Change:
    """Plan to erase hot steps and retired windows, and the nodes over these, in one erasure."""
    nodes = state.sets.nodes_over(windows, "populating", "sealed", "retired")
    retired = [node.number for node in state.sets.nodes_over(windows, "retired")]
    states: dict[SetId, State] = dict.fromkeys([*map(window_id, windows), *nodes], "erased")
    gone = expired([step.number for step in steps], windows, retired)
    return Change(
        "expire",
        states=states,
        edits=[Leave(state.hot, steps)],
        erase=Erasure(gone, PAST),
    )


# --- drop some tables ----------------------------------------------------------------------------


def settle(state: StoreState, now: int) -> None:
    """Finish what was begun: an erasure that was broken off, and windows that are being sealed."""
    state.settle()
    for window in state.open_sets.windows():
        if window.closed:
            seal(state, window, now)


def plan_drop(
    state: StoreState,
    stays: Callable[[str], bool],
    deleted: Deleted,
    why: str,
    *,
    expires: str,
    damaged: bool = False,
    edits: Sequence[Edit] = (),
) -> Change:
    """Plan to erase the tables for which ``stays`` is false, in every table set.

    A window may have no table left; statistics that were read from it stay until it is erased. With
    ``damaged``, a file that cannot be read is erased whole; otherwise this raises. Snapshots
    expire: ``expires`` says why. Callers hold both locks until the change is applied.
    """
    sealed = _left_of_windows(state, stays, damaged)
    taking = {each.id: _only(each.arena, stays) for each in state.open_sets.windows()}
    emptied = [owner.number for owner, arena in (sealed | taking).items() if arena is None]
    nodes, populating = _left_of_nodes(state, stays, emptied)
    served = _complete_after(state, sealed, stays, nodes)
    sealed, taking = sealed | nodes, taking | populating
    states: dict[SetId, State] = {}
    for owner, arena in (sealed | taking).items():
        if arena is None:
            states[owner] = "erased" if owner.level else "sealed"
    files = {sealed_tables(owner): arena for owner, arena in sealed.items() if arena is not None}
    open_ = {owner: arena for owner, arena in taking.items() if arena is not None}
    return Change(
        "drop",
        write={
            **complete_file(served),
            **files,
            **{checkpoint(owner): arena for owner, arena in open_.items()},
        },
        through=state.last_batch(),
        supersede=[COMPLETE, *(sealed_tables(window_id(number)) for number in emptied)],
        states=states,
        populating=open_,
        edits=edits,
        erase=Erasure(deleted, why),
        served=served,
        expires=expires,
    )


def _only(arena: Arena, stays: Callable[[str], bool]) -> Arena | None:
    names = [name for name in arena.layout.index if stays(name)]
    return arena.only(names) if names else None


def _left_of_windows(
    state: StoreState, stays: Callable[[str], bool], damaged: bool
) -> dict[SetId, Arena | None]:
    """What is left of sealed windows that have tables to erase; None: no table."""
    left: dict[SetId, Arena | None] = {}
    for row in state.tables.windows():
        if not all(map(stays, state.tables.names(row))):
            try:
                left[window_id(row["window"])] = _only(state.tables.of(row), stays)
            except KeyHolderError:
                raise
            except (FormatError, StorageError):
                if not damaged:
                    raise
                left[window_id(row["window"])] = None
    return left


def _left_of_nodes(
    state: StoreState, stays: Callable[[str], bool], emptied: Collection[int]
) -> tuple[dict[SetId, Arena | None], dict[SetId, Arena | None]]:
    """What is left of nodes that have tables to erase: of sealed ones, and of populating ones.

    Nothing is left of a node that cannot be read, because its windows do without it; nor of one
    over a window that has no table any longer, because it would count rows that nothing else does.
    """
    sealed: dict[SetId, Arena | None] = dict.fromkeys(state.sets.nodes_over(emptied, "sealed"))
    for row in state.tables.nodes("sealed"):
        owner = SetId(row["level"], row["number"])
        if owner not in sealed and not all(map(stays, state.tables.names(row))):
            try:
                sealed[owner] = _only(state.tables.of(row), stays)
            except KeyHolderError:
                raise
            except (FormatError, StorageError):
                sealed[owner] = None
    over = state.sets.nodes_over(emptied, "populating")
    populating = {
        node.id: None if node.id in over else _only(node.arena, stays)
        for node in state.open_sets.nodes()
    }
    return sealed, populating


def _complete_after(
    state: StoreState,
    sealed: Mapping[SetId, Arena | None],
    stays: Callable[[str], bool],
    nodes: Mapping[SetId, Arena | None],
) -> Served:
    """The complete tables without those that are erased."""
    emptied = [owner.number for owner, arena in sealed.items() if arena is None]
    if state.open_sets.levels is not None:
        return Served(*state.tables.total(but=emptied, sets={**sealed, **nodes}))
    if state.complete is None:
        return Served(None, state.lacking)
    if not emptied:
        return Served(_only(state.complete, stays), state.lacking)
    others, lacking = state.tables.total(but=[owner.number for owner in sealed])
    tables = [arena for arena in (others, *sealed.values()) if arena is not None]
    return Served(Arena.total(tables) if tables else None, lacking)


def drop_tables(
    state: StoreState,
    stays: Callable[[str], bool],
    deleted: Deleted,
    why: str,
    now: int,
    *,
    expires: str,
    damaged: bool = False,
    edits: Sequence[Edit] = (),
) -> None:
    """Erase tables in every table set; see `plan_drop`."""
    with state.moves, state.arrivals:
        settle(state, now)
        change = plan_drop(
            state, stays, deleted, why, expires=expires, damaged=damaged, edits=edits
        )
        apply(state, change, now)
