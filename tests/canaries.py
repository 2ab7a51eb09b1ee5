"""Canary rows, and what an attacker who knows all else sees in a fitted featurizer's cells."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pyramidion import CountFeaturizer
from pyramidion.store.audit import canaries


def frame(count: int, features: int) -> pd.DataFrame:
    """Rows each of which has a value of its own in every feature."""
    return pd.DataFrame({f"f{j}": np.arange(count) + j * count for j in range(features)})


def seen(
    featurizer: CountFeaturizer, X: pd.DataFrame, y: NDArray[np.int64], included: NDArray[np.bool_]
) -> list[NDArray[np.float64]]:
    """For each table, what is left in each canary's own cells once all *other* rows are known."""
    assert featurizer._counting_.guarantee.windows == 1
    rows = featurizer._counting_.door.rows(X)
    keys = [rows.keys(table, 0, len(rows)) for table in range(len(rows.shapes))]
    return canaries.seen(featurizer.snapshot_._arena, keys, y, included)
