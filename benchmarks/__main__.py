"""All benchmarks: ``python -m benchmarks [name ...]``. Exits 1 where a target is missed."""

from __future__ import annotations

import os
import platform
import sys

os.environ.setdefault("POLARS_MAX_THREADS", "2")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # for the peers too: cores are shared

from benchmarks import (
    backends,
    client,
    commits,
    counting,
    dashboard,
    featurizing,
    hashing,
    learning,
    memory,
    noise,
    sealing,
    selection,
    service,
    spark,
    storing,
    whole,
)
from benchmarks.report import Report

ALL = {
    "whole": whole.main,
    "counting": counting.main,
    "featurizing": featurizing.main,
    "client": client.main,
    "hashing": hashing.main,
    "noise": noise.main,
    "memory": memory.main,
    "storing": storing.main,
    "commits": commits.main,
    "sealing": sealing.main,
    "selection": selection.main,
    "service": service.main,
    "dashboard": dashboard.main,
    "learning": learning.main,
    "backends": backends.main,
    "spark": spark.main,
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in ALL]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; there are {', '.join(ALL)}", file=sys.stderr)
        return 2
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    report = Report()
    for name in names or ALL:
        ALL[name](report)
    if report.missed:
        print(f"\n{len(report.missed)} target(s) missed: {'; '.join(report.missed)}")
    return 1 if report.missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
