"""A linear model or a small network as plain numbers, taught by Vowpal Wabbit in memory.

Vowpal Wabbit is made for files: rows come from one, models go to another, and several
passes want a cache between. A model of hot rows must never be on a disk, so here

* rows reach it as text in a memfd, a file that is memory and has no name. It reads them in
  its own loop: 290,000 rows of 20 columns in a second, where one Python call for each row
  made 43,000, and its own binary cache about as many as text;
* what it knows is set before and read after, weight by weight. With the updates used
  here (``--adaptive --invariant``) these numbers are all of its state, so training goes on
  from them exactly where it stopped, and a model is an array that pickles and copies;
* scores are computed from that array, so that predicting needs no Vowpal Wabbit, no lock
  and no text. After each run one row is scored by both; a version that keeps its weights
  in another order is refused, not misread.

Where Vowpal Wabbit keeps what, in an array of 2^bits slots of (weight, sum of squared
gradients), with w = outputs · (hidden + 1) rounded up to a power of two:

    linear   column f, output o              f·w + o
    hidden   column f, output o, unit u      f·w + o·(hidden + 1) + u
    output   unit u (the last: constant)     start + o·(hidden + 1) + u

The last column is always 1: its constant of its own would collide with a column in an
array as small as this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.errors import SchemaError, StateError
from pyramidion.learn.vowpal_rows import memory_files

NETWORK_START = 533_357_803
"""Where Vowpal Wabbit's ``--nn`` begins its output layer, before it wraps around."""

STEEPEST = 3.0
"""Vowpal Wabbit keeps what goes into a hidden unit's tanh within ±3."""

SURE = 50.0
"""Vowpal Wabbit keeps log-odds within ±50."""

MANY = 2**14
"""Rows scored at a time: hidden units of more would fill the memory."""

NEAR = 1e-2
"""How far its scores may be from ours, times the largest weight: its tanh is approximate."""


@dataclass(frozen=True)
class Network:
    """What Vowpal Wabbit knows: a linear model, or one hidden layer; it never changes.

    ``weights`` has a row for each slot: the weight, and the sum of squared gradients that
    slows its next step.
    """

    columns: int
    outputs: int
    hidden: int
    weights: NDArray[np.float32]

    @classmethod
    def fresh(
        cls, columns: int, start: NDArray[Any], hidden: int, random: np.random.RandomState
    ) -> Network:
        """A network that knows only the scores ``start``; its hidden units differ by chance."""
        outputs = len(start)
        weights = np.zeros((size(columns, outputs, hidden), 2), dtype=np.float32)
        network = cls(columns, outputs, hidden, weights)
        inner, outer = network._layers()
        if hidden:
            inner[:] = random.normal(0, 0.5 / np.sqrt(columns), inner.shape)
            outer[:-1] = random.uniform(-0.5, 0.5, outer[:-1].shape) / np.sqrt(hidden)
        outer[-1] = start
        return network

    def _layers(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Views of the weights: column × output × unit, and unit (or column) × output."""
        inner = self.columns * self.outputs * self.hidden
        return (
            self.weights[:inner, 0].reshape(self.columns, self.outputs, self.hidden),
            self.weights[inner:, 0].reshape(-1, self.outputs),
        )

    def scores(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """The score of each output for each row, before any link."""
        parts = [self._scores(rows[at : at + MANY]) for at in range(0, len(rows), MANY)]
        return np.concatenate(parts).astype(np.float64)

    def _scores(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        inner, outer = self._layers()
        if not self.hidden:
            return rows @ outer
        units = np.tanh(np.clip(np.tensordot(rows, inner, axes=1), -STEEPEST, STEEPEST))
        scores: NDArray[np.float32] = np.einsum("rou,uo->ro", units, outer[:-1]) + outer[-1]
        return scores

    def learn(self, blocks: Iterable[pa.Array], options: list[str]) -> Network:
        """The network after it has seen these rows (see `vowpal_rows.text`), in this order."""
        network = self
        for path, row in memory_files(blocks):
            network = network._run(path, row, options)
        return network

    def _run(self, path: str, row: str, options: list[str]) -> Network:
        places, bits = _slots(self.columns, self.outputs, self.hidden)
        slots = places.tolist()
        layer = ["--nn", str(self.hidden)] if self.hidden else []
        several = ["--oaa", str(self.outputs), "--scores"] if self.outputs > 1 else []
        arguments = [f"--data={path}", f"--bit_precision={bits}", *several, *layer, *options]
        with _wabbit(arguments) as wabbit:
            for slot, (weight, squares) in zip(slots, self.weights.tolist(), strict=True):
                wabbit.set_weight(slot, 0, weight)
                wabbit.set_weight(slot, 1, squares)
            wabbit.run_parser()
            found = [(wabbit.get_weight(slot, 0), wabbit.get_weight(slot, 1)) for slot in slots]
            own = _own_scores(wabbit, row, several=bool(several))
        learnt = replace(self, weights=np.array(found, dtype=np.float32))
        learnt._check(row, own)
        return learnt

    def _check(self, row: str, own: NDArray[np.float64]) -> None:
        if not np.isfinite(self.weights).all():
            raise SchemaError("training diverged; lower learning_rate, l1 or l2")
        values = [float(value) for value in row.split(" :")[1:]]
        here = self.scores(np.array([values], dtype=np.float32))[0]
        _, outer = self._layers()
        if self.hidden and not outer.all():
            return  # a unit that l1 has silenced wakes at random when it scores
        apart = np.abs(here.clip(-SURE, SURE) - own.clip(-SURE, SURE)).max()
        if apart > NEAR * (1 + np.abs(outer).max()):
            raise StateError(
                "this version of Vowpal Wabbit keeps its weights in an unknown order; "
                "pip install 'vowpalwabbit==9.11.*'"
            )


@contextmanager
def _wabbit(arguments: list[str]) -> Iterator[Any]:
    """Vowpal Wabbit, ready to run; neither its log nor its errors may show rows."""
    try:
        library = import_module("pylibvw")
    except ImportError:
        raise StateError(
            "Vowpal Wabbit is not installed; pip install 'pyramidion[models]'"
        ) from None
    quiet = ["--quiet", "--log_level=off", "--no_stdin"]
    # without predict_only_model it leaves l1 and l2 in two factors that nobody can read
    updates = ["--adaptive", "--invariant", "--noconstant", "--predict_only_model"]
    try:
        wabbit = library.vw([*quiet, *updates, *arguments])
        yield wabbit
        wabbit.finish()
    except RuntimeError:
        raise StateError(
            "Vowpal Wabbit could not learn these rows with these parameters; "
            "try it with fewer hidden units and without l1 and l2"
        ) from None


def _own_scores(wabbit: Any, row: str, *, several: bool) -> NDArray[np.float64]:
    """What Vowpal Wabbit itself makes of a row."""
    library = import_module("pylibvw")
    features = row[row.index("|") :]
    example = library.example(wabbit, wabbit._get_label_type(), features)
    wabbit.predict(example)
    scores = example.get_scalars() if several else [example.get_partial_prediction()]
    wabbit._finish_example(example)
    return np.array(scores, dtype=np.float64)


def size(columns: int, outputs: int, hidden: int) -> int:
    """How many weights such a network has."""
    inner = columns * outputs * hidden
    return inner + outputs * (hidden + 1) if hidden else columns * outputs


def _slots(columns: int, outputs: int, hidden: int) -> tuple[NDArray[np.int64], int]:
    """Where each weight is, and in how many bits no two of them share a slot."""
    width = 1 << (outputs * (hidden + 1) - 1).bit_length()
    column = np.arange(columns)[:, None, None] * width
    output = np.arange(outputs) * (hidden + 1)
    if not hidden:
        slots = (column[:, :, 0] + output).ravel()
        return slots, max(1, int(slots[-1]).bit_length())
    inner = (column + output[:, None] + np.arange(hidden)).ravel()
    outer = (NETWORK_START + hidden + output + np.arange(hidden + 1)[:, None]).ravel()
    bits = (columns * width - 1).bit_length()
    while len(np.unique(slots := np.concatenate([inner, outer]) % 2**bits)) < len(slots):
        bits += 1
    return slots, bits
