"""Boosted trees on raw rows, by LightGBM: hashed as in the paper, or as practitioners do.

Trees cannot take a column for each of a million values. The paper hashes all values of all
features into 256 columns, which holds trees back: most columns mix values that have nothing
to do with one another. `CodedTrees` is what one would rather do today: values that are seen
often enough get codes, column by column, and LightGBM splits sets of codes.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy import sparse

from lab.datasets import DataSet
from lab.raw_results import Learnt, Range, RawModel, targets
from pyramidion.config.features import Categorical, Continuous, Feature
from pyramidion.config.schema import Schema
from pyramidion.config.spelling import BY_TYPE
from pyramidion.errors import refuse_missing
from pyramidion.rows.hashing import Hasher, Keys

MOST_ROWS = 2**22
"""Trees learn the newest rows, at most so many: they must all be in memory at once."""

TREATMENT = ("bits", "least")
"""Parameters that say how rows are written; all others are LightGBM's own."""

ALWAYS = {"seed": 0, "deterministic": True, "force_row_wise": True, "verbose": -1}


@dataclass(frozen=True)
class _Trees(RawModel):
    """What both kinds share; ``parameters`` are LightGBM's by name, and two of our own."""

    def learnt(self, data: DataSet, start: int, stop: int, test: Range) -> Learnt:
        """Train on the newest rows of those given, predict batch by batch."""
        refuse_missing(self.name, ["lightgbm"], "dev")
        began = time.perf_counter()
        writer = self._writer(data, (max(start, stop - MOST_ROWS), stop))
        booster = self._trained(data, (max(start, stop - MOST_ROWS), stop), writer)
        took = time.perf_counter() - began
        parts = [booster.predict(writer.matrix(batch)) for batch in data.read(*test)]
        return Learnt(np.concatenate([np.zeros(0), *parts]), took)

    def _trained(self, data: DataSet, rows: Range, writer: _Writer) -> Any:
        import lightgbm

        label = data.schema.labels[0]
        batches = [
            (writer.matrix(batch), targets(label, batch.column(label.name)))
            for batch in data.read(*rows)
        ]
        X = writer.joined([part for part, _ in batches])
        y = np.concatenate([truth for _, truth in batches])
        del batches
        kind = {"objective": "regression" if label.continuous else "binary"}
        own = {name: given for name, given in self.parameters.items() if name not in TREATMENT}
        table = lightgbm.Dataset(X, y, categorical_feature=writer.coded, params=dict(ALWAYS))
        return lightgbm.train({**ALWAYS, **kind, **own}, table)

    @abstractmethod
    def _writer(self, data: DataSet, rows: Range) -> _Writer:
        """What turns rows into numbers."""


@dataclass(frozen=True)
class HashedTrees(_Trees):
    """All values of all features, hashed into 2^``bits`` columns; as in the paper."""

    def _writer(self, data: DataSet, rows: Range) -> _Writer:  # noqa: ARG002  # learns nothing
        return Hashed(data.schema, int(self.parameters.get("bits", 8)))


@dataclass(frozen=True)
class CodedTrees(_Trees):
    """Numbers as they are; a code for each value that ``least`` training rows have.

    Values are hashed into 2^``bits`` places, each column for itself, and places are counted:
    two values seldom share one, and memory is bounded. What is rarer is one with what is missing.
    """

    def _writer(self, data: DataSet, rows: Range) -> _Writer:
        bits, least = int(self.parameters.get("bits", 16)), self.parameters.get("least", 20)
        counts = np.zeros((len(data.schema.features), 2**bits), dtype=np.int64)
        for batch in data.read(*rows):
            for position, feature in enumerate(data.schema.features):
                if isinstance(feature, Categorical):
                    places = _places(position, batch.column(feature.name), bits)
                    counts[position] += np.bincount(places, minlength=2**bits)
        often = counts >= least
        codes = np.where(often, np.cumsum(often, axis=1) - 1, np.nan).astype(np.float32)
        return Coded(data.schema, bits, codes)


class _Writer:
    """Turns rows into numbers for trees."""

    coded: list[int]
    """Columns that hold codes."""

    @abstractmethod
    def matrix(self, batch: pa.RecordBatch) -> Any:
        """The numbers of some rows."""

    @abstractmethod
    def joined(self, parts: list[Any]) -> Any:
        """Several such matrices as one."""


class Hashed(_Writer):
    """How often each row has a value that falls into each of the columns."""

    def __init__(self, schema: Schema, bits: int) -> None:
        self.schema, self.bits, self.coded = schema, bits, []

    def matrix(self, batch: pa.RecordBatch) -> Any:
        """A sparse matrix, 2^bits columns wide."""
        columns, rows = [], []
        for position, feature in enumerate(self.schema.features):
            column = batch.column(feature.name)
            there = _said(feature, column)
            columns.append(_places(position, _named(feature, column), self.bits)[there])
            rows.append(there)
        where = (np.concatenate(rows), np.concatenate(columns))
        ones = np.ones(len(where[0]), dtype=np.float32)
        return sparse.csr_matrix((ones, where), shape=(len(batch), 2**self.bits))

    def joined(self, parts: list[Any]) -> Any:
        """Stacked, still sparse."""
        return sparse.vstack(parts, format="csr")


class Coded(_Writer):
    """A column for each feature: a number, or the code of a value; NaN where neither is known."""

    def __init__(self, schema: Schema, bits: int, codes: NDArray[np.float32]) -> None:
        self.schema, self.bits, self.codes = schema, bits, codes
        told = enumerate(schema.features)
        self.coded = [at for at, feature in told if isinstance(feature, Categorical)]

    def matrix(self, batch: pa.RecordBatch) -> NDArray[np.float32]:
        """Rows by features."""
        rows = np.empty((len(batch), len(self.schema.features)), dtype=np.float32)
        for position, feature in enumerate(self.schema.features):
            column = batch.column(feature.name)
            if isinstance(feature, Continuous):
                rows[:, position] = _floats(column)
            else:
                rows[:, position] = self.codes[position][_places(position, column, self.bits)]
        return rows

    def joined(self, parts: list[Any]) -> NDArray[np.float32]:
        """Stacked."""
        return np.concatenate(parts)


def _places(position: int, column: pa.Array, bits: int) -> Keys:
    """Where each value of a feature falls among 2^bits places."""
    keys = Hasher(b"raw rows %d" % position, BY_TYPE).column(column)
    places: Keys = (keys >> np.uint64(64 - bits)).astype(np.int64)
    return places


def _named(feature: Feature, column: pa.Array) -> pa.Array:
    """Values as names: a number's bin stands for it."""
    if not isinstance(feature, Continuous):
        return column
    values = _floats(column)
    return pa.array(np.searchsorted(feature.cuts, values, side="right"), mask=np.isnan(values))


def _said(feature: Feature, column: pa.Array) -> NDArray[np.int64]:
    """Numbers of the rows whose value is worth a place: of a yes and no, only yes is."""
    if isinstance(feature, Categorical) and feature.domain == (False, True):
        flags = pc.fill_null(pc.cast(column, pa.bool_()), True)
        return np.flatnonzero(flags.to_numpy(zero_copy_only=False))
    return np.arange(len(column))


def _floats(column: pa.Array) -> NDArray[np.float64]:
    values: NDArray[np.float64] = pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
    return values
