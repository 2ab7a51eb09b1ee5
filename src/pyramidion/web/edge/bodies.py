"""What an edge is asked of: rows as the service takes them, or the features of one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.responses import Response

from pyramidion.errors import FormatError, ObservationError, PyramidionError
from pyramidion.web.arrow_bodies import table_from
from pyramidion.web.bodies import ARROW, JSON, json_from, refuse_many
from pyramidion.web.errors import error_response
from pyramidion.web.limits import Limits

LIMITS = Limits(body_bytes=16 << 20, rows=100_000, held_bytes=512 << 20)
"""What an edge takes, where nobody says otherwise: less than a service, which takes bulk."""
SPOKEN = (JSON, ARROW)
MOST = float(np.finfo(np.float32).max)
"""The largest number that a feature can be."""


def rows_from(body: bytes, kind: str, limits: Limits) -> Any:
    """Rows of a body: a dict, a list of dicts, or a table; of features: an array."""
    if kind == ARROW:
        return table_from(body, limits)
    told = json_from(body, kind, SPOKEN)
    if isinstance(told, dict):
        ready = told.get("features") if len(told) == 1 else None
        return _vector(ready) if isinstance(ready, list) else told
    if not isinstance(told, list) or not all(type(row) is dict for row in told):
        raise ObservationError("rows must be a JSON object or a list of objects")
    refuse_many(len(told), limits)
    return told


def _vector(told: list[Any]) -> NDArray[np.float32]:
    if not all(type(each) in (int, float) for each in told):
        raise ObservationError("ready-made features must be numbers; send a list of them")
    if told and (max(told) > MOST or min(told) < -MOST):  # JSON has no NaN
        raise FormatError(
            "a feature is beyond what a number of 32 bits can hold; give the numbers that "
            "/features gives"
        )
    return np.array(told, dtype=np.float32)


def refused(problem: PyramidionError) -> Response:
    """An error of ours; what is not at hand now is perhaps in a moment."""
    told = error_response(problem)
    if problem.status == 503:
        told.headers["Retry-After"] = "1"
    return told
