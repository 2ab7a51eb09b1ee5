"""The values of rows themselves, as a sparse matrix beside the columns of counts.

A count tells how a value fared in all of the past, also by what came along with it. Hot rows are
raw, so a model can learn from them what a frequent value is worth beside the others, and leave
to the counts what it has seen too seldom. Each value of each feature has a column, found by its
key; two may share one. Groups have none: rows of them are few.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pyramidion.rows.observations import Rows

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

BITS = 18
WIDTH = 1 << BITS
"""Columns. With a hundred thousand values a third of them share one; those are the rare ones."""
_SPREAD, _APART, _MIXED = (
    np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 0xBF58476D1CE4E5B9)
)


def values_of(rows: Rows, features: Collection[str] | None = None) -> csr_matrix:
    """A one where a row has a value, for all features or some."""
    from scipy.sparse import csr_matrix

    single = [shape.parts[0] if len(shape.parts) == 1 else None for shape in rows.shapes]
    tables = [n for n, name in enumerate(single) if name and (features is None or name in features)]
    keys = rows.matrix(0, len(rows))[tables].T
    columns = _columns(keys, np.array(tables, dtype=np.uint64))
    starts = np.arange(len(rows) + 1, dtype=np.int64) * len(tables)
    ones = np.ones(columns.size, dtype=np.float32)
    return csr_matrix((ones, columns.reshape(-1), starts), shape=(len(rows), WIDTH))


def _columns(keys: NDArray[np.uint64], tables: NDArray[np.uint64]) -> NDArray[np.int32]:
    """Where keys go: the same key of two tables to two places, and codes as far apart as hashes."""
    mixed = keys * _SPREAD + tables * _APART
    mixed ^= mixed >> np.uint64(29)
    mixed *= _MIXED
    return (mixed >> np.uint64(64 - BITS)).astype(np.int32)
