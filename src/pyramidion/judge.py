"""Judges columns: which rows cannot be counted, and why.

Each row is judged by its own values alone. A reason says what rule a value
breaks, never the value.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyramidion.batches import Raw, plain, plain_type
from pyramidion.encoding import NUMBERS, Column, attempt, real
from pyramidion.errors import ObservationError
from pyramidion.hashing import Hasher, Keys, hashable, is_text, sound, time_layout, type_name
from pyramidion.hashing_kernels import MISSING
from pyramidion.hashing_values import NOT_FINITE, UnfitError, canonical, instant, unhashable

Problems = dict[str, list[int]]

NO_PERSON = "has no unit, and a row of nobody cannot be bounded; name its person"
NOT_A_PERSON = "is neither text nor a whole number, as a unit must be"
NO_TIME = "has no time"
NOT_A_TIME = "is not a time; send timestamps, ISO 8601 text or seconds since the epoch"
TOO_FAR = "is a time too far away; send timestamps, or seconds (not milliseconds) since the epoch"

_SHOWN = 5  # reasons with a row number each, in one message
_MOST_SECONDS = 9.0e12  # about 285,000 years: within 64 bits of microseconds
_MOST_MICROSECONDS = 9 * 10**18
_NOTHING = {type(None)}
_PLAIN = {str, int, float, bool, bytes}
_REALS = {int, float, type(None)}


class Judge:
    """Remembers which rows of one batch are bad, and why: one reason for each column."""

    def __init__(self, length: int) -> None:
        self.bad: NDArray[np.bool_] = np.zeros(length, dtype=np.bool_)
        self.problems: Problems = {}
        self._marked: dict[str, NDArray[np.bool_]] = {}

    def mark(self, column: str, mask: Any, reason: str) -> None:
        """Mark the rows where ``mask`` holds, but for those already marked for this column."""
        mask = np.asarray(mask)
        if not mask.any():
            return
        marked = self._marked.setdefault(column, np.zeros_like(self.bad))
        rows = np.flatnonzero(mask & ~marked)
        if rows.size:
            self.bad[rows] = marked[rows] = True
            self.problems.setdefault(f"column {column!r} {reason}", []).extend(rows.tolist())

    def refuse(self) -> None:
        """Raise when any row is bad."""
        if not self.problems:
            return
        shown = [f"row {rows[0]}: {reason}" for reason, rows in self.problems.items()][:_SHOWN]
        count = int(self.bad.sum())
        raise ObservationError(
            f"{count} of {self.bad.size} rows cannot be counted ({'; '.join(shown)}); "
            f"mend them or leave them out",
            self.problems,
        )


def refuse_damaged(name: str, raw: Raw) -> None:
    """Refuse Arrow memory that points outside its buffers, before anything is read."""
    if isinstance(raw, list):
        return
    try:
        raw.validate()
        chunks = raw.chunks if isinstance(raw, pa.ChunkedArray) else [raw]
        good = all(map(sound, chunks))
    except pa.ArrowInvalid:
        good = False
    if not good:
        raise ObservationError(
            f"column {name!r} is damaged: it points outside its memory; "
            f"call validate(full=True) where the batch is made"
        )


# --- categories ---------------------------------------------------------------------


def values(name: str, raw: Raw, judge: Judge, hasher: Hasher) -> Column:
    """A column of categories: any hashable type; floats must be finite."""
    if isinstance(raw, list):
        made = in_one_type(raw)
        if made is None:
            return _hashed(name, raw, judge, hasher)
        raw = made
    if not hashable(raw.type):
        raise ObservationError(f"column {name!r} {unhashable(type_name(raw.type))}")
    if pa.types.is_floating(plain_type(raw.type)):
        raw = plain(raw)
        judge.mark(name, _not_finite(raw), NOT_FINITE)
    return raw


def in_one_type(raw: list[object]) -> pa.Array | None:
    """An Arrow array of values that are all of one plain type, or None."""
    kinds = set(map(type, raw)) - _NOTHING
    if len(kinds) != 1 or not kinds <= _PLAIN:
        return None
    try:
        return pa.array(raw)
    except (pa.ArrowException, OverflowError, UnicodeError):
        return None  # one value does not fit


def _not_finite(column: Any) -> Any:
    return pc.invert(pc.fill_null(pc.is_finite(column), True))


def _hashed(name: str, raw: list[object], judge: Judge, hasher: Hasher) -> Keys:
    return hasher.payloads(_each(name, raw, judge, canonical, (MISSING, b"")))


def _each(
    name: str, raw: list[object], judge: Judge, convert: Callable[[object], Any], instead: Any
) -> list[Any]:
    """Convert values one by one; the bad ones are marked and become ``instead``."""
    made = [attempt(convert, value) for value in raw]
    reasons: dict[str, list[int]] = {}
    for row, result in enumerate(made):
        if isinstance(result, str):
            reasons.setdefault(result, []).append(row)
            made[row] = instead
    for reason, rows in reasons.items():
        judge.mark(name, np.isin(np.arange(len(raw)), rows), reason)
    return made


# --- people -------------------------------------------------------------------------


def people(name: str, raw: Raw, judge: Judge, hasher: Hasher) -> Keys:
    """Whose each row is, as keys; 7 and "7" are the same person, whichever way a row came."""
    made = person_bytes(name, raw, judge)
    judge.mark(name, made.is_null(), NO_PERSON)
    return hasher.column(made)


def person_bytes(name: str, raw: Raw, judge: Judge) -> pa.Array | pa.ChunkedArray:
    """The person of each row as bytes, null where a row names none."""
    made = in_one_type(raw) if isinstance(raw, list) else plain(raw)
    if made is None:
        return pa.array(_each(name, list(raw), judge, _person, None), pa.binary())
    if pa.types.is_integer(made.type):
        return made.cast(pa.string()).cast(pa.binary())
    if is_text(made.type) or pa.types.is_null(made.type):
        return made.cast(pa.large_binary())
    raise _wrong_type(name, made.type, "text or whole numbers")


def _person(value: object) -> bytes | None:
    if value is None:
        return None
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole and not isinstance(value, str):
        raise UnfitError(NOT_A_PERSON)
    canonical(value)  # or a record could not keep it
    return str(value).encode()


# --- numbers ------------------------------------------------------------------------


def numbers(name: str, raw: Raw, judge: Judge) -> Any:
    """A column of numbers: integers, floats, booleans or decimals; floats must be finite."""
    if isinstance(raw, list):
        made = _reals(raw)
        if made is None:
            made = _each(name, raw, judge, _real_or_missing, None)
        return pa.array(made, pa.float64())
    raw = plain(raw)
    if pa.types.is_boolean(raw.type):
        return raw.cast(pa.uint8())
    if pa.types.is_decimal(raw.type):  # by way of text, which rounds as Python does
        return raw.cast(pa.string()).cast(pa.float64())
    if pa.types.is_null(raw.type):
        return raw.cast(pa.float64())
    if pa.types.is_floating(raw.type):
        judge.mark(name, _not_finite(raw), NOT_FINITE)
        return raw.cast(pa.float32()) if raw.type == pa.float16() else raw
    if pa.types.is_integer(raw.type):
        return raw
    raise _wrong_type(name, raw.type, "numbers")


def _reals(raw: list[object]) -> list[float | None] | None:
    """Plain numbers as doubles, where they all are such; None where they must be looked at."""
    if not set(map(type, raw)) <= _REALS:
        return None
    try:
        made: list[float | None] = [None if value is None else float(value) for value in raw]  # type: ignore[arg-type]
    except OverflowError:
        return None
    return made if math.isfinite(sum(filter(None, made))) else None


def _real_or_missing(value: object) -> float | None:
    return None if value is None else real(value)


def _wrong_type(name: str, kind: pa.DataType, needed: str) -> ObservationError:
    return ObservationError(
        f"column {name!r} has type {type_name(kind)} where {needed} are needed; cast it"
    )


def floats(column: Any, missing: float = 0.0) -> NDArray[np.float64]:
    """A checked column of numbers as doubles."""
    cast = column.cast(pa.float64(), safe=False)
    return np.asarray(cast.fill_null(missing) if cast.null_count else cast, dtype=np.float64)


# --- times --------------------------------------------------------------------------


def times_of(name: str, raw: Raw, judge: Judge) -> NDArray[np.int64]:
    """Event times in microseconds since the epoch; numbers are seconds, text is ISO 8601."""
    if isinstance(raw, list):
        return np.array(_each(name, raw, judge, _microseconds, 0), dtype=np.int64)
    raw = plain(raw)
    kind = raw.type
    judge.mark(name, raw.is_null(), NO_TIME)
    if pa.types.is_null(kind):
        return np.zeros(len(raw), dtype=np.int64)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _instants(name, raw, judge)
    if is_text(kind):  # read as bytes, because what Arrow calls text need not be Unicode
        texts = raw.cast(pa.large_binary()).to_pylist()
        return np.array(_each(name, texts, judge, _from_text, 0), dtype=np.int64)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _seconds(name, numbers(name, raw, judge), judge)
    raise _wrong_type(name, kind, "times")


def _instants(name: str, column: Any, judge: Judge) -> NDArray[np.int64]:
    days = pa.types.is_date32(column.type)
    ticks = column.cast(pa.int32() if days else pa.int64()).cast(pa.int64()).fill_null(0)
    ticks, tick = np.asarray(ticks), time_layout(column.type)[1]
    if tick == 1:
        return ticks // 1_000  # rounded down, as Python does
    factor = tick // 1_000
    most = _MOST_MICROSECONDS // factor
    far = (ticks < -most) | (ticks > most)
    judge.mark(name, far, TOO_FAR)
    return np.where(far, 0, ticks) * factor


def _seconds(name: str, column: Any, judge: Judge) -> NDArray[np.int64]:
    seconds = floats(column)
    far = ~(np.abs(seconds) < _MOST_SECONDS)
    judge.mark(name, far, TOO_FAR)
    return np.round(np.where(far, 0.0, seconds) * 1e6).astype(np.int64)


def _from_text(text: object) -> int:
    return _microseconds(text.decode(errors="replace") if isinstance(text, bytes) else text)


def _microseconds(value: object) -> int:
    if value is None:
        raise UnfitError(NO_TIME)
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            raise UnfitError(NOT_A_TIME) from None
    if isinstance(value, dt.date | np.datetime64):
        micros = instant(value) // 1_000
    elif isinstance(value, bool | np.bool_ | np.timedelta64) or not isinstance(value, NUMBERS):
        raise UnfitError(NOT_A_TIME)
    else:
        seconds = real(value)
        micros = round(seconds * 1e6) if abs(seconds) < _MOST_SECONDS else 1 << 64
    if abs(micros) > _MOST_MICROSECONDS:
        raise UnfitError(TOO_FAR)
    return micros
