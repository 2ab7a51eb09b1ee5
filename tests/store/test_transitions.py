"""Transitions are planned without changing anything; `apply` alone makes them happen."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyramidion import Pyramid
from pyramidion.storage.table_files import COMPLETE, checkpoint, sealed_tables
from pyramidion.storage.table_sets import SetId, window_id
from pyramidion.store import transitions
from pyramidion.store.change import Change, apply
from pyramidion.store.erase_person import plan_person
from pyramidion.store.rebuild import plan_rebuild
from pyramidion.store.recovery import plan_recovery
from pyramidion.store.repair import plan_mend
from pyramidion.store.reseed import plan_end
from pyramidion.store.state import StoreState
from tests.store import inspect
from tests.store.stores import DAY, START, Stand, cells, observed, rows, same

TREE = {"windows": "tree", "tree_radix": 2, "tree_depth": 2}
SRC = Path(__file__).resolve().parents[2] / "src" / "pyramidion"


class Nothing:
    """An edit that changes nothing."""

    def write(self, at: int) -> tuple[int, ...]:
        return ()

    def remember(self) -> None:
        pass


@pytest.fixture
def store(stand: Stand) -> Pyramid:
    """A store with a sealed window, and one that populates."""
    return lived(stand, stand.create(hot_window="30d"))


def lived(stand: Stand, store: Pyramid, windows: int = 2) -> Pyramid:
    for number in range(windows):
        stand.clock.now = START + 10 * number * DAY
        store.advance()
        observed(store, rows(12, stand.clock.now, seed=number))
    return store


def lifecycle(store: Pyramid) -> StoreState:
    return inspect.parts(store).lifecycle


def disk(stand: Stand) -> dict[str, bytes]:
    """Every file of a store and its keys."""
    found = [path for path in stand.folder.rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in found if not path.name.endswith("-shm")}


def populating(store: Pyramid) -> Any:
    (window,) = inspect.windows(store).values()
    return window


PLANS: dict[str, Callable[[Pyramid], Change | None]] = {
    "charge": lambda s: transitions.plan_charge(lifecycle(s), 999, s.now).charge,
    "checkpoint": lambda s: transitions.plan_checkpoint(lifecycle(s), populating(s)),
    "seal": lambda s: transitions.plan_seal(lifecycle(s), sealed_in_memory(s)),
    "abandon": lambda s: transitions.plan_abandon(populating(s)),
    "retire": lambda s: transitions.plan_retire(lifecycle(s), [1]),
    "expire": lambda s: transitions.plan_expire(lifecycle(s), inspect.hot(s).steps, [1]),
    "drop": lambda s: transitions.plan_drop(
        lifecycle(s),
        lambda name: name != "a",
        transitions.expired([], [], []),
        "test",
        expires="test",
    ),
    "reseed": lambda s: (
        sealed_in_memory(s) and plan_end(lifecycle(s), inspect.hot(s).steps, "test")
    ),
    "rebuild": lambda s: plan_rebuild(lifecycle(s), 1, inspect.sealed(s, 1), "test", Nothing()),
    "mend": lambda s: plan_mend(lifecycle(s), [1], []),
    "person": lambda s: plan_person(
        lifecycle(s), np.empty(0, dtype=np.uint64), [], "test", Nothing()
    ),
    "recover": lambda s: plan_recovery(lifecycle(s)),
}


def sealed_in_memory(store: Pyramid) -> Any:
    """The populating window, sealed as it is before a seal is planned."""
    window = populating(store)
    transitions.close_set(lifecycle(store), window)
    return window


@pytest.mark.parametrize("name", PLANS)
def test_plan_writes_nothing(name: str, store: Pyramid, stand: Stand) -> None:
    before, told = disk(stand), inspect.told(store)
    change = PLANS[name](store)
    assert isinstance(change, Change)
    assert change.name == name
    assert disk(stand) == before
    assert (told.published, told.withdrawn) == (0, [])


def test_seal_replaces_the_checkpoint_by_sealed_and_complete_tables(store: Pyramid) -> None:
    window = sealed_in_memory(store)
    change = transitions.plan_seal(lifecycle(store), window)
    assert list(change.write) == [sealed_tables(window_id(2)), COMPLETE]
    assert change.states == {window_id(2): "sealed"}
    assert change.erase is not None
    assert change.erase.deleted.kind == "sealed"
    assert change.erase.deleted.windows == (2,)
    assert change.served is not None
    assert change.served.complete is not None
    assert change.served.complete.rows == 24
    assert not change.expires


def test_retirement_takes_the_window_and_its_nodes_out_of_what_is_served(stand: Stand) -> None:
    store = lived(stand, stand.create(**TREE), 4)
    change = transitions.plan_retire(lifecycle(store), [1])
    assert change is not None
    assert change.states == {window_id(1): "retired", SetId(1, 1): "retired"}
    assert change.served is not None
    assert change.served.complete is not None
    assert change.served.complete.rows == 24
    assert change.erase is None
    assert change.expires


def test_retirement_of_windows_that_are_not_sealed_is_nothing(store: Pyramid) -> None:
    assert transitions.plan_retire(lifecycle(store), [2]) is None


def test_window_and_its_nodes_begin_with_one_charge(stand: Stand) -> None:
    store = stand.create(**TREE)
    opening = transitions.plan_charge(lifecycle(store), 4, store.now)
    assert [(new.id, new.slot, new.windows) for new in opening.charge.begin] == [
        (window_id(1), 4, (1,)),
        (SetId(1, 1), 2, (1,)),
    ]
    tables = {owner: birth.arena() for owner, birth in opening.births.items()}
    change = transitions.plan_open(lifecycle(store), opening, tables)
    assert set(change.write) == {checkpoint(window_id(1)), checkpoint(SetId(1, 1))}
    assert set(change.states.values()) == {"populating"}


def test_a_checkpoint_is_a_copy(store: Pyramid) -> None:
    window = populating(store)
    change = transitions.plan_checkpoint(lifecycle(store), window)
    (copy,) = change.write.values()
    assert same(cells(copy), cells(window.arena))
    observed(store, rows(5, START + 10 * DAY))
    assert copy.rows == 12
    apply(lifecycle(store), change, store.now)
    assert window.fresh == 5


# --- one writer --------------------------------------------------------------------------------

WRITERS = {
    "write": {"store/change.py"},
    "supersede": {"store/change.py"},
    "supersede_all": {"store/change.py"},
    "forget_superseded": {"store/change.py"},
    "set_state": {"store/change.py"},
    "insert": {"store/change.py"},
}
"""Methods of table files and table sets that change something, and who may call them."""


def calls(path: Path) -> set[tuple[str, str]]:
    """What is called on `tables` or `sets` in a file: the name of that, and the method."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            found.add((node.value.attr, node.attr))
    return found


def test_apply_is_the_only_writer_of_tables_and_states() -> None:
    callers: dict[str, set[str]] = {name: set() for name in WRITERS}
    for path in SRC.rglob("*.py"):
        for owner, method in calls(path):
            if owner in ("tables", "sets") and method in WRITERS:
                callers[method].add(str(path.relative_to(SRC)))
    assert callers == WRITERS


def test_only_apply_destroys_keys() -> None:
    erasing = {
        str(path.relative_to(SRC))
        for path in (SRC / "store").rglob("*.py")
        if {("keys", "erase"), ("keys", "renew")} & calls(path)
    }
    assert erasing == {"store/change.py"}


def test_states_are_written_in_storage_alone() -> None:
    outside = [
        str(path.relative_to(SRC))
        for path in SRC.rglob("*.py")
        if "storage" not in path.parts and "SET state" in path.read_text()
    ]
    assert outside == []


def test_sql_is_in_storage_alone() -> None:
    """But for the audit's witness, which looks at the catalogue as another process sees it."""
    statement = re.compile(r"(SELECT|INSERT INTO|INSERT OR REPLACE INTO|UPDATE|DELETE FROM) [a-z*]")
    outside = {
        str(path.relative_to(SRC))
        for path in SRC.rglob("*.py")
        if "storage" not in path.parts and statement.search(path.read_text())
    }
    assert outside == {"store/audit/witness.py"}
