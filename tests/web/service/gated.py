"""Stores that observe only while a gate is open: ``python -m tests.web.service.gated ...``.

The first word is a file: whoever locks it for itself holds all observations up; see `Gate`.
"""

from __future__ import annotations

import fcntl
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Gate:
    """Holds up the observations of a program."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.touch()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Nothing is observed meanwhile."""
        with self.file.open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield


def main(file: str, module: str, *words: str) -> None:
    """Run a module as a program behind a gate."""
    from pyramidion import Pyramid

    observe_all = Pyramid.observe_all

    def gated(store: Pyramid, arrivals: Any) -> Any:
        with open(file, "rb") as held:
            fcntl.flock(held, fcntl.LOCK_SH)
            return observe_all(store, arrivals)

    Pyramid.observe_all = gated  # type: ignore[method-assign]
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
