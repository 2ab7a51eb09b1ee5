"""Windows of counts in memory: one populating, the rest sealed and summed.

The first read or copy of a populating window seals it. Two states of one
populating table subtract to exact counts, so there is never a second one: not
by reading, not by copying, not by forking.

Weights are read once: from the first batch of a window that is large enough, before that
window's noise is drawn. The window keeps `weights_share` of its budget back for the reading, and
its tables have the rest: together one. **Why the sum holds**: the reading comes first and is
private by itself, for its share; the noise comes second and depends on the rows through the
released quantiles alone, so for every value of them the tables are private for the rest.
Adaptive composition adds the two, under pure ε and under zCDP. Later windows use the same
weights, hold other rows, and keep nothing back.
"""

from __future__ import annotations

import os
import secrets
import threading
from fractions import Fraction
from typing import Any

from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.counts.arena import Arena
from pyramidion.counts.guarantee import Guarantee
from pyramidion.counts.snapshot import Snapshot
from pyramidion.errors import PrivacyError, StateError
from pyramidion.privacy import weights
from pyramidion.privacy.budget import budget_of
from pyramidion.privacy.quantiles import FEWEST_ROWS
from pyramidion.privacy.table_noise import Reserves, TableDesign, sizes_of
from pyramidion.rows.observations import Door, Observations


class Counting:
    """Counts observations under a fresh secret, window after window.

    ``birth`` is what the last window was born with; before the first one, with equal weights.
    """

    def __init__(self, schema: Schema, settings: Settings) -> None:
        self._settings = settings
        self._secret = secrets.token_bytes(32)
        self._labels = schema.cardinality
        self.door = Door(schema, settings, self._secret)
        self._quantiles: dict[str, float] | None = None
        """What was read for weights; None: nothing yet."""
        self.birth = self._birth({}, {})
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
                self._open(observations, threads)
            else:
                self._refuse_other_process()
                self._populating.add(observations, threads)

    def _open(self, observations: Observations, threads: int) -> None:
        """A new window with its first batch.

        Where that is broken off, there is no window, and what was read for it is gone: nothing
        was released, so nothing is owed, and the same rows may be read again.
        """
        reserves, quantiles = Reserves(), self._quantiles
        if self._due(len(observations)):
            reserves = {"weights": self._settings.reserves["weights"]}
            quantiles = self._read(observations, reserves["weights"])
        birth = self._birth(reserves, quantiles or {})
        arena, owner = birth.arena(), os.getpid()
        arena.add(observations, threads)
        self.birth, self._quantiles, self._populating, self._owner = birth, quantiles, arena, owner

    def _due(self, rows: int) -> bool:
        """Whether weights are to be read, by public facts alone."""
        s, shapes = self._settings, self.door.encoder.shapes
        wanted = s.weighted and s.weights_share > 0 and weights.tables_read(s, shapes)
        return self._quantiles is None and bool(wanted) and rows >= FEWEST_ROWS

    def _read(self, observations: Observations, share: Fraction) -> dict[str, float]:
        """The quantile of every table, for this share of a window's budget."""
        unit, whole = budget_of(self._settings)
        if unit == "none":
            raise PrivacyError("weights are read where there is no budget; this is a bug")
        s, shapes = self._settings, self.door.encoder.shapes
        return weights.read(
            [observations], s, shapes=shapes, budget=share * whole, unit=unit, k=s.k
        )

    def _birth(self, reserves: Reserves, quantiles: dict[str, float]) -> TableDesign:
        s, shapes = self._settings, self.door.encoder.shapes
        shares = weights.weights_of(s, sizes_of(s, shapes), quantiles)
        return TableDesign(s, shapes, self._labels, self._secret, reserves=reserves, weights=shares)

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
