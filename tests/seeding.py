"""Noise and hash keys from seeds, for tests of how large errors are: found today, found tomorrow.

What is drawn by the operating system would be outside any bound once in so many runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import count

import pytest

from pyramidion.counts.arena import Arena
from pyramidion.privacy.birth import Birth
from pyramidion.privacy.randomness import Randomness


@contextmanager
def seeded(name: str) -> Iterator[None]:
    """Have the noise of windows, in the order they are born, and hash keys come from a name.

    Hash keys are those of featurizers; a store has its own among its keys.
    """
    arena, windows, keys = Birth.arena, count(), count()

    def noisy(birth: Birth, randomness: Randomness | None = None) -> Arena:
        source = Randomness.insecure_from_seed(f"{name}, {next(windows)}".encode())
        return arena(birth, source if randomness is None else randomness)

    def key(size: int) -> bytes:
        return sha256(f"{name}, key {next(keys)}".encode()).digest()[:size]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Birth, "arena", noisy)
        patch.setattr("pyramidion.learn.counting.secrets.token_bytes", key)
        yield
