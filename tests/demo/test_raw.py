from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import log_loss

from pyramidion.demo.flights import Flights
from pyramidion.demo.models import NAMES
from pyramidion.demo.raw import PAIRS, Twins


def relabelled(flights: Flights, late: np.ndarray) -> Flights:
    place = flights.rows.column_names.index("late")
    return replace(flights, rows=flights.rows.set_column(place, "late", pa.array(late)))


@pytest.fixture(scope="module")
def predicted(some: Flights) -> dict[str, np.ndarray]:
    return Twins(some).predict(4)


def test_raw_models_know_no_label_of_the_month_or_later(
    some: Flights, predicted: dict[str, np.ndarray]
) -> None:
    late = some.late.copy()
    late[some.until(4) :] = 1 - late[some.until(4) :]
    other = Twins(relabelled(some, late)).predict(4)
    for name in NAMES:
        np.testing.assert_array_equal(predicted[name], other[name])


def test_raw_models_learn_from_all_months_before(
    some: Flights, predicted: dict[str, np.ndarray]
) -> None:
    late = some.late.copy()
    late[: some.until(2)] = 1 - late[: some.until(2)]
    other = Twins(relabelled(some, late)).predict(4)
    for name in NAMES:
        assert np.abs(predicted[name] - other[name]).mean() > 0.01


def test_raw_models_beat_the_class_rate(some: Flights, predicted: dict[str, np.ndarray]) -> None:
    truth = some.late[some.until(4) : some.until(5)]
    rate = np.full(len(truth), some.late[: some.until(4)].mean())
    for name in NAMES:
        assert log_loss(truth, predicted[name]) < log_loss(truth, rate)


def test_one_hot_has_one_column_for_each_feature_and_pair(some: Flights) -> None:
    matrix = Twins(some)._one_hot
    assert set(matrix.sum(axis=1).ravel().tolist()[0]) == {12 + len(PAIRS)}
    assert matrix.shape[0] == some.rows.num_rows
    assert matrix.sum(axis=0).min() >= 1


def test_flights_of_one_plane_share_a_column_and_of_two_do_not(some: Flights) -> None:
    codes, tails = Twins(some)._mixed[:, 3], some.column("tailnum")
    assert len(set(zip(codes, tails, strict=True))) == len(set(tails)) == len(set(codes))
