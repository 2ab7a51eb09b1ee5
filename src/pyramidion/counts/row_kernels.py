"""One row from JSON to features in one call.

A service has little time for a row, and all that it touches is cold when a request comes: each
call of a kernel costs more then than what the kernel does. The GIL is kept, unlike in bulk: who
lets go of it for ten microseconds may get it back when somebody else's turn is over, after
hundreds of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from pyramidion.counts.estimate_kernels import estimate_one
from pyramidion.json_kernels import GIVEN_UP, encode_json


@njit(cache=True)
def estimate_json(plans: Any, sought: Any, estimates: Any, tables: Any, row: Any, out: Any) -> Any:
    """`encode_json` and `estimate_one`: what the latter returns, or that the former gave up."""
    keys = np.empty((tables, 1), dtype=np.uint64)
    if not encode_json(plans, sought, row, keys):
        return GIVEN_UP
    return estimate_one(estimates, keys, out)
