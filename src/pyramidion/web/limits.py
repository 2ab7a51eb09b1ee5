"""How much a service takes; beyond that it refuses, and says when to come back.

    per caller        a bucket that fills again with time: a rest is saved up, up to a burst
    strangers         the same by address, in a fixed number of buckets: no map that grows
    at once           requests that are being answered, and bytes of bodies that are held

Nothing waits in a queue that is not bounded. All of this happens in the event loop, in one
thread, so that nothing is locked.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from ipaddress import IPv6Address, ip_address

from pyramidion.errors import BusyError

SLOTS = 4_096
"""Buckets for strangers. Addresses that meet in one share it; a caller who is known never does."""
MANY = 10_000
"""Buckets of callers before those that are full, and so say nothing, are dropped."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of one service. Each protects memory or the others' patience."""

    body_bytes: int = 64 << 20
    """The largest body of a request,"""
    json_bytes: int = 16 << 20
    """where it is JSON, whose values take many times its bytes, see `JsonMemory`."""
    sample_bytes: int = 1 << 20
    """Of a CSV that a schema is drafted for: its first rows are enough."""
    plan_tables: int = 256
    """Tables of a schema that a plan is made for: a hundred take seconds,"""
    target_tables: int = 64
    """and where the ε is searched that an error takes, sixty do."""
    rows: int = 1_000_000
    """The most rows in one body,"""
    columns: int = 4_096
    """columns of an Arrow or CSV body,"""
    batches: int = 10_000
    """and record batches."""
    waiting_requests: int = 4_096
    """Observations of one stream that wait for a commit: requests,"""
    waiting_rows: int = 4_000_000
    """rows,"""
    waiting_bytes: int = 256 << 20
    """and bytes."""
    at_once: int = 256
    """Requests that are being answered, over all streams; observations that wait not included."""
    held_bytes: int = 1 << 30
    """Memory of all bodies that are not answered yet, with the values of those in JSON."""
    per_second: float = 5_000.0
    """Requests of one token each second, on average,"""
    burst: int = 10_000
    """and at most this many after a rest."""
    stranger_per_second: float = 5.0
    """Failed logins from one address each second, on average,"""
    stranger_burst: int = 50
    """and at most this many after a rest."""
    connections: int = 4_096
    """Connections, or fewer where the process may have fewer file descriptors."""
    header_bytes: int = 32 << 10
    """The request line and all header fields together,"""
    path_bytes: int = 2_048
    """the path,"""
    query_bytes: int = 8_192
    """the query,"""
    fields: int = 100
    """and how many header fields."""
    header_seconds: float = 10.0
    """How long a request line and header fields may take to come in,"""
    body_seconds: float = 30.0
    """a body,"""
    unread_seconds: float = 30.0
    """and how long an answer may wait for who asked to read on."""
    idle_seconds: int = 5
    """How long a connection is kept between two requests."""


JSON_COSTS = ((b"{", 184), (b"[", 88), (b":", 48), (b",", 32), (b'"', 24))
"""Bytes that Python needs for a dict, a list, an entry, a value, and each end of a text."""
NARROW, WIDE = 3, 9
"""Bytes for each byte of JSON: itself, as a letter, and in a value; a letter takes up to four."""


class JsonMemory:
    """An upper bound for the memory that a JSON body needs while it is read and parsed.

    Counted without parsing, so that a body can be refused before. Plain rows are counted at 15 to
    30 times their bytes, of which they need half; no document needs more than 50 times its bytes.

    >>> JsonMemory().add(b'{"hour": 7, "late": true}')
    483
    """

    def __init__(self) -> None:
        self._bytes = 0
        self._letter = NARROW

    def add(self, part: bytes) -> int:
        """What the next part of the body adds."""
        values = sum(cost * part.count(mark) for mark, cost in JSON_COSTS)
        if self._letter == NARROW and (b"\\" in part or not part.isascii()):
            self._letter = WIDE  # of all parts: a text may reach over several
            values += (WIDE - NARROW) * self._bytes
        self._bytes += len(part)
        return values + self._letter * len(part)


class Rate:
    """What each key may do: so many a second on average, and a burst after a rest.

    >>> rate = Rate(per_second=2.0, burst=2)
    >>> [rate.wait("a", now) for now in (0.0, 0.0, 0.0, 0.5)]
    [0.0, 0.0, 0.5, 0.0]
    >>> rate.wait("b", 0.5)
    0.0
    """

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._levels: dict[object, tuple[float, float]] = {}

    def wait(self, key: object, now: float) -> float:
        """Take one, or say in how many seconds there is one."""
        level, since = self._levels.get(key, (self._burst, now))
        level = min(self._burst, level + (now - since) * self._per_second)
        if level < 1.0:
            self._levels[key] = level, now
            return (1.0 - level) / self._per_second
        if len(self._levels) > MANY:
            self._forget(now)
        self._levels[key] = level - 1.0, now
        return 0.0

    def _forget(self, now: float) -> None:
        """Drop the keys that have rested: a full bucket is as good as none."""
        for key, (level, since) in list(self._levels.items()):
            if level + (now - since) * self._per_second >= self._burst:
                del self._levels[key]


class Admission:
    """Counts what is going on in one service, and refuses what is too much."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._secret = secrets.token_bytes(16)
        self._callers = Rate(limits.per_second, limits.burst)
        self._strangers = Rate(limits.stranger_per_second, limits.stranger_burst)
        self.held = 0
        self.answering = {"requests": 0, "observations": 0}
        self._most = {"requests": limits.at_once, "observations": limits.waiting_requests}
        self.refused: Callable[[str], None] = lambda _: None
        """Told the reason of each refusal, for the metrics."""

    def take(self, caller: str) -> None:
        """Raise when a token asks more often than it may."""
        wait = self._callers.wait(caller, self._clock())
        if wait:
            raise self._busy("rate", "this token sends requests too often; send fewer", wait)

    def strange(self, address: str) -> None:
        """Raise when too many logins from an address have failed."""
        wait = self._strangers.wait(self._slot(address), self._clock())
        if wait:
            message = "too many failed logins from this address; check the token and retry later"
            raise self._busy("logins", message, wait)

    def _slot(self, address: str) -> int:
        """Which bucket is for an address; nobody outside knows which others share it."""
        digest = blake2b(_network(address), key=self._secret, digest_size=4).digest()
        return int.from_bytes(digest) % SLOTS

    def enter(self, kind: str) -> None:
        """Take one of the places for requests that are being answered; `leave` gives it back."""
        if self.answering[kind] >= self._most[kind]:
            raise self._busy("at_once", "too many requests are being answered; retry later")
        self.answering[kind] += 1

    def leave(self, kind: str) -> None:
        """A request was answered to its end."""
        self.answering[kind] -= 1

    def hold(self, size: int) -> None:
        """Count memory of a body that came in; the caller gives it back with `release`."""
        self.held += size
        if self.held > self._limits.held_bytes:
            raise self._busy("held", "the memory for request bodies is full; retry later")

    def release(self, size: int) -> None:
        """A body was answered."""
        self.held -= size

    def _busy(self, reason: str, message: str, wait: float = 1.0) -> BusyError:
        self.refused(reason)
        return BusyError(message, max(1, math.ceil(wait)))


def _network(address: str) -> bytes:
    """An address; of one in IPv6 the first half, since whoever has one has all of the other."""
    try:
        found = ip_address(address)
    except ValueError:
        return address.encode(errors="replace")
    return found.packed[:8] if isinstance(found, IPv6Address) else found.packed
