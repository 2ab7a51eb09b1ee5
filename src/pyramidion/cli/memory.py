"""The memory of a process that has keys or rows of the vault."""

from __future__ import annotations

import ctypes
import resource
from contextlib import suppress

_DUMPABLE = 4  # PR_SET_DUMPABLE of Linux


def keep() -> None:
    """No core file of this process, and no other of this user reads its memory."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0)
