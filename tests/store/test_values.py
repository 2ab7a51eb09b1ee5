"""Values beside counts: each hot row's own, in columns that rows to predict have, too."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyramidion import Categorical, Continuous, Label, Schema, Settings, StateError
from pyramidion.counts.values import WIDTH, values_of
from pyramidion.rows.observations import Door
from tests.store.stores import DAY, SCHEMA, Stand
from tests.store.test_training_set import rolled


def dense(values: object) -> np.ndarray:
    return np.asarray(values.toarray())  # type: ignore[attr-defined]


def test_hot_rows_have_the_columns_that_rows_to_predict_have(stand: Stand) -> None:
    store, (_, sealed, fresh) = rolled(stand)
    training = store.training_set(values=True)
    hot = pa.concat_tables([sealed, fresh])
    asked = store.snapshot().values(hot.select(SCHEMA.feature_names))
    assert training.values.shape == (len(training.y), WIDTH) == (50, WIDTH)
    assert (training.values != asked).nnz == 0
    assert training.values.sum() == 50 * len(SCHEMA.features)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from("abc"), st.floats(-5, 5)), min_size=1
    )
)
def test_a_column_is_a_value_of_a_feature(told: list[tuple[str, str, float]]) -> None:
    schema = Schema(
        label=Label("y", classes=[0, 1]),
        features=[Categorical("a"), Categorical("b"), Continuous("n", edges=[-1.0, 1.0])],
    )
    door = Door(schema, Settings(epsilon=1.0), b"s" * 32)
    a, b, n = (pa.array(column) for column in zip(*told, strict=True))
    found = dense(values_of(door.rows(pa.table({"a": a, "b": b, "n": n}))))
    bins = np.searchsorted([-1.0, 1.0], np.array(n), side="right")
    wanted = [(("a", x), ("b", y), ("n", z)) for (x, y, _), z in zip(told, bins, strict=True)]
    for row, values in zip(found, wanted, strict=True):
        assert sorted(row[row > 0]) == [1] * len(values)
    names = sorted({value for values in wanted for value in values}, key=str)
    for name in names:
        rows = [i for i, values in enumerate(wanted) if name in values]
        shared = np.flatnonzero((found[rows] > 0).all(axis=0))
        others = [i for i, values in enumerate(wanted) if name not in values]
        own = [at for at in shared if not (found[others][:, at] > 0).any()]
        assert own, "no column has exactly the rows of this value"


def test_features_that_are_left_out_have_none(stand: Stand) -> None:
    store, (_, sealed, fresh) = rolled(stand)
    name = SCHEMA.feature_names[0]
    training = store.training_set(without=[name], values=True)
    assert name not in training.valued
    assert training.values.sum() == 50 * (len(SCHEMA.features) - 1)
    hot = pa.concat_tables([sealed, fresh]).select(SCHEMA.feature_names)
    assert (training.values != store.snapshot().values(hot, training.valued)).nnz == 0


def test_they_are_there_where_they_were_asked_for(stand: Stand) -> None:
    store, _ = rolled(stand)
    with pytest.raises(StateError, match="values=True"):
        _ = store.training_set().values


def test_they_go_with_their_rows(stand: Stand) -> None:
    store, _ = rolled(stand)
    training, snapshot = store.training_set(values=True), store.snapshot()
    assert training.values.nnz
    stand.clock.pass_(20 * DAY)
    store.advance()
    with pytest.raises(StateError, match=r"expired|empty|have left"):
        _ = training.values
    assert "_made" not in vars(training)
    assert snapshot is not store.snapshot()
