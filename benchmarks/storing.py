"""The store beside counting alone: durable observing, reopening, featurizing while it rolls."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import rows
from benchmarks.report import Report, best
from pyramidion import Pyramid, Settings
from pyramidion.learn.counting import Counting

BATCH = 10_000
BATCHES = 30
DAY = 86_400
SETTINGS = {"epsilon": 1.0, "count_window": "10d", "hot_window": "5d", "hot_step": "1d"}


class Store:
    """A store in a folder of its own, under a clock that stands still until it is moved."""

    def __init__(self, **more: object) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pyramidion-bench-"))
        self.now = 100.0 * DAY
        self.keys = f"file:{self.folder / 'key'}"
        settings = Settings(**(SETTINGS | more))
        self.pyramid = Pyramid.create(
            self.folder / "store", rows.schema(), settings, keys=self.keys, clock=lambda: self.now
        )

    def reopen(self) -> None:
        self.pyramid.close()
        self.pyramid = Pyramid.open(self.folder / "store", keys=self.keys, clock=lambda: self.now)

    def roll(self) -> None:
        """Seal the populating window."""
        self.now += 10 * DAY
        self.pyramid.advance()

    def close(self) -> None:
        self.pyramid.close()
        shutil.rmtree(self.folder)


def main(report: Report) -> None:
    table = rows.table(*rows.matrix(BATCH * BATCHES))
    batches = [table.slice(start, BATCH) for start in range(0, table.num_rows, BATCH)]
    observing(report, batches)
    reopening(report, batches)
    windows(report, batches)
    sealing(report, batches)


def observing(report: Report, batches: list[pa.Table]) -> None:
    report.title(f"observing {BATCHES} batches of {BATCH:,} Criteo-shaped rows, durably")
    counting = Counting(rows.schema(), Settings(epsilon=1.0))
    store = Store()
    store.pyramid.observe(batches[0])

    def count(batch: pa.Table) -> None:
        counting.add(counting.door.observations(batch), threads=2)

    count(batches[0])
    alone, durable = [], []
    for batch in batches:  # one after the other, so that both meet the same neighbours
        alone.append(_timed(lambda batch=batch: count(batch)))
        durable.append(_timed(lambda batch=batch: store.pyramid.observe(batch)))
    store.close()
    ours, peer = float(np.median(durable)), float(np.median(alone))
    report.ratio("one batch, median", ours, peer, of="counting alone", least=0.5)


def reopening(report: Report, batches: list[pa.Table]) -> None:
    report.title("reopening, by rows since the last checkpoint")
    store = Store(checkpoint_rows=BATCH * 20)
    store.pyramid.observe(batches[0])
    seconds = {}
    for count in range(1, 20):
        if count in (1, 10, 19):
            seconds[count * BATCH] = _timed(store.reopen)
        store.pyramid.observe(batches[count])
    few, _, many = seconds.values()
    for since, taken in seconds.items():
        print(f"       {since:>9,} rows since: {taken * 1e3:8.0f} ms")
    per_row = best(lambda: _count_all(batches[:18]), times=2) / (18 * BATCH)
    replayed = (many - few) / (18 * BATCH)
    told = f"{replayed * 1e6:6.2f} µs a row   counting alone {per_row * 1e6:6.2f} µs"
    report.line("a row more", told, target="<= 4 x", met=replayed <= 4 * per_row)
    for batch in batches[20:]:
        store.pyramid.observe(batch)
    store.pyramid.advance()
    after = _timed(store.reopen)
    told = f"{after * 1e3:8.0f} ms   with 190,000 rows {many * 1e3:8.0f} ms"
    report.line("after a checkpoint", told, target="no longer", met=after <= many)
    store.close()


def _count_all(batches: list[pa.Table]) -> None:
    counting = Counting(rows.schema(), Settings(epsilon=float("inf")))
    for batch in batches:
        counting.add(counting.door.observations(batch), threads=2)


def windows(report: Report, batches: list[pa.Table]) -> None:
    report.title("featurizing one row, by number of windows kept")
    store = Store()
    row = batches[0].slice(0, 1).to_pylist()[0]
    seconds = {}
    for count in range(1, 13):
        store.pyramid.observe(batches[count])
        store.roll()
        if count in (2, 12):
            snapshot = store.pyramid.snapshot()
            seconds[count] = _per_call(lambda s=snapshot: s.featurize_one(row))
    few, many = seconds.values()
    report.ratio("12 windows", many, few, of="2 windows", least=0.7)
    store.close()


def sealing(report: Report, batches: list[pa.Table]) -> None:
    report.title("featurizing 100 rows while a window of 39 tables seals")
    store = Store()
    some = batches[0].slice(0, 100)
    store.pyramid.observe(batches[0])
    store.roll()
    quiet, busy = [], []
    for batch in batches[1:7]:
        quiet += _latencies(store, some, lambda: time.sleep(0.4))
        store.pyramid.observe(batch)
        busy += _latencies(store, some, store.roll)
    ours, peer = float(np.quantile(busy, 0.99)), float(np.quantile(quiet, 0.99))
    told = (
        f"{ours * 1e3:8.2f} ms   quiet {peer * 1e3:8.2f} ms   ({len(busy)} and {len(quiet)} calls)"
    )
    report.line("99th percentile", told, target="<= 2 x", met=ours <= 2 * peer)
    store.close()


def _latencies(store: Store, some: pa.Table, work: object) -> list[float]:
    """How long each of many calls took while something else was done."""
    thread = threading.Thread(target=work)
    thread.start()
    seconds = []
    while thread.is_alive():
        seconds.append(_timed(lambda: store.pyramid.featurize(some)))
    thread.join()
    return seconds


def _per_call(run: object, calls: int = 2_000) -> float:
    def some() -> None:
        for _ in range(calls):
            run()

    return best(some, times=5) / calls


def _timed(run: object) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
