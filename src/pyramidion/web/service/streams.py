"""One stream of a service: its store, the queue before it, and the timer behind it."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pyramidion.counts.snapshot import Snapshot
from pyramidion.counts.snapshot_file import LIFE, etag_of, snapshot_bytes
from pyramidion.errors import FailedError, KeyHolderError, PyramidionError, StateError
from pyramidion.storage.hot import Receipt
from pyramidion.store.batching import Arrival
from pyramidion.store.pyramid import Pyramid
from pyramidion.web.errors import LOG, public_message
from pyramidion.web.limits import Limits
from pyramidion.web.service.commits import Commits
from pyramidion.web.service.loop_wakeup import LoopWakeup

TICK = 1.0  # seconds between looks at what is due
KEY_LOOKS = 10  # of these, one asks the key holder, which may be far away


class Stream:
    """A store that is open for as long as the service runs."""

    def __init__(self, name: str, pyramid: Pyramid, limits: Limits) -> None:
        self.name = name
        self.pyramid = pyramid
        self._logged = ""
        self.trouble = ""
        """What kept the timer from doing what is due; empty when nothing did."""
        self.reason = "models" if pyramid.models else ""
        """Why it is not ready, in one word that may be told to everybody.

        Models are trained with the first look; ``keys``, ``clock``, ``disk`` and ``due`` say what
        failed."""
        self._looks = 0
        self.commits = Commits(
            pyramid.observe_all,
            most_requests=limits.waiting_requests,
            most_rows=limits.waiting_rows,
            most_bytes=limits.waiting_bytes,
        )
        self._wakeup: LoopWakeup | None = None
        self._tags: weakref.WeakKeyDictionary[Snapshot, str] = weakref.WeakKeyDictionary()
        self._typical: weakref.WeakKeyDictionary[Snapshot, dict[str, float]]
        self._typical = weakref.WeakKeyDictionary()
        self._packing = threading.Lock()
        self._stop = threading.Event()
        self._timer = threading.Thread(target=self._tick, name=f"pyramidion timer of {name}")
        self._timer.start()

    @property
    def now(self) -> int:
        """The stream's time in microseconds: the system's, a simulated one, or its history's."""
        return self.pyramid.now

    async def observe(self, arrival: Arrival, rows: int, size: int) -> Receipt:
        """Have rows observed with those of other senders; returns when they are durable.

        Raises `BusyError` if the queue is full.
        """
        future = self.commits.submit(arrival, rows, size)
        if self._wakeup is None or self._wakeup.loop is not asyncio.get_running_loop():
            self._wakeup = LoopWakeup()
        return await self._wakeup.wrap(future)

    # --- copies that leave ----------------------------------------------------------------

    def etag(self) -> str:
        """What tells the tables that are served now from all others."""
        return self._etag(self.pyramid.snapshot())

    def _etag(self, snapshot: Snapshot) -> str:
        with self._packing:
            if snapshot not in self._tags:
                self._tags[snapshot] = etag_of(snapshot, stream=self.name)
            return self._tags[snapshot]

    def packed(self, signer: Ed25519PrivateKey) -> tuple[bytes, str, int]:
        """The tables that are served now, signed; their etag, and when they end.

        The bytes are not kept: they would hold tables whose windows have retired.
        """
        snapshot, now = self.pyramid.snapshot(), self.now
        tag = self._etag(snapshot)
        with self._packing:  # one at a time: each takes the memory of the tables
            data = snapshot_bytes(snapshot, stream=self.name, now=now, signer=signer)
        return data, tag, _ends(snapshot, now)

    def card(self, signer: Ed25519PrivateKey) -> tuple[bytes, int]:
        """What opens the tables that are shared now, signed; and when it ends."""
        snapshot, now = self.pyramid.snapshot(), self.now
        return self.pyramid.publisher.card(stream=self.name, signer=signer), _ends(snapshot, now)

    def typical_counts(self) -> dict[str, float]:
        """How large the counts of the tables are that are served now; of none, nothing."""
        try:
            snapshot = self.pyramid.snapshot()
        except StateError:
            return {}
        with self._packing:  # it reads every cell, so once for each snapshot, and goes with it
            if snapshot not in self._typical:
                self._typical[snapshot] = snapshot.typical_counts()
            return self._typical[snapshot]

    # --- time passes ------------------------------------------------------------------------

    def _tick(self) -> None:
        """Rows and windows go when their time is over, also when nobody calls."""
        while not self._stop.wait(TICK):
            self.look()

    def look(self) -> None:
        """Do what is due, and note what kept it from being done."""
        try:
            self.pyramid.advance()
            if self._looks % KEY_LOOKS == 0 or self.reason == "keys":
                self.pyramid.admin.check_key_holder()
            self._looks += 1
            problem = self.pyramid.clock.problem
            self._note("clock" if problem else "", problem, problem)
        except KeyHolderError as problem:
            self._note("keys", public_message(problem), str(problem))
        except FailedError as problem:
            self._note("disk", public_message(problem), str(problem))
        except PyramidionError as problem:  # reported by /readyz and /metrics, and tried again
            self._note("due", public_message(problem), str(problem))
        except Exception as problem:  # an unknown one may hold values
            self._note("due", type(problem).__name__, type(problem).__name__)

    def _note(self, reason: str, message: str, detail: str) -> None:
        """Note what kept the timer from its work; empty: nothing did. The log has it once."""
        if detail and detail != self._logged:
            LOG.error("what is due was not done", extra={"stream": self.name, "trouble": detail})
        self.reason, self.trouble, self._logged = reason, message, detail

    def close(self) -> None:
        """Finish what was taken, and let go of the store."""
        self._stop.set()
        self._timer.join()
        self.commits.close()
        self.pyramid.close()


def _ends(snapshot: Snapshot, now: int) -> int:
    """When a copy ends that is made now."""
    return now + LIFE if snapshot.expires is None else min(now + LIFE, snapshot.expires)


Opener = Callable[[str], Pyramid]
"""Opens the store of a stream."""
