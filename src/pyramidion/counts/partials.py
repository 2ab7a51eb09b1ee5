"""Exact counts of some rows of a window, on their way to its tables: as raw as these rows (P1).

Counting may be shared by many processes. Each counts into tables of zeros; what they counted is
added up, table by table in any order, and joins the noisy tables of the window at last
(`Arena.join`). Sums of whole numbers do not depend on who counted what, how often a share was
begun anew, or which came first: so the tables are those that one process would have made.

    packed   bytes of a cell (1, 2, 4 or 8) | number of cells | the cells, by zstd
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.counts.arena import Arena
from pyramidion.counts.layout import Layout

_HEAD = 9
_CELLS = {size: np.dtype(f"<i{size}") for size in (1, 2, 4, 8)}


def exact_layout(layout: Layout, rows: int) -> Layout:
    """The layout of exact counts of so many rows: the same cells, as wide as these need."""
    bound = max(rows * layout.weight, 1)
    tables = (replace(table, bound=bound, variance=0.0) for table in layout.tables)
    return replace(layout, tables=tuple(tables))


class Partial(Arena):
    """Exact counts of some rows of one window (P1): packed for a shuffle, never stored."""

    def __init__(self, layout: Layout, max_rows: int) -> None:
        super().__init__(exact_layout(layout, max_rows), max_rows)
        self.raw = True

    def packed(self) -> Iterator[tuple[int, bytes]]:
        """The number and the packed cells of each table, once it has counted."""
        for table in range(len(self.layout.tables)):
            yield table, pack(self._flat(table))

    def fill(self, table: int, packed: bytes) -> None:
        """Put in the packed cells of a table, once all shares of it are added up."""
        self._flat(table)[:] = unpack(packed)


def pack(cells: NDArray[Any]) -> bytes:
    """Whole numbers, each as narrow as all of them allow, compressed.

    >>> unpack(pack(np.array([0, -3, 300]))).tolist()
    [0, -3, 300]
    """
    low, high = int(cells.min(initial=0)), int(cells.max(initial=0))
    size = next(n for n in _CELLS if -(1 << 8 * n - 1) <= low and high < 1 << 8 * n - 1)
    narrow = np.ascontiguousarray(cells, dtype=_CELLS[size])
    head = bytes([size]) + len(cells).to_bytes(_HEAD - 1, "little")
    compressed: bytes = pa.Codec("zstd", compression_level=1).compress(narrow, asbytes=True)
    return head + compressed


def unpack(packed: bytes | bytearray) -> NDArray[Any]:
    """What `pack` packed; as narrow as it was."""
    size, length = packed[0], int.from_bytes(packed[1:_HEAD], "little")
    body = memoryview(packed)[_HEAD:]
    raw = pa.Codec("zstd").decompress(body, decompressed_size=size * length)
    return np.frombuffer(raw, dtype=_CELLS[size])
