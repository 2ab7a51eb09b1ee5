"""Erasing one person: their hot rows at once, and nothing of what is counted.

    1  all hot steps are written anew without their rows, under fresh keys
    2  so are all populating tables, with every row that they counted
    3  models, training sets and curves go: they learned from these rows
    4  one erasure: the new files take over, the keys of the old ones die

Counts stay: tables with and without a person's rows, on the same noise, subtract to the exact
counts of that person. They are hidden by the noise until their window retires.

Whoever looks at the store from outside sees the same whether the person had rows or not: all
steps are written anew, no record becomes shorter, row totals stay what they were, and the
deletion record says neither who nor how many.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.errors import ObservationError, PrivacyError, SchemaError
from pyramidion.rows.hashing import Keys
from pyramidion.storage import records
from pyramidion.storage.batches import Batches
from pyramidion.storage.deletions import PERSON
from pyramidion.storage.fault_points import reach
from pyramidion.storage.hot import Step
from pyramidion.storage.table_files import checkpoint
from pyramidion.store.change import Also, Change, Edit, Erasure, apply
from pyramidion.store.state import StoreState, call_all
from pyramidion.store.transitions import Rewrite, settle


@dataclass(frozen=True)
class PersonErasure:
    """What `erase_person` did: the same for somebody who was never there."""

    steps: int
    """Hot steps that were written anew: all."""
    windows: tuple[int, ...]
    """Populating windows whose tables were written anew, with all that they counted: all."""


def erase_person(
    store: StoreState, person: str | int, why: str, now: int, entry: Edit
) -> PersonErasure:
    """Erase the hot rows of a person, and what was learned from them; a crash leaves all or none.

    Rows that arrive while this runs wait, and are treated like any others. The ``entry`` for the
    audit log is committed with the erasure.
    """
    people = _people(store, person)
    _refuse_named(person, why)
    with store.moves, store.arrivals:
        settle(store, now)
        store.people.forget(now)
        steps = store.hot.less(lambda table: _theirs(store, table, people))
        windows = tuple(window.number for window in store.open_sets.windows())
        problem = call_all([observer.person_leaving for observer in store.observers])
        reach("person.parted")
        apply(store, plan_person(store, people, steps, why, entry), now)
    if problem is not None:
        raise problem
    return PersonErasure(len(steps), windows)


def plan_person(
    store: StoreState, people: Keys, steps: Sequence[tuple[Step, Step]], why: str, entry: Edit
) -> Change:
    """Plan to swap all hot steps for those without a person's rows, and to write all populating
    tables again as they are.

    Callers hold the lock of arrivals until the change is applied.
    """
    keep = people if _counts(store) else people[:0]
    uncounted = Also(
        lambda: store.uncounted.add(keep, store.people.running), lambda: store.people.fill(keep)
    )
    return Change(
        "person",
        write={checkpoint(tables.id): tables.arena for tables in store.open_sets.all()},
        through=store.last_batch(),
        edits=[Rewrite(store.hot, steps), uncounted, entry],
        erase=Erasure(PERSON, why),
        due=False,  # the next checkpoint comes when it would have come
    )


# --- who -----------------------------------------------------------------------------------


def _people(store: StoreState, person: str | int) -> Keys:
    """The key that rows of this person have, as whoever counts people tells them apart."""
    unit = store.schema.unit
    if unit is None:
        raise SchemaError(
            "the schema names no unit, so it is not known whose a row is; make a store whose "
            "schema has one, or wait until the rows leave the hot window"
        )
    whole = isinstance(person, int | np.integer) and not isinstance(person, bool)
    if whole or isinstance(person, str):
        try:
            return store.door.people([person])
        except ObservationError:
            pass  # it speaks of rows
    raise ObservationError(
        f"a person in column {unit!r} is text or a whole number; give one as the rows have it"
    )


def _refuse_named(person: str | int, why: str) -> None:
    """A reason stays for ever, so it may not say who."""
    name = str(person)
    if name and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", why, re.IGNORECASE):
        raise PrivacyError(
            "the reason names the person, and it would stay in the deletion record; write one "
            "that does not, such as the number of a request"
        )


def _theirs(store: StoreState, table: pa.Table, people: Keys) -> NDArray[np.bool_]:
    """Which rows of a batch are of these people."""
    unit = str(store.schema.unit)
    column = records.batch_of(table.select([unit])).columns[unit]
    return np.isin(store.door.people(column), people)


def checked_person(store: StoreState, person: str | int, why: str) -> str:
    """The column that names people; refuses nobody's name, and a reason that says who."""
    _people(store, person)
    _refuse_named(person, why)
    return str(store.schema.unit)


# --- what stays known ----------------------------------------------------


def _counts(store: StoreState) -> bool:
    """Whether any row came in the running block, whosever it was."""
    rows = Batches(store.catalogue).all()
    return any(store.people.is_running(row["arrived"]) for row in rows)
