"""What was read from windows privately and paid for: quantiles, bin edges, chosen groups.

They promise what tables do (P2) and go with the window they were read from. So each stands in
the catalogue sealed under a key of its own, which dies with that window.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pyramidion.config.bins import Cuts
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.ciphers import opened, sealed
from pyramidion.storage.data_keys import DataKey, DataKeys

Purpose = Literal["weights", "bins", "selection"]
Values = Mapping[str, list[float]]
"""By table, its quantile; by column, its edges; by group, what became of it."""

PURPOSES: tuple[Purpose, ...] = ("weights", "bins", "selection")
GRAIN = 256  # bytes that what is sealed is filled up to


@dataclass(frozen=True)
class Reading:
    """What was read from one window for one purpose."""

    window: int
    purpose: Purpose
    key: DataKey
    values: Values

    def sealed(self) -> bytes:
        """Its values, for the catalogue."""
        data = json.dumps(dict(self.values)).encode()
        data += b" " * (-len(data) % GRAIN)
        return b"".join(sealed(self.key.key, [data], _context(self.window, self.purpose)))

    def less(self, gone: Callable[[str], bool]) -> Reading | None:
        """The same without some columns or tables, under a new key; None: nothing is left."""
        left = {name: values for name, values in self.values.items() if not gone(name)}
        return replace(self, key=DataKey.new("reading"), values=left) if left else None


class Readings:
    """All that is kept, by window and purpose."""

    def __init__(self, catalogue: Catalogue, keys: DataKeys) -> None:
        self._catalogue = catalogue
        self._keys = keys
        self._kept: dict[tuple[int, str], Reading] = {}
        for row in catalogue.all("SELECT window, purpose, key, sealed FROM readings"):
            key = DataKey(row["key"], "reading", keys.get(row["key"]))
            what = f"what was read from window {row['window']}"
            context = _context(row["window"], row["purpose"])
            values = json.loads(opened(key.key, row["sealed"], context, what=what))
            self.learned(Reading(row["window"], row["purpose"], key, values))

    def of(self, purpose: Purpose) -> dict[int, Values]:
        """What was read for a purpose, by window, oldest first."""
        kept = sorted((w, reading) for (w, of), reading in self._kept.items() if of == purpose)
        return {window: reading.values for window, reading in kept}

    def cuts(self, window: int) -> Cuts:
        """The bin edges that were read from a window; of window 0, none: bins are even."""
        edges = self.of("bins")[window] if window else {}
        return Cuts(window, {column: tuple(cut) for column, cut in edges.items()})

    def add(self, window: int, purpose: Purpose, values: Values) -> Reading:
        """Keep what was read; within a transaction, and `learned` after it."""
        reading = Reading(window, purpose, DataKey.new("reading"), values)
        self._insert(reading)
        return reading

    def put(self, window: int, purpose: Purpose, values: Values) -> Reading:
        """Keep this beside or in place of what is kept already; otherwise as `add`.

        Nothing is forgotten by it, so the key stays.
        """
        before = self._kept.get((window, purpose))
        if before is None:
            return self.add(window, purpose, values)
        reading = replace(before, values={**before.values, **values})
        self._catalogue.run(
            "UPDATE readings SET sealed = ? WHERE window = ? AND purpose = ?",
            reading.sealed(),
            window,
            purpose,
        )
        return reading

    def _insert(self, reading: Reading) -> None:
        self._keys.add(reading.key)
        self._catalogue.run(
            "INSERT INTO readings (window, purpose, key, sealed) VALUES (?, ?, ?, ?)",
            reading.window,
            reading.purpose,
            reading.key.id,
            reading.sealed(),
        )

    def learned(self, reading: Reading) -> None:
        """Know a reading that is durable."""
        self._kept[reading.window, reading.purpose] = reading

    def keys(self, windows: Collection[int], *only: Purpose) -> list[int]:
        """The keys of what was read from windows, for all purposes or some."""
        purposes = only or PURPOSES
        kept = self._kept.values()
        return [r.key.id for r in kept if r.window in windows and r.purpose in purposes]

    def forget(self, windows: Collection[int], *only: Purpose) -> None:
        """Drop what was read from windows; within the transaction of the erasure of its keys."""
        purposes = only or PURPOSES
        for window in windows:
            for purpose in purposes:
                self._catalogue.run(
                    "DELETE FROM readings WHERE window = ? AND purpose = ?", window, purpose
                )

    def without(self, gone: Callable[[str], bool]) -> list[tuple[Reading, Reading | None]]:
        """Each reading that has values of such columns or tables, and what is left of it."""
        changed = [kept for kept in self._kept.values() if any(map(gone, kept.values))]
        return [(kept, kept.less(gone)) for kept in changed]

    def replace(self, made: Sequence[tuple[Reading, Reading | None]]) -> None:
        """Keep what is left in place of readings; within an erasure's transaction."""
        for old, new in made:
            self.forget([old.window], old.purpose)
            if new is not None:
                self._insert(new)

    def replaced(self, made: Sequence[tuple[Reading, Reading | None]]) -> None:
        """After the transaction."""
        for old, new in made:
            self.forgotten([old.window], old.purpose)
            if new is not None:
                self.learned(new)

    def forgotten(self, windows: Collection[int], *only: Purpose) -> None:
        """After the transaction."""
        purposes = only or PURPOSES
        self._kept = {
            at: kept
            for at, kept in self._kept.items()
            if kept.window not in windows or kept.purpose not in purposes
        }


def _context(window: int, purpose: str) -> bytes:
    return f"{purpose} of window {window}".encode()
