"""Where count windows begin and end: fixed multiples, which no row's content moves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyramidion.config.settings import Settings


@dataclass(frozen=True)
class Slots:
    """Time cut into equal slots from a declared origin, in microseconds.

    >>> days = Slots(length=86_400_000_000, origin=0)
    >>> days.at(90_000_000_000), days.start(1) == days.stop(0)
    (1, True)
    """

    length: int
    origin: int

    @classmethod
    def of_windows(cls, settings: Settings) -> Slots | None:
        """The slots of count windows; None where windows are cut by rows."""
        if settings.window_us is None:
            return None
        return cls(settings.window_us, settings.origin_us)

    @classmethod
    def of_steps(cls, settings: Settings) -> Slots:
        """The slots of hot steps."""
        return cls(settings.hot_step_us, settings.origin_us)

    def at(self, time: int) -> int:
        """The slot that a time lies in."""
        return (time - self.origin) // self.length

    def all_at(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """The slot that each time lies in; differences that pass 64 bits stay in order."""
        low = np.iinfo(np.int64).min + abs(self.origin)
        high = np.iinfo(np.int64).max - abs(self.origin)
        slots: NDArray[np.int64] = (np.clip(times, low, high) - self.origin) // self.length
        return slots

    def start(self, slot: int) -> int:
        """When a slot begins."""
        return self.origin + slot * self.length

    def stop(self, slot: int) -> int:
        """When a slot is over."""
        return self.start(slot + 1)
