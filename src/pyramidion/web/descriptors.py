"""File descriptors: connections get what stores leave, so that no commit fails for want of one.

Every connection takes a descriptor, and whoever reaches the port can open one. A store needs a few
all the time (catalogue, audit log, the file of the current hot step) and some more for moments: to
seal, to roll, to restore, to reach a table store.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress

from pyramidion.errors import StorageError

WANTED = 65_536
"""Descriptors that the process asks for, if the system lets it."""
OWN = 96
"""Kept for the process itself: modules, pipes, threads, downloads, handshakes that are ending,"""
STREAM = 32
"""and for each stream: 8 all the time, and some for moments."""
FEWEST = 16
"""Connections without which a service is none."""
SPARE = 8
"""Descriptors that must be free for a service to be ready."""


def raise_limit() -> None:
    """Let the process have as many descriptors as it may, up to `WANTED`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(hard, WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # some systems know other bounds as well
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def for_connections(streams: int) -> int:
    """How many connections there are descriptors for, beside those of so many streams."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (WANTED if soft == resource.RLIM_INFINITY else soft) - OWN - STREAM * streams


def refuse_few(streams: int) -> None:
    """Raise unless there are descriptors for so many streams and for some connections."""
    if for_connections(streams) < FEWEST:
        needed = OWN + STREAM * streams + FEWEST
        raise StorageError(
            f"{streams} streams need {needed} file descriptors and the process may have fewer; "
            f"raise its limit, as with `ulimit -n {max(needed, 1_024)}`"
        )


def scarce() -> bool:
    """Whether fewer than `SPARE` descriptors are free."""
    found: list[int] = []
    try:
        found.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(SPARE))
    except OSError:
        return True
    finally:
        for each in found:
            os.close(each)
    return False
