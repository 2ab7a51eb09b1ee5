"""Exact rows per key of one table: what private quantiles are read from.

As raw as the rows themselves (P1): it is made in memory, read once, and dropped.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyramidion.counts.kernels import count_keys
from pyramidion.rows.hashing import Keys

_FEWEST = 1 << 10  # slots at the beginning; they double when half of them are in use


class KeyCounts:
    """How many rows each key has. A blanked row, one of weight 0, is no row here.

    >>> seen = KeyCounts()
    >>> seen.add(np.array([7, 7, 9, 8], dtype=np.uint64), np.array([1, 3, 1, 0]))
    >>> sorted(seen.counts.tolist())
    [1, 2]
    """

    def __init__(self) -> None:
        self._keys: Keys = np.zeros(_FEWEST, dtype=np.uint64)
        self._counts = np.zeros(_FEWEST, dtype=np.int64)
        self._used = 0

    def add(self, keys: Keys, weights: NDArray[np.int64]) -> None:
        """Count rows by their keys: one weight for all, or one each, 0 where blanked."""
        rows = (weights != 0).astype(np.int64)
        at = 0
        while True:
            at, self._used = count_keys(keys, rows, at, self._keys, self._counts, self._used)
            if at == len(keys):
                return
            self._grow()

    def _grow(self) -> None:
        taken = self._counts > 0
        keys, counts = self._keys[taken], self._counts[taken]
        self._keys = np.zeros(2 * len(self._keys), dtype=np.uint64)
        self._counts = np.zeros(len(self._keys), dtype=np.int64)
        _, self._used = count_keys(keys, counts, 0, self._keys, self._counts, 0)

    @property
    def counts(self) -> NDArray[np.int64]:
        """The rows of each key, in no order; each at least 1."""
        return self._counts[self._counts > 0]
