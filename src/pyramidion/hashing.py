"""One keyed 64-bit key per value, the same in every process, chunking and container.

Values are equal when Python says so: ``1``, ``1.0`` and ``True`` share a key,
``"1"`` does not; an instant hashes the same as timestamp[s], timestamp[ns], date
or ``datetime`` (naive ones are UTC). A missing value has a key of its own.

The key pairs are derived from the stream's secret with BLAKE2b, one pair for
each kind of value. See `pyramidion.hashing_kernels` for the hash itself.

>>> import pyarrow as pa
>>> hasher = Hasher(b"a secret of the stream")
>>> hasher.column(pa.array(["AA", None])).tolist() == [hasher.value("AA"), hasher.value(None)]
True
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable
from decimal import Decimal
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyramidion import hashing_kernels as kernels
from pyramidion.errors import ObservationError

Keys = NDArray[np.uint64]

_NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_DAY = 86_400 * _NANOSECONDS["s"]
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_MASK = (1 << 64) - 1


def derive(secret: bytes, purpose: str, words: int) -> Keys:
    """``words`` secret 64-bit words for one purpose (at most 8), from the stream's secret."""
    digest = blake2b(purpose.encode(), key=secret[:64], digest_size=8 * words, person=b"pyramidion")
    return np.frombuffer(digest.digest(), dtype="<u8").astype(np.uint64)


def _integer_view(array: pa.Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    data = array.buffers()[1]
    return np.frombuffer(data, dtype=dtype, count=array.offset + len(array))[array.offset :]


class Hasher:
    """Values to keys under one secret."""

    def __init__(self, secret: bytes) -> None:
        pairs = [derive(secret, f"value {kind}", 2) for kind in range(kernels.KINDS)]
        self.keys: Keys = np.stack(pairs)
        self.missing = self.payload(kernels.MISSING, b"")

    def payload(self, kind: int, data: bytes) -> int:
        """The key of one payload: what every other way of hashing must agree with."""
        buffer = np.frombuffer(data or b"\0", dtype=np.uint8)
        address = buffer.ctypes.data
        k0, k1 = self.keys[kind]
        return int(kernels.hash_bytes(k0, k1, address, len(data), address + len(data)))

    def value(self, value: object) -> int:
        """The key of one Python value; raises TypeError for what has none."""
        return self.payload(*canonical(value))

    def values(self, values: Iterable[object]) -> Keys:
        """The keys of some Python values, one by one."""
        return np.array([self.value(value) for value in values], dtype=np.uint64)

    def column(self, column: pa.Array | pa.ChunkedArray, out: Keys | None = None) -> Keys:
        """The keys of an Arrow column, from its buffers."""
        if out is None:
            out = np.empty(len(column), dtype=np.uint64)
        if isinstance(column, pa.ChunkedArray):
            start = 0
            for chunk in column.chunks:
                self._chunk(chunk, out[start : start + len(chunk)])
                start += len(chunk)
        else:
            self._chunk(column, out)
        return out

    def _chunk(self, array: pa.Array, out: Keys) -> None:
        if len(array) == 0:
            return
        kind = array.type
        if pa.types.is_null(kind):
            out[:] = self.missing
            return
        if pa.types.is_dictionary(kind):
            self._dictionary(array, out)
            return
        if pa.types.is_run_end_encoded(kind):
            self._chunk(pc.run_end_decode(array), out)
            return
        self._values(array, kind, out)
        if array.null_count:
            bitmap = np.frombuffer(array.buffers()[0], dtype=np.uint8)
            kernels.blank(bitmap, array.offset, np.uint64(self.missing), out)

    def _dictionary(self, array: pa.Array, out: Keys) -> None:
        dictionary = np.append(self.column(array.dictionary), np.uint64(self.missing))
        indices = array.indices
        if indices.null_count:
            indices = indices.fill_null(len(array.dictionary))
        kernels.take(dictionary, np.asarray(indices), out)

    def _values(self, array: pa.Array, kind: pa.DataType, out: Keys) -> None:
        if pa.types.is_integer(kind):
            self._integers(_integer_view(array, np.dtype(kind.to_pandas_dtype())), out)
        elif pa.types.is_floating(kind):
            values = _integer_view(array, np.dtype(kind.to_pandas_dtype()))
            kernels.hash_floats(self.keys, values.astype(np.float64, copy=False), out)
        elif pa.types.is_boolean(kind):
            self._integers(np.asarray(array.fill_null(False).cast(pa.uint8())), out)
        elif pa.types.is_temporal(kind):
            self._times(array, kind, out)
        else:
            self._strings(array, kind, out)

    def _integers(self, values: NDArray[Any], out: Keys) -> None:
        if values.dtype == np.uint64:
            kernels.hash_words(self.keys, kernels.NUMBER, values, out)
            large = values >= np.uint64(1 << 63)
            if large.any():
                rest = np.empty(int(large.sum()), dtype=np.uint64)
                kernels.hash_words(self.keys, kernels.LARGE, values[large], rest)
                out[large] = rest
            return
        words = values.astype(np.int64, copy=False).view(np.uint64)
        kernels.hash_words(self.keys, kernels.NUMBER, words, out)

    def _times(self, array: pa.Array, kind: pa.DataType, out: Keys) -> None:
        of, unit = time_layout(kind)
        width = np.dtype(np.int32 if kind.bit_width == 32 else np.int64)
        words = _integer_view(array, width).astype(np.int64).view(np.uint64) * np.uint64(unit)
        kernels.hash_words(self.keys, of, words, out)

    def _strings(self, array: pa.Array, kind: pa.DataType, out: Keys) -> None:
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        of = kernels.TEXT if text or kind == pa.string_view() else kernels.BYTES
        if kind in (pa.string_view(), pa.binary_view()):
            self._views(array, of, out)
        elif pa.types.is_fixed_size_binary(kind):
            data = array.buffers()[1].address + array.offset * kind.byte_width
            kernels.hash_fixed(self.keys, of, data, kind.byte_width, out)
        elif text or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
            self._offsets(array, of, np.dtype(np.int64 if large else np.int32), out)
        elif pa.types.is_decimal(kind):
            self._chunk(array.cast(pa.string()), out)
        else:
            raise ObservationError(unhashable(kind))

    def _offsets(self, array: pa.Array, of: int, dtype: np.dtype[Any], out: Keys) -> None:
        _, offsets, data = array.buffers()
        first = array.offset
        view = np.frombuffer(offsets, dtype=dtype, count=first + len(array) + 1)[first:]
        address = data.address if data is not None else 0
        end = address + (data.size if data is not None else 0)
        kernels.hash_strings(self.keys, of, view, address, end, out)

    def _views(self, array: pa.Array, of: int, out: Keys) -> None:
        _, views, *data = array.buffers()
        starts = np.array([buffer.address for buffer in data] or [0], dtype=np.int64)
        sizes = np.array([buffer.size for buffer in data] or [0], dtype=np.int64)
        address = views.address + 16 * array.offset
        kernels.hash_views(self.keys, of, address, starts, starts + sizes, out)


def time_layout(kind: pa.DataType) -> tuple[int, int]:
    """Kind and length of one unit in nanoseconds of a temporal Arrow type."""
    if pa.types.is_date32(kind):
        return kernels.INSTANT, _DAY
    if pa.types.is_date64(kind):
        return kernels.INSTANT, _NANOSECONDS["ms"]
    if pa.types.is_timestamp(kind):
        return kernels.INSTANT, _NANOSECONDS[kind.unit]
    if pa.types.is_time(kind):
        return kernels.TIME_OF_DAY, _NANOSECONDS[kind.unit]
    if pa.types.is_duration(kind):
        return kernels.DURATION, _NANOSECONDS[kind.unit]
    raise ObservationError(unhashable(kind))


def unhashable(kind: object) -> str:
    """The reason given for a type that has no key."""
    return f"has type {kind}, which cannot be counted; use text, numbers, booleans, bytes or times"


def hashable(kind: pa.DataType) -> bool:
    """Whether a column of this type has keys."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return hashable(kind.value_type)
    return kind in (pa.string_view(), pa.binary_view()) or any(
        test(kind)
        for test in (
            pa.types.is_null,
            pa.types.is_integer,
            pa.types.is_floating,
            pa.types.is_boolean,
            pa.types.is_date,
            pa.types.is_timestamp,
            pa.types.is_time,
            pa.types.is_duration,
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_fixed_size_binary,
            pa.types.is_decimal,
        )
    )


def canonical(value: object) -> tuple[int, bytes]:
    """Kind and payload of a Python value: the rule that the Arrow door follows too.

    >>> canonical(1) == canonical(1.0) == canonical(True) != canonical("1")
    True
    """
    if value is None:
        return kernels.MISSING, b""
    if isinstance(value, str):
        return kernels.TEXT, encoded(value)
    if isinstance(value, bytes):
        return kernels.BYTES, value
    if isinstance(value, (bool, int, np.bool_, np.integer)):
        return _integer(int(value))
    if isinstance(value, (float, np.floating)):
        return _float(float(value))
    if isinstance(value, Decimal):
        return kernels.TEXT, format(value, "f").encode()
    return _time(value)


def encoded(text: str) -> bytes:
    """Text as UTF-8; lone surrogates are no text."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise TypeError("is text that is not valid Unicode") from None


def _integer(value: int) -> tuple[int, bytes]:
    if -(1 << 63) <= value < (1 << 63):
        return kernels.NUMBER, value.to_bytes(8, "little", signed=True)
    if 0 < value < (1 << 64):
        return kernels.LARGE, value.to_bytes(8, "little")
    raise TypeError(unhashable("int beyond 64 bits"))


def _float(value: float) -> tuple[int, bytes]:
    if not math.isfinite(value):
        raise TypeError("is NaN or infinite; send a finite number, or null for a missing one")
    if value.is_integer() and -(2.0**63) <= value < 2.0**64:
        return _integer(int(value))
    return kernels.FRACTION, np.float64(value).tobytes()


def _time(value: object) -> tuple[int, bytes]:
    if isinstance(value, np.datetime64):
        return kernels.INSTANT, _word(int(value.astype("datetime64[ns]").astype(np.int64)))
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        finer = int(getattr(value, "nanosecond", 0))  # pandas' Timestamp has them
        return kernels.INSTANT, _word((aware - _EPOCH) // _MICROSECOND * 1_000 + finer)
    if isinstance(value, dt.date):
        return kernels.INSTANT, _word((value - _EPOCH.date()).days * _DAY)
    if isinstance(value, dt.time):
        since = dt.datetime.combine(dt.date.min, value.replace(tzinfo=None)) - dt.datetime.min
        return kernels.TIME_OF_DAY, _word(since // _MICROSECOND * 1_000)
    if isinstance(value, dt.timedelta):
        return kernels.DURATION, _word(value // _MICROSECOND * 1_000)
    raise TypeError(unhashable(type(value).__name__))


def _word(nanoseconds: int) -> bytes:
    return (nanoseconds & _MASK).to_bytes(8, "little")
