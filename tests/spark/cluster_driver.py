"""What a driver does on a cluster: the guide as written, then counts while tasks run twice or die.

python -m tests.spark.cluster_driver spark://127.0.0.1:PORT
"""

from __future__ import annotations

import math
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pyramidion.counts.arena import Arena
from pyramidion.spark import count
from pyramidion.spark.shuffle import Shuffle
from tests.spark.sessions import session
from tests.store.stores import SCHEMA, START, cells, rows, same, tiny

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
FENCE = re.compile(r"^```python guide.py\n((?:.*\n)*?)^```$", re.MULTILINE)
FORM = "t double, y long, a string, b string"
SMALL = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "1s",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "3",
    "spark.log.level": "ERROR",
}
EAGER = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
}
SAFE = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
}


def guide(url: str) -> None:
    """The program of the page; the cluster of a test is smaller than Spark expects."""
    program = "\n".join(FENCE.findall(PAGE.read_text("utf-8")))
    assert "spark://127.0.0.1:7077" in program
    program = program.replace("spark://127.0.0.1:7077", url)
    extra = "".join(f"    .config({n!r}, {v!r})\n" for n, v in SMALL.items())
    program = program.replace("    .getOrCreate()", extra + "    .getOrCreate()", 1)
    exec(compile(program, str(PAGE), "exec"), {})  # noqa: S102


def speculated(url: str, folder: Path) -> None:
    """One task is slow, so Spark runs it on the other worker, too; whoever is first counts."""
    secret = Path("secret").read_text().strip()
    given = {**SMALL, **SAFE, **EAGER, "spark.authenticate.secret": secret}
    spark = session(folder / "local", url, **given)
    table = pa.concat_tables([rows(100, START + n, seed=n) for n in range(4)])
    marks = folder / "attempts"
    marks.mkdir()
    second = marks / "3 1"

    def slowly(batches: Any) -> Any:
        """Rows by the number of a task; the first attempt at the last one waits for another."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            for number in batch["id"].to_pylist():
                (marks / f"{number} {context.attemptNumber()}").touch()
                yield from table.slice(100 * number, 100).to_batches()
                stop = time.monotonic() + 300
                while number == 3 and not second.exists() and time.monotonic() < stop:
                    time.sleep(0.1)

    df = spark.range(0, 4, 1, 4).mapInArrow(slowly, FORM)
    agreed(count(df, SCHEMA, tiny(epsilon=math.inf)), table)
    assert second.exists()
    spark.stop()


def agreed(found: Any, table: pa.Table) -> None:
    """Its one window has the cells that one process counts."""
    (window,) = found.windows
    by_hand = Arena.exact(window.arena.layout)
    by_hand.add(found._door.observations(table))
    assert same(cells(window.arena), cells(by_hand))
    assert not any(np.abs(c).max() > window.rows for c in cells(window.arena).values())


def executor_of(worker: int) -> int:
    """The Java process that a Python worker belongs to."""
    while worker > 1:
        if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{worker}/cmdline").read_bytes():
            return worker
        told = Path(f"/proc/{worker}/stat").read_text()
        worker = int(told.rpartition(")")[2].split()[1])
    raise AssertionError("no executor")


def killed(url: str, folder: Path) -> None:
    """One executor dies while it counts, and one that has counted before anybody asked for it."""
    secret = Path("secret").read_text().strip()
    spark = session(folder / "local", url, **SMALL, **SAFE, **{"spark.authenticate.secret": secret})
    table = pa.concat_tables([rows(100, START + n, seed=n) for n in range(4)])
    marks = folder / "marks"
    marks.mkdir()
    deaths: list[int] = []

    def slowly(batches: Any) -> Any:
        """The first tasks wait until an executor was killed."""
        (marks / str(os.getpid())).touch()
        while not (marks / "go").exists():
            time.sleep(0.1)
        yield from batches

    def kill(worker: int) -> None:
        deaths.append(executor_of(worker))
        os.kill(deaths[-1], signal.SIGKILL)

    def watch() -> None:
        while len(list(marks.iterdir())) < 2:
            time.sleep(0.1)
        kill(int(min(marks.iterdir()).name))
        (marks / "go").touch()

    real = Shuffle.facts

    def facts(self: Shuffle) -> Any:
        found = real(self)
        alive = [int(mark.name) for mark in marks.iterdir() if mark.name != "go"]
        kill(next(p for p in alive if Path(f"/proc/{p}").exists() and p not in dead(alive)))
        return found

    def dead(workers: list[int]) -> set[int]:
        return {p for p in workers if Path(f"/proc/{p}").exists() and _orphan(p)}

    Shuffle.facts = facts  # type: ignore[method-assign]
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    df = spark.createDataFrame(table).repartition(4).mapInArrow(slowly, FORM)
    agreed(count(df, SCHEMA, tiny(epsilon=math.inf)), table)
    assert len(set(deaths)) == 2, deaths
    spark.stop()


def _orphan(worker: int) -> bool:
    try:
        executor_of(worker)
    except (AssertionError, OSError):
        return True
    return False


def main(url: str) -> None:
    guide(url)
    speculated(url, Path.cwd())
    killed(url, Path.cwd())
    print("all done")


if __name__ == "__main__":
    main(sys.argv[1])
