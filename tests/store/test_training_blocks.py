"""Where hot rows are much of what is counted: block by block, each with all but itself."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from pyramidion import Categorical, Label, Pyramid, Schema, StateError
from tests.store import inspect
from tests.store.stores import DAY, START, Stand, observed, rows


def young(stand: Stand, sizes: list[int], old: int = 0, **settings: object) -> Pyramid:
    """A store all of whose hot rows are in a sealed window."""
    store = stand.create(hot_window="6d", **settings)
    if old:
        observed(store, rows(old, START, seed=99))
    now = stand.clock.pass_(9 * DAY)
    for seed, size in enumerate(sizes):
        observed(store, rows(size, now, seed=seed))
    stand.clock.pass_(2 * DAY)
    store.advance()
    assert store.status().hot_rows == sum(sizes)
    return store


def hot(sizes: list[int]) -> pa.Table:
    return pa.concat_tables([rows(size, START + 9 * DAY, seed=i) for i, size in enumerate(sizes)])


def by_hand(store: Pyramid, table: pa.Table, borders: list[int]) -> np.ndarray:
    """Each block by the snapshot less that block."""
    snapshot, door, parts = store.snapshot(), inspect.door(store), []
    for low, high in pairwise(borders):
        block = door.observations(table.slice(low, high - low)).under(snapshot.encoder)
        parts.append(np.asarray(snapshot.without(block).array(block)))
    return np.concatenate(parts)


@pytest.mark.parametrize("sizes", [[100], [30, 70], [7, 50, 3, 40], [20] * 5])
@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_a_young_store_featurizes_each_fifth_with_the_other_four(
    stand: Stand, sizes: list[int], epsilon: float
) -> None:
    store = young(stand, sizes, epsilon=epsilon)
    expected = by_hand(store, hot(sizes), [0, 20, 40, 60, 80, 100])
    training = store.training_set()
    assert np.array_equal(training.X, expected)
    assert training.y.tolist() == hot(sizes)["y"].to_pylist()
    assert [len(X) for X, _ in training.batches()] == sizes


@pytest.mark.parametrize(
    ("old", "blocks"), [(0, 5), (24, 5), (25, 4), (66, 4), (67, 3), (150, 2), (399, 2), (400, 1)]
)
def test_a_block_is_at_most_a_fifth_of_what_is_counted(stand: Stand, old: int, blocks: int) -> None:
    store = young(stand, [100], old=old)
    borders = [100 * number // blocks for number in range(blocks + 1)]
    assert np.array_equal(store.training_set().X, by_hand(store, hot([100]), borders))


def test_rows_that_come_later_are_featurized_too(stand: Stand) -> None:
    store = young(stand, [60, 40])
    training = store.training_set()
    later = rows(10, stand.clock.now, seed=5)
    observed(store, later)
    X = np.concatenate([np.asarray(part) for part, _ in training.batches()])
    assert np.array_equal(X[:100], by_hand(store, hot([60, 40]), [0, 20, 40, 60, 80, 100]))
    last = inspect.door(store).observations(hot([60, 40]).slice(80))
    snapshot = store.snapshot()
    less = snapshot.without(last.under(snapshot.encoder))
    assert np.array_equal(X[100:], less.array(later.select(["a", "b"])))


def test_no_block_outlives_a_row_of_it(stand: Stand) -> None:
    store = young(stand, [60, 40])
    training = store.training_set()
    going = training.batches()
    next(going)
    held = list(training.reduced._made)
    assert held
    stand.clock.pass_(20 * DAY)
    store.advance()
    assert all(block.expired for block in held)
    with pytest.raises(StateError, match=r"expired|have left"):
        next(going)


def test_a_young_store_learns(stand: Stand) -> None:
    schema = Schema(
        time="t", label=Label("y", classes=[0, 1]), features=[Categorical("a", domain=range(20))]
    )
    store = stand.create(schema, hot_window="6d", count_window=4_000, epsilon=1.0)
    random = np.random.default_rng(0)
    values = random.integers(0, 20, 8_000)
    label = (random.random(8_000) < np.where(values % 2, 0.8, 0.2)).astype(int)
    table = pa.table({"t": np.full(8_000, START), "a": values, "y": label})
    observed(store, table.slice(0, 4_000))
    store.advance()
    X, y = store.training_set()
    model = LogisticRegression().fit(X, y)
    new = store.featurize(table.slice(4_000).select(["a"])).to_pandas().to_numpy()
    assert log_loss(label[4_000:], model.predict_proba(new)) < 0.55  # 0.50 at best, 0.69 unlearnt
