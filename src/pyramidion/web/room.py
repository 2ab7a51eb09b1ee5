"""How many connections there may be, and which one makes room for a new one.

    new     accepted, perhaps still in the TLS handshake; no whole request header came yet
    busy    a request is being answered
    idle    between two requests

When all places are taken, the oldest new connection is dropped, or if there is none, the one that
is idle for the longest time. So thousands of half-open connections cannot keep anybody out, and
a request that is being answered is never broken off for a new one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

LOG = logging.getLogger("pyramidion.web")
PAUSE = 60.0  # seconds between two lines in the log


class Droppable(Protocol):
    """A connection, as far as it takes a place."""

    def drop(self) -> None:
        """End it at once."""


class Room:
    """The connections of one process; ``most`` is asked for whenever one comes."""

    def __init__(
        self, most: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = most
        self._clock = clock
        self._new: dict[Droppable, None] = {}
        self._idle: dict[Droppable, None] = {}
        self._busy: set[Droppable] = set()
        self._logged: float | None = None

    def __len__(self) -> int:
        """How many there are."""
        return len(self._new) + len(self._idle) + len(self._busy)

    def __contains__(self, one: Droppable) -> bool:
        """Whether it has a place."""
        return one in self._busy or one in self._idle or one in self._new

    def enter(self, one: Droppable) -> bool:
        """Take a place for a new connection; False where all others are busy."""
        most = self._most()
        while len(self) >= most:
            self._log()
            oldest = next(iter(self._new or self._idle), None)
            if oldest is None:
                return False
            self.leave(oldest)
            oldest.drop()
        self._new[one] = None
        return True

    def begin(self, one: Droppable) -> None:
        """A request header came."""
        if one in self:  # not one that was dropped
            self.leave(one)
            self._busy.add(one)

    def rest(self, one: Droppable) -> None:
        """All requests that came are answered."""
        if one in self._busy:
            self._busy.discard(one)
            self._idle[one] = None

    def leave(self, one: Droppable) -> None:
        """It ended."""
        self._new.pop(one, None)
        self._idle.pop(one, None)
        self._busy.discard(one)

    def _log(self) -> None:
        now = self._clock()
        if self._logged is None or now - self._logged >= PAUSE:
            self._logged = now
            LOG.warning("as many connections as may be; those that send no request are dropped")
