"""Killed while a person is erased, a store has all their rows or none, and counts as before."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyramidion import Pyramid
from pyramidion.storage.fault_points import POINTS, arm
from tests.dying import died
from tests.store import inspect
from tests.store.inspect import populating
from tests.store.peopling import PEOPLE, of
from tests.store.stores import DAY, START, Stand, cells, noise, observed, same

GIVEN = {"k": 2, "p_min": 0.5, "delta": 0.0, "checkpoint_rows": 3}
MADE = [of(list("abac"), START), of(list("bcab"), START + DAY, seed=1)]
COUNTED = [MADE[0].take([0, 1, 2, 3]), MADE[1].take([0, 1])]
"""What counts of them in a block of three days: of each the first two."""

ERASING = [point for point in POINTS if point.startswith(("person.", "erase.", "rewrap."))]


def filled(stand: Stand) -> Pyramid:
    """A store with rows in two steps, and a checkpoint that lacks the last of them."""
    store = stand.create(PEOPLE, **GIVEN)
    for number, batch in enumerate(MADE):
        stand.clock.now = START + number * DAY
        observed(store, batch)
    return store


def erased(folder: Path, point: str) -> None:
    """In a child: open the store and erase, to be killed at a point."""
    stand = Stand(folder)
    stand.clock.now = START + DAY
    store = stand.open()
    arm(point)
    store.erase_person("a", why="request 17")


@pytest.mark.parametrize("point", [*ERASING, "append.synced:1", "append.synced:2"])
def test_all_rows_of_the_person_are_hot_or_none_and_tables_are_as_acknowledged(
    point: str, stand: Stand
) -> None:
    drawn = noise(filled(stand), populating(stand._open[0]), COUNTED)
    stand.close()
    assert died(lambda: erased(stand.folder, point))
    stand.clock.now = START + DAY
    store = stand.open()
    left = [table["who"].to_pylist() for _, table, _ in inspect.hot(store).batches()]
    done = bool(store.status().deletions)
    assert left == ([["b", "c"], ["b", "c", "b"]] if done else [list("abac"), list("bcab")])
    assert done == (point.partition(":")[0] in COMMITTED)
    assert all(record.done for record in store.status().deletions)
    assert same(noise(store, populating(store), COUNTED), drawn)
    assert store.status().windows[0].rows == populating(store).rows == 8
    assert len(stand.files("hot")) == 2
    assert len(stand.files("tables")) == 1
    assert observed(store, of(list("abc"), START + DAY, seed=2)).blanked == 3
    if not done:
        before = cells(populating(store))
        store.erase_person("a", why="request 17")
        assert same(cells(populating(stand.reopen())), before)


COMMITTED = {
    *("erase.committed", "erase.truncated", "erase.destroyed", "erase.unlinked", "erase.after"),
    "person.after",
}
