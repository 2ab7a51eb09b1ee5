"""Windows that were counted elsewhere join a store whole, each once, whatever dies on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyramidion import Pyramid
from pyramidion.counts.partials import Partial
from pyramidion.errors import PrivacyError, StateError
from pyramidion.storage.fault_points import POINTS
from pyramidion.store.bulk import Bulk
from tests.dying import died
from tests.store import inspect
from tests.store.inspect import sealed
from tests.store.stores import DAY, SCHEMA, START, TIMELESS, Stand, noise, rows, same, states

HISTORY = {n: rows(40 + n, START - (25 - 10 * n) * DAY, seed=n) for n in range(2)}


def counted(bulk: Bulk, table: Any) -> tuple[int, Partial]:
    """What Spark would have counted of rows of one window."""
    found = bulk.door.observations(table)
    made = Partial(bulk.birth.layout, len(found))
    made.add(found)
    (slot,) = set(bulk.slots.all_at(found.times).tolist())
    return slot, made


def went_on(stand: Stand) -> Pyramid:
    """The history from where it was broken off."""
    store = stand.open() if stand.path.exists() else stand.create()
    bulk = store.bulk("history")
    counts = dict(counted(bulk, table) for table in HISTORY.values())
    for slot in bulk.wanted({slot: each.rows for slot, each in counts.items()}):
        bulk.take(slot, counts[slot])
    return store


@pytest.mark.parametrize("point", [f"{p}:2" for p in POINTS if p.startswith("bulk.")])
def test_a_store_that_was_killed_counts_each_window_once(point: str, stand: Stand) -> None:
    assert died(lambda: went_on(Stand(stand.folder)), at=point)
    store = went_on(stand)
    kept = {n: size for n, (state, size) in states(store).items() if state == "sealed"}
    assert sorted(kept.values()) == [40, 41]
    assert store.snapshot().rows == 81
    assert store.admin.verify() == []
    for window in store.ledger.report().windows:
        assert window.spent <= window.budget
    stray = {row["file"] for row in inspect.table_files(store).current("sealed", "complete")}
    assert stand.files("tables") == stray


def test_the_sealed_tables_are_noise_and_the_rows_and_no_other_state_is_on_the_disk(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state without the rows, or half of them, would subtract to exact counts."""
    from pyramidion.storage.table_files import TableFile, TableFiles

    written: list[tuple[str, int]] = []
    real = TableFiles.write

    def write(self: TableFiles, arena: Any, role: TableFile) -> Any:
        written.append((role.kind, arena.rows))
        return real(self, arena, role)

    monkeypatch.setattr(TableFiles, "write", write)
    store = went_on(stand)
    assert written == [("sealed", 40), ("complete", 40), ("sealed", 41), ("complete", 81)]
    for number, table in zip(states(store), HISTORY.values(), strict=True):
        left = noise(store, sealed(store, number), [table])
        assert all(np.abs(cells).mean() > 0.5 for cells in left.values())
        other = noise(store, sealed(store, number), [table.slice(0, 20)])
        assert not same(left, other)


def test_a_window_counted_in_bulk_retires_as_others_do(stand: Stand) -> None:
    store = went_on(stand)
    kept = store.snapshot()
    stand.clock.now = START + 30 * DAY
    assert store.advance().retired
    assert kept.expired
    stand.clock.now = START + 60 * DAY
    store.advance()
    assert {state for state, _ in states(store).values()} == {"erased"}


def test_a_window_counted_in_bulk_can_be_rebuilt(stand: Stand) -> None:
    store = stand.create(rebuild_share=0.3)
    bulk = store.bulk()
    window = bulk.take(*counted(bulk, HISTORY[0]))
    assert store.admin.rebuild(window.window, HISTORY[0], why="tampered with").rows == 40


def test_tables_that_changed_meanwhile_are_not_filled(stand: Stand) -> None:
    store = stand.create()
    bulk = store.bulk()
    slot, counts = counted(bulk, HISTORY[0])
    store.groups.withdraw("a,b", why="not needed")
    with pytest.raises(StateError, match="tables changed"):
        bulk.take(slot, counts)
    assert states(store) == {}


def test_rows_of_a_window_that_the_store_has_are_refused(stand: Stand) -> None:
    store = stand.create()
    store.observe(rows(5))
    stand.clock.now = START + 11 * DAY
    store.advance()
    bulk = store.bulk()
    with pytest.raises(StateError, match="may be counted twice"):
        bulk.wanted({bulk.slots.at(int(START * 1e6)): 3})


def test_more_rows_than_a_window_takes_are_refused(stand: Stand) -> None:
    bulk = stand.create(max_rows_per_window=30).bulk()
    with pytest.raises(StateError, match="has 40 rows and takes 30"):
        bulk.wanted({counted(bulk, HISTORY[0].slice(0, 3))[0]: 40})


def test_what_cannot_be_enforced_in_bulk_is_refused(stand: Stand) -> None:
    with pytest.raises(StateError, match="belong to no window"):
        stand.create(TIMELESS).bulk()
    stand.close()
    other = Stand(stand.folder / "rows")
    with pytest.raises(StateError, match="cut by rows"):
        other.create(count_window=100).bulk()
    other.close()
    people = Stand(stand.folder / "people")
    schema = type(SCHEMA)(time="t", label=SCHEMA.label, features=SCHEMA.features, unit="a")
    with pytest.raises(PrivacyError, match="limited by what is hot"):
        people.create(schema, hot_window="10d", hot_step="10d").bulk()
    people.close()
    assert isinstance(HISTORY[0], pa.Table)
