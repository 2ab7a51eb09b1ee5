"""Named places where a test may have the process killed, to see what survives.

``PYRAMIDION_KILL_AT=seal.written:3`` kills the process, as ``kill -9`` does, the third
time it comes to ``seal.written``. Without the variable nothing happens.
"""

from __future__ import annotations

import os
import signal

POINTS = (
    "create.noted",
    "create.registered",
    "create.keyed",
    "create.filled",
    "create.renamed",
    "draft.written",
    "append.before",
    "append.written",
    "append.synced",
    "commit.before",
    "commit.after",
    "open.charged",
    "open.written",
    "open.after",
    "checkpoint.copied",
    "checkpoint.written",
    "checkpoint.after",
    "seal.before",
    "seal.written",
    "seal.after",
    "bulk.charged",
    "bulk.written",
    "bulk.after",
    "node.before",
    "node.written",
    "node.after",
    "step.before",
    "step.checkpointed",
    "retire.before",
    "retire.written",
    "retire.after",
    "drop.written",
    "read.spent",
    "read.kept",
    "select.spent",
    "select.kept",
    "reseed.closed",
    "reseed.written",
    "reseed.ended",
    "rebuild.charged",
    "rebuild.counted",
    "rebuild.written",
    "rebuild.after",
    "person.written",
    "person.parted",
    "person.after",
    "share.before",
    "share.put",
    "share.kept",
    "share.written",
    "share.told",
    "share.forgotten",
    "renew.before",
    "renew.added",
    "renew.committed",
    "renew.after",
    "erase.before",
    "erase.added",
    "rewrap.half",
    "rewrap.before",
    "erase.committed",
    "erase.truncated",
    "erase.destroyed",
    "erase.unlinked",
    "erase.after",
    "log.noted",
    "log.told",
    "broker.held",
    "broker.logged",
    "broker.fetched",
    "broker.decrypted",
    "broker.ordered",
    "broker.read",
    "vault.written",
    "vault.committed",
    "vault.uploaded",
    "vault.stored",
    "vault.settled",
)

_armed: list[object] = []


def arm(where: str) -> None:
    """Arm one point: ``name:count``; an empty text disarms."""
    _armed.clear()
    if where:
        name, _, count = where.partition(":")
        if name not in POINTS:
            raise ValueError(f"there is no kill point {name!r}")
        _armed.extend((name, int(count or 1)))


def reach(name: str) -> None:
    """Die here, if this point is armed and its count is up."""
    if not _armed or _armed[0] != name:
        return
    _armed[1] = int(str(_armed[1])) - 1
    if _armed[1] == 0:
        os.kill(os.getpid(), signal.SIGKILL)


arm(os.environ.get("PYRAMIDION_KILL_AT", ""))
