"""The example that shows when counts lose against raw rows."""

from __future__ import annotations

import runpy
from pathlib import Path


def test_the_more_columns_go_along_the_more_counts_lose(root: Path) -> None:
    losses = runpy.run_path(str(root / "examples" / "correlated_columns.py"))["losses"]
    apart, together = (losses(150_000, correlation) for correlation in (0.0, 1.0))
    for best, raw, counts in (apart, together):
        assert best < min(raw, counts)
    assert together[2] / together[1] > apart[2] / apart[1] + 0.01
