"""Slots for connections: how many there may be, and which one is dropped for a new one.

    new     accepted, perhaps still in the TLS handshake; no whole request header has arrived yet
    busy    a request is being answered
    idle    between two requests

When all slots are taken, the oldest new connection is dropped, or if there is none, the one that
has been idle longest. So thousands of half-open connections cannot keep other clients out, and a
request that is being answered is never broken off for a new connection.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

LOG = logging.getLogger("pyramidion.web")
LOG_INTERVAL = 60.0  # seconds between two lines in the log


class Droppable(Protocol):
    """A connection, as far as it takes a slot."""

    def drop(self) -> None:
        """End it at once."""


class ConnectionSlots:
    """The connections of one process; ``limit`` is called for each new one."""

    def __init__(
        self, limit: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = limit
        self._clock = clock
        self._new: dict[Droppable, None] = {}
        self._idle: dict[Droppable, None] = {}
        self._busy: set[Droppable] = set()
        self._logged: float | None = None

    def __len__(self) -> int:
        """How many are taken."""
        return len(self._new) + len(self._idle) + len(self._busy)

    def __contains__(self, connection: Droppable) -> bool:
        """Whether a connection has a slot."""
        return connection in self._busy or connection in self._idle or connection in self._new

    def acquire(self, connection: Droppable) -> bool:
        """Take a slot for a new connection; False if all others are busy."""
        limit = self._limit()
        while len(self) >= limit:
            self._log()
            oldest = next(iter(self._new or self._idle), None)
            if oldest is None:
                return False
            self.release(oldest)
            oldest.drop()
        self._new[connection] = None
        return True

    def mark_busy(self, connection: Droppable) -> None:
        """A request header has arrived."""
        if connection in self:  # not one that was dropped
            self.release(connection)
            self._busy.add(connection)

    def mark_idle(self, connection: Droppable) -> None:
        """All requests that arrived are answered."""
        if connection in self._busy:
            self._busy.discard(connection)
            self._idle[connection] = None

    def release(self, connection: Droppable) -> None:
        """The connection has ended."""
        self._new.pop(connection, None)
        self._idle.pop(connection, None)
        self._busy.discard(connection)

    def _log(self) -> None:
        now = self._clock()
        if self._logged is None or now - self._logged >= LOG_INTERVAL:
            self._logged = now
            LOG.warning("as many connections as may be; those that send no request are dropped")
