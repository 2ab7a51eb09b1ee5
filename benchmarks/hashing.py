"""Keyed hashing of 8-byte strings and integers, beside polars' unkeyed hash."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa

from benchmarks.report import Report, best
from pyramidion.rows.hashing import Hasher

VALUES = 2_000_000
LEAST = 40e6


def main(report: Report) -> None:
    report.title(f"hashing {VALUES:,} values on one core (SipHash-1-3, keyed)")
    hasher = Hasher(b"a secret")
    random = np.random.default_rng(0)
    numbers = random.integers(0, 1 << 32, VALUES)
    text = pa.array([f"{number:08x}" for number in numbers.tolist()])
    out = np.empty(VALUES, dtype=np.uint64)
    for what, column in (("8-byte strings", text), ("64-bit integers", pa.array(numbers))):
        series = pl.from_arrow(column)
        ours = VALUES / best(lambda column=column: hasher.column(column, out), times=5)
        peer = VALUES / best(lambda series=series: series.hash(), times=5)
        told = (
            f"{ours / 1e6:10.0f} M/s   polars, no key {peer / 1e6:6.0f} M/s   {ours / peer:5.2f} x"
        )
        report.line(what, told, target=">= 40 M/s", met=ours >= LEAST)
