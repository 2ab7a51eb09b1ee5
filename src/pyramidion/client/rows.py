"""Rows as the body of a request: JSON for dicts, Arrow for everything in bulk.

JSON has no NaN, no bytes and no times. Dicts that hold any go as Arrow, so that the service
judges what was meant and not what JSON makes of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from pyramidion.batches import ACCEPTED, as_dict, is_columnar
from pyramidion.errors import ObservationError

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"

_PLAIN = (str, bool, int, type(None))


class Body(NamedTuple):
    """Bytes and their content type."""

    content: bytes
    kind: str


def body_of(rows: Any) -> Body:
    """Rows in any container that a store takes, as a body.

    >>> body_of({"carrier": "AA", "distance": 300})
    Body(content=b'{"carrier":"AA","distance":300}', kind='application/json')
    >>> body_of({"carrier": ["AA", "UA"]}).kind == ARROW
    True
    """
    if isinstance(rows, Mapping) and not is_columnar(rows):
        one = _plain(as_dict(rows))
        return json_of(one) if one is not None else _arrow([as_dict(rows)])
    if isinstance(rows, list | tuple) and all(isinstance(row, Mapping) for row in rows):
        told = [_plain(as_dict(row)) for row in rows]
        return json_of(told) if None not in told else _arrow([as_dict(row) for row in rows])
    return _arrow(rows)


def json_of(told: object) -> Body:
    """Plain values as a body."""
    return Body(msgspec.json.encode(told), JSON)


def _plain(row: dict[str, object]) -> dict[str, object] | None:
    """A row as JSON can hold it; None: it cannot."""
    found = {n: v.item() if isinstance(v, np.generic) else v for n, v in row.items()}
    good = all(type(v) in _PLAIN or (type(v) is float and math.isfinite(v)) for v in found.values())
    return found if good else None


def _arrow(rows: Any) -> Body:
    table = _table(rows)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Body(sink.getvalue().to_pybytes(), ARROW)


def _table(rows: Any) -> pa.Table:
    """Rows as Arrow has them. Its own errors may quote a value, so none is passed on."""
    try:
        return _converted(rows)
    except (pa.ArrowException, TypeError, ValueError, AttributeError):
        pass
    raise ObservationError(
        f"rows of type {type(rows).__name__} cannot be sent as Arrow columns, or a column mixes "
        f"types; send {ACCEPTED}"
    )


def _converted(rows: Any) -> pa.Table:
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, list | tuple):
        names = dict.fromkeys(name for row in rows for name in row)
        return pa.table({name: [row.get(name) for row in rows] for name in names})
    if hasattr(rows, "to_parquet") and hasattr(rows, "columns"):  # pandas: its NaN means missing
        return pa.Table.from_pandas(rows, preserve_index=False)
    if isinstance(rows, Mapping):
        return pa.table(dict(rows))
    return pa.table(rows)
