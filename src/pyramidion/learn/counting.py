"""Windows of counts in memory: one populating, the rest sealed and summed.

The first read or copy of a populating window seals it. Two states of one
populating table subtract to exact counts, so there is never a second one: not
by reading, not by copying, not by forking.
"""

from __future__ import annotations

import os
import secrets
import threading
from typing import Any

from pyramidion.counts.arena import Arena
from pyramidion.counts.snapshot import Snapshot
from pyramidion.errors import StateError
from pyramidion.guarantee import Guarantee
from pyramidion.observations import Door, Observations
from pyramidion.privacy.birth import Birth
from pyramidion.schema import Schema
from pyramidion.settings import Settings


class Counting:
    """Counts observations under a fresh secret, window after window."""

    def __init__(self, schema: Schema, settings: Settings) -> None:
        secret = secrets.token_bytes(32)
        self.door = Door(schema, settings, secret)
        self.birth = Birth(settings, self.door.encoder.shapes, schema.cardinality, secret)
        self._populating: Arena | None = None
        self._complete: Arena | None = None
        self._snapshot: Snapshot | None = None
        self._sealed = 0
        self._owner = os.getpid()
        self._lock = threading.Lock()

    def add(self, observations: Observations, *, threads: int) -> None:
        """Count into the populating window; open one where there is none.

        All or nothing: where counting is broken off (memory, Ctrl-C), the batch is
        taken out again, see `Arena.add`.
        """
        with self._lock:
            if self._populating is None:
                self._populating = self.birth.arena()
                self._owner = os.getpid()
            self._refuse_other_process()
            self._populating.add(observations, threads)

    def seal(self) -> None:
        """Close the populating window and add it to the complete tables."""
        with self._lock:
            self._seal()

    def _seal(self) -> None:
        if self._populating is None:
            return
        self._refuse_other_process()
        self._populating.seal()
        arenas = [a for a in (self._complete, self._populating) if a is not None]
        self._complete = arenas[0] if len(arenas) == 1 else Arena.total(arenas)
        self._populating = None
        self._snapshot = None
        self._sealed += 1

    def _refuse_other_process(self) -> None:
        if self._owner != os.getpid():
            raise StateError(
                "this window is populating in the process that this one was forked from, and two "
                "copies of a populating table subtract to exact counts; read once before forking"
            )

    def snapshot(self) -> Snapshot:
        """The complete tables; seals first."""
        with self._lock:
            self._seal()
            if self._complete is None:
                raise StateError("nothing has been counted yet; count some rows first")
            if self._snapshot is None:
                promise = self.birth.guarantee(self._sealed)
                self._snapshot = Snapshot(self.door, self._complete, promise)
            return self._snapshot

    @property
    def guarantee(self) -> Guarantee:
        """What all windows promise together."""
        return self.birth.guarantee(self._sealed + (self._populating is not None))

    def __getstate__(self) -> dict[str, Any]:
        """Sealed, within one hold of the lock: no window may open in between and be shared."""
        with self._lock:
            self._seal()
            kept = {k: v for k, v in vars(self).items() if k not in ("_lock", "_snapshot")}
        return {**kept, "_populating": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock(), _snapshot=None)
