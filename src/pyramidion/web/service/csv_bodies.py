"""CSV from strangers: read as the command line reads a file, within a service's limits.

The first line names the columns, and each field is read by itself. Columns that the schema does
not know are left alone. What cannot be read is told without a value of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pyarrow as pa

from pyramidion.errors import FormatError, ObservationError, SchemaError, TooLargeError
from pyramidion.rows.containers import joined
from pyramidion.rows.draft import draft_of
from pyramidion.rows.files import TextFile
from pyramidion.rows.text_files import BLOCK, Types
from pyramidion.web.limits import Limits

NAME = "the body"
_BLANK = re.compile(
    rb"(?:\xef\xbb\xbf)?[\r\n]*+"
)  # empty lines before the first, which Arrow skips
_FIELD = re.compile(rb'(?:"[^"]*+")*+[^,\r\n]*+(,?)')  # as Arrow reads it; never goes back


def rows_in_csv(body: bytes, columns: Sequence[str], types: Types, limits: Limits) -> pa.Table:
    """The rows of a body, with these columns of the schema."""
    _refuse_wide(body, limits)
    tables, rows = [pa.schema([(name, pa.string()) for name in columns]).empty_table()], 0
    for table in _file(body).batches(columns, types=types):
        rows += table.num_rows
        if rows > limits.rows:
            raise TooLargeError(f"a request may have {limits.rows} rows here; send several")
        tables.append(table)
    return joined(tables if len(tables) == 1 else tables[1:])


def draft_from(body: bytes, limits: Limits) -> str:
    """A schema file for the rows of a body, from the names and types of its columns alone."""
    _refuse_wide(body, limits)
    try:
        return draft_of(_file(body), "rows that were sent")
    except ObservationError as problem:
        raise FormatError(str(problem)) from None
    except SchemaError:  # may quote a name, which is a value where there is no header
        raise FormatError(
            "no schema can be drafted for these columns; give each a name of its own in the first "
            "line, and leave one for a feature"
        ) from None


def _file(body: bytes) -> TextFile:
    return TextFile(body, format="csv", name=NAME)


def _refuse_wide(body: bytes, limits: Limits) -> None:
    """Raise before Arrow makes a million columns of a line of commas."""
    start = found.end() if (found := _BLANK.match(body)) else 0
    for number, comma in enumerate(_commas(body[start : start + BLOCK]), 1):
        if comma and number >= limits.columns:
            raise TooLargeError(f"a body may have {limits.columns} columns here; send fewer")


def _commas(head: bytes) -> Iterator[bool]:
    """For each field of the first line, whether another one follows."""
    place, more = 0, True
    while more and (found := _FIELD.match(head, place)):
        place, more = found.end(), bool(found[1])
        yield more
