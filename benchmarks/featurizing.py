"""Transforming 1M rows, and single rows, beside TargetEncoder.transform."""

from __future__ import annotations

import json
import timeit
from collections.abc import Callable

import msgspec
from sklearn.preprocessing import TargetEncoder

from benchmarks import rows
from benchmarks.report import Report, best
from pyramidion import Settings
from pyramidion.learn.counting import Counting

ROWS = 1_000_000


def microseconds(run: Callable[[], object], times: int = 400) -> float:
    """The fastest of many short stretches: on a shared machine a long one meets the others."""
    return min(timeit.repeat(run, number=times, repeat=40)) / times * 1e6


def main(report: Report) -> None:
    X, y = rows.matrix(ROWS)
    table = rows.table(X, y)
    encoder = TargetEncoder(target_type="binary").fit(X, y)
    counting = Counting(rows.schema(), Settings(epsilon=1.0))
    counting.add(counting.door.observations(table), threads=2)
    snapshot = counting.snapshot()
    report.title(f"featurizing {ROWS:,} rows from 39 tables")
    peer = best(lambda: encoder.transform(X), times=2)
    for threads, least in ((2, 8), (1, 4)):
        ours = best(lambda threads=threads: snapshot.array(table, threads=threads))
        report.ratio(f"{threads} thread(s)", ours, peer, of="TargetEncoder.transform", least=least)

    report.title("featurizing one row")
    theirs = microseconds(lambda: encoder.transform(X[:1]), times=2)
    batch = table.slice(5, 1).drop_columns(["click"]).to_batches()[0]
    as_dict = batch.to_pylist()[0]
    for name in rows.NAMES[rows.NUMERIC :]:
        as_dict[name] = str(as_dict[name])
    body = json.dumps(as_dict).encode()
    keys = counting.door.rows(batch).matrix(0, 1)
    for what, run, most in (
        ("as NumPy keys", lambda: snapshot.featurize_keys(keys), 15),
        ("as a one-row Arrow batch", lambda: snapshot.featurize_one(batch), 40),
        ("as a dict of 39 values", lambda: snapshot.featurize_one(as_dict), 15),
        (
            f"as JSON of {len(body)} bytes",
            lambda: snapshot.featurize_one(msgspec.json.decode(body)),
            20,
        ),
    ):
        ours = microseconds(run)
        told = f"{ours:10.1f} µs   TargetEncoder {theirs:8.0f} µs   {theirs / ours:8.0f} x"
        report.line(what, told, target=f"<= {most} µs", met=ours <= most)
