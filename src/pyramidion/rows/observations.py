"""Observations in: validate, bin, key. The only door for raw data.

A bad row is judged by itself alone, and reported by its number and the reason,
never by a value. Nothing is counted until the whole batch has been judged:
either it is refused whole, or the bad rows are left out and reported.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.config.checks import LARGEST, Value
from pyramidion.config.schema import Categorical, Continuous, Label, Schema
from pyramidion.config.settings import Settings
from pyramidion.config.spelling import BY_TEXT, KEYED_BY
from pyramidion.errors import ObservationError, SchemaError
from pyramidion.rows.containers import Batch, Raw, columns_of, plain_type, take
from pyramidion.rows.encoding import Column, Encoder, TableShape, lookup_table
from pyramidion.rows.encoding_kernels import cut_all, find_all
from pyramidion.rows.hashing import Keys, is_text
from pyramidion.rows.validation import (
    Judge,
    Problems,
    floats,
    numbers,
    people,
    refuse_damaged,
    times_of,
    values,
)

Errors = Literal["refuse", "skip"]

NO_LABEL = "has no label"
NOT_A_CLASS = "is not one of the label's declared classes"
TOO_NEW = "is a time beyond `max_skew` in the future; set the sender's clock, or send it later"
NOT_A_PROPENSITY = "is not a propensity above 0 and at most 1"

_ONE = np.ones(1, dtype=np.int64)
_ONE.flags.writeable = False
_MOST = 2.0**62  # no weight comes near; integers and doubles both hold it


def checked_errors(errors: Errors) -> Errors:
    """What to do with bad rows, if it is one of the two."""
    if errors not in ("refuse", "skip"):
        raise ObservationError("errors is neither 'refuse' nor 'skip'; choose one of them")
    return errors


@dataclass(frozen=True)
class Rows:
    """Checked features, ready to give the keys of any table."""

    encoder: Encoder
    columns: dict[str, Column] = field(repr=False)
    length: int

    def __len__(self) -> int:
        return self.length

    def keys(self, table: int, start: int, stop: int) -> Keys:
        """The keys of one table for rows start to stop."""
        return self.encoder.keys(self.columns, table, start, stop)

    def matrix(self, start: int, stop: int) -> Keys:
        """The keys of all tables for rows start to stop: keys[table, row]."""
        return self.encoder.matrix(self.columns, start, stop)

    @property
    def shapes(self) -> tuple[TableShape, ...]:
        """The tables these rows have keys for."""
        return self.encoder.shapes

    def taken(self, rows: NDArray[np.int64]) -> dict[str, Column]:
        """The columns with these rows alone, in this order."""
        return {
            name: column[rows] if isinstance(column, np.ndarray) else take(column, rows)
            for name, column in self.columns.items()
        }


@dataclass(frozen=True)
class Observations(Rows):
    """Checked rows with their joint labels, weights in cell units, and event times.

    ``refused`` rows were left out; ``problems`` says why, reason by reason, with
    the rows' numbers in the batch as it came.
    """

    labels: NDArray[np.int64] = field(repr=False)
    weights: NDArray[np.int64] = field(repr=False)
    times: NDArray[np.int64] | None = field(repr=False)
    refused: int
    problems: Problems
    numbers: dict[str, NDArray[np.float64]] = field(default_factory=dict, repr=False)
    """The values of labels whose bins are read from rows, and so differ between windows."""
    units: Keys | None = field(default=None, repr=False)
    """Whose each row is, where the schema names a unit."""

    def counting(self, counted: NDArray[np.bool_] | None) -> Observations:
        """The same rows, of which only some count: the others are blanked and weigh nothing."""
        if counted is None or counted.all():
            return self
        return replace(self, weights=np.where(counted, self.weights, 0))

    def under(self, encoder: Encoder) -> Observations:
        """The same rows, to be counted in the tables of another encoder of the same stream."""
        if encoder.schema.labels == self.encoder.schema.labels:
            return replace(self, encoder=encoder)
        return replace(self, encoder=encoder, labels=self._labels(encoder.schema))

    def _labels(self, schema: Schema) -> NDArray[np.int64]:
        """The joint labels where bins are cut elsewhere; there are as many."""
        sizes = [label.cardinality for label in schema.labels]
        codes = list(np.unravel_index(self.labels, sizes))
        for place, label in enumerate(schema.labels):
            if label.name in self.numbers:
                codes[place] = _cut(np.array(label.edges), self.numbers[label.name])
        return np.ravel_multi_index(codes, sizes).astype(np.int64)

    def take(self, rows: NDArray[np.int64]) -> Observations:
        """These rows alone, in this order."""
        return replace(
            self,
            columns=self.taken(rows),
            length=len(rows),
            labels=self.labels[rows],
            weights=self.weights if self.weights.size == 1 else self.weights[rows],
            times=None if self.times is None else self.times[rows],
            numbers={name: column[rows] for name, column in self.numbers.items()},
            units=None if self.units is None else self.units[rows],
        )


class Door:
    """Turns batches into `Rows` and `Observations` of one schema under one secret."""

    def __init__(
        self, schema: Schema, settings: Settings, secret: bytes, keyed_by: str = KEYED_BY
    ) -> None:
        if schema.weight is not None and settings.p_min is None:
            raise SchemaError(
                f"the schema weighs observations by column {schema.weight!r}, and nothing bounds "
                f"the weights; set p_min to the smallest propensity that can occur"
            )
        self.schema = schema
        self.settings = settings
        self.encoder = Encoder(schema, secret, settings.dense_limit, keyed_by)
        self._classes = {
            label.name: lookup_table(self.encoder.hasher, label.classes)
            for label in schema.labels
            if label.classes is not None
        }

    def rows(self, data: Any) -> Rows:
        """Features alone, for featurizing; bad rows are refused."""
        raw, length = self._columns(data, self.schema.feature_names)
        judge = Judge(length)
        columns = self._features(raw, judge)
        judge.refuse()
        return Rows(self.encoder, columns, length)

    def observations(
        self, data: Any, errors: Errors = "refuse", *, latest: int | None = None
    ) -> Observations:
        """Features, labels, weights and times, for counting.

        Rows with an event time after ``latest`` are refused, where it is given.
        """
        return self._observations(data, errors, latest)[0]

    def arrivals(
        self, data: Any, errors: Errors = "refuse", *, latest: int | None = None
    ) -> tuple[Observations, Batch]:
        """Observations, and the columns they came in, accepted rows alone."""
        found, raw, good = self._observations(data, errors, latest)
        batch = Batch(raw, len(found) if good is None else found.refused + len(found))
        return found, batch if good is None else batch.only(good)

    def refuse_types(self, data: Any, *, labelled: bool = True) -> None:
        """Refuse columns of a type that no row can be counted with, before any row is read."""
        names = self.schema.columns if labelled else self.schema.feature_names
        raw, length = self._columns(data, names)
        judge = Judge(length)
        self._features(raw, judge)
        if labelled:
            self._judged(raw, judge, None)
        if judge.useless:
            raise ObservationError(judge.useless[0])

    def people(self, column: Raw) -> Keys:
        """Whose each row is, by the column of the unit alone; refuses what names nobody."""
        judge = Judge(len(column))
        keys = people(str(self.schema.unit), column, judge, self.encoder.hasher)
        judge.refuse()
        return keys

    def _observations(
        self, data: Any, errors: Errors, latest: int | None
    ) -> tuple[Observations, dict[str, Raw], NDArray[np.int64] | None]:
        checked_errors(errors)
        raw, length = self._columns(data, self.schema.columns)
        judge = Judge(length)
        columns = self._features(raw, judge)
        labels, weights, times, units = self._judged(raw, judge, latest)
        if errors == "refuse":
            judge.refuse()
        found = Observations(
            self.encoder,
            columns,
            length,
            labels,
            weights,
            times,
            int(judge.bad.sum()),
            judge.problems,
            self._numbers(raw),
            units,
        )
        raw = self._read(raw, found)
        if not judge.problems:
            return found, raw, None
        good = np.flatnonzero(~judge.bad)
        return found.take(good), raw, good

    def _judged(
        self, raw: dict[str, Raw], judge: Judge, latest: int | None
    ) -> tuple[
        NDArray[np.int64], NDArray[np.int64], NDArray[np.int64] | None, NDArray[np.uint64] | None
    ]:
        """Labels, weights, times and units."""
        labels, weights = self._labels(raw, judge), self._weights(raw, judge)
        time, unit, times, units = self.schema.time, self.schema.unit, None, None
        if time is not None:
            times = times_of(time, raw[time], judge)
            if latest is not None:
                judge.mark(time, times > latest, TOO_NEW)
        if unit is not None:
            units = people(unit, raw[unit], judge, self.encoder.hasher)
        return labels, weights, times, units

    def _read(self, raw: dict[str, Raw], found: Observations) -> dict[str, Raw]:
        """The columns as they came, but for text that is a number or a time: that is stored so."""
        read = dict(raw)
        for feature in self.schema.features:
            if isinstance(feature, Continuous) and _holds_text(raw[feature.name]):
                read[feature.name] = found.columns[feature.name]
        others = [label.name for label in self.schema.labels if label.edges is not None]
        for name in (*others, self.schema.weight):
            if name is not None and _holds_text(raw[name]):
                read[name] = numbers(name, raw[name], Judge(found.length))
        if self.schema.time is not None and _holds_text(raw[self.schema.time]):
            read[self.schema.time] = pa.array(found.times, pa.timestamp("us"))
        return read

    def _columns(self, data: Any, names: Iterable[str]) -> tuple[dict[str, Raw], int]:
        raw, length = columns_of(data, names)
        for name, column in raw.items():
            refuse_damaged(name, column)
        return raw, length

    def _features(self, raw: dict[str, Raw], judge: Judge) -> dict[str, Column]:
        return {
            feature.name: numbers(feature.name, raw[feature.name], judge)
            if isinstance(feature, Continuous)
            else values(feature.name, raw[feature.name], judge, self.encoder.hasher)
            for feature in self.schema.features
        }

    def _labels(self, raw: dict[str, Raw], judge: Judge) -> NDArray[np.int64]:
        joint = np.zeros(judge.bad.size, dtype=np.int64)
        for label in self.schema.labels:
            joint *= label.cardinality
            joint += self._label(label, raw[label.name], judge)
        return joint

    def _numbers(self, raw: dict[str, Raw]) -> dict[str, NDArray[np.float64]]:
        moving = [label.name for label in self.schema.labels if label.bins is not None]
        length = len(next(iter(raw.values()))) if moving else 0
        return {name: floats(numbers(name, raw[name], Judge(length))) for name in moving}

    def _label(self, label: Label, raw: Raw, judge: Judge) -> NDArray[np.int64]:
        if label.edges is not None:
            return _bins(label.name, np.array(label.edges), raw, judge)
        hasher = self.encoder.hasher
        column = values(label.name, raw, judge, hasher)
        keys = column if isinstance(column, np.ndarray) else hasher.column(column)
        missing, classes = np.uint64(hasher.missing), label.cardinality
        judge.mark(label.name, keys == missing, NO_LABEL)
        table = self._classes[label.name]
        find_all(keys, missing, 0, table[0].size, classes + 2, *table)
        judge.mark(label.name, keys >= classes, NOT_A_CLASS)
        keys[keys >= classes] = 0
        return keys.astype(np.int64)

    def _weights(self, raw: dict[str, Raw], judge: Judge) -> NDArray[np.int64]:
        if self.schema.weight is None:
            return _ONE
        column = numbers(self.schema.weight, raw[self.schema.weight], judge)
        propensity = floats(column, missing=np.nan)
        good = (propensity > 0.0) & (propensity <= 1.0)
        judge.mark(self.schema.weight, ~good, NOT_A_PROPENSITY)
        with np.errstate(over="ignore"):  # one over a tiny propensity is infinite, and clipped
            weights = np.floor(self.settings.weight_unit / np.where(good, propensity, 1.0))
        # Clipped again as integers: as a double, omega may be rounded up.
        return np.minimum(np.minimum(weights, _MOST).astype(np.int64), self.settings.omega)


def types_for(schema: Schema, keyed_by: str) -> dict[str, pa.DataType]:
    """What columns of a format without types are read as: as text, but for those that are told.

    A stream that knows values by their type has declared values that are not text: whole numbers,
    numbers, booleans or bytes. A mixture with text is text, and its numbers then match nothing.

    >>> late = Label("late", classes=[0, 1])
    >>> schema = Schema(time="at", features=[Categorical("origin")], label=late)
    >>> types_for(schema, "text"), types_for(schema, "type")
    ({}, {'late': DataType(int64)})
    """
    if keyed_by == BY_TEXT:
        return {}
    declared = {f.name: f.domain for f in schema.features if isinstance(f, Categorical)}
    declared |= {label.name: label.classes for label in schema.labels}
    types = {name: _type(values) for name, values in declared.items()}
    return {name: kind for name, kind in types.items() if kind != pa.string()}


def _type(declared: Iterable[Value] | None) -> pa.DataType:
    values = list(declared or ())
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {bytes}:
        return pa.binary()
    if not kinds or kinds & {str, bytes}:
        return pa.string()
    if float in kinds:
        return pa.float64()
    large = any(isinstance(value, int) and value > LARGEST // 2 for value in values)
    return pa.uint64() if large else pa.int64()


def _holds_text(raw: Raw) -> bool:
    if isinstance(raw, list):
        return any(isinstance(value, str) for value in raw)
    return is_text(plain_type(raw.type))


def _bins(name: str, cuts: NDArray[np.float64], raw: Raw, judge: Judge) -> NDArray[np.int64]:
    column = numbers(name, raw, judge)
    judge.mark(name, column.is_null(), NO_LABEL)
    return _cut(cuts, floats(column))


def _cut(cuts: NDArray[np.float64], column: NDArray[np.float64]) -> NDArray[np.int64]:
    bins = np.empty(len(column), dtype=np.uint64)
    cut_all(column, 0, cuts.size, cuts, bins)
    return bins.astype(np.int64)
