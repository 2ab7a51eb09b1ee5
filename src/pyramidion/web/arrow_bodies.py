"""Arrow streams from strangers: refused before reading them could cost more than their bytes.

    compressed buffers       a few bytes could become gigabytes: refused
    deltas of dictionaries   each batch would hold its own, ever longer copy: refused
    nested types, runs       no column of a stream has them; dictionaries of views neither
    dictionaries, views      a long value may be meant a million times: bounded as if written out
    rows, columns, batches   bounded
    offsets, indices         all are checked to point inside; text to be text

A message begins with a FlatBuffers table; Arrow has verified it when we look into it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyramidion.errors import FormatError, TooLargeError
from pyramidion.web.limits import Limits

KNOWN = ("arrow.uuid", "arrow.json")
"""Extension types that a column may have."""
NOT_WHOLE = "the body is not a whole Arrow stream; see what sends it"

_HEADER, _RECORDS, _DATA, _DELTA = 2, 3, 1, 2  # places of fields in their FlatBuffers tables


def table_from(body: bytes, limits: Limits) -> pa.Table:
    """The rows of a body."""
    try:
        _refuse_costly(body, limits)
        with pa.ipc.open_stream(pa.py_buffer(body), options=_options()) as reader:
            _refuse_types(reader.schema, limits)
            table = reader.read_all()
        if table.num_rows > limits.rows:
            raise TooLargeError(f"a request may have {limits.rows} rows here; send several")
        table.validate()
        _refuse_long(table, limits, _viewed)  # before each is looked at, as often as it is meant
        table.validate(full=True)
        _refuse_long(table, limits, _meant)
    except (FormatError, TooLargeError):
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, OverflowError):
        raise FormatError(NOT_WHOLE) from None
    except (struct.error, MemoryError, RecursionError, NotImplementedError):
        raise FormatError(NOT_WHOLE) from None
    return table


def _options() -> pa.ipc.IpcReadOptions:
    """Buffers that begin at odd places are copied to even ones, where Arrow can."""
    alignment = getattr(pa.ipc, "Alignment", None)
    if alignment is None:
        return pa.ipc.IpcReadOptions(use_threads=False)
    return pa.ipc.IpcReadOptions(use_threads=False, ensure_alignment=alignment.DataTypeSpecific)


# --- messages -------------------------------------------------------------------------------


def _refuse_costly(body: bytes, limits: Limits) -> None:
    batches = 0
    for message in _messages(body):
        if message.type not in ("record batch", "dictionary"):
            continue
        batches += 1
        if batches > limits.batches:
            raise TooLargeError(
                f"an Arrow stream may have {limits.batches} batches here; make them larger"
            )
        head = _Part.first(message.metadata.to_pybytes()).child(_HEADER)
        if message.type == "dictionary" and head is not None:
            if head.flag(_DELTA):
                raise FormatError("deltas of dictionaries are not read here; send them whole")
            head = head.child(_DATA)
        if head is not None and head.has(_RECORDS):
            raise FormatError("compressed Arrow buffers are not read here; send them as they are")


def _messages(body: bytes) -> Iterator[Any]:
    reader = pa.ipc.MessageReader.open_stream(pa.py_buffer(body))
    while True:
        try:
            yield reader.read_next_message()
        except StopIteration:
            return


class _Part:
    """A FlatBuffers table: where its fields lie."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        (back,) = struct.unpack_from("<i", data, at)
        self._fields = at - back
        (self._size,) = struct.unpack_from("<H", data, self._fields)

    @classmethod
    def first(cls, data: bytes) -> _Part:
        """The one that a message begins with."""
        return cls(data, struct.unpack_from("<I", data)[0])

    def _place(self, field: int) -> int:
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return 0
        (offset,) = struct.unpack_from("<H", self._data, self._fields + entry)
        return self._at + offset if offset else 0

    def has(self, field: int) -> bool:
        """Whether a field is there."""
        return self._place(field) != 0

    def flag(self, field: int) -> bool:
        """A field that is true or false."""
        place = self._place(field)
        return bool(place) and self._data[place] != 0

    def child(self, field: int) -> _Part | None:
        """A field that is a table itself."""
        place = self._place(field)
        if not place:
            return None
        return _Part(self._data, place + struct.unpack_from("<I", self._data, place)[0])


# --- columns --------------------------------------------------------------------------------


def _refuse_types(schema: pa.Schema, limits: Limits) -> None:
    if len(schema) > limits.columns:
        raise TooLargeError(f"a request may have {limits.columns} columns here; send fewer")
    for number, field in enumerate(schema):
        if not _flat(field.type):
            raise FormatError(
                f"column {number} of the Arrow stream has a type that is not read here; send "
                f"numbers, text, bytes, times, or dictionaries of these"
            )


def _flat(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return kind.extension_name in KNOWN and _flat(kind.storage_type)
    if pa.types.is_dictionary(kind):
        inner = kind.value_type
        return _flat(inner) and not pa.types.is_dictionary(inner) and not _view(inner)
    return not pa.types.is_nested(kind) and not pa.types.is_run_end_encoded(kind)


def _view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _refuse_long(table: pa.Table, limits: Limits, size_of: Callable[[pa.Array], int]) -> None:
    """Bound what the values of dictionaries and views take once each row has its own."""
    size = sum(size_of(chunk) for column in table.columns for chunk in column.chunks)
    if size > limits.body_bytes:
        raise TooLargeError(
            f"the values of an Arrow stream may take {limits.body_bytes} bytes here, each counted "
            f"as often as it is meant; send the rows in several requests"
        )


def _viewed(array: pa.Array) -> int:
    """The bytes that the views of a column mean; a view begins with its length."""
    if not _view(array.type) or len(array) == 0:
        return 0
    views = np.frombuffer(array.buffers()[1], np.int32)[array.offset * 4 :: 4][: len(array)]
    lengths = views[np.asarray(array.is_valid())]
    if (lengths < 0).any():
        raise FormatError(NOT_WHOLE)
    return int(lengths.sum(dtype=np.int64))


def _meant(array: pa.Array) -> int:
    """The bytes of a column's dictionary, as often as they are meant."""
    kind = array.type
    if not pa.types.is_dictionary(kind) or not _long(kind.value_type) or len(array) == 0:
        return 0
    lengths = pc.binary_length(array.dictionary).take(array.indices)
    return int(pc.sum(lengths.cast(pa.int64())).as_py() or 0)


def _long(kind: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_string(kind)
        or kinds.is_large_string(kind)
        or kinds.is_binary(kind)
        or kinds.is_large_binary(kind)
        or kinds.is_fixed_size_binary(kind)
    )
