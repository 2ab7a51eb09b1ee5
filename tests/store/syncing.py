"""Syncs that fail: a library under this process answers a sync with EIO, as a disk does.

Run as a program with ``LD_PRELOAD`` set to `library`, it forks a child for every case: a child does
what a small store does, one of its syncs fails, and it ends as if the machine had crashed there.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyramidion import Arrival, Pyramid, PyramidionError
from pyramidion.storage import fault_points as killpoints
from tests.forking import forked
from tests.store.stores import DAY, SCHEMA, START, rows, tiny

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char ending[64];
static int left;

void fail_sync(const char *suffix, int nth) {
    strncpy(ending, suffix, sizeof ending - 1);
    left = nth;
}

int syncs_left(void) { return left; }

static int fails(int file) {
    char name[64], path[4096];
    if (left <= 0) return 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    ssize_t length = readlink(name, path, sizeof path - 1);
    size_t suffix = strlen(ending);
    if (length < (ssize_t)suffix || memcmp(path + length - suffix, ending, suffix)) return 0;
    return --left == 0;
}

#define SYNC(call)                                            \
    int call(int file) {                                      \
        static int (*real)(int);                              \
        if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, #call); \
        if (fails(file)) {                                    \
            errno = EIO;                                      \
            return -1;                                        \
        }                                                     \
        return real(file);                                    \
    }
SYNC(fsync)
SYNC(fdatasync)
"""

LOG, ROWS = ".db-wal", ".rows"
"""How the names of SQLite's log and of segment files end."""


def compiler() -> str | None:
    """A C compiler, if there is one."""
    return shutil.which("cc") or shutil.which("gcc")


def library(folder: Path) -> Path:
    """The library, compiled."""
    source, made = folder / "syncs.c", folder / "syncs.so"
    source.write_text(SOURCE)
    command = [str(compiler()), "-shared", "-fPIC", "-O1", "-o", str(made), str(source), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return made


@dataclass(frozen=True)
class Turn:
    """Something that a store does: rows come under a key, or time passes."""

    day: float
    batch: int | None = None
    size: int = 0
    """Arrivals of the batch that share a commit."""


LIFE = (
    *(Turn(0.1 * n, batch=n, size=1 + n % 3) for n in range(4)),
    Turn(2, batch=4, size=1),
    Turn(4),  # hot rows leave
    Turn(6, batch=5, size=2),
    Turn(10),  # the window is sealed
    Turn(10.5, batch=6, size=1),
    Turn(14),
)
"""What every case does, from the first window to the next."""


DAYS = {turn.batch: turn.day for turn in LIFE if turn.batch is not None}


def arrivals(turn: Turn) -> list[Arrival]:
    """The rows of a turn. All arrivals have one size: each would fit where another one lies."""
    if turn.batch is None:
        return []
    return [
        Arrival(rows(12, START + turn.day * DAY, seed=10 * turn.batch + n), f"{turn.batch}.{n}")
        for n in range(turn.size)
    ]


class Life:
    """A store whose clock stands where its turn is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._day = 0.0

    @property
    def _given(self) -> dict[str, Any]:
        return {"keys": f"file:{self._folder}/keys/k", "clock": lambda: START + self._day * DAY}

    def create(self) -> Pyramid:
        """A new store, without noise."""
        settings = tiny(epsilon=float("inf"), checkpoint_rows=40, retention="90d")
        return Pyramid.create(self._folder / "store", SCHEMA, settings, **self._given)

    def open(self, day: float) -> Pyramid:
        """The store, opened at a day."""
        self._day = day
        return Pyramid.open(self._folder / "store", **self._given)

    def live(self, store: Pyramid, turn: Turn) -> list[str]:
        """Live a turn; the kinds of its answers."""
        self._day = turn.day
        try:
            if turn.batch is None:
                store.advance()
                return ["Advance"]
            return [type(each).__name__ for each in store.observe_all(arrivals(turn))]
        except PyramidionError as problem:
            return [type(problem).__name__]


def case(folder: Path, suffix: str, nth: int, end: str) -> None:
    """Live though a sync fails; then end: by a crash, in good order, or in the next commit."""
    faults, life = ctypes.CDLL(os.environ["LD_PRELOAD"]), Life(folder)
    told = os.open(folder / "told", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    store = life.create()
    faults.fail_sync(suffix.encode(), nth)
    for turn in LIFE:
        if end == "commit" and faults.syncs_left() == 0:
            killpoints.arm("commit.before")  # what is written for it lies in the segment file
        line = json.dumps(life.live(store, turn))
        os.write(told, line.encode() + b"\n")
    if end == "close":
        store.close()
    os._exit(0)


def main(folder: Path, cases: list[Any]) -> None:
    """Do every case in a child of its own."""
    for name, suffix, nth, end in cases:
        place = folder / name
        place.mkdir()
        child = forked()
        if child == 0:
            try:
                case(place, suffix, nth, end)
            except BaseException as problem:
                (place / "broke").write_text(repr(problem))
            finally:
                os._exit(1)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
