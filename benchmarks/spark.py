"""Spark beside the embedded store's counting: the same Parquet, the same tables, two cores.

Rows are generated clicks, in files of a million, by time; the default windows of 30 days cut ten
million of them in four. Spark has 1 GB for driver and executors together (it is local), and its
Python workers what they take: their peak is printed. A DataFrame of files alone is read by the
executors themselves; one that is filtered, too, hands every value from Java to Python.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.report import Report
from lab.clicks import generate, schema
from pyramidion import Settings
from pyramidion.counts.arena import Arena
from pyramidion.counts.windows import Slots
from pyramidion.privacy.table_noise import TableDesign
from pyramidion.rows.observations import Door

ROWS = 10_000_000
FILE = 1_000_000
BATCH = 131_072
MOST = 500  # MB of a Python worker
SETTINGS = Settings(epsilon=1.0)


def main(report: Report) -> None:
    if shutil.which("java") is None:
        print("\nspark: skipped, there is no Java here (make system)")
        return
    folder = Path(tempfile.mkdtemp(prefix="pyramidion-bench-"))
    try:
        files = written(folder / "rows", ROWS)
        counting(report, folder, files)
    finally:
        shutil.rmtree(folder)


def written(folder: Path, rows: int) -> list[Path]:
    """Clicks as Parquet, a million in each file."""
    folder.mkdir()
    clicks = generate(rows)
    files = []
    for start in range(0, rows, FILE):
        files.append(folder / f"{start:010d}.parquet")
        pq.write_table(clicks.table(start, min(start + FILE, rows)), files[-1])
    return files


def counting(report: Report, folder: Path, files: list[Path]) -> None:
    from pyramidion.spark import count

    spark = session(folder / "local")
    try:
        some = files[:2]
        df = spark.read.parquet(*map(str, files))
        few = spark.read.parquet(*map(str, some))
        more = few.filter(f"{schema().time} IS NOT NULL")  # every row, by way of Spark
        for warm in (few, more):  # Java and numba compile their code
            count(warm, schema(), SETTINGS)
        least, _ = timed(lambda: embedded(some))
        report.title(f"counting {ROWS:,} clicks from Parquet into windows of 39 tables, two cores")
        peak = Peak()
        handed, _ = timed(lambda: count(more, schema(), SETTINGS))
        read, found = timed(lambda: count(df, schema(), SETTINGS))
        most = peak.stop()
    finally:
        spark.stop()
    peer, rows = timed(lambda: embedded(files))
    assert rows == sum(window.rows for window in found.windows) == ROWS
    of = "embedded, 2 threads"
    report.ratio("spark.read.parquet(...), local[2], 1 GB", read, peer, of=of, least=0.5)
    report.ratio(f"{len(some) * FILE:,} of them, filtered", handed, least, of=of, least=0.5)
    told = f"{most:6.0f} MB at most, {len(found.windows)} windows, 1 GB for Java"
    report.line("a Python worker's memory", told, target=f"<= {MOST} MB", met=most <= MOST)


def session(local: Path) -> object:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    made = SparkSession.builder.master("local[2]").appName("benchmark")
    for name, value in {
        "spark.io.encryption.enabled": "true",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(local),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "32768",
    }.items():
        made = made.config(name, value)
    return made.getOrCreate()


def embedded(files: list[Path]) -> int:
    """The same windows in this process: read, judge, count, on two threads."""
    door = Door(schema(), SETTINGS, b"a secret of the stream")
    slots = Slots.of_windows(SETTINGS)
    assert slots is not None
    birth = TableDesign(
        SETTINGS, door.encoder.shapes, door.schema.cardinality, b"a secret of the stream"
    )
    arenas: dict[int, Arena] = {}
    for file in files:
        for batch in pq.ParquetFile(file).iter_batches(BATCH):
            found = door.observations(batch)
            at = slots.all_at(found.times)
            for slot in np.unique(at).tolist():
                if slot not in arenas:
                    arenas[slot] = birth.arena()
                arenas[slot].add(found.take(np.flatnonzero(at == slot)), threads=2)
    return sum(arena.rows for arena in arenas.values())


def timed(run: object) -> tuple[float, object]:
    start = time.perf_counter()
    found = run()
    return time.perf_counter() - start, found


class Peak:
    """The most memory that any Python below this process has had, in MB, looked at all the time."""

    def __init__(self) -> None:
        self._most = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def stop(self) -> float:
        self._over.set()
        self._thread.join()
        return self._most

    def _look(self) -> None:
        while not self._over.wait(0.2):
            for worker in below(os.getpid()):
                try:
                    told = Path(f"/proc/{worker}/status").read_text()
                except OSError:
                    continue
                if "Name:\tpython" in told and "VmHWM:" in told:
                    self._most = max(self._most, int(told.split("VmHWM:")[1].split()[0]) / 1024)


def below(pid: int) -> list[int]:
    """All processes that descend from one."""
    found = []
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        for task in tasks:
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *below(child)]
    except OSError:
        pass  # it has just ended
    return found
