"""One keyed 64-bit key per value, the same in every process, chunking and container.

Values are read by their text (`pyramidion.config.spelling`): ``1``, ``1.0``, ``True``, ``"1"`` and
``"true"`` share a key. In streams that were made before that rule they are read by their
type, and are equal when Python says so: ``1``, ``1.0``, ``True`` and ``Decimal("1.00")``
share a key, ``"1"`` does not; an instant hashes the same as timestamp[s], timestamp[ns],
date or ``datetime`` (naive ones are UTC). A missing value has a key of its own.

The key pairs are derived from the stream's secret with BLAKE2b, one pair for
each kind of value. `pyramidion.rows.hashing_values` says what is hashed of a value,
`pyramidion.rows.hashing_kernels` how.

>>> import pyarrow as pa
>>> hasher = Hasher(b"a secret of the stream")
>>> hasher.column(pa.array(["AA", None])).tolist() == [hasher.value("AA"), hasher.value(None)]
True
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.config.spelling import BY_TEXT, BY_TYPE, KEYED_BY
from pyramidion.errors import FormatError, ObservationError
from pyramidion.rows import hashing_kernels as kernels
from pyramidion.rows.hashing_values import (
    DAY,
    NANOSECONDS,
    by_text,
    canonical,
    category,
    unhashable,
)

Keys = NDArray[np.uint64]

_NO_BITMAP = np.zeros(0, dtype=np.uint8)


def derive(secret: bytes, purpose: str, words: int) -> Keys:
    """``words`` secret 64-bit words for one purpose (at most 8), from the stream's secret."""
    digest = blake2b(purpose.encode(), key=secret[:64], digest_size=8 * words, person=b"pyramidion")
    return np.frombuffer(digest.digest(), dtype="<u8").astype(np.uint64)


def _view(array: pa.Array, dtype: Any, more: int = 0) -> NDArray[Any]:
    """An array's values (and ``more`` behind them), read from its first buffer of data."""
    stop = array.offset + len(array) + more
    return np.frombuffer(array.buffers()[1], dtype=dtype, count=stop)[array.offset :]


def _bitmap(array: pa.Array) -> NDArray[np.uint8]:
    """The validity bitmap, empty where no value is missing."""
    if not array.null_count:
        return _NO_BITMAP
    return np.frombuffer(array.buffers()[0], dtype=np.uint8)


def _offsets_of(array: pa.Array) -> NDArray[Any]:
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    return _view(array, np.int64 if large else np.int32, more=1)


def _extents(buffers: Iterable[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Address and size of each buffer; one that is not there is empty."""
    found = [(buffer.address, buffer.size) if buffer else (0, 0) for buffer in buffers]
    extents = np.array(found, dtype=np.int64).reshape(-1, 2)
    return extents[:, 0].copy(), extents[:, 1].copy()


class Hasher:
    """Values to keys under one secret, read by their text or by their type."""

    def __init__(self, secret: bytes, keyed_by: str = KEYED_BY) -> None:
        if keyed_by not in (BY_TEXT, BY_TYPE):
            raise FormatError("this stream knows values by a rule that is not known here; upgrade")
        kinds = kernels.BY_TEXT_ROWS if keyed_by == BY_TEXT else kernels.KINDS
        pairs = [derive(secret, f"value {kind}", 2) for kind in range(kinds)]
        self.keys: Keys = np.stack(pairs)
        self.missing = self.payload(kernels.MISSING, b"")

    @property
    def keyed_by(self) -> str:
        """How values are read; the keys say it, so that old pickles do, too."""
        return BY_TEXT if len(self.keys) == kernels.BY_TEXT_ROWS else BY_TYPE

    def read(self, value: object) -> tuple[int, bytes]:
        """Kind and payload of a value of a category; raises UnfitError for what has none."""
        return by_text(value) if self.keyed_by == BY_TEXT else category(value)

    def payload(self, kind: int, data: bytes) -> int:
        """The key of one payload: what every other way of hashing must agree with."""
        buffer = np.frombuffer(data or b"\0", dtype=np.uint8)
        address = buffer.ctypes.data
        k0, k1 = self.keys[kind]
        return int(kernels.hash_bytes(k0, k1, address, len(data), address + len(data)))

    def value(self, value: object) -> int:
        """The key of one Python value; raises TypeError for what has none."""
        return int(self.values([value])[0])

    def values(self, values: Iterable[object]) -> Keys:
        """The keys of some Python values, one by one."""
        made = by_text if self.keyed_by == BY_TEXT else canonical
        return self.payloads([made(value) for value in values])

    def payloads(self, made: Sequence[tuple[int, bytes]]) -> Keys:
        """The keys of some payloads, each with its kind."""
        kinds = np.fromiter((kind for kind, _ in made), dtype=np.uint8, count=len(made))
        lengths = np.fromiter((len(data) for _, data in made), dtype=np.int64, count=len(made))
        buffer = np.frombuffer(b"".join(data for _, data in made) or b"\0", dtype=np.uint8)
        out = np.empty(len(made), dtype=np.uint64)
        kernels.hash_payloads(self.keys, kinds, lengths, buffer, out)
        return out

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
        if array.null_count == len(array):
            out[:] = self.missing  # such an array need not have any buffers
        elif pa.types.is_run_end_encoded(array.type):
            self._runs(array, out)
        else:
            self._values(array, array.type, out)
            if array.null_count:
                kernels.blank(_bitmap(array), array.offset, np.uint64(self.missing), out)

    def _runs(self, array: pa.Array, out: Keys) -> None:
        out[:] = self.column(array.values)[run_of_each_row(array)]

    def _dictionary(self, array: pa.Array, kind: pa.DataType, out: Keys) -> None:
        indices = _view(array, kind.index_type.to_pandas_dtype()).astype(np.int64)
        kernels.take(self.column(array.dictionary), indices, out)

    def _values(self, array: pa.Array, kind: pa.DataType, out: Keys) -> None:
        if pa.types.is_dictionary(kind):
            self._dictionary(array, kind, out)
        elif pa.types.is_integer(kind):
            self._integers(_view(array, kind.to_pandas_dtype()), out)
        elif pa.types.is_floating(kind):
            values = _view(array, kind.to_pandas_dtype())
            self._floats(values.astype(np.float64, copy=False), out)
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

    def _floats(self, values: NDArray[np.float64], out: Keys) -> None:
        kernels.hash_floats(self.keys, values, out)
        if self.keyed_by == BY_TEXT:
            fractions = np.flatnonzero(values != np.floor(values))
            if fractions.size:
                each = pa.array(values[fractions]).dictionary_encode()
                texts = [repr(value).encode() for value in each.dictionary.to_pylist()]
                found = self.payloads([(kernels.TEXT, text) for text in texts])
                out[fractions] = found[np.asarray(each.indices)]

    def _times(self, array: pa.Array, kind: pa.DataType, out: Keys) -> None:
        of, unit = time_layout(kind)
        ticks = _view(array, np.int32 if kind.bit_width == 32 else np.int64)
        words = ticks.astype(np.int64).view(np.uint64) * np.uint64(unit)
        kernels.hash_words(self.keys, of, words, out)

    def _strings(self, array: pa.Array, kind: pa.DataType, out: Keys) -> None:
        of = kernels.TEXT if is_text(kind) else kernels.BYTES
        if is_view(kind):
            self._views(array, of, out)
        elif pa.types.is_decimal(kind):
            self._decimals(array, kind, out)
        elif pa.types.is_fixed_size_binary(kind):
            data = array.buffers()[1].address + array.offset * kind.byte_width
            kernels.hash_fixed(self.keys, of, data, kind.byte_width, out)
        elif is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            (data,), (size,) = _extents(array.buffers()[2:])
            kernels.hash_strings(self.keys, of, _offsets_of(array), data, data + size, out)
        else:
            raise ObservationError(unhashable(type_name(kind)))

    def _views(self, array: pa.Array, of: int, out: Keys) -> None:
        _, views, *data = array.buffers()
        starts, sizes = _extents(data)
        bitmap, address = _bitmap(array), views.address + 16 * array.offset
        kernels.hash_views(
            self.keys, of, bitmap, array.offset, address, starts, starts + sizes, out
        )

    def _decimals(self, array: pa.Array, kind: pa.DataType, out: Keys) -> None:
        width = kind.bit_width // 8
        address = array.buffers()[1].address + array.offset * width
        wide = np.full(len(array), kind.scale < 0)
        kernels.hash_decimals(self.keys, address, width, kind.scale, wide, out)
        if wide.any():
            out[wide] = self.values(array.filter(pa.array(wide)).to_pylist())


def sound(array: pa.Array) -> bool:
    """Whether an array's offsets and views stay inside its buffers.

    Beside Arrow's quick ``validate()``, all that hashing relies on; bytes from
    strangers deserve ``validate(full=True)`` where they come in.
    """
    kind = array.type
    if len(array) == array.null_count:
        return True
    if pa.types.is_dictionary(kind):
        return sound(array.dictionary)
    if pa.types.is_run_end_encoded(kind):
        return sound(array.values)
    if is_view(kind):
        _, views, *data = array.buffers()
        address, sizes = views.address + 16 * array.offset, _extents(data)[1]
        return bool(kernels.views_sound(_bitmap(array), array.offset, len(array), address, sizes))
    if is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        size = _extents(array.buffers()[2:])[1][0]
        return bool(kernels.offsets_sound(_offsets_of(array), size))
    return True


def is_view(kind: pa.DataType) -> bool:
    """Whether values lie in Arrow's view layout."""
    return kind in (pa.string_view(), pa.binary_view())


def is_text(kind: pa.DataType) -> bool:
    """Whether values are text."""
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def run_of_each_row(array: pa.Array) -> NDArray[np.int64]:
    """For each row of a run-end-encoded array, the number of its value."""
    rows = np.arange(array.offset, array.offset + len(array))
    return np.searchsorted(np.asarray(array.run_ends), rows, side="right")


def time_layout(kind: pa.DataType) -> tuple[int, int]:
    """Kind and length of one unit in nanoseconds of a temporal Arrow type."""
    if pa.types.is_date32(kind):
        return kernels.INSTANT, DAY
    if pa.types.is_date64(kind):
        return kernels.INSTANT, NANOSECONDS["ms"]
    if pa.types.is_timestamp(kind):
        return kernels.INSTANT, NANOSECONDS[kind.unit]
    if pa.types.is_time(kind):
        return kernels.TIME_OF_DAY, NANOSECONDS[kind.unit]
    if pa.types.is_duration(kind):
        return kernels.DURATION, NANOSECONDS[kind.unit]
    raise ObservationError(unhashable(type_name(kind)))


def type_name(kind: pa.DataType) -> str:
    """What a type is called; not what is in it, a struct's names may come from values."""
    return str(kind).partition("<")[0]


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
