"""A plan that a store lives by in a child, which dies at a point of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

CHILD = """
import sys
from importlib import import_module
from pathlib import Path
from tests.store.stores import Stand
stand = Stand(Path(sys.argv[1]))
import_module(sys.argv[2]).went_on(stand)
stand.close()
"""


def killed_at(point: str, folder: Path, module: str) -> bool:
    """Run ``went_on`` of a module in a child that dies at a point; whether it did."""
    known = os.environ | {"PYRAMIDION_KILL_AT": point}
    words = [sys.executable, "-c", CHILD, str(folder), module]
    child = subprocess.run(words, env=known, check=False)
    assert child.returncode in (0, -signal.SIGKILL)
    return child.returncode != 0
