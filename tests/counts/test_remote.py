"""Features from tables that are elsewhere: those of the same tables in memory, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pyramidion.counts import estimate_kernels
from pyramidion.counts.remote import AT_ONCE, FarArena
from pyramidion.counts.snapshot import Snapshot
from pyramidion.errors import StateError
from tests.counts.test_snapshot import rows_of, snapshot_of

KINDS = [
    {},
    {"windows": 3},
    {"estimate": "ratio"},
    {"sketch": "count-min"},
    {"epsilon": float("inf")},
    {"delta": 1e-6},
    {"max_rows_per_window": 1 << 40},  # cells of 64 bits
]


class Far:
    """The cells of a snapshot, at the other end of a function."""

    def __init__(self, near: Snapshot) -> None:
        self._arena = near._arena
        self.calls: list[int] = []
        self.snapshot = Snapshot(
            near._door,
            FarArena(near._arena.layout, rows=near.rows, max_rows=near._arena.max_rows),
            near.guarantee,
            studied=near.estimates.studied,
            fetch=self.fetch,
        )

    def fetch(self, tables: np.ndarray, buckets: np.ndarray) -> Sequence[bytes]:
        self.calls.append(len(tables))
        labels = self._arena.layout.labels
        return [
            self._arena.cells(table).reshape(-1, labels)[bucket].tobytes()
            for table, bucket in zip(tables, buckets, strict=True)
        ]


def equal(one: Any, other: Any) -> bool:
    return np.asarray(one).tobytes() == np.asarray(other).tobytes()


@pytest.mark.parametrize("given", KINDS, ids=str)
def test_features_are_equal_to_the_last_bit(given: dict[str, Any]) -> None:
    near = snapshot_of(2_000, **given)
    far, rows = Far(near).snapshot, rows_of(150, seed=7)
    assert equal(far.array(rows), near.array(rows))
    for row in rows.slice(0, 20).to_pylist():
        assert equal(far.featurize_one(row), near.featurize_one(row))


def test_a_row_is_fetched_in_one_call() -> None:
    far = Far(snapshot_of(2_000))
    row = rows_of(1).to_pylist()[0]
    far.snapshot.featurize_one(row)
    far.snapshot.featurize_one(rows_of(1).slice(0, 1).to_batches()[0])
    cells = sum(table.rows for table in far._arena.layout.tables[1:])
    assert far.calls == [cells, cells]


def test_rows_are_fetched_together() -> None:
    far, rows = Far(snapshot_of(2_000)), rows_of(2 * AT_ONCE)
    far.snapshot.array(rows)
    assert len(far.calls) == 2  # cells of all tables at once, of 64 rows each


def test_no_kernel_is_compiled_for_it() -> None:
    near, rows = snapshot_of(2_000), rows_of(9)
    near.array(rows)
    near.featurize_one(rows.to_pylist()[0])
    kernels = estimate_kernels.estimate, estimate_kernels.estimate_one
    before = [len(kernel.signatures) for kernel in kernels]
    far = Far(near).snapshot
    far.array(rows)
    far.featurize_one(rows.to_pylist()[0])
    assert [len(kernel.signatures) for kernel in kernels] == before


def test_no_rows_need_no_call() -> None:
    far = Far(snapshot_of(2_000))
    assert far.snapshot.array(rows_of(0)).shape == (0, len(far.snapshot.names))
    assert far.calls == []


def test_a_code_beyond_a_table_is_refused_before_it_is_fetched() -> None:
    near = snapshot_of(2_000)
    far = Far(near)
    keys = np.zeros((len(near._arena.layout.tables) - 1, 1), dtype=np.uint64)
    keys[1] = 99
    with pytest.raises(StateError, match="was asked for one beyond"):
        far.snapshot.featurize_keys(keys)
    assert far.calls == []


def test_what_needs_all_cells_says_so() -> None:
    far = Far(snapshot_of(2_000)).snapshot
    assert far.rows == 2_000
    assert far.tables == snapshot_of(2_000).tables
    with pytest.raises(StateError, match="load them to have all cells"):
        far.typical_counts()
