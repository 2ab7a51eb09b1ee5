"""Rows for Vowpal Wabbit: in units, as text, in files that are only memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyramidion.errors import StateError

TEXT = 8 * 2**20
"""Bytes of text in one memory file: what is read in about 0.1 s, while other threads wait."""

BLOCK = 2**18
"""Numbers in a block of rows, some 3 MB of text."""

FARTHEST = 1e3
"""Values are kept within this many units of the centre, so that none leaves float32."""


@dataclass(frozen=True)
class Units:
    """Where each column has its centre, and what is one unit of it."""

    centre: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def of(cls, X: NDArray[Any], weights: NDArray[Any] | None) -> Units:
        """Units of these rows.

        A column that moves little stays small: its unit is the median deviation of all
        columns, but at most ten times its own. Tables that noise has swamped give such
        columns; blown up to the size of the others they cost up to 4 % of the loss.
        """
        X = X.astype(np.float64)
        centre = np.average(X, axis=0, weights=weights)
        own = np.sqrt(np.average((X - centre) ** 2, axis=0, weights=weights))
        own[own <= 1e-6 * np.abs(centre)] = 0.0  # rounding, in a column that is constant
        common = np.median(own[own > 0]) if own.any() else 1.0
        return cls(centre, np.where(own > 0, np.clip(common, own, 10 * own), 1.0))

    def rows(self, X: NDArray[Any]) -> NDArray[np.float32]:
        """These rows in units, with a last column of ones."""
        rows = np.ones((len(X), X.shape[1] + 1), dtype=np.float32)
        rows[:, :-1] = np.clip((X - self.centre) / self.scale, -FARTHEST, FARTHEST)
        return rows


@dataclass(frozen=True)
class Rows:
    """Checked rows with what they teach; makes blocks of text of them."""

    X: NDArray[Any]
    y: NDArray[Any]
    weights: NDArray[np.float32] | None

    def blocks(self, units: Units, order: NDArray[Any] | None = None) -> Iterator[pa.Array]:
        """The rows as text, in the order given or as they came."""
        order = np.arange(len(self.X)) if order is None else order
        size = max(1, BLOCK // (self.X.shape[1] + 1))
        for start in range(0, len(order), size):
            part = order[start : start + size]
            weights = None if self.weights is None else self.weights[part]
            yield text(units.rows(self.X[part]), self.y[part], weights)

    def passes(self, units: Units, number: int, random: Any) -> Iterator[pa.Array]:
        """Several passes; blocks, and the rows in them, change places.

        Text is made once and kept, about 12 bytes for a number.
        """
        blocks = list(self.blocks(units, random.permutation(len(self.X))))
        for _ in range(number):
            for place in random.permutation(len(blocks)):
                yield blocks[place].take(pa.array(random.permutation(len(blocks[place]))))


def text(
    rows: NDArray[np.float32], labels: NDArray[Any], weights: NDArray[np.float32] | None
) -> pa.Array:
    """Rows as Vowpal Wabbit reads them: label, importance, and columns by position.

    >>> text(np.array([[0.5, 1.0]], dtype=np.float32), np.array([-1]), None)[0].as_py()
    '-1 | :0.5 :1'
    """
    head = [_words(labels)] if weights is None else [_words(labels), _words(weights)]
    line = pc.binary_join_element_wise(*head, "|", " ")
    columns = [_words(np.ascontiguousarray(column)) for column in rows.T]
    return pc.binary_join_element_wise(line, *columns, " :")


def _words(values: NDArray[Any]) -> pa.Array:
    return pc.cast(pa.array(values), pa.string())


def memory_files(blocks: Iterable[pa.Array]) -> Iterator[tuple[str, str]]:
    """Paths of memfds that hold these rows in turn, each with its first row."""
    waiting = iter(blocks)
    for block in waiting:
        with _memory_file() as (path, write):
            written = write(block)
            while written < TEXT and (more := next(waiting, None)) is not None:
                written += write(more)
            yield path, block[0].as_py()


@contextmanager
def _memory_file() -> Iterator[tuple[str, Any]]:
    if not hasattr(os, "memfd_create"):
        raise StateError(
            "this system has no memfd, and models of hot rows may not pass through a disk; "
            "train Vowpal Wabbit models on Linux"
        )
    number = os.memfd_create("rows")

    def write(block: pa.Array) -> int:
        lines = pc.binary_join_element_wise(block, "", "\n")
        size = int(pc.sum(pc.binary_length(lines)).as_py())
        left = memoryview(lines.buffers()[2])[:size]
        while left:
            left = left[os.write(number, left) :]
        return size

    try:
        yield f"/proc/self/fd/{number}", write
    finally:
        os.close(number)
