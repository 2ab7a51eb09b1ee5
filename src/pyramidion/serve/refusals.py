"""The one shape of errors: ``{"error": {"code": ..., "message": ...}}``, never a value in it."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import msgspec
from starlette.responses import Response

from pyramidion.errors import BusyError, ObservationError, PyramidionError, UnknownCallerError

LOG = logging.getLogger("pyramidion.serve")
JSON = "application/json"


def refusal(problem: PyramidionError) -> Response:
    """An error of ours, as an answer."""
    told: dict[str, Any] = {"code": type(problem).__name__, "message": str(problem)}
    if isinstance(problem, ObservationError) and problem.problems:
        told["problems"] = problem.problems
    headers = {}
    if isinstance(problem, BusyError):
        headers["Retry-After"] = str(problem.retry_after)
    if isinstance(problem, UnknownCallerError):
        headers["WWW-Authenticate"] = "Bearer"
    return told_as(told, problem.status, headers)


def told_as(told: dict[str, Any], status: int, headers: dict[str, str] | None = None) -> Response:
    """The one shape."""
    body = msgspec.json.encode({"error": told})
    return Response(body, status, headers, media_type=JSON)


def surprise(problem: BaseException) -> Response:
    """An error that nobody foresaw. Where it came from is logged; what it says may hold values."""
    frames = traceback.extract_tb(problem.__traceback__)
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    LOG.error("unforeseen %s", type(problem).__name__, extra={"places": places})
    told = {"code": "Unforeseen", "message": "something went wrong here; the log says where"}
    return told_as(told, 500)
