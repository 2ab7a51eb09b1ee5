from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyramidion import Pyramid
from pyramidion.demo import flights
from pyramidion.demo.flights import DAY, Flights
from pyramidion.demo.models import NAMES
from pyramidion.demo.year import Days, Month, Year
from tests.memory import MEMORY

BEGIN = int(flights.BEGIN.timestamp())
MONTHS = 3


class Replayed:
    """Three months of some flights, with a retention of 60 days."""

    def __init__(self, some: Flights, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.flights = some
        self.order: list[tuple[str, int]] = []
        self.watched: list[int] = []
        self._note(patch, "replay", lambda given: given[0]._table)
        self._note(patch, "predict_proba", lambda given: given[1])
        self.year = Year(some, flights.settings(retention="60d"), MONTHS)
        self.months: list[Month] = list(self.year.replay(folder, self.watched.append))

    def _note(self, patch: pytest.MonkeyPatch, verb: str, rows: Callable[[Any], pa.Table]) -> None:
        """Note the months that a verb is given, in order."""
        real = getattr(Pyramid, verb)

        def noted(store: Pyramid, *given: Any) -> Any:
            (month,) = set(rows(given).column("month").to_pylist())
            self.order.append((verb, month))
            return real(store, *given)

        patch.setattr(Pyramid, verb, noted)


@pytest.fixture(scope="module")
def replayed(some: Flights) -> Iterator[Replayed]:
    where = MEMORY if os.access(MEMORY, os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix="pyramidion-", dir=where) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        yield Replayed(some, Path(folder), patch)


def test_every_flight_of_the_months_is_observed(replayed: Replayed) -> None:
    assert sum(replayed.watched) == replayed.year.rows == replayed.flights.until(MONTHS + 1)
    assert [month.exposure.collected for month in replayed.months] == [
        replayed.flights.until(number + 1) for number in range(1, MONTHS + 1)
    ]


def test_january_cannot_be_predicted_and_the_others_are_by_both_models(replayed: Replayed) -> None:
    assert replayed.months[0].losses == {}
    assert replayed.months[0].prior is None
    for month in replayed.months[1:]:
        assert set(month.losses) == set(NAMES)
        assert all(0 < loss.private < 2 and 0 < loss.raw < 2 for loss in month.losses.values())


def test_what_is_there_is_noted_once_for_each_day(replayed: Replayed) -> None:
    assert [found.day for found in replayed.year.exposures] == list(range(90))


def test_hot_rows_are_never_more_than_those_of_two_weeks(replayed: Replayed) -> None:
    days = (replayed.flights.column("time") - BEGIN) // DAY
    for found in replayed.year.exposures:
        fortnight = ((days > found.day - 14) & (days <= found.day)).sum()
        assert 0 < found.hot <= fortnight


def test_rows_leave_the_hot_window_and_then_the_counts(replayed: Replayed) -> None:
    last = replayed.year.exposures[-1]
    assert last.hot < last.counted
    assert last.gone == replayed.flights.until(MONTHS + 1) - last.hot - last.counted
    days = (replayed.flights.column("time") - BEGIN) // DAY
    assert last.gone == (days < 40).sum()  # two windows of 20 days, begun 60 days ago or more


def test_windows_are_sealed_erased_and_paid_for(replayed: Replayed) -> None:
    lives = replayed.year.lives
    assert [life.state for life in lives] == ["erased"] * 2 + ["sealed"] * 2 + ["populating"]
    assert [(life.start, life.stop) for life in lives] == [(n * 20, n * 20 + 20) for n in range(5)]
    assert {life.epsilon for life in lives} == {1.0}
    assert (replayed.months[-1].sealed, replayed.months[-1].erased) == (2, 2)
    assert [month.epsilon for month in replayed.months] == [1.0] * MONTHS


def test_a_month_is_predicted_before_it_is_observed(replayed: Replayed) -> None:
    predicted, observed = "predict_proba", "replay"
    assert replayed.order == [
        (observed, 1),
        *[(predicted, 2), (predicted, 2), (observed, 2)],
        *[(predicted, 3), (predicted, 3), (observed, 3)],
    ]


# --- days ----------------------------------------------------------------------------------


def test_a_piece_is_a_day(some: Flights) -> None:
    history = Days(some.of(2))
    pieces = list(history.chunks())
    assert len(pieces) == 28
    assert sum(table.num_rows for table, _ in pieces) == history.rows
    for table, times in pieces:
        assert times is not None
        assert len(set(times // (DAY * 1_000_000))) == 1
        np.testing.assert_array_equal(table.column("time").to_numpy() * 1_000_000, times)


def test_days_go_on_where_they_broke_off(some: Flights) -> None:
    history = Days(some.of(2))
    whole = [row for table, _ in history.chunks() for row in table.column("time").to_pylist()]
    rest = [
        row for table, _ in history.chunks(skip=100) for row in table.column("time").to_pylist()
    ]
    assert rest == whole[100:]


def test_months_have_fingerprints_of_their_own(some: Flights) -> None:
    assert len({Days(some.of(month)).fingerprint for month in range(1, 13)}) == 12
