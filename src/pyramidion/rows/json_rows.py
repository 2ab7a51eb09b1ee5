"""The door for one row that comes as JSON: from its bytes to the keys of all tables.

A flat object with the schema's names takes one kernel call and makes no Python object.
Whatever the kernel gives up on goes through Python's parser and the door for dicts, so
both ways have the same result and the same refusals.
"""

from __future__ import annotations

import json

import numpy as np

from pyramidion.errors import ObservationError
from pyramidion.rows import json_kernels as kernels
from pyramidion.rows.encoding import Encoder
from pyramidion.rows.hashing import Keys
from pyramidion.rows.packed_kernels import Bundle

NOT_JSON = "the row is not JSON that can be read; send one object, each feature by its name"

# Never in JSON as they are; names that have them are left to Python.
_ESCAPED = frozenset(map(chr, (*range(0x20), ord('"'), ord("\\"))))


class JsonRows:
    """Makes the keys of rows in JSON under one encoder.

    >>> from pyramidion.config.schema import Categorical, Label, Schema
    >>> schema = Schema(features=[Categorical("a")], label=Label("late", classes=[0, 1]))
    >>> encoder = Encoder(schema, b"a secret of the stream", 65_536)
    >>> JsonRows(encoder).keys(b'{"a": "x", "b": 1}') == encoder.one({"a": "x"})
    array([[ True]])
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.plans = encoder.plans
        self.tables = len(encoder.shapes)
        self.sought: Bundle | None = None
        """What the kernel finds names by; None where it cannot."""
        if _ESCAPED.isdisjoint("".join(encoder.schema.feature_names)):
            self.sought = _searchable(encoder.schema.feature_names)

    def keys(self, body: bytes | bytearray | memoryview) -> Keys:
        """The keys of the row that a body is: keys[table, 0]."""
        row = body if type(body) is bytes else bytes(body)
        if self.sought is not None:
            out = np.empty((self.tables, 1), dtype=np.uint64)
            if kernels.encode_json(self.plans.places, self.sought.places, row, out):
                return out
        return self.slowly(row)

    def slowly(self, body: bytes) -> Keys:
        """The same by Python's own parser and the door for dicts: the rule."""
        try:
            row = json.loads(body)
            read = True
        except (ValueError, RecursionError):
            read = False  # that error holds the body; the next one must not hold that error
        if not read:
            raise ObservationError(NOT_JSON)
        return self._encoder.one(row)


def _searchable(names: tuple[str, ...]) -> Bundle:
    """Names with their closing quotes, where each starts, and an open-addressing table of them."""
    told = [name.encode() + b'"' for name in names]
    joined = np.frombuffer(b"".join(told), dtype=np.uint8)
    starts = np.cumsum([0, *map(len, told)]).astype(np.int64)
    size = 2
    while size < 2 * len(names) + 1:
        size *= 2
    slots = np.full(size, -1, dtype=np.int64)
    for f in range(len(names)):
        slot = kernels.slot_of(joined, starts[f], starts[f + 1] - 1, slots)
        while slots[slot] >= 0:
            slot = (slot + 1) & (size - 1)
        slots[slot] = f
    return Bundle(joined, starts, slots)
