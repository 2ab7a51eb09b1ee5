"""Files that hold secrets, as their owner keeps them."""

from __future__ import annotations

from pathlib import Path


def secret(path: Path, data: str | bytes) -> Path:
    """Write a file that its owner alone may read."""
    path.touch(0o600)
    path.chmod(0o600)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path
