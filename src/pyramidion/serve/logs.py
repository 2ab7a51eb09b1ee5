"""What a service says of itself: one JSON line on stderr for each request and each event.

A line says when, what, who by the id of a token, and how long: never a body, a value, a query, a
token, or a path as it was asked for. Errors are told by their kind and where they came from,
since what they say may hold values. Other packages' lines pass through here too.
"""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from pyramidion.serve.refusals import LOG, places

REQUESTS = logging.getLogger("pyramidion.serve.requests")
FIELDS = (
    *("method", "route", "status", "seconds", "token", "bytes_in", "bytes_out"),
    *("places", "reason", "stream", "by", "roles", "streams", "trouble"),
)
"""What a line may hold besides its time, level and event; all else that is given is left out."""
OURS = "pyramidion"
SPOKEN = ("uvicorn",)
"""Packages whose messages are told, below errors; of others only where they came from."""


class Lines(logging.Formatter):
    """Records as JSON lines.

    >>> record = logging.LogRecord("asyncio", logging.ERROR, "x.py", 3, "row %r", ("42",), None)
    >>> record.created = 0.0
    >>> print(Lines().format(record))
    {"time":"1970-01-01T00:00:00.000Z","level":"error","event":"asyncio","places":["x.py:3"]}
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        moment = datetime.fromtimestamp(record.created, UTC)
        told: dict[str, Any] = {
            "time": f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z",
            "level": record.levelname.lower(),
            "event": _event(record),
        }
        for name in FIELDS:
            value = record.__dict__.get(name)
            if value is not None:
                told[name] = value
        if "places" not in told and not record.name.startswith(OURS):
            told["places"] = _places(record)
        return msgspec.json.encode(told).decode()


def _event(record: logging.LogRecord) -> str:
    """What happened; of what others say only what cannot hold a value."""
    package = record.name.partition(".")[0]
    if package == OURS or (package in SPOKEN and record.levelno < logging.ERROR):
        return record.getMessage()
    return record.name


def _places(record: logging.LogRecord) -> list[str]:
    problem = record.exc_info[1] if record.exc_info else None
    return [f"{record.pathname}:{record.lineno}", *places(problem)]


def begin(stream: TextIO | None = None) -> logging.Handler:
    """Have everything that is logged come out as JSON lines on stderr; `end` undoes it."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(Lines())
    handler.set_name("pyramidion")
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.getLogger("uvicorn.access").disabled = True
    logging.raiseExceptions = False  # a line that cannot be written is not told with a traceback
    logging.captureWarnings(True)
    threading.excepthook = _in_a_thread
    return handler


def end(handler: logging.Handler) -> None:
    """Leave logging as it was."""
    root = logging.getLogger()
    root.removeHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("uvicorn.access").disabled = False
    logging.raiseExceptions = True
    logging.captureWarnings(False)
    threading.excepthook = threading.__excepthook__
    warnings.resetwarnings()


def _in_a_thread(told: threading.ExceptHookArgs) -> None:
    LOG.error("a thread ended by an error", extra={"places": places(told.exc_value)})
