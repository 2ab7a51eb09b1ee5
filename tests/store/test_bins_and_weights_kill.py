"""Killed while bins are read or replaced, a store opens with all rows and pays no window twice."""

from __future__ import annotations

import pytest

from pyramidion import Pyramid
from pyramidion.storage.fault_points import POINTS
from tests.dying import died
from tests.store import inspect
from tests.store.stores import DAY, START, Stand
from tests.store.test_bins import MUCH, SCHEMA, batch

PLAN = [(8.0, 1500), (18.0, 1100), (28.0, 1200), (38.0, 300)]
"""Days, and rows that come then: the first window is read, and its bins replace even ones."""


def went_on(stand: Stand) -> Pyramid:
    """The plan from where it was broken off: what was acknowledged is not sent again."""
    store = stand.open() if stand.path.exists() else stand.create(SCHEMA, **MUCH)
    left = sum(window.rows for window in store.status().windows)
    for number, (day, rows) in enumerate(PLAN):
        stand.clock.now = max(stand.clock.now, START + day * DAY)
        store.advance()
        if left < rows:
            store.observe(batch(rows, day, number))
        left = max(0, left - rows)
        for later in (1.5, 2.5):
            stand.clock.now = max(stand.clock.now, START + (day + later) * DAY)
            store.advance()
    return store


@pytest.mark.parametrize(
    "point",
    ["read.spent", "read.kept", "drop.written:1", "erase.added:4", "erase.committed:5"],
)
def test_a_store_that_was_killed_goes_on(point: str, stand: Stand) -> None:
    assert point.partition(":")[0] in POINTS
    assert died(lambda: went_on(Stand(stand.folder)), at=point)
    stand.clock.now = START + 8 * DAY
    store = went_on(stand)
    report = store.ledger.report()
    assert all(window.spent <= window.budget for window in report.windows)
    spends = [line for w in report.windows for line in w.lines if line.kind == "spend"]
    assert len({(line.window, line.purpose) for line in spends}) == len(spends)
    counted = sum(w.rows for w in store.status().windows if w.state in ("sealed", "populating"))
    assert counted == sum(rows for _, rows in PLAN)
    assert store.snapshot().featurize_one({"a": 1, "x": 3.0}).shape == (4,)
    names = {table.name for table in store.status().tables}
    bins = inspect.readings(store).of("bins")
    assert bins
    assert names & {f"x@{window}" for window in bins} or "x" in names
