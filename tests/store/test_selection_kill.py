"""Killed while groups are chosen or dropped, a store opens with all rows and pays once."""

from __future__ import annotations

import pytest

from pyramidion import Pyramid
from pyramidion.storage.fault_points import POINTS
from tests.dying import died
from tests.store import inspect
from tests.store.stores import DAY, START, Stand, cells
from tests.store.test_selection import MUCH, SCHEMA, batch, spends

PLAN = [(8.8, 2500), (18.8, 2000), (28.8, 2000), (38.8, 500)]
"""Days, and rows that come then: groups that tell nothing are chosen, counted and dropped."""

GIVEN = MUCH | {"selection_every": 9, "trial_windows": 1, "selection_groups": 2, "retention": "60d"}


def went_on(stand: Stand) -> Pyramid:
    """The plan from where it was broken off: what was acknowledged is not sent again."""
    store = stand.open() if stand.path.exists() else stand.create(SCHEMA, **GIVEN)
    left = sum(window.rows for window in store.status().windows)
    for day, rows in PLAN:
        stand.clock.now = max(stand.clock.now, START + day * DAY)
        store.advance()
        if left < rows:
            store.observe(batch(rows, day, strength=0.0))
        left = max(0, left - rows)
        for later in (0.7, 1.5):
            stand.clock.now = max(stand.clock.now, START + (day + later) * DAY)
            store.advance()
    return store


@pytest.mark.parametrize(
    "point", ["select.spent", "select.kept", "drop.written", "erase.added:6", "erase.committed:6"]
)
def test_a_store_that_was_killed_goes_on_and_no_window_pays_twice(point: str, stand: Stand) -> None:
    assert point.partition(":")[0] in POINTS
    assert died(lambda: went_on(Stand(stand.folder)), at=point)
    stand.clock.now = START + PLAN[0][0] * DAY
    store = went_on(stand)
    report = store.ledger.report()
    assert all(window.spent <= window.budget for window in report.windows)
    assert all(len(paid) <= 1 for paid in spends(store).values())
    counted = sum(w.rows for w in store.status().windows if w.state in ("sealed", "populating"))
    assert counted == sum(rows for _, rows in PLAN)
    names = {",".join(group) for group in store.schema.groups}
    groups = {group.name: group.state for group in store.groups.status()}
    assert names == {name for name, state in groups.items() if state != "dropped"}
    assert len(groups) == 2
    for window in inspect.windows(store).values():
        assert not set(cells(window.arena)) & (set(groups) - names)
    assert store.snapshot().featurize_one(dict.fromkeys(SCHEMA.feature_names, 1)).size
