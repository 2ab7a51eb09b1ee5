"""What a vault needs of its store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pyramidion.config.settings import Settings
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.data_keys import DataKeys
from pyramidion.storage.deletions import Deleted
from pyramidion.storage.hot import HotWindow
from pyramidion.storage.outbox import Untold

Arrived = tuple[int, int]
"""When the first and the last row of a batch arrived; the same, but for rows of a history."""


class Erase(Protocol):
    """How keys are destroyed: the lifecycle's way."""

    def __call__(
        self,
        gone: Deleted,
        why: str,
        now: int,
        *,
        keys: Sequence[int],
        before: Callable[[], None],
    ) -> None:
        """Destroy keys of the store, with a deletion record, and change the catalogue."""


@dataclass(frozen=True)
class Surroundings:
    """The parts of a store that its vault works with."""

    catalogue: Catalogue
    keys: DataKeys
    hot: HotWindow
    settings: Settings
    arrivals: AbstractContextManager[object]
    erase: Erase
    now: Callable[[], int]
    """The store's time, by which things are due."""
    present: Callable[[], int]
    """The time by the clock, which dates records."""
    folder: Path
    log: Untold
    time: str | None
    """The column of the event time."""
