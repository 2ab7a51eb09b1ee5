"""Named places where a test may have the process killed, to see what survives.

``PYRAMIDION_KILL_AT=seal.written:3`` kills the process, as ``kill -9`` does, the third
time it comes to ``seal.written``. Without the variable nothing happens.
"""

from __future__ import annotations

import os
import signal
from typing import Literal, get_args

ChangeName = Literal[
    "charge",
    "open",
    "checkpoint",
    "seal",
    "abandon",
    "retire",
    "expire",
    "drop",
    "reseed",
    "bulk",
    "rebuild",
    "mend",
    "person",
    "restore",
    "recover",
    "unpublish",
    "vault_erase",
]
CHANGES: tuple[ChangeName, ...] = get_args(ChangeName)
"""The kinds of change that `pyramidion.store.change.apply` makes; each has three points."""

POINTS = (
    *(f"{name}.{stage}" for name in CHANGES for stage in ("before", "written", "after")),
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
    "bulk.charged",
    "step.before",
    "step.checkpointed",
    "read.spent",
    "read.kept",
    "select.spent",
    "select.kept",
    "rebuild.charged",
    "rebuild.counted",
    "person.parted",
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
