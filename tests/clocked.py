"""A program whose clock a test moves: ``python -m tests.clocked FILE MODULE WORDS...``.

FILE holds how many seconds the program's clock is ahead of the system's: see `Moved`.
"""

from __future__ import annotations

import mmap
import runpy
import struct
import sys
import time
from pathlib import Path

NOW = 20_001 * 86_400.0
"""A midnight of 2024, in the middle of a window of ten days."""


class Moved:
    """A clock that goes on from a moment, and that a test can move ahead; programs share it."""

    def __init__(self, file: Path, now: float) -> None:
        self.file = file
        self._write(now - time.time())

    def __call__(self) -> float:
        """Seconds since 1970."""
        return time.time() + self._ahead()

    def pass_(self, seconds: float) -> None:
        """Let time pass."""
        self._write(self._ahead() + seconds)

    def words(self, module: str) -> list[str]:
        """What runs a module by this clock."""
        return [sys.executable, "-m", "tests.clocked", str(self.file), module]

    def _ahead(self) -> float:
        (found,) = struct.unpack("d", self.file.read_bytes())
        return float(found)

    def _write(self, ahead: float) -> None:
        with self.file.open("wb" if not self.file.exists() else "r+b") as file:
            file.write(struct.pack("d", ahead))


def go_by(file: str) -> None:
    """Have this process go by the clock of a file from now on."""
    with open(file, "rb") as found:
        held = mmap.mmap(found.fileno(), 8, access=mmap.ACCESS_READ)
    real, real_ns = time.time, time.time_ns

    def ahead() -> float:
        return float(struct.unpack("d", held[:8])[0])

    time.time = lambda: real() + ahead()
    time.time_ns = lambda: real_ns() + int(ahead() * 1e9)


def main(file: str, module: str, *words: str) -> None:
    """Run a module as a program by the clock of a file."""
    go_by(file)
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
