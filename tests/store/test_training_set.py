"""Training sets: hot rows by tables that no longer count them; raw, and gone when they go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyramidion import Categorical, Label, Schema, SchemaError, StateError, TrainingSet
from pyramidion.counts.arena import Arena
from pyramidion.learn import reduced
from tests.store import inspect
from tests.store.stores import DAY, SCHEMA, START, Stand, cells, exact, observed, rows, same
from tests.vault.vaults import refusing


def off(training: TrainingSet) -> Arena:
    """The tables less all hot rows at once."""
    found = training.reduced._all
    assert found is not None
    return found._arena


def rolled(stand: Stand, **settings: object) -> tuple[object, list[pa.Table]]:
    """A store whose hot rows lie in a sealed window and in the populating one."""
    store = stand.create(hot_window="6d", **settings)
    old = rows(160, START, seed=1)
    observed(store, old)
    now = stand.clock.pass_(9 * DAY)
    sealed = rows(30, now, seed=2)
    observed(store, sealed)
    now = stand.clock.pass_(2 * DAY)
    store.advance()
    fresh = rows(20, now, seed=3)
    observed(store, fresh)
    assert store.status().hot_rows == 50
    return store, [old, sealed, fresh]


def test_the_tables_of_a_training_set_hold_no_hot_row(stand: Stand) -> None:
    store, (old, _, _) = rolled(stand, epsilon=float("inf"))
    raw = off(store.training_set())
    assert same(cells(raw), exact(store, raw, [old]))


def test_under_noise_exactly_the_hot_rows_are_taken_off(stand: Stand) -> None:
    store, (_, sealed, _) = rolled(stand)
    complete, raw = inspect.served(store), off(store.training_set())
    gone = exact(store, complete, [sealed])
    left = cells(raw)
    for name, found in cells(complete).items():
        assert np.array_equal(found - gone[name], left[name])


def test_it_has_every_hot_row_once_in_order_with_its_label(stand: Stand) -> None:
    store, (_, sealed, fresh) = rolled(stand)
    training = store.training_set()
    X, y = training
    hot = pa.concat_tables([sealed, fresh])
    assert X.shape == (50, len(training.names))
    assert y.tolist() == hot["y"].to_pylist()
    assert np.array_equal(X, training.reduced._all.array(hot.select(["a", "b"])))
    parts = list(training.batches())
    assert [len(part) for part, _ in parts] == [30, 20]
    assert np.array_equal(np.concatenate([part for part, _ in parts]), X)
    table = training.to_arrow()
    assert table.column_names == [*training.names, "y"]
    assert table["y"].to_pylist() == y.tolist()


def test_it_is_raw_and_says_so(stand: Stand) -> None:
    store, _ = rolled(stand)
    training = store.training_set()
    assert training.guarantee.level == training.X.guarantee.level == "P1"


def test_rows_of_the_populating_window_are_not_taken_off(stand: Stand) -> None:
    store = stand.create(hot_window="6d")
    observed(store, rows(40))
    stand.clock.pass_(11 * DAY)
    store.advance()
    observed(store, rows(20, stand.clock.now, seed=3))
    raw = off(store.training_set())
    assert same(cells(raw), cells(inspect.served(store)))


def test_a_row_of_a_window_that_lacked_a_group_is_not_taken_off_that_group(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reduced, "LARGEST", 1)
    plain = Schema(time="t", label=SCHEMA.label, features=SCHEMA.features)
    store = stand.create(plain, epsilon=float("inf"), hot_window="20d", retention="90d")
    first = rows(30, stand.clock.pass_(8 * DAY), seed=1)
    observed(store, first)
    store.groups.add(("a", "b"))  # from the next window on
    second = rows(20, stand.clock.pass_(4 * DAY), seed=2)
    observed(store, second)
    stand.clock.pass_(8 * DAY)
    store.advance()
    complete = inspect.served(store)
    assert {t.name: t.windows for t in complete.layout.tables}["a,b"] == 1
    assert store.status().hot_rows == 50
    raw = cells(off(store.training_set()))
    assert not any(found.any() for found in raw.values())


def test_it_expires_when_a_row_of_it_leaves(stand: Stand) -> None:
    store, _ = rolled(stand)
    training = store.training_set()
    stand.clock.pass_(5 * DAY)
    store.advance()
    with pytest.raises(StateError, match="expired"):
        list(training.batches())


def test_it_expires_also_when_the_leaving_rows_cannot_be_sealed(
    stand: Stand, monkeypatch: Any
) -> None:
    stand.vault = stand.folder / "vault"
    store, _ = rolled(stand)
    training = store.training_set()
    store.vault._sealer.vaulted = store.vault._sealer._taken = 0  # as if nothing was sealed
    refusing(monkeypatch, 1)
    stand.clock.pass_(5 * DAY)
    with pytest.raises(OSError, match="the disk refuses"):
        store.advance()
    with pytest.raises(StateError, match="expired"):
        list(training.batches())


def test_rows_that_leave_while_they_are_gone_through_are_not_called_damage(stand: Stand) -> None:
    store, _ = rolled(stand)
    training = store.training_set()
    batches = training.batches()
    next(batches)
    stand.clock.pass_(20 * DAY)
    store.advance()
    with pytest.raises(StateError, match=r"expired|have left"):
        list(batches)


def test_a_snapshot_of_before_a_seal_is_not_taken_for_the_complete_tables(stand: Stand) -> None:
    store, _ = rolled(stand)
    old = store.snapshot()
    stand.clock.pass_(9 * DAY)
    store.advance()
    new, inspect.parts(store).serving.current = inspect.parts(store).serving.current, old
    with pytest.raises(StateError, match="changing"):
        store.training_set()
    inspect.parts(store).serving.current = new
    observed(store, rows(5, stand.clock.now, seed=4))
    assert len(store.training_set().y) == store.status().hot_rows


def test_it_expires_when_a_window_retires_or_a_feature_is_withdrawn(stand: Stand) -> None:
    store, _ = rolled(stand)
    training = store.training_set()
    store.groups.withdraw("a", why="a test")
    with pytest.raises(StateError, match="expired"):
        list(training.batches())
    assert len(store.training_set().X) == 50


def test_of_several_labels_one_is_named_and_numbers_come_as_they_are(stand: Stand) -> None:
    schema = Schema(
        time="t",
        features=[Categorical("a")],
        label=[Label("y", classes=["no", "yes"]), Label("size", edges=[1.0, 2.0])],
    )
    store = stand.create(schema, hot_window="6d")
    table = pa.table(
        {
            "t": np.full(6, START),
            "a": list("uvwuvw"),
            "y": ["no", "yes", "no", "yes", "yes", "no"],
            "size": [0.5, 1.5, 2.5, 0.25, 1.0, 2.0],
        }
    )
    observed(store, table)
    now = stand.clock.pass_(11 * DAY)
    store.advance()
    observed(store, table.set_column(0, "t", pa.array(np.full(6, now))))
    with pytest.raises(SchemaError, match="name one of y, size"):
        store.training_set()
    with pytest.raises(SchemaError, match="there is no label 'sise'; did you mean 'size'"):
        store.training_set("sise")
    assert store.training_set("y").y.tolist() == table["y"].to_pylist()
    assert store.training_set("size").y.tolist() == table["size"].to_pylist()


def test_without_hot_rows_there_is_nothing_to_train_on(stand: Stand) -> None:
    store = stand.create()
    observed(store, rows(40))
    stand.clock.pass_(11 * DAY)
    store.advance()
    with pytest.raises(StateError, match="the hot window is empty"):
        store.training_set().X  # noqa: B018


def test_rows_weigh_what_they_are_counted(stand: Stand) -> None:
    schema = Schema(time="t", label=SCHEMA.label, features=SCHEMA.features, weight="p")
    store = stand.create(schema, hot_window="6d", p_min=0.1, weight_unit=2)
    odds = np.array([1.0, 0.5, 0.3, 0.01] * 10)
    observed(store, rows(40).append_column("p", pa.array(odds)))
    stand.clock.pass_(10 * DAY)
    store.advance()
    again = rows(40, stand.clock.now).append_column("p", pa.array(odds))
    observed(store, again)
    weights = store.training_set().weights
    assert weights.tolist() == [1.0, 2.0, 3.0, 10.0] * 10  # in halves: 6 of 2 · 1/0.3
    with pytest.raises(AttributeError):
        store.training_set().weights = weights  # type: ignore[misc]


def test_without_propensities_all_rows_weigh_one(stand: Stand) -> None:
    store, _ = rolled(stand)
    assert store.training_set().weights.tolist() == [1.0] * 50
