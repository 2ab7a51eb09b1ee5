"""Compile the kernels of the evaluation once, into numba's cache: ``python -m lab.warm``."""

from __future__ import annotations

from lab import clicks


def warm() -> None:
    """Generate a few clicks in every way there is."""
    clicks.generate(1_000, drift=1.0, interactions=1).table(0, 10)


if __name__ == "__main__":
    warm()
