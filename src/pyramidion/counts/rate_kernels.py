"""From the counts of one key to its rates, and from these to columns. Numbers in, numbers out.

See `pyramidion.counts.estimates` for what is computed and why; the loops over tables and rows that
call this are in `pyramidion.counts.estimate_kernels`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

# Where an output column comes from.
PROBABILITY, LOG_ODDS, COUNT, BACK_OFF, EXPECTED, SURPLUS = range(6)

LEAST = 1e-6
"""Of a rate, and 1 less it of the most: what logarithms are taken of."""


@njit(inline="always", cache=True)
def _add_part(prior: Any, p: Any, target: Any) -> None:
    """Move a target by what a part says: the logarithm of its rates over the prior's."""
    for c in range(prior.size):  # a part that says the prior moves nothing, however small that is
        target[c] += np.log(max(p[c], min(LEAST, prior[c])) / prior[c])


@njit(inline="always", cache=True)
def _finish(prior: Any, borders: Any, target: Any, scale: Any) -> None:
    """Logarithms of what parts add to the prior, into rates; and how noise weighs around them.

    Noise is kept in units of π(1 - π); around another rate m, m(1 - m) is the unit.
    """
    for m in range(borders.size - 1):
        low, high = borders[m], borders[m + 1]
        most = target[low]
        for c in range(low, high):
            most = max(most, target[c])
        total = 0.0
        for c in range(low, high):
            target[c] = prior[c] * np.exp(target[c] - most)
            total += target[c]
        for c in range(low, high):
            target[c] = min(max(target[c] / total, LEAST), 1.0 - LEAST)
            scale[c] = prior[c] * (1.0 - prior[c]) / (target[c] * (1.0 - target[c]))


@njit(inline="always", cache=True)
def shrink(
    counts: Any,
    start: Any,
    stop: Any,
    target: Any,
    scale: Any,
    strength: Any,
    spread: Any,
    shift: Any,
    table: Any,
    p: Any,
) -> Any:
    """Noise-aware shrinkage to a target, in units of its own if it has a scale.

    Returns whether the target outweighs the counts.

    p = π + (c - π n) n / (n² + a n + (a + 1) V) with c within 0 and n, which the
    true count is and the noisy one need not be, see `pyramidion.counts.estimates`.
    """
    s = 0.0
    for c in range(start, stop):
        s += counts[c] - shift[table, c]
    n = max(s, 0.0)
    total, backed_off = 0.0, False
    for c in range(start, stop):
        noise = spread[table, c] if scale is None else spread[table, c] * scale[c]
        bottom = n * n + strength * n + noise
        kept = n / bottom if bottom > 0.0 else 0.0
        backed_off |= 2.0 * n * kept < 1.0
        possible = min(max(counts[c] - shift[table, c], 0.0), n)
        p[c] = max(target[c] + (possible - target[c] * n) * kept, 0.0)
        total += p[c]
    for c in range(start, stop):
        p[c] = p[c] / total if total > 0.0 else target[c]
    return backed_off


@njit(cache=True)
def shrink_group(
    said: Any,
    parts: Any,
    counts: Any,
    borders: Any,
    prior: Any,
    strength: Any,
    spread: Any,
    shift: Any,
    table: Any,
    target: Any,
    scale: Any,
    flags: Any,
    p: Any,
) -> None:
    """Shrinkage of a group's counts to what its parts say, said[part, class].

    A function of its own: inlined, it made a row without groups a fifth slower.
    """
    target[:] = 0.0
    for j in range(parts):
        _add_part(prior, said[j], target)
    _finish(prior, borders, target, scale)
    for m in range(borders.size - 1):
        low, high, per = borders[m], borders[m + 1], strength[table, m]
        flags[m] = shrink(counts, low, high, target, scale, per, spread, shift, table, p)


@njit(inline="always", cache=True)
def ratio(
    counts: Any,
    start: Any,
    stop: Any,
    prior: Any,
    limit: Any,
    grain: Any,
    spread: Any,
    table: Any,
    p: Any,
) -> Any:
    """The paper's ratio; the prior where the estimate's deviation would pass ``limit``."""
    s = 0.0
    for c in range(start, stop):
        s += max(counts[c], 0.0)
    backed_off = s <= 0.0
    for c in range(start, stop):
        variance = prior[c] * (1.0 - prior[c]) * (s * grain + spread[table, c])
        backed_off |= variance > limit * limit * s * s
    for c in range(start, stop):
        p[c] = prior[c] if backed_off else max(counts[c], 0.0) / s
    return backed_off


@njit(inline="always", cache=True)
def _logit(p: Any) -> Any:
    bounded = min(max(p, LEAST), 1.0 - LEAST)
    return np.log(bounded / (1.0 - bounded))


@njit(inline="always", cache=True)
def column(
    source: Any, index: Any, p: Any, target: Any, counts: Any, flags: Any, means: Any
) -> Any:
    """One column of a key: what it comes from is in the template."""
    if source == PROBABILITY:
        return p[index]
    if source == LOG_ODDS:
        return _logit(p[index])
    if source == COUNT:
        return counts[index]
    if source == BACK_OFF:
        return flags[index]
    if source == SURPLUS:
        return _logit(p[index]) - _logit(target[index])
    return means[index]
