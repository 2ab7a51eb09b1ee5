"""Noise and hash keys from seeds, for tests of how large errors are: found today, found tomorrow.

What is drawn by the operating system would be outside any bound once in so many runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import count

import pytest

from pyramidion.privacy.randomness import Randomness

DRAWING = ("birth", "exponential", "quantiles")
"""Modules of `pyramidion.privacy` that draw where they are given no source."""


@contextmanager
def seeded(name: str) -> Iterator[None]:
    """Have noise, private quantiles and hash keys come from a name, each in the order drawn.

    Hash keys are those of featurizers; a store has its own among its keys.
    """
    keys = count()

    def key(size: int) -> bytes:
        return sha256(f"{name}, key {next(keys)}".encode()).digest()[:size]

    with pytest.MonkeyPatch.context() as patch:
        for module in DRAWING:
            sources = Sources(f"{name}, {module}")
            patch.setattr(f"pyramidion.privacy.{module}.Randomness", sources)
        patch.setattr("pyramidion.learn.counting.secrets.token_bytes", key)
        yield


class Sources:
    """Stands for `Randomness`: each call gives the next of a name's sources."""

    def __init__(self, name: str) -> None:
        self._name, self._numbers = name, count()

    def __call__(self) -> Randomness:
        return Randomness.insecure_from_seed(f"{self._name}, {next(self._numbers)}".encode())
