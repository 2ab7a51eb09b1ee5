"""Keys of tables from checked columns, and the narrow door for a single row.

In bulk, columns are hashed slice by slice from their Arrow buffers. A single
dict takes the narrow door: its values become payloads in one byte buffer, and
one kernel call makes all keys (39 one-row Arrow columns would cost ten times
as much). A one-row record batch is read through Arrow's C data interface. All
doors agree, value by value; property tests hold them to it.
"""

from __future__ import annotations

import ctypes
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.config.schema import Categorical, Continuous, Feature, Schema
from pyramidion.config.spelling import BY_TEXT, KEYED_BY
from pyramidion.errors import ObservationError
from pyramidion.rows import encoding_kernels as kernels
from pyramidion.rows.containers import ABSENT, NO_VALUE, as_dict
from pyramidion.rows.hashing import Hasher, Keys
from pyramidion.rows.hashing_kernels import MISSING, NUMBER, TEXT, join_all
from pyramidion.rows.hashing_values import NOT_FINITE, UnfitError
from pyramidion.rows.packed_kernels import Bundle

Column: TypeAlias = "pa.Array | pa.ChunkedArray | Keys"
"""A checked column: Arrow memory, or keys where values of several types were mixed."""

NO_COLUMN = "is missing from the row; give null where a value is unknown"
NOT_A_NUMBER = "is not a number"
UNREADABLE = "cannot be read; use text, numbers, booleans, bytes or times"

SPELLED = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""How text spells a number: as Arrow and Python read it, less what is no digit."""
BLANKS = " \t"
NO_NUMBER = frozenset(
    (
        *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN"),
        *("N/A", "NA", "NULL", "NaN", "-NaN", "n/a", "nan", "-nan", "null"),
    )
)
"""Text that stands for a missing number or time, as Arrow and pandas read files."""

NUMBERS = (int, float, Decimal, np.integer, np.floating, np.bool_)
_double, _long = struct.Struct("<d").pack, struct.Struct("<q").pack
_REAL = frozenset((int, float))
_LAYOUTS = {
    pa.string(): kernels.ARROW_TEXT32,
    pa.large_string(): kernels.ARROW_TEXT64,
    pa.int8(): kernels.ARROW_INT8,
    pa.int16(): kernels.ARROW_INT16,
    pa.int32(): kernels.ARROW_INT32,
    pa.int64(): kernels.ARROW_INT64,
    pa.float32(): kernels.ARROW_FLOAT32,
    pa.float64(): kernels.ARROW_FLOAT64,
}
_capsule: Callable[[object, bytes], int] = ctypes.PYFUNCTYPE(
    ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p
)(("PyCapsule_GetPointer", ctypes.pythonapi))


@dataclass(frozen=True)
class TableShape:
    """How a table's keys are made: its features, and its codes when it is dense."""

    parts: tuple[str, ...]
    codes: int | None
    read: int = 0
    """The window that its bins, or those of the label, were read from; 0: none."""

    @property
    def name(self) -> str:
        """The table's name: its features, joined by commas, and where its bins are from."""
        return ",".join(self.parts) + (f"@{self.read}" if self.read else "")


def table_shapes(schema: Schema, dense_limit: int) -> tuple[TableShape, ...]:
    """Shape of each table: dense where all parts are finite and the product is small."""
    shapes, label = [], max(label.read for label in schema.labels)
    for parts in schema.tables:
        codes: int | None = 1
        for part in parts:
            part_codes = schema.feature(part).codes
            codes = None if codes is None or part_codes is None else codes * part_codes
        if codes is not None and len(parts) > 1 and codes > dense_limit:
            codes = None
        reads = [read_of(schema.feature(part)) for part in parts]
        shapes.append(TableShape(parts, codes, max(label, *reads)))
    return tuple(shapes)


def read_of(feature: Feature) -> int:
    """The window that a feature's bins were read from; 0: none."""
    read = feature.read if isinstance(feature, Continuous) else None
    return 0 if read is None else read.window


class Encoder:
    """Makes the keys of all tables under one secret. Knows no labels and counts nothing."""

    def __init__(
        self, schema: Schema, secret: bytes, dense_limit: int, keyed_by: str = KEYED_BY
    ) -> None:
        if keyed_by == BY_TEXT:
            schema.refuse_alike()
        self.schema = schema
        self.hasher = Hasher(secret, keyed_by)
        self.shapes = table_shapes(schema, dense_limit)
        self._numeric = [isinstance(feature, Continuous) for feature in schema.features]
        # One row's values are read numbers first, so that the usual ones can be packed at once.
        order = sorted(range(len(schema.features)), key=lambda f: not self._numeric[f])
        self._order = np.array(order, dtype=np.int64)
        self._reals = sum(self._numeric)
        self._format = f"<{self._reals}d"
        usual = [kernels.FLOAT if self._numeric[f] else TEXT for f in order]
        self._usual = np.array(usual, dtype=np.uint8)
        # Of a single name, itemgetter gives no tuple: ask twice, the second is not looked at.
        names = [schema.feature_names[f] for f in order]
        self._values = itemgetter(*names, *names[: 2 - len(names)])
        self._number = {name: f for f, name in enumerate(schema.feature_names)}
        self._plan_features()
        self._plan_tables()
        self.plans = Bundle(
            self.hasher.keys,
            self._plan,
            self._tables,
            self._domain_keys,
            self._domain_codes,
            self._cuts,
            self._order,
        )
        """What the kernels of one row need besides it."""
        self._arrow: tuple[pa.Schema, NDArray[np.int64] | None] | None = None

    def _plan_features(self) -> None:
        plan = np.zeros((len(self.schema.features), 4), dtype=np.int64)
        domain_keys: list[Keys] = [np.zeros(1, dtype=np.uint64)]
        domain_codes: list[NDArray[np.int64]] = [np.full(1, -1, dtype=np.int64)]
        cuts: list[float] = []
        start = 1
        for f, feature in enumerate(self.schema.features):
            if isinstance(feature, Continuous):
                plan[f] = kernels.BINS, len(cuts), len(feature.cuts), feature.codes
                cuts += feature.cuts
            elif feature.domain is not None:
                keys, codes = lookup_table(self.hasher, feature.domain)
                plan[f] = kernels.DOMAIN, start, keys.size, len(feature.domain) + 2
                domain_keys.append(keys)
                domain_codes.append(codes)
                start += keys.size
        self._plan = plan
        self._domain_keys = np.concatenate(domain_keys)
        self._domain_codes = np.concatenate(domain_codes)
        self._cuts = np.array([*cuts, math.inf], dtype=np.float64)

    def _plan_tables(self) -> None:
        widest = max(len(shape.parts) for shape in self.shapes)
        plan = np.zeros((len(self.shapes), 2 + widest), dtype=np.int64)
        for t, shape in enumerate(self.shapes):
            plan[t, kernels.TABLE_DENSE] = shape.codes is not None
            plan[t, kernels.TABLE_PARTS] = len(shape.parts)
            for i, part in enumerate(shape.parts):
                plan[t, kernels.TABLE_FIRST + i] = self._number[part]
        self._tables = plan

    @property
    def prior(self) -> str:
        """The name of the table of label totals."""
        return TableShape((), None, max(label.read for label in self.schema.labels)).name

    # --- bulk -----------------------------------------------------------------

    def keys(self, columns: Mapping[str, Column], table: int, start: int, stop: int) -> Keys:
        """The keys of one table for rows start to stop."""
        shape = self.shapes[table]
        keys = self._feature_keys(columns, shape.parts[0], start, stop)
        if len(shape.parts) == 1:
            return keys
        if shape.codes is None:
            self._hash_finite(shape.parts[0], keys)
        for part in shape.parts[1:]:
            more = self._feature_keys(columns, part, start, stop)
            if shape.codes is None:
                self._hash_finite(part, more)
                join_all(keys, more)
            else:
                keys *= np.uint64(self.schema.feature(part).codes or 1)
                keys += more
        return keys

    def matrix(self, columns: Mapping[str, Column], start: int, stop: int) -> Keys:
        """The keys of all tables for rows start to stop: keys[table, row]."""
        keys = np.empty((len(self.shapes), stop - start), dtype=np.uint64)
        for table in range(len(self.shapes)):
            keys[table] = self.keys(columns, table, start, stop)
        return keys

    def _feature_keys(
        self, columns: Mapping[str, Column], name: str, start: int, stop: int
    ) -> Keys:
        column, f = columns[name], self._number[name]
        how, first, size, codes = self._plan[f]
        if how == kernels.BINS:
            out = np.empty(stop - start, dtype=np.uint64)
            self._cut(column, start, stop, self._plan[f], out)
            return out
        if isinstance(column, np.ndarray):
            keys = column[start:stop].copy()
        else:
            keys = self.hasher.column(column.slice(start, stop - start))
        if how == kernels.DOMAIN:
            missing = np.uint64(self.hasher.missing)
            kernels.find_all(
                keys, missing, first, size, codes, self._domain_keys, self._domain_codes
            )
        return keys

    def _cut(self, column: Any, start: int, stop: int, plan: Any, out: Keys) -> None:
        _, first, size, codes = plan
        column = column.slice(start, stop - start)
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        at = 0
        for chunk in chunks:
            part = out[at : at + len(chunk)]
            missing = chunk.null_count
            values = (chunk.fill_null(0) if missing else chunk).to_numpy(zero_copy_only=False)
            kernels.cut_all(values.astype(np.float64, copy=False), first, size, self._cuts, part)
            if missing:
                part[chunk.is_null().to_numpy(zero_copy_only=False)] = np.uint64(codes - 1)
            at += len(chunk)

    def _hash_finite(self, part: str, keys: Keys) -> None:
        if self._plan[self._number[part], kernels.FEATURE_HOW] != kernels.OPEN:
            kernels.hash_codes(self.hasher.keys, keys)

    # --- one row --------------------------------------------------------------

    def one(self, row: Mapping[str, object]) -> Keys:
        """The keys of one dict: keys[table, 0]."""
        row = as_dict(row)
        out = self._usual_row(row)
        if out is None:  # other types, or a value that cannot be counted
            out = self._encode(*self._payloads(row))
        if out is None:
            raise ObservationError("a row cannot be read; send text, numbers, booleans or times")
        return out

    def _usual_row(self, row: dict[str, object]) -> Keys | None:
        """The keys of a row whose numbers are plain ones: they are packed all at once."""
        try:
            values: tuple[Any, ...] = self._values(row)[: self._order.size]
            numbers, rest = values[: self._reals], values[self._reals :]
            if not _REAL.issuperset(map(type, numbers)):
                return None
            reals = struct.pack(self._format, *numbers)
            if rest and type(rest[0]) is str and (out := self._usual_text(reals, rest)) is not None:
                return out
            return self._usual_mixture(reals, rest)
        except (KeyError, TypeError, ValueError, OverflowError, struct.error):
            return None

    def _usual_text(self, reals: bytes, rest: tuple[Any, ...]) -> Keys | None:
        """The keys of packed numbers and of categories that are all text."""
        try:
            text = "\0".join(rest).encode()
        except (TypeError, UnicodeEncodeError):
            return None
        out = np.empty((len(self.shapes), 1), dtype=np.uint64)
        return out if kernels.encode_usual(self.plans.places, reals, text, out) else None

    def _usual_mixture(self, reals: bytes, rest: tuple[Any, ...]) -> Keys | None:
        """The keys of packed numbers and of categories of any type."""
        payloads, kinds = [], bytearray(self._usual[: self._reals])
        for value in rest:
            kind = type(value)
            if kind is str:
                payloads.append(value.encode())
                kinds.append(TEXT)
            elif kind is int:
                payloads.append(_long(value))
                kinds.append(NUMBER)
            else:
                code, payload = self.hasher.read(value)
                payloads.append(payload)
                kinds.append(code)
        lengths = [8] * self._reals + [len(payload) for payload in payloads]
        told = np.frombuffer(kinds, dtype=np.uint8)
        return self._encode(reals + b"".join(payloads), lengths, told)

    def _payloads(self, row: dict[str, object]) -> tuple[bytes, list[int], NDArray[np.uint8]]:
        """Value by value; tells all columns a row is refused for."""
        made: list[tuple[int, bytes]] = []
        problems: dict[str, list[int]] = {}
        for f in self._order:
            name = self.schema.feature_names[f]
            convert = number if self._numeric[f] else self.hasher.read
            payload = attempt(convert, row.get(name, ABSENT))
            if isinstance(payload, str):
                problems[f"column {name!r} {payload}"] = [0]
            else:
                made.append(payload)
        if problems:
            raise ObservationError(f"the row cannot be counted: {'; '.join(problems)}", problems)
        kinds = np.array([kind for kind, _ in made], dtype=np.uint8)
        return b"".join(data for _, data in made), [len(data) for _, data in made], kinds

    def _encode(self, data: bytes, lengths: list[int], kinds: NDArray[np.uint8]) -> Keys | None:
        out = np.empty((len(self.shapes), 1), dtype=np.uint64)
        bad = kernels.encode_payloads(
            self.plans.places,
            np.frombuffer(data or b"\0", dtype=np.uint8),
            np.array(lengths, dtype=np.int64),
            kinds,
            out,
        )
        return out if bad < 0 else None

    def one_arrow(self, batch: pa.RecordBatch) -> Keys | None:
        """The keys of a one-row record batch, or None when it needs the wide door."""
        columns = self._arrow_columns(batch.schema) if batch.num_rows == 1 else None
        if columns is None:
            return None
        out = np.empty((len(self.shapes), 1), dtype=np.uint64)
        _, capsule = batch.__arrow_c_array__()
        bad = kernels.encode_arrow(
            self.plans.places,
            _capsule(capsule, b"arrow_array"),
            columns,
            np.empty(1, dtype=np.uint64),
            out,
        )
        return out if bad < 0 else None

    def _arrow_columns(self, schema: pa.Schema) -> NDArray[np.int64] | None:
        """Child and layout of each feature, remembered for the schema seen last."""
        seen = self._arrow  # read once: another thread may come with another schema
        if seen is not None and seen[0].equals(schema):
            return seen[1]
        rows: list[tuple[int, int]] = []
        for feature in self.schema.features:
            places = schema.get_all_field_indices(feature.name)
            layout = _LAYOUTS.get(schema.field(places[0]).type) if len(places) == 1 else None
            text = layout in (kernels.ARROW_TEXT32, kernels.ARROW_TEXT64)
            if layout is None or (text and not isinstance(feature, Categorical)):
                rows = []
                break
            rows.append((places[0], layout))
        columns = np.array(rows, dtype=np.int64) if rows else None
        self._arrow = (schema, columns)
        return columns


def lookup_table(hasher: Hasher, domain: tuple[Any, ...]) -> tuple[Keys, NDArray[np.int64]]:
    """Open-addressing table from the keys of a domain to their codes; -1 marks a free slot."""
    size = 2
    while size < 2 * len(domain) + 1:
        size *= 2
    keys, codes = np.zeros(size, dtype=np.uint64), np.full(size, -1, dtype=np.int64)
    for code, key in enumerate(hasher.values(domain)):
        slot = int(key) & (size - 1)
        while codes[slot] >= 0:
            slot = (slot + 1) & (size - 1)
        keys[slot], codes[slot] = key, code
    return keys, codes


def attempt(convert: Callable[[object], Any], value: object) -> Any:
    """What becomes of a value, or the reason (text) why nothing does.

    The error is gone when this returns; one raised because of it must not lead
    back to the value.
    """
    if value is ABSENT:
        return NO_COLUMN
    if value is NO_VALUE:
        return UNREADABLE
    try:
        return convert(value)
    except UnfitError as problem:
        return str(problem)
    except (TypeError, ValueError, ArithmeticError):
        return UNREADABLE  # not our words, they may quote the value


def number(value: object) -> tuple[int, bytes]:
    """Kind and payload of a number that is cut into bins."""
    found = real_or_missing(value)
    return (MISSING, b"") if found is None else (kernels.FLOAT, _double(found))


def real_or_missing(value: object) -> float | None:
    """A finite number as a double, or None; raises UnfitError for anything else.

    Text is the number that it spells, and missing where it is empty, NA or the like.
    """
    if isinstance(value, str):
        text = value.strip(BLANKS)
        if text in NO_NUMBER:
            return None
        if SPELLED.fullmatch(text) is None:
            raise UnfitError(NOT_A_NUMBER)
        return real(float(text))
    return None if value is None else real(value)


def real(value: object) -> float:
    """A finite number as a double; raises UnfitError for anything else."""
    if isinstance(value, np.timedelta64) or not isinstance(value, NUMBERS):
        raise UnfitError(NOT_A_NUMBER)
    try:
        found = float(value)
    except (OverflowError, ValueError):  # an integer too large, a signalling NaN
        found = math.inf
    if not math.isfinite(found):
        raise UnfitError(NOT_FINITE)
    return found
