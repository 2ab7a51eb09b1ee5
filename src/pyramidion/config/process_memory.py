"""The memory of a process that has keys or rows in it."""

from __future__ import annotations

import ctypes
import resource
from contextlib import suppress

_DUMPABLE = 4  # PR_SET_DUMPABLE of Linux


def protect() -> None:
    """Write no core file of this process, and let no other process of this user read its memory.

    Programs that are started from here begin without the second, so each calls this itself.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, AttributeError):  # not on Linux
        ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0)
