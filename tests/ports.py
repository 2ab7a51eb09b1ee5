"""Ports for servers of tests that must come back at the same one, or are named before they start.

They lie below those that systems hand out (32768 and above), and a lock keeps each for one process
of tests: nobody else takes it between two starts of a server.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path

PORTS = range(12_000, 22_000)
BUS = 10_000
"""A node of a Redis Cluster listens at its port, and at one so far above it."""
_held: list[int] = []


def free_port(*hosts: str) -> int:
    """A port that is free, as is the one of a cluster's bus above it; ours until we end."""
    folder = Path(tempfile.gettempdir()) / "pyramidion-test-ports"
    folder.mkdir(exist_ok=True)
    for port in PORTS:
        lock = os.open(folder / str(port), os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        if all(
            _free(host, each) for host in hosts or ("127.0.0.1",) for each in (port, port + BUS)
        ):
            _held.append(lock)
            return port
        os.close(lock)
    raise OSError("no port is free for a test's server")


def _free(host: str, port: int) -> bool:
    with socket.socket() as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, port))
        except OSError:
            return False
    return True
