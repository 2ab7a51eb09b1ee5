"""Judges columns: which rows cannot be counted, and why.

Each row is judged by its own values alone, whatever container it came in: a type
that a container inferred from other rows decides nothing. So text is read as the
number or the time that it spells, a column of a wrong type is refused row by row
(a missing value is missing in any type), and a float too large to be exact is
refused in a category, since it may be an integer that the container cast for
another row's sake. A reason says what rule a value breaks, never the value.
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

from pyramidion.config.spelling import BY_TEXT
from pyramidion.errors import ObservationError
from pyramidion.rows.containers import Raw, in_one_type, is_uuid, plain, plain_type, stored
from pyramidion.rows.encoding import (
    BLANKS,
    NO_NUMBER,
    NOT_A_NUMBER,
    NUMBERS,
    SPELLED,
    Column,
    attempt,
    real,
    real_or_missing,
)
from pyramidion.rows.hashing import (
    Hasher,
    Keys,
    hashable,
    is_text,
    is_view,
    sound,
    time_layout,
    type_name,
)
from pyramidion.rows.hashing_kernels import MISSING
from pyramidion.rows.hashing_values import (
    DAY,
    FIRST_DAY,
    LAST_DAY,
    NOT_A_DATE,
    NOT_EXACT,
    NOT_FINITE,
    NOT_SHORTEST,
    UnfitError,
    canonical,
    category,
    instant,
    unhashable,
)

Problems = dict[str, list[int]]

NO_PERSON = "has no unit, and a row of nobody cannot be bounded; name its person"
NOT_A_PERSON = "is neither text nor a whole number, as a unit must be"
NO_TIME = "has no time"
NOT_A_TIME = "is not a time; send timestamps, ISO 8601 text or seconds since the epoch"
TOO_FAR = "is a time too far away; send timestamps, or seconds (not milliseconds) since the epoch"

_SHOWN = 5  # reasons with a row number each, in one message
_MOST_SECONDS = 9.0e12  # about 285,000 years: within 64 bits of microseconds
_MOST_MICROSECONDS = 9 * 10**18
_FIRST_YEARS = -62_000_000_000_000_000  # of Python's times; Arrow knows a year 0
_REALS = {int, float, type(None)}
_EXACT = {pa.float16(): 2.0**11, pa.float32(): 2.0**24, pa.float64(): 2.0**53}
_MISSING = pa.array(sorted(NO_NUMBER), pa.large_string())


class Judge:
    """Remembers which rows of one batch are bad, and why: one reason for each column."""

    def __init__(self, length: int) -> None:
        self.bad: NDArray[np.bool_] = np.zeros(length, dtype=np.bool_)
        self.problems: Problems = {}
        self.useless: list[str] = []
        """Columns of a type that no row can be counted with, and why."""
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

    def mark_type(self, column: str, raw: Any, reason: str) -> None:
        """Mark all rows that have a value: no value of this type is a good one."""
        self.useless.append(f"column {column!r} {reason}")
        self.mark(column, raw.is_valid(), reason)

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
    """A column of categories: any hashable type; floats must be finite and exact."""
    if isinstance(raw, list):
        made = in_one_type(raw)
        if made is None:
            return _hashed(name, raw, judge, hasher)
        raw = made
    by_text = hasher.keyed_by == BY_TEXT
    if is_uuid(raw.type):
        raw = _uuid_text(raw) if by_text else stored(raw)
    if not hashable(raw.type):
        judge.mark_type(name, raw, unhashable(type_name(raw.type)))
        return pa.nulls(len(raw))
    kind = plain_type(raw.type)
    if pa.types.is_floating(kind):
        raw = plain(raw)
        _mark_inexact(name, raw, judge)
    if not by_text:
        return raw
    if pa.types.is_floating(kind):
        return _float_keys(name, raw, judge, hasher)
    if pa.types.is_decimal(kind):
        return _whole_decimals(name, plain(raw), judge, hasher)
    return _dates(name, plain(raw), judge) if pa.types.is_temporal(kind) else raw


def _uuid_text(column: Any) -> pa.Array:
    each = column.to_pylist()
    return pa.array([None if uuid is None else str(uuid) for uuid in each], pa.string())


def _float_keys(name: str, column: Any, judge: Judge, hasher: Hasher) -> Keys:
    """Keys of floats: of the whole numbers they are, or of their shortest text."""
    if column.type != pa.float64():
        wide = column.cast(pa.float32())
        fraction = pc.not_equal(wide, pc.floor(wide))
        judge.mark(name, pc.fill_null(fraction, False), NOT_SHORTEST)
        column = wide
    return hasher.column(column.cast(pa.float64()))


def _whole_decimals(name: str, column: Any, judge: Judge, hasher: Hasher) -> Column:
    """Decimals as the whole numbers they are; others are marked."""
    try:
        return column.cast(pa.int64())
    except pa.ArrowException:
        pass  # one has a fraction, or is too long
    return _hashed(name, column.to_pylist(), judge, hasher)


def _dates(name: str, column: Any, judge: Judge) -> Any:
    """Dates as their text; times are marked."""
    if not pa.types.is_date(column.type):
        judge.mark_type(name, column, NOT_A_DATE)
        return pa.nulls(len(column))
    _, unit = time_layout(column.type)
    ticks = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    ticks = np.asarray(ticks.cast(pa.int64()).fill_null(0))
    days, rest = np.divmod(ticks, DAY // unit)
    bad = (rest != 0) | (days < FIRST_DAY) | (days > LAST_DAY)
    judge.mark(name, bad, NOT_A_DATE)
    given = np.where(bad, 0, days).astype(np.int32)
    return pa.array(given, mask=np.asarray(column.is_null())).cast(pa.date32()).cast(pa.string())


def _mark_inexact(name: str, column: Any, judge: Judge) -> None:
    """Mark floats that are not finite, or may stand for several whole numbers."""
    judge.mark(name, _not_finite(column), NOT_FINITE)
    wide = column.cast(pa.float64()) if column.type == pa.float16() else column
    large = pc.greater_equal(pc.abs(wide), pa.scalar(_EXACT[column.type], wide.type))
    judge.mark(name, pc.fill_null(large, False), NOT_EXACT)


def _not_finite(column: Any) -> Any:
    return pc.invert(pc.fill_null(pc.is_finite(column), True))


def _hashed(name: str, raw: list[object], judge: Judge, hasher: Hasher) -> Keys:
    return hasher.payloads(_each(name, raw, judge, hasher.read, (MISSING, b"")))


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
    """Whose each row is, as keys; 7, 7.0 and "7" are the same person, whichever way a row came."""
    made = person_bytes(name, raw, judge, hasher.keyed_by)
    judge.mark(name, made.is_null(), NO_PERSON)
    return hasher.column(made)


def person_bytes(name: str, raw: Raw, judge: Judge, keyed_by: str) -> pa.Array | pa.ChunkedArray:
    """The person of each row as bytes, null where a row names none.

    Where values are known by their text, "7.0" is person 7 and empty text is nobody.
    """
    by_text = keyed_by == BY_TEXT
    made = in_one_type(raw) if isinstance(raw, list) else plain(raw)
    if made is None:
        made = pa.array(_each(name, list(raw), judge, _person, None), pa.binary())
        return _without_zeros(made) if by_text else made
    if pa.types.is_integer(made.type):
        return made.cast(pa.string()).cast(pa.binary())
    if pa.types.is_floating(made.type):
        return _whole(name, made, judge).cast(pa.string()).cast(pa.binary())
    if is_text(made.type) or pa.types.is_null(made.type):
        made = made.cast(pa.large_binary())
        return _without_zeros(made) if by_text else made
    judge.mark_type(name, made, _wrong_type(made.type, "text or whole numbers"))
    return pa.nulls(len(made), pa.binary())


def _without_zeros(texts: Any) -> Any:
    """Text of whole numbers without .0, which floats are written with; null where it is empty."""
    texts = pc.if_else(pc.equal(pc.binary_length(texts), 0), pa.scalar(None, texts.type), texts)
    if not pc.any(pc.match_substring(texts, ".0")).as_py():
        return texts
    return pc.replace_substring_regex(texts, r"^(-?(?:0|[1-9][0-9]*))\.0+$", r"\1")


def _whole(name: str, column: Any, judge: Judge) -> Any:
    """Floats as the whole numbers they are; others are marked."""
    _mark_inexact(name, column, judge)
    seen = np.asarray(column.cast(pa.float64()).fill_null(0.0))
    whole = (np.floor(seen) == seen) & (np.abs(seen) < _EXACT[pa.float64()])
    judge.mark(name, ~whole, NOT_A_PERSON)
    numbers = np.where(whole, seen, 0.0).astype(np.int64)
    return pa.array(numbers, mask=np.asarray(column.is_null()))


def _person(value: object) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, float | np.floating):
        category(value)  # raises where it is not finite, or too large to be exact
        value = int(value) if value == math.floor(value) else value
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole and not isinstance(value, str):
        raise UnfitError(NOT_A_PERSON)
    canonical(value)  # or a record could not keep it
    return str(value).encode()


# --- numbers ------------------------------------------------------------------------


def numbers(name: str, raw: Raw, judge: Judge) -> Any:
    """A column of numbers: integers, floats, booleans, decimals or their text, and finite."""
    if isinstance(raw, list):
        made = _reals(raw)
        if made is None:
            made = _each(name, raw, judge, real_or_missing, None)
        return pa.array(made, pa.float64())
    raw = plain(raw)
    if is_text(raw.type):
        return _in_digits(name, raw, judge)
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
    judge.mark_type(name, raw, _wrong_type(raw.type, "numbers"))
    return pa.nulls(len(raw), pa.float64())


def _in_digits(name: str, raw: Any, judge: Judge) -> Any:
    """Text as the numbers that it spells.

    All at once where all are plain numbers, as they mostly are; the result is the same.
    """
    text = raw.cast(pa.large_string()) if is_view(raw.type) else raw
    try:
        found = text.cast(pa.float64())
        if not pc.all(pc.is_finite(found), min_count=0).as_py():
            found = None
    except pa.ArrowException:  # whose message quotes a value
        found = None
    return found if found is not None else _each_in_digits(name, text, judge)


def _each_in_digits(name: str, text: Any, judge: Judge) -> Any:
    try:
        stripped = pc.utf8_trim(text.cast(pa.large_string()), BLANKS)
        given = pc.invert(pc.is_in(stripped, _MISSING))
        good = pc.and_(given, pc.match_substring_regex(stripped, f"^(?:{SPELLED.pattern})$"))
        found = pc.if_else(good, stripped, pa.scalar(None, stripped.type)).cast(pa.float64())
    except pa.ArrowException:  # what Arrow calls text need not be Unicode
        texts = map(_decoded, text.cast(pa.large_binary()).to_pylist())
        return pa.array(_each(name, list(texts), judge, real_or_missing, None), pa.float64())
    unread = pc.and_(text.is_valid(), pc.and_not(given, pc.fill_null(good, False)))
    judge.mark(name, unread, NOT_A_NUMBER)
    judge.mark(name, _not_finite(found), NOT_FINITE)
    return found


def _decoded(text: bytes | None) -> str | None:
    return None if text is None else text.decode(errors="replace")


def _reals(raw: list[object]) -> list[float | None] | None:
    """Plain numbers as doubles, where they all are such; None where they must be looked at."""
    if not set(map(type, raw)) <= _REALS:
        return None
    try:
        made: list[float | None] = [None if value is None else float(value) for value in raw]  # type: ignore[arg-type]
    except OverflowError:
        return None
    return made if math.isfinite(sum(filter(None, made))) else None


def _wrong_type(kind: pa.DataType, needed: str) -> str:
    return f"has type {type_name(kind)} where {needed} are needed; cast it"


def floats(column: Any, missing: float = 0.0) -> NDArray[np.float64]:
    """A checked column of numbers as doubles."""
    cast = column.cast(pa.float64(), safe=False)
    return np.asarray(cast.fill_null(missing) if cast.null_count else cast, dtype=np.float64)


# --- times --------------------------------------------------------------------------


def times_of(name: str, raw: Raw, judge: Judge) -> NDArray[np.int64]:
    """Event times in microseconds since the epoch.

    Numbers, also in text, are seconds; other text is ISO 8601.
    """
    if isinstance(raw, list):
        return np.array(_each(name, raw, judge, _microseconds, 0), dtype=np.int64)
    raw = plain(raw)
    kind = raw.type
    if is_text(kind):
        return _in_text(name, raw, judge)
    judge.mark(name, raw.is_null(), NO_TIME)
    if pa.types.is_null(kind):
        return np.zeros(len(raw), dtype=np.int64)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _instants(name, raw, judge)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _seconds(name, numbers(name, raw, judge), judge)
    judge.mark_type(name, raw, _wrong_type(kind, "times"))
    return np.zeros(len(raw), dtype=np.int64)


def _in_text(name: str, raw: Any, judge: Judge) -> NDArray[np.int64]:
    """Times in text; all at once where all are seconds or plain ISO 8601, a hundred times faster.

    What Arrow reads so, it reads as `_microseconds` does.
    """
    text = raw.cast(pa.large_string()) if is_view(raw.type) else raw
    for kind in (pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            found = text.cast(kind)
        except pa.ArrowException:
            continue  # not all are of this kind
        seconds = pa.types.is_floating(kind)
        if seconds and not np.isfinite(floats(found)).all():
            continue
        if not seconds and (pc.min(found.cast(pa.int64())).as_py() or 0) < _FIRST_YEARS:
            continue
        judge.mark(name, raw.is_null(), NO_TIME)
        return (_seconds if seconds else _instants)(name, found, judge)
    texts = map(_decoded, raw.cast(pa.large_binary()).to_pylist())  # it need not be Unicode
    return np.array(_each(name, list(texts), judge, _microseconds, 0), dtype=np.int64)


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


def _microseconds(value: object) -> int:
    if isinstance(value, str):
        value = _spelled_time(value.strip(BLANKS))
    if value is None:
        raise UnfitError(NO_TIME)
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


def _spelled_time(text: str) -> float | dt.datetime | None:
    """What text spells: seconds, or ISO 8601; None: nothing."""
    if text in NO_NUMBER:
        return None
    if SPELLED.fullmatch(text) is not None:
        return float(text)
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        pass  # it holds the text; the next error must not hold it
    raise UnfitError(NOT_A_TIME)
