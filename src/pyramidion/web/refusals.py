"""The one shape of errors: ``{"error": {"code": ..., "message": ...}}``, never a value in it."""

from __future__ import annotations

import logging
import re
import traceback
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from pyramidion.errors import (
    BusyError,
    ObservationError,
    PyramidionError,
    RequestError,
    UnknownCallerError,
)

LOG = logging.getLogger("pyramidion.web")
JSON = "application/json"
ELSEWHERE = "this failed for a reason on the service's own machine; its log says which"
"""Replaces a message that has a path or a URL in it."""
_PLACE = re.compile(
    r"(?<![\w/])(?:~\w*)?/(?=\S)(?!(?:v1|docs|features|metrics|healthz|readyz|openapi\.json)\b)"
    r"|\b[A-Za-z][\w+.-]*:/|\bfile:"
)
"""A path or an address in a message, unless it is one of this service's own."""
MOST_ROWS = 1_000
"""Numbers of bad rows that are told for each reason."""


class UnsupportedError(RequestError):
    """A content type or an encoding that is not spoken here."""

    status = 415


class SlowError(RequestError):
    """A body that did not come; what is left of the connection is not to be understood."""

    status = 408


class LongError(RequestError):
    """A path, a query or header fields beyond what is read."""

    status = 431


def public_message(problem: PyramidionError | str) -> str:
    """What callers are told of an error: never where a file, a key or another server is.

    >>> from pyramidion.errors import StorageError
    >>> public_message(StorageError("/data/s/hot is on a full disk")) == ELSEWHERE
    True
    >>> public_message(PyramidionError("send text/csv, or see /docs"))
    'send text/csv, or see /docs'
    >>> public_message("this name has a / in it")
    'this name has a / in it'
    """
    return ELSEWHERE if _PLACE.search(str(problem)) else str(problem)


def refusal(problem: PyramidionError) -> Response:
    """An error of ours, as an answer."""
    message = public_message(problem)
    if message != str(problem):
        LOG.error("failed %s", type(problem).__name__, extra={"trouble": str(problem)})
    told: dict[str, Any] = {"code": type(problem).__name__, "message": message}
    if isinstance(problem, ObservationError) and problem.problems:
        told["problems"] = {why: rows[:MOST_ROWS] for why, rows in problem.problems.items()}
    headers = {}
    if isinstance(problem, BusyError):
        headers["Retry-After"] = str(problem.retry_after)
    if isinstance(problem, UnknownCallerError):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(problem, SlowError):
        headers["Connection"] = "close"
    return told_as(told, problem.status, headers)


def told_as(told: dict[str, Any], status: int, headers: dict[str, str] | None = None) -> Response:
    """The one shape."""
    return Response(shaped(told), status, headers, media_type=JSON)


def shaped(told: dict[str, Any]) -> bytes:
    """The one shape, as bytes."""
    return msgspec.json.encode({"error": told})


def surprise(problem: BaseException) -> Response:
    """An error that nobody foresaw. Where it came from is logged; what it says may hold values."""
    LOG.error("unforeseen %s", type(problem).__name__, extra={"places": places(problem)})
    told = {"code": "Unforeseen", "message": "something went wrong here; the log says where"}
    return told_as(told, 500)


async def unrouted(_: Request, problem: Exception) -> Response:
    """What no route takes, in the one shape of errors."""
    status = problem.status_code if isinstance(problem, HTTPException) else 500
    headers = dict(problem.headers or {}) if isinstance(problem, HTTPException) else {}
    known = {
        404: ("MissingError", "there is nothing at this address; /docs shows what there is"),
        405: ("RequestError", "this address does not take this method; /docs shows which"),
    }
    code, message = known.get(status, ("RequestError", "the request cannot be read; see /docs"))
    return told_as({"code": code, "message": message}, status, headers)


def places(problem: BaseException | None) -> list[str]:
    """Where an error came from, and of which kinds it and its causes are; not what it says."""
    found: list[str] = []
    seen: set[int] = set()
    while problem is not None and id(problem) not in seen:
        seen.add(id(problem))
        frames = traceback.extract_tb(problem.__traceback__)
        found.append(type(problem).__name__)
        found += [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        problem = problem.__cause__ or problem.__context__
    return found
