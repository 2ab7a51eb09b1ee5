"""One row from JSON to features in one call.

A service has little time for a row, and all that it touches is cold when a request comes: each
call of a kernel costs more then than what the kernel does. The GIL is kept, unlike in bulk: who
lets go of it for ten microseconds may get it back when somebody else's turn is over, after
hundreds of them.

numba caches what it compiled by this file's time alone: when `encode_json` or the hashing of values
changes, caches must be removed (`find src -name '*.nb[ic]' -delete`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from pyramidion.counts.estimate_kernels import estimate_one
from pyramidion.rows.json_kernels import GIVEN_UP, encode_json
from pyramidion.rows.packed_kernels import matrix, vector

# What is found in the bundle of a row: bundles, that of an encoder, of names, and of estimates; and
# how many tables there are.
ROW_PLANS, ROW_SOUGHT, ROW_ESTIMATES, ROW_TABLES = range(4)


@njit(cache=True)
def estimate_json(places: Any, row: Any, out: Any) -> Any:
    """`encode_json` and `estimate_one`: what the latter returns, or that the former gave up."""
    plans, sought = matrix(places, ROW_PLANS, np.int64), matrix(places, ROW_SOUGHT, np.int64)
    keys = np.empty((vector(places, ROW_TABLES, np.int64)[0], 1), dtype=np.uint64)
    if not encode_json(plans, sought, row, keys):
        return GIVEN_UP
    return estimate_one(matrix(places, ROW_ESTIMATES, np.int64), keys, out)
