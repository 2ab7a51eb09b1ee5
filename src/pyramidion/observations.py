"""Observations in: validate, bin, key. The only door for raw data.

A bad row is judged by itself alone, and reported by its number and the reason,
never by a value. Nothing is counted until the whole batch has been judged:
either it is refused whole, or the bad rows are left out and reported.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyramidion.batches import ABSENT, Raw, columns_of
from pyramidion.encoding import (
    NOT_A_NUMBER,
    NOT_FINITE,
    Column,
    Encoder,
    TableShape,
    lookup_table,
)
from pyramidion.encoding_kernels import cut_all, find_all
from pyramidion.errors import ObservationError, SchemaError
from pyramidion.hashing import Hasher, Keys, canonical, hashable, unhashable
from pyramidion.schema import Continuous, Label, Schema
from pyramidion.settings import Settings

Errors = Literal["refuse", "skip"]
Problems = dict[str, list[int]]

NO_COLUMN = "is missing from the row; give null where a value is unknown"

_SHOWN = 5  # reasons with a row number each, in one message
_ONE = np.ones(1, dtype=np.int64)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_PLAIN = (str, int, float, bool, bytes)


@dataclass(frozen=True)
class Rows:
    """Checked features, ready to give the keys of any table."""

    encoder: Encoder
    columns: dict[str, Column]
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
        index = pa.array(rows)
        return {
            name: column[rows] if isinstance(column, np.ndarray) else column.take(index)
            for name, column in self.columns.items()
        }


@dataclass(frozen=True)
class Observations(Rows):
    """Checked rows with their joint labels, weights in cell units, and event times.

    ``refused`` rows were left out; ``problems`` says why, reason by reason, with
    the rows' numbers in the batch as it came.
    """

    labels: NDArray[np.int64]
    weights: NDArray[np.int64]
    times: NDArray[np.int64] | None
    refused: int
    problems: Problems

    def take(self, rows: NDArray[np.int64]) -> Observations:
        """These rows alone, in this order."""
        return replace(
            self,
            columns=self.taken(rows),
            length=len(rows),
            labels=self.labels[rows],
            weights=self.weights if self.weights.size == 1 else self.weights[rows],
            times=None if self.times is None else self.times[rows],
        )


class Judge:
    """Remembers which rows of one batch are bad, and why."""

    def __init__(self, length: int) -> None:
        self.bad: NDArray[np.bool_] = np.zeros(length, dtype=np.bool_)
        self.problems: Problems = {}

    def mark(self, column: str, mask: Any, reason: str) -> None:
        """Mark the rows where ``mask`` holds."""
        rows = np.flatnonzero(np.asarray(mask))
        if rows.size:
            self.bad[rows] = True
            self.problems.setdefault(f"column {column!r} {reason}", []).extend(rows.tolist())

    def refuse(self) -> None:
        """Raise when any row is bad."""
        if not self.problems:
            return
        shown = [f"row {rows[0]}: {reason}" for reason, rows in self.problems.items()][:_SHOWN]
        count = int(self.bad.sum())
        raise ObservationError(
            f"{count} of {self.bad.size} rows cannot be counted ({'; '.join(shown)}); "
            f"mend them, or pass errors='skip' to leave them out",
            self.problems,
        )


class Door:
    """Turns batches into `Rows` and `Observations` of one schema under one secret."""

    def __init__(self, schema: Schema, settings: Settings, secret: bytes) -> None:
        if schema.weight is not None and settings.p_min is None:
            raise SchemaError(
                f"the schema weighs observations by column {schema.weight!r}, and nothing bounds "
                f"the weights; set p_min to the smallest propensity that can occur"
            )
        self.schema = schema
        self.settings = settings
        self.encoder = Encoder(schema, secret, settings.dense_limit)
        self._classes = {
            label.name: lookup_table(self.encoder.hasher, label.classes)
            for label in schema.labels
            if label.classes is not None
        }

    def rows(self, data: Any) -> Rows:
        """Features alone, for featurizing; bad rows are refused."""
        raw, length = columns_of(data, self.schema.feature_names)
        judge = Judge(length)
        columns = self._features(raw, judge)
        judge.refuse()
        return Rows(self.encoder, columns, length)

    def observations(self, data: Any, errors: Errors = "refuse") -> Observations:
        """Features, labels, weights and times, for counting."""
        if errors not in ("refuse", "skip"):
            raise ObservationError("errors is neither 'refuse' nor 'skip'; choose one of them")
        needed = [name for name in self.schema.columns if name != self.schema.unit]
        raw, length = columns_of(data, dict.fromkeys([*needed, *self.schema.feature_names]))
        judge = Judge(length)
        columns = self._features(raw, judge)
        labels = self._labels(raw, judge)
        weights = self._weights(raw, judge)
        times = (
            None
            if self.schema.time is None
            else times_of(self.schema.time, raw[self.schema.time], judge)
        )
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
        )
        return found.take(np.flatnonzero(~judge.bad)) if judge.problems else found

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

    def _label(self, label: Label, raw: Raw, judge: Judge) -> NDArray[np.int64]:
        if label.edges is not None:
            column = numbers(label.name, raw, judge)
            judge.mark(label.name, nulls(column), "has no label")
            keys = np.empty(len(column), dtype=np.uint64)
            cuts = np.array(label.edges)
            cut_all(floats(column), 0, cuts.size, cuts, keys)
        else:
            keys = values(label.name, raw, judge, self.encoder.hasher)
            if not isinstance(keys, np.ndarray):
                keys = self.encoder.hasher.column(keys)
            missing, other = np.uint64(self.encoder.hasher.missing), label.cardinality
            judge.mark(label.name, keys == missing, "has no label")
            present = keys != missing
            find_all(
                keys,
                missing,
                0,
                self._classes[label.name][0].size,
                other + 2,
                *self._classes[label.name],
            )
            judge.mark(
                label.name, (keys >= other) & present, "is not one of the label's declared classes"
            )
            keys[keys >= other] = 0
        return keys.astype(np.int64)

    def _weights(self, raw: dict[str, Raw], judge: Judge) -> NDArray[np.int64]:
        if self.schema.weight is None:
            return _ONE
        column = numbers(self.schema.weight, raw[self.schema.weight], judge)
        propensity = floats(column, missing=np.nan)
        good = (propensity > 0.0) & (propensity <= 1.0)
        judge.mark(self.schema.weight, ~good, "is not a propensity above 0 and at most 1")
        safe = np.where(good, propensity, 1.0)
        unit, most = self.settings.weight_unit, self.settings.omega
        return np.minimum(np.floor(unit / safe), float(most)).astype(np.int64)


def nulls(column: Any) -> NDArray[np.bool_]:
    """Where a column has no value."""
    return np.asarray(column.is_null())


def floats(column: Any, missing: float = 0.0) -> NDArray[np.float64]:
    """A checked column of numbers as doubles."""
    cast = column.cast(pa.float64(), safe=False)
    return np.asarray(cast.fill_null(missing) if cast.null_count else cast, dtype=np.float64)


def _plain(column: Any) -> Any:
    """Dictionary- and run-length-encoded columns, decoded."""
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    if pa.types.is_run_end_encoded(column.type):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        return pa.chunked_array([pc.run_end_decode(chunk) for chunk in chunks])
    return column


def values(name: str, raw: Raw, judge: Judge, hasher: Hasher) -> Column:
    """A column of categories: any hashable type; floats must be finite."""
    if isinstance(raw, list):
        if {type(value) for value in raw} - {type(None)} in [{kind} for kind in _PLAIN]:
            try:
                return values(name, pa.array(raw), judge, hasher)
            except (pa.ArrowInvalid, OverflowError, UnicodeError):
                pass  # one value does not fit; find out which, one by one
        return _hashed(name, raw, judge, hasher)
    if not hashable(raw.type):
        raise ObservationError(f"column {name!r} {unhashable(raw.type)}")
    inner = raw.type.value_type if hasattr(raw.type, "value_type") else raw.type
    if pa.types.is_floating(inner):
        raw = _plain(raw)
        judge.mark(name, _not_finite(raw), NOT_FINITE)
    return raw


def _not_finite(column: Any) -> Any:
    return pc.invert(pc.fill_null(pc.is_finite(column), True))


def _hashed(name: str, raw: list[object], judge: Judge, hasher: Hasher) -> Keys:
    return _each(name, raw, judge, np.uint64, lambda value: hasher.payload(*canonical(value)))


def numbers(name: str, raw: Raw, judge: Judge) -> Any:
    """A column of numbers: integers, floats, booleans or decimals; floats must be finite."""
    if isinstance(raw, list):
        real = _each(name, raw, judge, np.float64, _real)
        return pa.array(real, mask=np.array([value is None or value is ABSENT for value in raw]))
    raw = _plain(raw)
    if pa.types.is_boolean(raw.type):
        return raw.cast(pa.uint8())
    if pa.types.is_decimal(raw.type) or pa.types.is_null(raw.type):
        return raw.cast(pa.float64())
    if pa.types.is_floating(raw.type):
        judge.mark(name, _not_finite(raw), NOT_FINITE)
        return raw.cast(pa.float32()) if raw.type == pa.float16() else raw
    if pa.types.is_integer(raw.type):
        return raw
    raise ObservationError(f"column {name!r} has type {raw.type} where numbers are needed; cast it")


def _real(value: object) -> float:
    if value is None:
        return 0.0
    if not isinstance(value, int | float | np.integer | np.floating | np.bool_):
        raise TypeError(NOT_A_NUMBER)
    try:
        real = float(value)
    except OverflowError:
        raise TypeError(NOT_FINITE) from None
    if not np.isfinite(real):
        raise TypeError(NOT_FINITE)
    return real


def _each(
    name: str, raw: list[object], judge: Judge, dtype: Any, convert: Callable[[object], Any]
) -> NDArray[Any]:
    """Convert values one by one; those that raise TypeError are marked and become zero."""
    out = np.zeros(len(raw), dtype=dtype)
    reasons: dict[str, list[int]] = {}
    for i, value in enumerate(raw):
        try:
            if value is ABSENT:
                raise TypeError(NO_COLUMN)
            out[i] = convert(value)
        except TypeError as problem:
            reasons.setdefault(str(problem), []).append(i)
    for reason, rows in reasons.items():
        mask = np.zeros(len(raw), dtype=np.bool_)
        mask[rows] = True
        judge.mark(name, mask, reason)
    return out


def times_of(name: str, raw: Raw, judge: Judge) -> NDArray[np.int64]:
    """Event times in microseconds since the epoch; numbers are seconds, text is ISO 8601."""
    if isinstance(raw, list):
        return _each(name, raw, judge, np.int64, _microseconds)
    raw = _plain(raw)
    if pa.types.is_timestamp(raw.type) or pa.types.is_date(raw.type):
        judge.mark(name, nulls(raw), "has no time")
        try:
            micros = raw.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).fill_null(0)
        except pa.ArrowInvalid:
            return _each(name, raw.to_pylist(), judge, np.int64, _microseconds)
        return np.asarray(micros, dtype=np.int64)
    if pa.types.is_integer(raw.type) or pa.types.is_floating(raw.type):
        seconds = floats(raw, missing=np.nan)
        good = np.abs(seconds) < 9.0e12  # about 285,000 years, within 64 bits of microseconds
        judge.mark(name, ~good, "is not a time; send timestamps or seconds since the epoch")
        return np.round(np.where(good, seconds, 0.0) * 1e6).astype(np.int64)
    return _each(name, raw.to_pylist(), judge, np.int64, _microseconds)


def _microseconds(value: object) -> int:
    problem = TypeError("is not a time; send timestamps, ISO 8601 text or seconds since the epoch")
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            raise problem from None
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        return (aware - _EPOCH) // dt.timedelta(microseconds=1)
    if isinstance(value, int | float | np.integer | np.floating) and abs(float(value)) < 9.0e12:
        return round(float(value) * 1e6)
    raise problem
