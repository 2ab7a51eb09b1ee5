"""One durable step in the life of a store, as a value; and `apply`, which alone makes it happen.

Everything that ends or begins tables is planned as a `Change` (`pyramidion.store.transitions`) and
made durable by `apply`. Nothing else writes table files, changes the state of a table set, or
destroys keys. `apply` does this, in this order:

    1  write the table files, each under a new key
    2  one transaction: states, files, other parts of the store (`edits`), the deletion record, and
       the digest that authenticates windows and ledger (`pyramidion.storage.pins`)
    3  the same in memory
    4  an erasure or a release: destroy the former store key, then remove dead files
    5  serve the tables that were sealed

A crash leaves the store as before step 2 or as after it: files that the catalogue does not know
are removed when the store is opened, and a key that was not destroyed yet is destroyed then.
Step 5 comes after step 4: no table is served while an earlier state of it could still be read.

Rows are committed elsewhere (`pyramidion.store.commit`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pyramidion.counts.arena import Arena
from pyramidion.errors import StateError
from pyramidion.storage.deletions import Deleted
from pyramidion.storage.fault_points import ChangeName, reach
from pyramidion.storage.table_files import NewFile, TableFile, checkpoint
from pyramidion.storage.table_sets import NewSet, SetId, State

if TYPE_CHECKING:
    from pyramidion.store.state import StoreState


class Edit(Protocol):
    """A change of one other part of the store, made in the same transaction.

    Nothing happens before `write` is called, so a plan that holds edits can be made and looked at
    without changing the store.
    """

    def write(self, at: int) -> Collection[int]:
        """Change the catalogue, within the transaction, at a time of the clock.

        Returns the data keys that must die with this change.
        """
        ...

    def remember(self) -> None:
        """Change the memory, once the transaction is durable."""


@dataclass(frozen=True)
class Also:
    """An edit from two functions, for parts of the store with one such edit."""

    run: Callable[[], object]
    """Changes the catalogue."""
    then: Callable[[], None] | None = None
    """Changes the memory."""
    keys: Collection[int] = ()
    """Data keys that die."""

    def write(self, at: int) -> Collection[int]:  # noqa: ARG002
        """Run it."""
        self.run()
        return self.keys

    def remember(self) -> None:
        """Do the same in memory."""
        if self.then is not None:
            self.then()


class Served(NamedTuple):
    """The complete tables, and the sealed windows that they lack because a file is damaged."""

    complete: Arena | None
    lacking: frozenset[int]


class Erasure(NamedTuple):
    """What a change destroys, for the deletion record; and why."""

    deleted: Deleted
    why: str


@dataclass(frozen=True)
class Change:
    """One durable step: files to write, one transaction, memory, what is served."""

    name: ChangeName
    """Its fault points are ``<name>.before``, ``.written`` and ``.after``."""
    write: Mapping[TableFile, Arena] = field(default_factory=lambda: MappingProxyType({}))
    """Tables to write; the current file of the same role is superseded. Frozen copies, unless the
    caller holds the lock of arrivals until `apply` returns."""
    through: int = 0
    """The last batch that is counted in the checkpoints among them."""
    supersede: Collection[TableFile] = ()
    """Files without a successor; the next erasure destroys their keys."""
    begin: Sequence[NewSet] = ()
    """Table sets that begin, in the state `opening`."""
    join: Mapping[SetId, int] = field(default_factory=lambda: MappingProxyType({}))
    """Populating nodes that count one more window from now on."""
    states: Mapping[SetId, State] = field(default_factory=lambda: MappingProxyType({}))
    """New states. A sealed set has no checkpoint, an erased one no file and no statistics."""
    populating: Mapping[SetId, Arena] = field(default_factory=lambda: MappingProxyType({}))
    """Tables that take rows afterwards: of table sets that open, or in place of other tables."""
    edits: Sequence[Edit] = ()
    """Changes of other parts of the store: hot rows, statistics, schema, ledger, audit log."""
    renew: bool = False
    """Whether no older copy of the store may open afterwards, as before every release."""
    erase: Erasure | None = None
    """Set if keys die: those of all superseded files, and those that edits return."""
    served: Served | None = None
    """The complete tables afterwards; None: as before."""
    expires: str = ""
    """Why older snapshots must expire at once; empty: they may live on."""
    due: bool = True
    """Whether its checkpoints count as those that are due after so many rows."""


def apply(state: StoreState, change: Change, now: int) -> None:
    """Make a change durable, then remember it. The only writer of tables, states and keys.

    Raises before the transaction is committed and changes nothing; or after it, if a former key
    cannot be destroyed. Then the change has happened, `DataKeys.unfinished` is set, and nothing new
    is served until `StoreState.settle` has destroyed the key.
    """
    with state.moves:
        reach(f"{change.name}.before")
        with ExitStack() as unless_committed:
            files = [
                unless_committed.enter_context(state.tables.write(arena, role))
                for role, arena in change.write.items()
            ]
            reach(f"{change.name}.written")
            if change.erase is not None:
                _erase(state, change, files, now)
            elif change.renew:
                try:
                    state.keys.renew(lambda: _commit_alone(state, change, files, now))
                except Exception:
                    if state.keys.unfinished:  # it is durable; the former key is still there
                        _remember(state, change)
                    raise
                _remember(state, change)
            else:
                with state.catalogue.transaction():
                    _commit_alone(state, change, files, now)
                _remember(state, change)
                if change.write or change.supersede:
                    state.remove_strangers()
        reach(f"{change.name}.after")
        state.publish()


def _erase(state: StoreState, change: Change, files: Sequence[NewFile], now: int) -> None:
    erase = change.erase
    if erase is None:
        raise ValueError("this change erases nothing")

    def forget(at: int) -> Collection[int]:
        dead = _commit(state, change, files, now, at)
        dead += state.tables.forget_superseded()
        dead += state.uncounted.drop(lambda block: state.people.is_over(block, now))
        dead += [key for edit in state.with_erasures for key in edit.write(at)]
        state.pins.seal()
        return dead

    state.keys.erase(
        erase.deleted,
        erase.why,
        state.present,
        forget,
        lambda: _remember(state, change),
        state.remove_strangers,
    )


def _commit_alone(state: StoreState, change: Change, files: Sequence[NewFile], now: int) -> None:
    """What the transaction changes if no key dies."""
    if _commit(state, change, files, now, state.present()):
        raise StateError("a change that erases nothing may not drop keys; this is a bug")
    state.pins.seal()


def _commit(
    state: StoreState, change: Change, files: Sequence[NewFile], now: int, at: int
) -> list[int]:
    """What the transaction changes; the data keys that must die with it."""
    state.pins.check()
    dead = [key for edit in change.edits for key in edit.write(at)]
    for new in change.begin:
        state.sets.insert(new)
    for node, window in change.join.items():
        state.sets.join(node, [window])
    for owner, value in change.states.items():
        state.sets.set_state(owner, value, stop=now if value == "sealed" else None)
        if value == "sealed":
            state.tables.supersede(checkpoint(owner))
        elif value == "erased":
            state.tables.supersede_all(owner)
    for role in change.supersede:
        state.tables.supersede(role)
    for file in files:
        state.tables.supersede(file.role)
        file.add(after=change.through if file.role.kind == "checkpoint" else 0)
    ended = _ended(change)
    state.sum_tables(ended)
    dead += state.readings.keys(ended)
    state.readings.forget(ended)
    return dead


def _ended(change: Change) -> list[int]:
    """The windows that are erased."""
    return [o.number for o, value in change.states.items() if value == "erased" and not o.level]


def _remember(state: StoreState, change: Change) -> None:
    """The same in memory; the transaction is durable."""
    state.forget_dates()
    state.readings.forgotten(_ended(change))
    with state.arrivals:
        for edit in change.edits:
            edit.remember()
        for owner, value in change.states.items():
            if value not in ("opening", "populating"):
                state.open_sets.sets.pop(owner, None)
        for owner, arena in change.populating.items():
            state.adopt(owner, arena, change.through)
        for owner, window in change.join.items():
            state.open_sets.sets[owner].windows.add(window)
        for role, arena in change.write.items():
            if role.kind == "checkpoint" and role.owner in state.open_sets.sets:
                tables = state.open_sets.sets[role.owner]
                tables.after = change.through
                if change.due:
                    tables.fresh = tables.arena.rows - arena.rows
    if change.served is not None:
        state.serve(change.served, change.expires)
