"""Rows as the body of a request: JSON for dicts, Arrow for everything in bulk.

JSON has no NaN, no bytes and no times. Dicts that hold any go as Arrow, so that the service
judges what was meant and not what JSON makes of it. A column of values of several types goes as
JSON, where a value keeps the type that its own row gave it.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import numpy as np
import pyarrow as pa

from pyramidion.errors import ObservationError
from pyramidion.rows.containers import (
    ABSENT,
    ACCEPTED,
    Raw,
    as_dict,
    columns_of,
    in_one_type,
    is_columnar,
)

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"

_PLAIN = (str, bool, int, type(None))
_TIMES = (dt.date, dt.time, dt.timedelta)
_JSON = (pa.string(), pa.large_string(), pa.bool_(), pa.int64(), pa.float64(), pa.null())


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
    if isinstance(table, list):
        return json_of(table)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Body(sink.getvalue().to_pybytes(), ARROW)


def _table(rows: Any) -> pa.Table | list[dict[str, object]]:
    """Rows as Arrow has them. Its own errors may quote a value, so none is passed on."""
    try:
        return _converted(rows)
    except (pa.ArrowException, TypeError, ValueError, AttributeError, ObservationError):
        pass
    raise ObservationError(
        f"rows of type {type(rows).__name__} cannot be sent as Arrow columns, a column mixes types "
        f"that JSON does not have, or a row lacks one; send {ACCEPTED}"
    )


def _converted(rows: Any) -> pa.Table | list[dict[str, object]]:
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, list | tuple):
        names = dict.fromkeys(name for row in rows for name in row)
        taken: dict[str, Raw] = {n: [row.get(n, ABSENT) for row in rows] for n in names}
    elif hasattr(rows, "columns") or isinstance(rows, Mapping):
        taken, _ = columns_of(rows, [str(n) for n in getattr(rows, "columns", rows)])
    else:
        return pa.table(rows)
    columns = {n: _in_arrow(raw) if isinstance(raw, list) else raw for n, raw in taken.items()}
    if not any(isinstance(column, list) for column in columns.values()):
        return pa.table(columns)
    return _in_json(columns)


def _in_arrow(raw: list[object]) -> Any:
    """An array of values of one type; the list itself where they are of several."""
    made = in_one_type(raw)
    if made is not None:
        return made
    given = [value for value in raw if value is not None]
    kinds = {_kind(value) for value in given}
    if not given or (len(kinds) == 1 and isinstance(given[0], (*_TIMES, Decimal, UUID))):
        return pa.array(raw)
    return raw


def _kind(value: object) -> object:
    """The type of a value; to Arrow, a time with a zone is another than one without."""
    aware = isinstance(value, dt.datetime) and value.tzinfo is not None
    return type(value), aware


def _in_json(columns: Mapping[str, Any]) -> list[dict[str, object]]:
    """Columns of several types as rows, where JSON has all of them."""
    lists = {n: c if isinstance(c, list) else _listed(c) for n, c in columns.items()}
    rows = [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]
    told = [_plain(row) for row in rows]
    if None in told:
        raise TypeError
    return [row for row in told if row is not None]


def _listed(column: Any) -> list[object]:
    if column.type not in _JSON:
        raise TypeError
    return list(column.to_pylist())
