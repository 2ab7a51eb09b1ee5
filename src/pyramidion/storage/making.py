"""Store directories that are made whole or not at all, and what a killed process left of one.

A directory is filled under another name, ``.NAME.12345678`` beside it, and renamed once it is
whole and durable. While it is filled, its lock is held, and the lock's file notes what was begun
elsewhere for it: a key in the key holder, a name on a stream's roster. If the process is killed,
the lock is free: the next one that makes a directory of this name undoes what is noted, then
removes the draft. A draft that is in use, of another user, or with anything in it that is none of
ours is left alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from pyramidion.errors import StateError
from pyramidion.storage.disk import explained, sync, write_all
from pyramidion.storage.fault_points import reach

CATALOGUE, AUDIT, LOCK, HOT, TABLES = "catalogue.db", "audit.db", "lock", "hot", "tables"
BACKLOG = "vault-backlog"
RESTORING = ".restoring"
"""In a copy of a backup that is to be a store, and is none yet."""
YOUNG = 60.0  # seconds: a directory without a lock may belong to a process that is about to lock it

Note = dict[str, str]
"""What was begun elsewhere for a directory, by what it is; nothing that is secret."""
Undo = Callable[[Note], bool]
"""Undoes it; False: it is not ours to undo."""

_DRAFT = re.compile(r"\.(.+)\.[0-9a-f]{8}")


def _nothing_noted(note: Note) -> bool:
    return not note


def made(
    path: Path,
    fill: Callable[[Path], None],
    *,
    note: Note | None = None,
    undo: Undo = _nothing_noted,
) -> None:
    """Make a store directory under another name, and rename it when it is whole."""
    with explained(path):
        sweep(path, undo)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise StateError(f"{path} exists already; open it, or choose another path")
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        draft.mkdir(mode=0o700)
        lock = os.open(draft / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            write_all(lock, json.dumps(note or {}).encode())
            os.fsync(lock)
            sync(draft)
            sync(path.parent)
            reach("create.noted")
            for folder in (HOT, TABLES):
                (draft / folder).mkdir(mode=0o700)
            fill(draft)
            sync(draft)
            reach("create.filled")
            os.rename(draft, path)
            sync(path.parent)
            reach("create.renamed")
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        finally:
            os.close(lock)


def drafts_in(folder: Path) -> Iterator[str]:
    """The names of the directories that drafts in a folder were to have."""
    for each in folder.iterdir():
        found = _DRAFT.fullmatch(each.name)
        if found and each.is_dir():
            yield found[1]


def sweep(path: Path, undo: Undo = _nothing_noted) -> int:
    """Remove the drafts of a directory whose processes are gone; how many there were."""
    removed = 0
    for draft in path.parent.glob(f".{_escaped(path.name)}.*") if path.parent.is_dir() else ():
        named = _DRAFT.fullmatch(draft.name)
        if named and named[1] == path.name and _ours(draft):
            with suppress(OSError):  # in use, or gone meanwhile; or its keys cannot be reached
                removed += _removed(draft, undo)
    return removed


def remove_broken(path: Path) -> None:
    """Remove a directory that is not whole, unless somebody has its lock; never a part of it."""
    with explained(path):
        lock = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(lock, 0)
            draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
            os.rename(path, draft)
            sync(path.parent)
            shutil.rmtree(draft)
        except BlockingIOError:
            raise StateError(f"{path} is being restored by another process; wait for it") from None
        finally:
            os.close(lock)


def _escaped(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)


def _ours(draft: Path) -> bool:
    """Whether a directory is of this user, and holds nothing that a store does not."""
    if draft.is_symlink() or not draft.is_dir() or draft.stat().st_uid != os.geteuid():
        return False
    return all(
        each.name in (LOCK, HOT, TABLES, BACKLOG, RESTORING)
        or each.name.removeprefix(".").startswith((CATALOGUE, AUDIT))
        for each in draft.iterdir()
    )


def _removed(draft: Path, undo: Undo) -> bool:
    try:
        lock = os.open(draft / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        if time.time() - draft.stat().st_mtime > YOUNG:
            draft.rmdir()  # the process was killed before it had a lock; raises unless it is empty
        return not draft.exists()
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not undo(_note(lock)):
            return False
        shutil.rmtree(draft)
        return True
    finally:
        os.close(lock)


def _note(lock: int) -> Note:
    """What is noted; nothing, in a file that was cut off before anything was begun."""
    try:
        found = json.loads(os.pread(lock, 10_000, 0))
        return {str(name): str(value) for name, value in found.items()}
    except (ValueError, AttributeError):
        return {}
