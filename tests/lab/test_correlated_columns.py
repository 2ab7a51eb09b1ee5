"""The program that shows when counts lose against raw rows."""

from __future__ import annotations

from lab.correlated_columns import losses


def test_the_more_columns_go_along_the_more_counts_lose() -> None:
    apart, together = (losses(150_000, correlation) for correlation in (0.0, 1.0))
    for best, raw, counts in (apart, together):
        assert best < min(raw, counts)
    assert together[2] / together[1] > apart[2] / apart[1] + 0.01
