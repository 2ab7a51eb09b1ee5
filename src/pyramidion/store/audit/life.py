"""The life of a window as an attacker sees it: every state that ever lay on the disk, at hand.

A temporary store is taken through a window with canaries: at birth, at two checkpoints,
sealed. What they have added by then is known, so what is left of a state is its noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pyramidion.counts.layout import Layout
from pyramidion.errors import FormatError
from pyramidion.privacy.ledger import WindowReport
from pyramidion.storage.ciphers import opened
from pyramidion.store.audit.canaries import Canaries, Flags, Words, counts
from pyramidion.store.audit.trial import Cells, Trial
from pyramidion.store.transitions import checkpoint_tables


@dataclass(frozen=True)
class Life:
    """A window's states as they lay on the disk, and which canaries each must have counted."""

    canaries: Canaries
    keys: list[Words]
    layout: Layout
    charged: WindowReport | None
    states: list[tuple[Cells, Flags]]
    """From birth to sealed."""
    superseded: int
    """States that were superseded before rows left."""
    readable: int
    """Those of them that some key of the store opened afterwards."""

    @property
    def noise(self) -> Cells:
        """The state at birth, before the first row."""
        return self.states[0][0]

    def amounts(self) -> list[Fraction]:
        """What the ledger says that each table cost; 0: nothing."""
        lines = () if self.charged is None else self.charged.lines
        cost = {line.purpose: line.amount for line in lines if line.kind == "table"}
        return [cost.get(table.name, Fraction(0)) for table in self.layout.tables]

    def residuals(self) -> Iterator[Cells]:
        """Every state less the exact counts of the canaries in it."""
        for cells, inside in self.states:
            weights = self.canaries.weight * inside.astype(np.int64)
            labels = self.canaries.labels
            prior = np.bincount(labels, weights, self.layout.labels).astype(np.int64)
            exact = [prior[None, None, :]] + [
                counts(self.layout, table, keys, labels, weights)
                for table, keys in enumerate(self.keys, start=1)
            ]
            yield [own - count for own, count in zip(cells, exact, strict=True)]

    def added(self) -> Cells:
        """What the store added to its tables from birth to sealing."""
        return [last - first for first, last in zip(self.noise, self.states[-1][0], strict=True)]


def lived(made: Trial, canaries: Canaries) -> Life:
    """Take a store through one window; every state of its tables is kept."""
    half = np.arange(len(canaries)) % 2 == 0
    first, second = canaries.included & half, canaries.included & ~half
    window = made.open()
    number, layout = window.number, window.arena.layout
    files = _Files(made)
    states = [(made.on_disk(number), np.zeros_like(half))]
    made.observe(canaries.rows(first))
    checkpoint_tables(made.lifecycle, window, made.store.now)
    files.look()
    states.append((made.on_disk(number), first))
    made.observe(canaries.rows(second))
    made.pass_days(4)  # the rows leave the hot window: checkpoint, then erasure
    states.append((made.on_disk(number), canaries.included))
    superseded, readable = files.superseded()
    keys = made.keys(canaries.features())
    made.end_window()
    states.append((made.on_disk(number), canaries.included))
    charged = made.charged(number)
    return Life(canaries, keys, layout, charged, states, superseded, readable)


class _Files:
    """Copies of table files, as an attacker makes them who cannot open them yet."""

    def __init__(self, made: Trial) -> None:
        self._tables = made.lifecycle.tables
        self._keys = made.lifecycle.keys
        self._copies: dict[str, bytes] = {}
        self.look()

    def look(self) -> None:
        """Copy what is there."""
        for file in self._tables.folder.iterdir():
            self._copies[file.name] = file.read_bytes()

    def superseded(self) -> tuple[int, int]:
        """Copies that are no longer current, and how many of them some key opens."""
        current = self._tables.current_names()
        old = {name: data for name, data in self._copies.items() if name not in current}
        keys = [self._keys.get(number) for number in self._keys.numbers()]
        opens = [any(_opens(key, data, name) for key in keys) for name, data in old.items()]
        return len(old), sum(opens)


def _opens(key: bytes, data: bytes, name: str) -> bool:
    try:
        opened(key, data, name.encode(), what=name)
    except FormatError:
        return False
    return True
