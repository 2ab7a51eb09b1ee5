"""Errors as responses: ``{"error": {"code": ..., "message": ...}}``, never with a value in it."""

from __future__ import annotations

import logging
import re
import traceback
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
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
"""Numbers of bad rows that are listed for each reason."""


class UnsupportedError(RequestError):
    """A content type or an encoding that is not supported."""

    status = 415


class SlowError(RequestError):
    """A body that did not arrive; the rest of the connection cannot be parsed."""

    status = 408


class LongError(RequestError):
    """A path, a query or header fields that are too long."""

    status = 431


def public_message(problem: PyramidionError | str) -> str:
    """The message of an error for callers: never where a file, a key or another server is.

    >>> from pyramidion.errors import StorageError
    >>> public_message(StorageError("/data/s/hot is on a full disk")) == ELSEWHERE
    True
    >>> public_message(PyramidionError("send text/csv, or see /docs"))
    'send text/csv, or see /docs'
    >>> public_message("this name has a / in it")
    'this name has a / in it'
    """
    return ELSEWHERE if _PLACE.search(str(problem)) else str(problem)


def error_response(problem: PyramidionError) -> Response:
    """An error of ours as a response."""
    message = public_message(problem)
    if message != str(problem):
        LOG.error("failed %s", type(problem).__name__, extra={"trouble": str(problem)})
    error: dict[str, Any] = {"code": type(problem).__name__, "message": message}
    if isinstance(problem, ObservationError) and problem.problems:
        error["problems"] = {why: rows[:MOST_ROWS] for why, rows in problem.problems.items()}
    headers = {}
    if isinstance(problem, BusyError):
        headers["Retry-After"] = str(problem.retry_after)
    if isinstance(problem, UnknownCallerError):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(problem, SlowError):
        headers["Connection"] = "close"
    return Response(error_body(error), problem.status, headers, media_type=JSON)


def error_body(error: dict[str, Any]) -> bytes:
    """The JSON of an error."""
    return msgspec.json.encode({"error": error})


def unexpected_error(problem: BaseException) -> Response:
    """A response to an unexpected error. Its places are logged; its message may hold values."""
    LOG.error("unforeseen %s", type(problem).__name__, extra={"places": places(problem)})
    error = {"code": "Unforeseen", "message": "something went wrong here; the log says where"}
    return Response(error_body(error), 500, media_type=JSON)


def unrouted(problem: HTTPException) -> Response:
    """A response to a request that no route takes."""
    known = {
        404: ("MissingError", "there is nothing at this address; /docs shows what there is"),
        405: ("RequestError", "this address does not take this method; /docs shows which"),
    }
    code, message = known.get(
        problem.status_code, ("RequestError", "the request cannot be read; see /docs")
    )
    body = error_body({"code": code, "message": message})
    return Response(body, problem.status_code, problem.headers, media_type=JSON)


def places(problem: BaseException | None) -> list[str]:
    """The types of an error and its causes, and where they were raised; not their messages."""
    found: list[str] = []
    seen: set[int] = set()
    while problem is not None and id(problem) not in seen:
        seen.add(id(problem))
        frames = traceback.extract_tb(problem.__traceback__)
        found.append(type(problem).__name__)
        found += [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        problem = problem.__cause__ or problem.__context__
    return found
