"""How long tests wait for what happens elsewhere: until it has, or until it is taken to hang."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 300.0
"""Seconds. No test takes that long: this only ends one that hangs, before pytest's own limit."""


def wait_for(fact: Callable[[], object], every: float = 0.01) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not fact():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(every)
