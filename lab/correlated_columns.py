"""When counts lose against raw rows: the more, the more columns go along with each other.

A value's count also tells of the values that come with it. A raw model can tell them apart, a
model on counts of single columns cannot. Generated clicks have a knob for that, and their best
possible loss is known:

    python -m lab.correlated_columns [ROWS]
"""

from __future__ import annotations

import sys

from lab import clicks
from lab.count_models import logistic
from lab.raw_models import best_model
from lab.raw_results import labels, loss
from lab.stores import Setup, counted, lesson, lost, tested

CORRELATIONS = (0.0, 0.3, 0.6, 1.0)
HOT = 0.05


def losses(rows: int, correlation: float) -> tuple[float, float, float]:
    """What is lost at best, by logistic regression on all raw rows, and by it on counts."""
    data = clicks.generate(rows, correlation=correlation)
    assert data.truth is not None  # noqa: S101
    label, future = data.schema.labels[0], tested(data)
    best = loss(label, labels(data, future), data.truth(*future))
    raw = best_model("clicks", "logistic regression").losses(data, 0, data.past, future)
    with counted(data, Setup(HOT)) as store:
        (counts,) = lost(data, lesson(data, store), [logistic(0.03)], 0)
    return best, raw.loss, counts.loss


def main(rows: int = 1_500_000) -> None:
    """Print a line for each correlation."""
    print(f"log loss on the future, {rows:,} generated clicks, {HOT:.0%} of the past hot")
    print("correlation   best possible   raw rows   counts   counts / raw")
    for correlation in CORRELATIONS:
        best, raw, counts = losses(rows, correlation)
        print(
            f"{correlation:11.1f}   {best:13.4f}   {raw:8.4f}   {counts:6.4f}   {counts / raw:.4f}"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
