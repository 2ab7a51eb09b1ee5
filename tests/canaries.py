"""Canary rows, and what an attacker who knows all else sees in a fitted featurizer's cells."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyramidion import CountFeaturizer
from pyramidion.counts import kernels
from pyramidion.counts.arena import Arena


def frame(canaries: int, features: int) -> pd.DataFrame:
    """Rows each of which has a value of its own in every feature."""
    return pd.DataFrame({f"f{j}": np.arange(canaries) + j * canaries for j in range(features)})


def placements(
    featurizer: CountFeaturizer, X: pd.DataFrame, table: int
) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
    """Bucket and sign of each row in each hash row of a table: [hash row, row]."""
    counting = featurizer._counting_
    keys = counting.door.rows(X).keys(table - 1, 0, len(X))
    plan = counting.birth.layout.plan[table]
    rows = int(plan[kernels.PLAN_ROWS])
    multipliers = plan[kernels.PLAN_MULTIPLIER : kernels.PLAN_MULTIPLIER + rows, None]
    addends = plan[kernels.PLAN_ADDEND : kernels.PLAN_ADDEND + rows, None]
    buckets = (multipliers * keys[None] + addends) >> plan[kernels.PLAN_SHIFT]
    mixed = keys ^ plan[kernels.PLAN_SALT]
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(33)
    bits = (mixed[None] >> np.arange(rows, dtype=np.uint64)[:, None]) & np.uint64(1)
    return buckets, 1.0 - 2.0 * bits


def seen(
    featurizer: CountFeaturizer, X: pd.DataFrame, y: NDArray[np.int64], included: NDArray[np.bool_]
) -> list[NDArray[np.float64]]:
    """For each table, what is left in each canary's own cells once all *other* rows are known.

    Noise where the canary was left out, noise plus one where it was counted:
    [hash row, canary].
    """
    counting = featurizer._counting_
    noisy = featurizer.snapshot_._arena
    exact = Arena.exact(noisy.layout)
    exact.add(featurizer._observations(X[included], y[included]))
    exact.seal()
    found = []
    for table in range(1, len(noisy.layout.tables)):
        rest = noisy.cells(table).astype(np.int64) - exact.cells(table)
        buckets, signs = placements(featurizer, X, table)
        row = np.arange(len(buckets))[:, None]
        own = signs * rest[row, buckets.astype(np.int64), y[None, :]]
        found.append(own + included[None, :])
    assert counting.guarantee.windows == 1
    return found
