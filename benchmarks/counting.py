"""Counting 1M Criteo-shaped rows beside TargetEncoder.fit and polars' exact group-bys."""

from __future__ import annotations

import polars as pl
from sklearn.preprocessing import TargetEncoder

from benchmarks import rows
from benchmarks.report import Report, best
from pyramidion import Settings
from pyramidion.learn.counting import Counting

ROWS = 1_000_000


def main(report: Report) -> None:
    X, y = rows.matrix(ROWS)
    table = rows.table(X, y)
    fit = best(lambda: TargetEncoder(target_type="binary").fit(X, y), times=3)
    groups = best(lambda: group_bys(table), times=6)
    report.title(f"counting {ROWS:,} rows into 39 tables (5 hash rows, 65,536 buckets, 2 labels)")
    # A user declares the bins; with every column a sketch more cells are touched than needed.
    for what, sketches_only, least in (("as declared", False, 15), ("all 39 sketches", True, 10)):
        schema = rows.schema(sketches_only=sketches_only)
        for threads in (1, 2):
            ours = count_time(schema, table, threads)
            if threads == 1:
                report.ratio(f"{what}, one core", ours, fit, of="TargetEncoder.fit", least=least)
            else:
                of = f"polars ({pl.thread_pool_size()} threads)"
                report.ratio(f"{what}, two threads", ours, groups, of=of, least=1)


def group_bys(table: object) -> None:
    frame = pl.from_arrow(table).lazy()
    click = pl.col("click").sum()
    pl.collect_all([frame.group_by(name).agg(pl.len(), click) for name in rows.NAMES])


def count_time(schema: object, table: object, threads: int) -> float:
    counting = Counting(schema, Settings(epsilon=1.0))
    few = counting.door.observations(table.slice(0, 10))
    counting.add(few, threads=threads)

    def run() -> None:
        counting.add(counting.door.observations(table), threads=threads)

    return best(run, times=6)
