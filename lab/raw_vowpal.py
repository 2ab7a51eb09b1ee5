"""Vowpal Wabbit on raw rows: linear models, matrix factorization, networks.

Vowpal Wabbit runs in a process of its own and reads text from a pipe. While it learns one
block this process makes the next, so rows of any number pass in the memory of a few blocks,
and two cores have work. Several passes go over its own cache, a file in a temporary folder;
so are the model and the predictions, and the folder goes however the work ends.

Text of a row: the label, then each feature as ``position=value``, all made by Arrow.

    1 | 0=user17 1=film4 5=1            a linear model or a network
    1 |u 0=user17 |i 1=film4 |g 5=1     the two largest features apart, to be multiplied
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv
from scipy.special import expit

from lab.datasets import DataSet
from lab.raw_results import Learnt, Range, RawModel, targets
from pyramidion.config.features import Categorical, Continuous, Feature
from pyramidion.config.schema import Schema
from pyramidion.errors import SchemaError, refuse_missing

CHILD = "import sys, pylibvw; w = pylibvw.vw(sys.argv[1:]); w.run_parser(); w.finish()"
"""The whole other process. It imports the bare library: the package around it is slow."""

QUIET = ("--quiet", "--log_level=off", "--no_stdin", "--data=/dev/stdin")

MISSING = "%"
"""What stands for a missing value, which says something too; no value is written so."""

ESCAPES = {"%": "%25", " ": "%20", "\t": "%09", "\n": "%0A", "\r": "%0D", ":": "%3A", "|": "%7C"}
"""What text may not hold as it is: Vowpal Wabbit would read it as the end of a value."""

UNFIT = np.isin(np.arange(256), [ord(sign) for sign in ESCAPES])

TREATMENT = ("numbers", "sides")
"""Parameters that say how rows are written; all others are Vowpal Wabbit's own."""


@dataclass(frozen=True)
class Vowpal(RawModel):
    """A model of Vowpal Wabbit; ``parameters`` are its options by their long names.

    Two more say how rows are written. ``numbers``: a number as its bin of the schema
    ("bins"), its logarithm ("logs"), both ("both"), or as the squared logarithm cut to a
    whole number, which makes some 100 finer bins ("squares"). ``sides``: with False the two
    largest features, as user and movie, are all there is.

    With ``pair`` these two have spaces of their own, u and i, and the rest are in g, so that
    options can name them: ``quadratic="ui"``.
    """

    pair: bool = False

    def learnt(self, data: DataSet, start: int, stop: int, test: Range) -> Learnt:
        """Train in one process, predict in another; one block of text at a time."""
        refuse_missing(self.name, ["pylibvw"], "dev")
        with TemporaryDirectory(prefix="pyramidion-raw-") as folder:
            began = time.perf_counter()
            self._run(self._training(data, folder), self.text(data, (start, stop)))
            took = time.perf_counter() - began
            predicting = ["--testonly", f"--initial_regressor={folder}/model"]
            told = f"{folder}/told"
            self._run([*predicting, f"--predictions={told}"], self.text(data, test))
            scores = _numbers(Path(told), test[1] - test[0])
        return Learnt(scores if data.schema.labels[0].continuous else expit(scores), took)

    def _training(self, data: DataSet, folder: str) -> list[str]:
        kind = "squared" if data.schema.labels[0].continuous else "logistic"
        options = {k: v for k, v in self.parameters.items() if k not in TREATMENT}
        files = [f"--final_regressor={folder}/model"]
        if options.get("passes", 1) > 1:
            files += [f"--cache_file={folder}/cache", "--kill_cache"]
        return [f"--loss_function={kind}", *arguments(options), *files]

    def text(self, data: DataSet, rows: Range) -> Iterator[pa.Array]:
        """These rows as Vowpal Wabbit reads them, batch by batch."""
        writer = Writer(
            data.schema,
            self.parameters.get("numbers", "bins"),
            self.pair,
            self.parameters.get("sides", True),
        )
        return map(writer.lines, data.read(*rows))

    def _run(self, options: list[str], blocks: Iterator[pa.Array]) -> None:
        piped(options, blocks, self.name)


def piped(options: list[str], blocks: Iterator[pa.Array], name: str = "a model") -> None:
    """Pipe text through Vowpal Wabbit; it is ended if this process stops half way."""
    command = [sys.executable, "-c", CHILD, *QUIET, *options]
    # its errors may show rows, so nobody reads them
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)  # noqa: S603
    try:
        _feed(process, blocks)
        failed = process.wait() != 0
    finally:
        process.kill()
        _close(process)
        process.wait()
    if failed:
        raise SchemaError(
            f"Vowpal Wabbit could not run {name!r} with these parameters; change them, "
            f"or install the version meant: pip install 'pyramidion[dev]'"
        )


def arguments(options: Mapping[str, Any]) -> list[str]:
    """Options as on a command line.

    >>> arguments({"passes": 5, "holdout_off": True, "adaptive": False, "l2": 1e-8})
    ['--passes=5', '--holdout_off', '--l2=1e-08']
    """
    given = {name: value for name, value in options.items() if value is not False}
    return [f"--{name}" if value is True else f"--{name}={value}" for name, value in given.items()]


@dataclass(frozen=True)
class Writer:
    """Writes rows of a schema as text."""

    schema: Schema
    numbers: str = "bins"
    pair: bool = False
    sides: bool = True

    def lines(self, batch: pa.RecordBatch) -> pa.Array:
        """One line for each row, with its end.

        >>> from pyramidion.config.schema import Label
        >>> schema = Schema(features=[Categorical("a")], label=Label("y", classes=[0, 1]))
        >>> rows = pa.record_batch({"a": ["x y", None], "y": [1, 0]})
        >>> Writer(schema).lines(rows).to_pylist()
        ['1 | 0=x%20y\\n', '-1 | 0=%\\n']
        """
        parts = [self._label(batch)]
        for space, features in self._spaces():
            parts.append(pa.scalar(f" |{space}"))
            for position, feature in features:
                column = batch.column(feature.name)
                parts += words(position, feature, column, self.numbers)
        parts.append(pa.scalar("\n"))
        return pc.binary_join_element_wise(
            *parts, "", null_handling="replace", null_replacement=MISSING
        )

    def _label(self, batch: pa.RecordBatch) -> pa.Array:
        label = self.schema.labels[0]
        truth = targets(label, batch.column(label.name))
        return pc.cast(pa.array(truth if label.continuous else 2 * truth - 1), pa.string())

    def _spaces(self) -> list[tuple[str, list[tuple[int, Feature]]]]:
        """Features with their positions, by space."""
        told = list(enumerate(self.schema.features))
        if not self.pair:
            return [("", told)]
        named = [at for at, feature in told if isinstance(feature, Categorical)]
        large = sorted(named, key=lambda at: -(told[at][1].codes or math.inf))[:2]
        if len(large) < 2:
            raise SchemaError(
                "the schema has not two categorical features to factorize; declare two, "
                "or choose another model"
            )
        user, item = large
        spaces = [("u", [told[user]]), ("i", [told[item]])]
        rest = [one for one in told if one[0] not in large]
        return [*spaces, ("g", rest)] if rest and self.sides else spaces


def words(position: int, feature: Feature, column: pa.Array, numbers: str) -> list[Any]:
    """A feature of all rows, as pieces to be joined."""
    name = pa.scalar(f" {position}=")
    if isinstance(feature, Continuous):
        return _number(position, feature, column, numbers)
    if isinstance(feature, Categorical) and feature.domain == (False, True):
        flags = pc.cast(column, pa.bool_())  # what is not so is not written, as in a sparse row
        words = pc.if_else(flags, f" {position}=1", "")
        return [pc.fill_null(words, f" {position}={MISSING}")]
    return [name, _clean(pc.cast(column, pa.string()))]


def _number(position: int, feature: Continuous, column: pa.Array, numbers: str) -> list[Any]:
    values = pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
    there = np.isfinite(values)
    words: list[Any] = []
    if numbers in ("bins", "both"):
        bins = np.searchsorted(feature.cuts, values, side="right")
        words += [pa.scalar(f" {position}="), _integers(bins, there)]
    if numbers == "squares":
        steps = np.floor(np.log(np.maximum(values, 1)) ** 2)
        words += [
            pa.scalar(f" {position}="),
            _integers(np.where(values > 2, steps, np.fmin(values, 2) - 3), there),
        ]
    if numbers in ("logs", "both"):
        logs = np.where(there, np.sign(values) * np.log1p(np.abs(values)), 0.0)
        words += [pa.scalar(f" {position}:"), pc.cast(pa.array(logs.astype("f4")), pa.string())]
    return words


def _integers(values: NDArray[Any], there: NDArray[np.bool_]) -> pa.Array:
    return pc.cast(pa.array(np.where(there, values, 0).astype(np.int64), mask=~there), pa.string())


def _clean(column: pa.Array) -> pa.Array:
    """Text without the signs that Vowpal Wabbit reads as its own."""
    offsets, data = column.buffers()[1:]
    ends = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    if data is None or not UNFIT[np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]]].any():
        return column
    for sign, escape in ESCAPES.items():
        column = pc.replace_substring(column, sign, escape)
    return column


def _feed(process: subprocess.Popen[bytes], blocks: Iterator[pa.Array]) -> None:
    """Write all rows; if it ends before they do, its exit says that it failed."""
    with suppress(BrokenPipeError):
        for block in blocks:
            if process.stdin is not None and len(block):
                process.stdin.write(_bytes(block))
    _close(process)


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            process.stdin.close()


def _bytes(block: pa.Array) -> memoryview:
    """The text of all rows: Arrow has it in one piece already."""
    offsets, data = block.buffers()[1:]
    ends = np.frombuffer(offsets, dtype=np.int32)[block.offset : block.offset + len(block) + 1]
    return memoryview(data)[ends[0] : ends[-1]]


def _numbers(file: Path, rows: int) -> NDArray[np.float64]:
    """The predictions, one in each line."""
    if not rows:
        return np.zeros(0)
    found = csv.read_csv(
        file,
        csv.ReadOptions(column_names=["told"]),
        convert_options=csv.ConvertOptions(column_types={"told": pa.float64()}),
    )
    if len(found) != rows:
        raise SchemaError(
            f"Vowpal Wabbit read {len(found)} rows where {rows} were written; "
            f"install the version meant: pip install 'pyramidion[dev]'"
        )
    numbers: NDArray[np.float64] = found["told"].to_numpy()
    return numbers
