from __future__ import annotations

import zipfile

import numpy as np
import pandas as pd
import pytest

from pyramidion import SchemaError
from pyramidion.demo import check_installed, flights
from pyramidion.demo.flights import Flights


@pytest.fixture(scope="module")
def published() -> pd.DataFrame:
    """The package's own files, joined by pandas."""
    folder = flights._folder()
    with (
        zipfile.ZipFile(folder / "flights.csv.zip") as archive,
        archive.open("flights.csv") as file,
    ):
        told = pd.read_csv(file)
    weather = pd.read_csv(folder / "weather.csv").drop_duplicates(["origin", "time_hour"])
    known = weather[["origin", "time_hour", *flights.WEATHER]]
    return told.merge(known, on=["origin", "time_hour"], how="left")


def test_every_flight_of_the_package_is_there_or_never_arrived(every_flight: Flights) -> None:
    assert every_flight.rows.num_rows == 327_346
    assert every_flight.rows.num_rows + every_flight.left_out == 336_776


def test_features_are_as_many_as_models_are_told(every_flight: Flights) -> None:
    assert len(every_flight.schema.features) == flights.FEATURES


def test_flights_are_in_the_order_of_planned_departure(every_flight: Flights) -> None:
    assert (np.diff(every_flight.column("time")) >= 0).all()


def test_late_is_fifteen_minutes_or_more(every_flight: Flights, published: pd.DataFrame) -> None:
    arrived = published.dropna(subset=["arr_delay"])
    expected = (arrived.arr_delay >= 15).groupby(arrived.month).sum()
    found = [
        every_flight.late[every_flight.until(m) : every_flight.until(m + 1)].sum()
        for m in range(1, 13)
    ]
    assert found == expected.tolist()


def test_weather_is_that_of_the_origin_in_the_planned_hour(
    every_flight: Flights, published: pd.DataFrame
) -> None:
    keys = ["carrier", "flight", "origin", "month", "day", "hour"]
    found = every_flight.rows.to_pandas()
    found["day"] = pd.to_datetime(found.time, unit="s").dt.day
    published = published.dropna(subset=["arr_delay"])
    published = published.assign(flight=published.carrier + " " + published.flight.astype(str))
    one, other = (
        table.sort_values(keys)[[*flights.WEATHER]].to_numpy() for table in (found, published)
    )
    np.testing.assert_array_equal(one, other)


def test_the_first_day_of_2013_was_a_tuesday(every_flight: Flights) -> None:
    assert every_flight.column("weekday")[0] == 1
    assert pd.Timestamp(every_flight.column("time")[0], unit="s") == pd.Timestamp(
        "2013-01-01 05:15"
    )


def test_nothing_that_is_known_after_departure_is_a_feature(every_flight: Flights) -> None:
    known = {"carrier", "origin", "dest", "tailnum", "flight", "hour", "weekday", *flights.WEATHER}
    assert set(every_flight.schema.feature_names) == known
    assert not {"arr_delay", "dep_delay", "air_time"} & set(every_flight.rows.column_names)


def test_a_month_has_its_flights(every_flight: Flights) -> None:
    assert set(every_flight.of(12).column("month").to_pylist()) == {12}
    assert sum(every_flight.of(m).num_rows for m in range(1, 13)) == every_flight.rows.num_rows


def test_the_hot_window_is_less_than_a_tenth_of_the_year() -> None:
    chosen = flights.settings()
    assert (chosen.hot_window_us or 0) * 10 < 365 * flights.DAY * 1_000_000
    assert chosen.retention_us * 2 < 365 * flights.DAY * 1_000_000


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pyramidion.errors.find_spec", lambda name: None if name == "lightgbm" else 1
    )
    with pytest.raises(SchemaError, match=r"needs lightgbm.*pip install 'pyramidion\[demo\]'"):
        check_installed()
