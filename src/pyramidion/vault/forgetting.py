"""One person's rows in the vault: made blank, under a grant.

The machine that seals cannot read what it sealed, so a custodian grants the files, a broker
gives their rows, and each file is sealed anew with the person's rows blank: no value, window
0, and the batch and arrival that they had, which are public. So a file has as many rows as
before. *All* granted files are sealed anew, whoever is in them: which ones changed would tell
when the person was there. Whoever reads the vault gets no blank rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyramidion.errors import FormatError, SchemaError
from pyramidion.vault.documents import Grant
from pyramidion.vault.envelope import Header
from pyramidion.vault.parquet import BLANK, OWN, WINDOW

if TYPE_CHECKING:
    from pyramidion.vault.reader import GrantedRows

Theirs = Callable[[pa.Table], NDArray[np.bool_]]
"""Which rows of a table are the person's."""


def blanked(table: pa.Table, theirs: NDArray[np.bool_]) -> pa.Table:
    """A table with some rows blank.

    >>> rows = pa.table({"who": ["ann", "bob"], "_batch": [1, 1], "_arrived": [9, 9],
    ...                  "_window": [4, 4]})
    >>> blanked(rows, np.array([True, False])).to_pylist()[0]
    {'who': None, '_batch': 1, '_arrived': 9, '_window': 0}
    """
    gone = pa.array(theirs)
    for place, field in enumerate(table.schema):
        if field.name in OWN and field.name != WINDOW:
            continue
        blank = pa.scalar(BLANK if field.name == WINDOW else None, field.type)
        column = pc.if_else(gone, blank, table.column(place))
        table = table.set_column(place, field.name, column)
    return table


def without(rows: GrantedRows, theirs: Theirs) -> Iterator[tuple[str, pa.Table]]:
    """Each granted file by name, with the person's rows blank."""
    headers = {file.header.name: file.header for file in rows.grant.files}
    refuse_unusable(rows.grant)
    for name, batches in groupby(rows.by_file(), itemgetter(0)):
        header = headers[name]
        table = pa.Table.from_batches([batch for _, batch in batches])
        if table.num_rows != header.rows:
            raise FormatError(
                f"vault file {name} did not come whole, so it is left as it is; ask again"
            )
        table = table.select([*header.columns, *OWN])
        yield name, blanked(table, _among(table, theirs))


def _among(table: pa.Table, theirs: Theirs) -> NDArray[np.bool_]:
    """The person's rows; blank ones are nobody's."""
    there = table.column(WINDOW).to_numpy() != BLANK
    found = np.zeros(table.num_rows, dtype=np.bool_)
    found[there] = theirs(table.filter(pa.array(there)))
    return found


def refuse_unusable(grant: Grant) -> None:
    """Raise for a grant that does not give whole files."""
    if grant.purpose != "erase":
        raise SchemaError(
            "this grant is for reading, and sealing anew what it gives would lose rows; ask with "
            "`vault request --erase`"
        )
    for header in (file.header for file in grant.files):
        if not set(grant.columns).issuperset(columns_of(header)):
            raise SchemaError(
                f"this grant does not give all columns of vault file {header.name}; ask with "
                f"`vault request --erase`"
            )


def columns_of(header: Header) -> list[str]:
    """All that must be read of a file to seal it anew."""
    return [*header.columns, WINDOW]
