"""Models that are simple to see through, in place of those of a store."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pyramidion.counts.deadline import Deadline
from pyramidion.counts.snapshot import Snapshot
from pyramidion.errors import StateError


class Toy:
    """Says of every row what its payload says; with its expiry as those of a store have it."""

    def __init__(
        self, header: Mapping[str, Any], payload: bytes, clock: Callable[[], float]
    ) -> None:
        told = json.loads(payload)
        self.classes = tuple(header["classes"])
        self.version, self.expires = header["version"], header["expires"]
        self._says = told["says"]
        self._deadline = Deadline(header["expires"], clock, latest=header["made"])

    @property
    def expired(self) -> bool:
        return self._deadline.passed()

    def predict(self, snapshot: Snapshot, rows: Any) -> Any:
        return np.full(self._asked(snapshot, rows), self._says)

    def predict_proba(self, snapshot: Snapshot, rows: Any) -> Any:
        return np.tile([1 - self._says, self._says], (self._asked(snapshot, rows), 1))

    def proba_one(self, features: Any, snapshot: Snapshot) -> Any:
        assert len(features) == len(snapshot.names)
        return np.array([1 - features[0], features[0]]) + 0 * self._says

    def _asked(self, snapshot: Snapshot, rows: Any) -> int:
        if self.expired:
            raise StateError("a model has expired; export it")
        return len(snapshot.array(rows))


def export(
    says: float, now: int, *, version: int = 1, life: int = 3_600_000_000, classes: Any = (0, 1)
) -> tuple[dict[str, Any], bytes]:
    header = {"version": version, "classes": list(classes), "made": now, "expires": now + life}
    return header, json.dumps({"says": says}).encode()
