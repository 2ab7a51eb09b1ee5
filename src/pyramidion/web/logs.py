"""What a service says of itself: one JSON line on stderr for each request and each event.

A line says when, what, who by the id of a token, and how long: never a body, a value, a query, a
token, or a path as it was asked for. Errors are told by their kind and where they came from,
since what they say may hold values. Other packages' lines pass through here too.

Which fields may be logged is a rule of ours, and lines of other packages are cut by it. A library
such as structlog would replace only the encoding of a line, which is a call of msgspec.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TextIO

import msgspec

from pyramidion.web.errors import LOG, places

FIELDS = (
    *("method", "route", "status", "seconds", "token"),
    *("places", "reason", "stream", "by", "roles", "streams", "trouble"),
)
"""What a line may hold besides its time, level and event; all else that is given is left out."""
MOST = 10_000
"""Lines that wait to be written."""
SOON = 0.05  # seconds until they are
PATIENCE = 2.0  # seconds that the last ones have
OURS = "pyramidion"
SPOKEN = ("uvicorn",)
"""Packages whose messages are told, below errors; of others only where they came from."""


@lru_cache(maxsize=4)
def _second(second: int) -> str:
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}"


Moment = tuple[float, dict[str, Any]]
"""When a request was answered, and what is told of it."""


def moment(seconds: float) -> str:
    """A moment as lines tell it.

    >>> moment(1.5)
    '1970-01-01T00:00:01.500Z'
    """
    whole = int(seconds)
    return f"{_second(whole)}.{int((seconds - whole) * 1_000):03d}Z"


class Lines(logging.Formatter):
    """Records as JSON lines.

    >>> record = logging.LogRecord("asyncio", logging.ERROR, "x.py", 3, "row %r", ("42",), None)
    >>> record.created = 0.0
    >>> print(Lines().format(record))
    {"time":"1970-01-01T00:00:00.000Z","level":"error","event":"asyncio","places":["x.py:3"]}
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        told: dict[str, Any] = {
            "time": moment(record.created),
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


class Behind(logging.Handler):
    """Writes lines from a thread of its own, so that who reads them slowly keeps nobody waiting.

    What does not fit any more is dropped, and how much is told.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self.setFormatter(Lines())
        self._stream = stream
        self._lines: deque[str | Moment] = deque(maxlen=MOST)
        self._dropped = 0
        self._stop = threading.Event()
        self._writer = threading.Thread(target=self._write, name="pyramidion log", daemon=True)
        self._writer.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line."""
        self.take(self.format(record))

    def take(self, line: str | Moment) -> None:
        """Take a line, or what one is made of when it is written."""
        self._dropped += len(self._lines) == MOST
        self._lines.append(line)  # the oldest goes where there is no room

    def _write(self) -> None:
        while not self._stop.wait(SOON):
            self._write_all()
        self._write_all()

    def _write_all(self) -> None:
        lines = []
        while self._lines:
            lines.append(_made(self._lines.popleft()))
        missing, self._dropped = self._dropped, 0
        if missing:
            lines.append(msgspec.json.encode({"event": "lines dropped", "lines": missing}).decode())
        if lines:
            with suppress(OSError, ValueError):  # nobody reads
                self._stream.write("\n".join([*lines, ""]))
                self._stream.flush()

    def close(self) -> None:
        """Write what is left, unless nobody reads it."""
        self._stop.set()
        self._writer.join(PATIENCE)
        super().close()


_writing: list[Behind] = []
"""Those that write now."""


def request(told: dict[str, Any]) -> None:
    """Tell of a request, past what `logging` does for each record; the line is made later."""
    now = time.time()
    for each in _writing:
        each.take((now, told))


def _made(line: str | Moment) -> str:
    if isinstance(line, str):
        return line
    seconds, told = line
    about = {"time": moment(seconds), "level": "info", "event": "request"}
    return msgspec.json.encode(about | told).decode()


@contextmanager
def logged(stream: TextIO | None = None, *, troubles: bool = False) -> Iterator[None]:
    """Meanwhile everything that is logged comes out as JSON lines, by default on stderr.

    With ``troubles``, warnings and errors alone.
    """
    root, access = logging.getLogger(), logging.getLogger("uvicorn.access")
    former = root.level, access.disabled, logging.raiseExceptions, threading.excepthook
    handler = Behind(stream or sys.stderr)
    root.addHandler(handler)
    if not troubles:
        _writing.append(handler)
    root.setLevel(logging.WARNING if troubles else logging.INFO)
    logging.captureWarnings(True)
    access.disabled = True  # it would tell paths and queries
    logging.raiseExceptions = False  # a line that cannot be made is not told with its values
    threading.excepthook = _in_a_thread
    try:
        yield
    finally:
        root.removeHandler(handler)
        if not troubles:
            _writing.remove(handler)
        root.setLevel(former[0])
        logging.captureWarnings(False)
        _, access.disabled, logging.raiseExceptions, threading.excepthook = former
        handler.close()


def _in_a_thread(told: threading.ExceptHookArgs) -> None:
    LOG.error("a thread ended by an error", extra={"places": places(told.exc_value)})
