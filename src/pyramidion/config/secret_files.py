"""Files that hold a secret: keys, tokens, passphrases. Nobody but their owner may read them.

As in ssh, a file with other rights is refused, not used with a warning: whoever could read the
secret may have it. A file that belongs to root may also be readable by a group, for that is how a
machine gives a secret to a service that does not run as root. A pipe is taken as it is.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pyramidion.errors import PyramidionError, StorageError


def read_secret(path: Path) -> bytes:
    """A whole file that only its owner may read; raises a `StorageError` for any other."""
    try:
        with path.open("rb") as file:
            refuse_exposed(path, os.fstat(file.fileno()))
            return file.read()
    except StorageError:
        raise
    except OSError as problem:
        reason = os.strerror(problem.errno) if problem.errno else "it is not known why"
        raise StorageError(f"{path} cannot be read ({reason}); see to the file") from None


def refuse_exposed(
    path: Path, found: os.stat_result, error: type[PyramidionError] = StorageError
) -> None:
    """Raise for a secret that others than its owner may read or change."""
    if not stat.S_ISREG(found.st_mode):
        return
    ours = os.geteuid()
    given = found.st_uid == 0 and ours != 0
    if not found.st_mode & (0o027 if given else 0o077):
        return
    owner, remedy = "", f"chmod 600 {path}"
    if found.st_uid != ours:
        owner = f" and belongs to another user (number {found.st_uid})"
        remedy = f"chown {ours} {path} && {remedy}"
    raise error(
        f"{path} holds a secret{owner}, and others than its owner may read or change it; "
        f"{remedy}, and make a new secret if somebody may have read it"
    )
