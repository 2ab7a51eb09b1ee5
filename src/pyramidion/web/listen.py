"""Where a process listens: an address, and certificates for it."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import NamedTuple

from pyramidion.config.secret_files import read_secret
from pyramidion.errors import SchemaError, StorageError

BACKLOG = 2_048  # connections that wait to be taken


class Certificate(NamedTuple):
    """Files for TLS."""

    chain: Path
    key: Path

    @classmethod
    def of(cls, chain: Path | None, key: Path | None) -> Certificate | None:
        """Both files, or neither; the key is a secret of its owner's."""
        if chain is None and key is None:
            return None
        if chain is None or key is None:
            raise SchemaError("TLS needs --certificate and --certificate-key; give both")
        read_secret(key)
        return cls(chain, key)


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is said, or asyncio would not switch off waiting for more to send (40 ms).
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(BACKLOG)  # who calls before all is ready waits, and is answered then
    except OSError:
        found.close()
        raise StorageError(f"{host} port {port} is taken or not ours; choose another") from None
    return found
