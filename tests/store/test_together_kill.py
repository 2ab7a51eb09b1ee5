"""Killed while arrivals are observed together, a store has all of them or none, each once."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyramidion import Arrival, Pyramid
from pyramidion.errors import ObservationError
from pyramidion.storage.fault_points import arm
from pyramidion.storage.hot import Receipt
from tests.dying import died
from tests.store import inspect
from tests.store.inspect import populating
from tests.store.peopling import PEOPLE, of
from tests.store.stores import START, Stand, noise, same

GIVEN = {"k": 2, "p_min": 0.5, "delta": 0.0}
FIRST = of(list("ab"), START)
SENT = [of(list("ac"), START, seed=1), of(list("cab"), START, seed=2), of(list("ad"), seed=3)]
COUNTED = [FIRST, SENT[0], SENT[1].take([0, 2]), SENT[2].take([1])]
"""What counts of them: of each person the first two."""
RECEIPTS = [Receipt(2, 0, 0), Receipt(3, 0, 0, 1), Receipt(2, 0, 0, 1)]

POINTS = [
    *("append.before", "append.before:2", "append.written", "append.written:2"),
    *("append.synced", "commit.before", "commit.after"),
]


def group() -> list[Arrival]:
    """Two that are alike, a bad one, and one of another form: two records."""
    return [
        Arrival(SENT[0].to_pylist(), "one"),
        Arrival([row | {"y": 7} for row in SENT[0].to_pylist()], "bad"),
        Arrival(SENT[1].to_pylist(), "two"),
        Arrival(SENT[2].to_pandas(), "three"),
    ]


def sent(folder: Path, point: str) -> None:
    """In a child: open the store and observe, to be killed at a point."""
    store = Stand(folder).open()
    arm(point)
    store.observe_all(group())


def filled(stand: Stand) -> Pyramid:
    store = stand.create(PEOPLE, **GIVEN)
    store.observe(FIRST)
    return store


@pytest.mark.parametrize("point", POINTS)
def test_all_arrivals_are_there_or_none_and_sent_again_each_counts_once(
    point: str, stand: Stand
) -> None:
    drawn = noise(filled(stand), populating(stand._open[0]), [FIRST])
    stand.close()
    assert died(lambda: sent(stand.folder, point))
    store = stand.open()
    done = point == "commit.after"
    counted = COUNTED if done else COUNTED[:1]
    assert store.status().hot_rows == populating(store).rows == (9 if done else 2)
    assert same(noise(store, populating(store), counted), drawn)
    (file,) = stand.files("hot")
    assert (stand.path / "hot" / file).stat().st_size == inspect.hot(store).steps[0].length
    for _ in range(2):
        one, bad, two, three = store.observe_all(group())
        assert [one, two, three] == RECEIPTS
        assert isinstance(bad, ObservationError)
        assert store.status().hot_rows == populating(store).rows == 9
        assert same(noise(store, populating(store), COUNTED), drawn)
        store = stand.reopen()
