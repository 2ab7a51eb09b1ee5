"""What a data set is: rows in the order of time, the first part of them the past.

Rows are Arrow record batches with a column ``time`` (seconds since 1970, never falling), the
schema's features and its label. Where a data set has no clock, rows come a second apart.
Counts and models come from the first 80 %; what they lose is measured on the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.config.schema import Schema

PAST = 0.8
"""The share of rows that models may know, as in the paper."""

ROWS = 65_536
"""Rows of a batch."""


@dataclass(frozen=True)
class DataSet:
    """Rows of a stream, to be gone through as often as one likes.

    ``read(start, stop)`` gives the rows from one number to another, batch by batch. ``truth``
    gives their true probabilities of the second class, where these are known.
    """

    name: str
    title: str
    schema: Schema
    rows: int
    read: Callable[[int, int], Iterator[pa.RecordBatch]]
    fingerprint: str
    """Tells two data sets apart: parameters of a generator, or sizes and times of files."""
    truth: Callable[[int, int], NDArray[np.float64]] | None = None
    made_for: tuple[str, ...] = ()
    """The experiments that it is for; none: all that take any rows."""

    @property
    def label(self) -> str:
        """The label's column."""
        return self.schema.labels[0].name

    @cached_property
    def past(self) -> int:
        """How many rows are the past."""
        return int(PAST * self.rows)

    def table(self, start: int, stop: int) -> pa.Table:
        """Rows from one number to another, all in memory."""
        batches = list(self.read(start, max(stop, start + 1)))  # one row tells the types
        return pa.Table.from_batches(batches).slice(0, stop - start)

    def cut(self, stop: int) -> DataSet:
        """The rows before one, as a data set of its own; for choosing parameters in the past."""
        return replace(self, rows=stop, fingerprint=f"{self.fingerprint}:{stop}")


def kind(name: str) -> str:
    """The data set that one is like: rare clicks are clicks, and those with planted pairs.

    >>> kind("clicks-rare"), kind("clicks-pairs"), kind("movielens-people"), kind("criteo")
    ('clicks', 'clicks', 'movielens', 'criteo')
    """
    like, _, what = name.rpartition("-")
    return like if what in ("rare", "pairs", "ratings", "people") else name


def of_table(name: str, title: str, schema: Schema, table: pa.Table, fingerprint: str) -> DataSet:
    """A data set of rows that are in memory."""

    def read(start: int, stop: int) -> Iterator[pa.RecordBatch]:
        yield from table.slice(start, stop - start).to_batches(max_chunksize=ROWS)

    return DataSet(name, title, schema, table.num_rows, read, fingerprint)
