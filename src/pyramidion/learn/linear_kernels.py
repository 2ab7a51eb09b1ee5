"""The features of one row through a linear classifier. Arrays in and out.

Sums are taken in doubles, whatever the model learned in. The GIL is kept, unlike in bulk: a thread
that releases it for a few microseconds may wait hundreds to get it back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from pyramidion.rows.packed_kernels import matrix, vector

# What the kernels find in a model's bundle: what is taken off and divided by, scaler × column; the
# weights, output × column, and what is added; and which class each probability is of.
LINEAR_MEANS, LINEAR_SCALES, LINEAR_WEIGHTS, LINEAR_ADDED, LINEAR_PLACES = range(5)


@njit(cache=True)
def chances_of(model: Any, features: Any, out: Any) -> Any:
    """Write the probability of each class; False where a score is not finite."""
    means = matrix(model, LINEAR_MEANS, np.float64)
    scales = matrix(model, LINEAR_SCALES, np.float64)
    weights = matrix(model, LINEAR_WEIGHTS, np.float64)
    added = vector(model, LINEAR_ADDED, np.float64)
    places = vector(model, LINEAR_PLACES, np.int64)
    outputs, most = weights.shape[0], -np.inf
    scores = np.empty(outputs)
    for k in range(outputs):
        scores[k] = added[k]
    for c in range(weights.shape[1]):
        value = np.float64(features[c])
        for s in range(means.shape[0]):
            value = (value - means[s, c]) / scales[s, c]
        for k in range(outputs):
            scores[k] += value * weights[k, c]
    for k in range(outputs):
        if not np.isfinite(scores[k]):
            return False
        most = max(most, scores[k])
    for place in range(out.size):
        out[place] = 0.0
    if outputs == 1:
        chance = 1.0 / (1.0 + np.exp(-scores[0]))
        out[places[0]], out[places[1]] = 1.0 - chance, chance
        return True
    total = 0.0
    for k in range(outputs):
        scores[k] = np.exp(scores[k] - most)
        total += scores[k]
    for k in range(outputs):
        out[places[k]] = scores[k] / total
    return True
