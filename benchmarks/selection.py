"""Choosing groups from 100,000 hot rows of a store: how long, and in how much memory.

39 features have 741 pairs, and all are scored; of 507 so many are drawn first that 2,016 pairs are
left. Each is measured in a process of its own: peak resident memory while groups are chosen, less
what the process held before.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import rows
from benchmarks.memory import MB, status
from benchmarks.report import Report
from pyramidion import Categorical, Label, Pyramid, Schema, Settings
from pyramidion.cli.warm import warm

ROWS, BATCH = 100_000, 10_000
LONGEST, MOST = 60.0, 1_000 * MB


def batch(features: int, seed: int) -> pa.Table:
    """Criteo-shaped rows, side by side until there are so many features."""
    width, y = len(rows.NAMES), np.zeros(0, dtype=np.int64)
    columns: dict[str, pa.Array] = {}
    for copy in range(-(-features // width)):
        X, y = rows.matrix(BATCH, seed=seed * 100 + copy)
        for place in range(min(width, features - copy * width)):
            columns[f"f{copy * width + place}"] = pa.array(X[:, place].copy())
    return pa.table({**columns, "click": y})


def measure(features: int) -> None:
    """Fill a store's hot window, choose from it, and print what that took as JSON."""
    warm()
    folder = Path(tempfile.mkdtemp(prefix="pyramidion-bench-"))
    schema = Schema(
        features=[Categorical(f"f{place}") for place in range(features)],
        label=Label("click", classes=[0, 1]),
    )
    settings = Settings(epsilon=1.0, buckets=1024, rows=1, selection_share=0.5)
    store = Pyramid.create(folder / "store", schema, settings, keys=f"file:{folder / 'key'}")
    try:
        for seed in range(ROWS // BATCH):
            store.observe(batch(features, seed))
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak of making the rows
        before, start, used = status("VmRSS"), time.perf_counter(), _used()
        chosen = store.groups.select()
        seconds, used = time.perf_counter() - start, _used() - used
        found = {"seconds": seconds, "used": used, "peak": status("VmHWM") - before}
        print(json.dumps(found | {"groups": len(chosen.groups)}))
    finally:
        store.close()
        shutil.rmtree(folder)


def _used() -> float:
    """Seconds of processors that this process had: on a busy machine fewer than went by."""
    told = resource.getrusage(resource.RUSAGE_SELF)
    return told.ru_utime + told.ru_stime


def main(report: Report) -> None:
    report.title(f"choosing 10 groups from {ROWS:,} hot rows of a store")
    for features, told in ((39, "741 pairs"), (507, "64 features, 2,016 pairs")):
        made = subprocess.run(
            [sys.executable, "-m", "benchmarks.selection", str(features)],
            check=True,
            capture_output=True,
            text=True,
        )
        found = json.loads(made.stdout.splitlines()[-1])
        seconds, peak = found["seconds"], found["peak"]
        report.line(
            f"{features} features: {told}",
            f"{seconds:10.1f} s    {found['used']:8.1f} s of processor",
            target=f"<= {LONGEST:g} s",
            met=seconds <= LONGEST,
        )
        report.line(
            f"{features} features: memory at most",
            f"{peak / MB:10.0f} MB",
            target=f"<= {MOST / MB:,.0f} MB",
            met=peak <= MOST,
        )


if __name__ == "__main__":
    measure(int(sys.argv[1]))
