"""The rows of a body: JSON, Arrow's IPC stream, or CSV, by content type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pyramidion.rows.observations import types_for
from pyramidion.rows.text_files import Types
from pyramidion.store.pyramid import Pyramid
from pyramidion.web.arrow_bodies import table_from
from pyramidion.web.bodies import ARROW, CSV, JSON, rows_in_json
from pyramidion.web.limits import Limits
from pyramidion.web.service.csv_bodies import rows_in_csv


class Wanted(NamedTuple):
    """What rows of a stream are to have: some columns of its schema, and types of those in CSV."""

    columns: Sequence[str]
    types: Types

    @classmethod
    def of(cls, pyramid: Pyramid, columns: Sequence[str]) -> Wanted:
        """Some columns of a stream's schema."""
        return cls(columns, types_for(pyramid.schema, pyramid.keyed_by))


def rows_from(body: bytes, kind: str, limits: Limits, wanted: Wanted) -> tuple[Any, int]:
    """Rows of a body, and how many: a list of objects, one object, an Arrow stream, or CSV."""
    if kind == ARROW:
        table = table_from(body, limits)
        return table, table.num_rows
    if kind == CSV:
        table = rows_in_csv(body, *wanted, limits)
        return table, table.num_rows
    rows = rows_in_json(body, kind, limits, (JSON, ARROW, CSV))
    return rows, len(rows)
