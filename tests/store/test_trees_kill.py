"""Killed at any point, a tree of windows comes back with every row in one node of each level.

Without noise a node is the sum of its windows, table by table: so a row that it lacks, has twice
or has alone shows, whatever the store was doing.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pyramidion import Pyramid
from pyramidion.storage.fault_points import POINTS
from pyramidion.storage.table_sets import SetId
from tests.dying import died
from tests.memory import in_memory
from tests.store import inspect
from tests.store.stores import DAY, Stand, cells, observed, rows
from tests.store.test_trees import EXACT

MOVES = ("append", "commit", "open", "checkpoint", "seal", "charge", "step", "retire")
ERASES = ("drop", "reseed", "erase", "rewrap")
KILLS = [point for point in POINTS if point.partition(".")[0] in (*MOVES, *ERASES)]
ONCE = ("reseed.", "drop.")  # points that the plan below comes to once
PLACES = [
    *(f"{point}:1" for point in KILLS),
    *(
        pytest.param(f"{point}:3", marks=pytest.mark.campaign)
        for point in KILLS
        if not point.startswith(ONCE)
    ),
]
GIVEN = EXACT | {"checkpoint_rows": 8, "retention": "70d"}


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    """A store in the fourth window of a node of four, with two windows to retire soon."""
    with in_memory() as folder:
        stand = Stand(folder)
        store = stand.create(**GIVEN)
        for number in range(7):
            observed(store, rows(6, stand.clock.now, seed=number))
            if number < 6:
                stand.clock.pass_(10 * DAY)
                store.advance()
        (stand.folder / "now").write_text(str(stand.clock.now))
        stand.close()
        yield folder


def lived(stand: Stand) -> None:
    """All that moves nodes: rows, checkpoints, seals, retirements, a withdrawal, an intrusion."""
    store = stand.open()
    for number in range(5):
        stand.clock.pass_(2 * DAY)
        for more in range(2):
            observed(store, rows(5, stand.clock.now, seed=100 + 10 * number + more))
        stand.clock.pass_(8 * DAY)
        store.advance()
        if number == 1:
            store.groups.withdraw("a,b", why="test")
        if number == 2:
            store.admin.reseed(why="test")


def unlike(store: Pyramid) -> list[str]:
    """Nodes that are not the sum of their windows."""
    files, found = inspect.table_files(store), []
    windows = {row["window"]: files.of(row) for row in files.windows()}
    windows |= {number: window.arena for number, window in inspect.windows(store).items()}
    held = {node.id: node.arena for node in inspect.nodes(store)}
    held |= {SetId(r["level"], r["number"]): files.of(r) for r in files.nodes("sealed")}
    for owner, arena in held.items():
        number = owner.number
        counted = inspect.table_sets(store).windows_of(owner)
        members = [windows[n] for n in counted if n in windows]
        for name, counts in cells(arena).items():
            parts = [cells(each)[name] for each in members if name in each.layout.index]
            if not np.array_equal(counts, sum(parts) if parts else 0 * counts):
                found.append(f"table {name!r} of node {number}")
        if arena.rows != sum(each.rows for each in members):
            found.append(f"rows of node {number}")
    return found


@pytest.mark.parametrize("place", PLACES)
def test_every_row_is_in_one_node_of_each_level(place: str, made: Path, stand: Stand) -> None:
    shutil.copytree(made, stand.folder, dirs_exist_ok=True)
    stand.clock.now = float((stand.folder / "now").read_text())
    assert died(lambda: lived(stand), at=place)
    store = stand.open()
    assert unlike(store) == []
    assert store.admin.verify() == []
    clock = inspect.catalogue(store).about("clock")
    stand.clock.now = max(stand.clock.now, int(clock) / 1e6)
    observed(store, rows(5, stand.clock.now, seed=999))
    stand.clock.pass_(10 * DAY)
    store.advance()
    assert unlike(store) == []
    assert store.admin.verify() == []
    states = {node.state for node in store.status().nodes}
    assert states <= {"populating", "sealed"}
