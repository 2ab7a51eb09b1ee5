"""Memory of 39 sketches, and the peak while counting batches of any size.

Each batch size is measured in a process of its own: peak resident memory, less
what the process held with the batch loaded and the kernels warm.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks import rows
from benchmarks.report import Report
from pyramidion import Settings
from pyramidion.cli.warm import warm
from pyramidion.learn.counting import Counting

MB = 1e6


def status(field: str) -> float:
    """A line of /proc/self/status in bytes: VmRSS is what is held, VmHWM the peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line for line in lines if line.startswith(field)).split()[1]) * 1024


def measure(batch: int) -> None:
    """Count 1M rows in batches of this size, and print tables and peak as JSON."""
    warm()
    table = rows.table(*rows.matrix(1_000_000))
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of making the rows
    before = status("VmRSS")
    counting = Counting(rows.schema(sketches_only=True), Settings(epsilon=1.0))
    for start in range(0, table.num_rows, batch):
        part = table.slice(start, batch)
        counting.add(counting.door.observations(part), threads=2)
    tables = counting.birth.layout.nbytes
    print(json.dumps({"tables": tables, "peak": status("VmHWM") - before}))


def main(report: Report) -> None:
    report.title("memory of 39 sketches (5 x 65,536 x 2 cells)")
    for batch in (10_000, 100_000, 1_000_000):
        told = subprocess.run(
            [sys.executable, "-m", "benchmarks.memory", str(batch)],
            check=True,
            capture_output=True,
            text=True,
        )
        found = json.loads(told.stdout.splitlines()[-1])
        tables, peak = found["tables"], found["peak"]
        if batch == 10_000:
            size = f"{tables / MB:10.1f} MB"
            report.line("tables", size, target="<= 110 MB", met=tables <= 110 * MB)
        over = f"{peak / MB:10.1f} MB   {(peak - tables) / MB:8.1f} MB over the tables"
        target = "<= tables + 200 MB"
        report.line(
            f"peak, batches of {batch:,}", over, target=target, met=peak <= tables + 200 * MB
        )


if __name__ == "__main__":
    measure(int(sys.argv[1]))
