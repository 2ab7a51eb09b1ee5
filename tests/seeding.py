"""Noise, hash keys and coins from seeds: found today, found tomorrow.

What is drawn by the operating system would be outside any bound once in so many runs. So in tests
all that chance decides comes from the name of the test, or of the fixture, that asks for it; in a
campaign from the seed of the round, too, which repeats it. Keys that only encrypt stay random.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256, shake_256
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

from pyramidion.learn import counting
from pyramidion.privacy import randomness
from pyramidion.privacy.randomness import Randomness
from pyramidion.storage import roster
from pyramidion.storage.ciphers import KEY_BYTES
from pyramidion.storage.data_keys import DataKey

DRAWING = ("table_noise", "exponential", "quantiles")
"""Modules of `pyramidion.privacy` that draw where they are given no source."""


class Chance:
    """Stands for the operating system's randomness: other bytes at each call, by a name."""

    def __init__(self, seed: str = "") -> None:
        self._seed = seed
        self._forks = 0
        self.begin("")

    def begin(self, name: str) -> None:
        """Draw by another name from now on."""
        self._name = f"{self._seed} {name}".encode()
        self._draws = count()

    def repeat(self, name: str) -> None:
        """Draw by a name alone from now on: the same in every child that is forked."""
        self._seed = ""
        self.begin(name)

    @contextmanager
    def named(self, name: str) -> Iterator[None]:
        """Draw by another name meanwhile."""
        before = self._name, self._draws
        self.begin(name)
        try:
            yield
        finally:
            self._name, self._draws = before

    def __call__(self, size: int) -> bytes:
        """So many bytes."""
        return shake_256(b"%d:%b" % (next(self._draws), self._name)).digest(size)

    def install(self) -> None:
        """Have noise, hash keys and coins drawn here, for good."""
        new, rng = DataKey.new.__func__, np.random.default_rng

        def data_key(cls: type[DataKey], purpose: str) -> DataKey:
            made: DataKey = new(cls, purpose)
            return replace(made, key=self(KEY_BYTES)) if purpose == "secret" else made

        DataKey.new = classmethod(data_key)  # type: ignore[method-assign,assignment]
        roster.new_key = lambda: self(KEY_BYTES)
        vars(randomness)["os"] = SimpleNamespace(urandom=self)
        vars(counting)["secrets"] = SimpleNamespace(token_bytes=self)
        np.random.default_rng = lambda seed=None: rng(
            int.from_bytes(self(16)) if seed is None else seed
        )
        # A child draws other bytes than its parent, and than the children before it.
        os.register_at_fork(before=self._forked, after_in_child=self._in_child)

    def _forked(self) -> None:
        self._forks += 1

    def _in_child(self) -> None:
        self._seed += f" child {self._forks} of"
        self._name = f"{self._seed} ".encode() + self._name


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
