"""Copies of a store, and stores from copies.

A backup holds the same encrypted files, the audit log so far, and a consistent copy of the
catalogue. Its keys
are wrapped by the store key of the moment, which the next erasure or release destroys: so a
backup can never bring back what was erased, nor release rows a second time, and one must be made
after each hot step and each release. Making it again
in the same place copies only what is new. Files that are sealed and not in the vault yet are
copied, too: a restored store takes them there, whether the other one did so or not.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from pyramidion.errors import StateError, StorageError
from pyramidion.storage.audit_log import AUDIT_LOG, AuditLog
from pyramidion.storage.catalogue import facts
from pyramidion.storage.deletions import RESTORED
from pyramidion.storage.disk import explained, remove, sync
from pyramidion.storage.home import BACKLOG, CATALOGUE, HOT, LOCK, TABLES, Home
from pyramidion.storage.key_holders import KeyHolder
from pyramidion.storage.making import RESTORING, made, remove_broken
from pyramidion.storage.vault_files import VaultFiles
from pyramidion.storage.versions import leap
from pyramidion.store.change import Also, Change, Erasure, apply
from pyramidion.store.state import StoreState
from pyramidion.store.transitions import seal
from pyramidion.vault.coverage import forgo

AFAR = 1_000_000_000  # batch numbers that are left out after restoring a backup


def back_up(home: Home, lifecycle: StoreState, path: Path, log: AuditLog, now: int) -> int:
    """Bring a backup up to date, or make it; the bytes that were copied."""
    if path.resolve().is_relative_to(home.path.resolve()):
        raise StateError(f"a backup may not lie in the store; choose a path outside {home.path}")
    new = not path.exists() or not any(path.iterdir())
    if not new and not (path / CATALOGUE).exists():
        raise StateError(f"{path} is not a backup; choose an empty or new directory")
    if not new:
        _refuse_other(home, path)
    to = os.fsencode(path.absolute()).decode("utf-8", "replace")

    def copy(folder: Path) -> int:
        told = _copy_log(log, folder, now, to)
        return told + _copy(home, lifecycle, folder)

    with lifecycle.moves:
        if not new:
            return copy(path)
        copied: list[int] = []
        made(path, lambda folder: copied.append(copy(folder)))
        return copied[0]


def _refuse_other(home: Home, path: Path) -> None:
    """A store, or a backup of another one, must not be written over."""
    said = facts(path / CATALOGUE)
    if said.get("copy") != "backup" or said.get("store") != home.catalogue.about("store"):
        raise StateError(f"{path} is not a backup of this store; choose an empty or new directory")


def _copy_log(log: AuditLog, path: Path, now: int, to: str) -> int:
    """The audit log first: it tells of the copy before there is one."""
    fresh = path / f".{AUDIT_LOG}.new"
    with explained(path):
        fresh.unlink(missing_ok=True)
        log.copy_to(fresh, now, to=to)
        os.replace(fresh, path / AUDIT_LOG)
        return (path / AUDIT_LOG).stat().st_size


def _copy(home: Home, lifecycle: StoreState, path: Path) -> int:
    fresh = path / f".{CATALOGUE}.new"
    with explained(path):
        fresh.unlink(missing_ok=True)
        with lifecycle.arrivals:
            home.catalogue.copy_to(fresh)
            segments = {step.file: step.length for step in lifecycle.hot.steps}
            backlog = _backlog(home)
        arenas = lifecycle.tables.current_names()
        copied = sum(_copy_file(home.path / TABLES, path / TABLES, name) for name in arenas)
        for name, length in segments.items():
            copied += _copy_file(home.path / HOT, path / HOT, name, length)
        folders = {TABLES: arenas, HOT: set(segments)}
        if backlog or (path / BACKLOG).exists():
            (path / BACKLOG).mkdir(mode=0o700, exist_ok=True)
            folders[BACKLOG] = backlog
        for name in backlog:
            with suppress(FileNotFoundError):  # the vault has it by now
                copied += _copy_file(home.path / BACKLOG, path / BACKLOG, name)
        for each in (*(path / folder for folder in folders), fresh):
            sync(each)
        copied += fresh.stat().st_size
        os.replace(fresh, path / CATALOGUE)
        sync(path)
        for folder, known in folders.items():
            strangers = {file.name for file in (path / folder).iterdir()} - known
            remove(path / folder, strangers)
    return copied


def _backlog(home: Home) -> set[str]:
    """The files that are sealed and not in the vault yet."""
    names = [row["name"] for row in VaultFiles(home.catalogue).waiting()]
    return {f"{name}.{suffix}" for name in names for suffix in ("parquet", "json")}


def _copy_file(source: Path, target: Path, name: str, length: int | None = None) -> int:
    """Copy a file that only grows, up to a length; one that is there already is left alone.

    It gets its name when it is whole, so that a backup which breaks off is the former one.
    """
    size = (source / name).stat().st_size if length is None else length
    copy = target / name
    if copy.exists() and copy.stat().st_size == size:
        return 0
    draft = target / f".{name}.new"
    with (source / name).open("rb") as there, draft.open("wb") as here:
        os.chmod(draft, 0o600)
        left = size
        while left:
            block = there.read(min(left, 1 << 20))
            if not block:
                raise StorageError(f"{source / name} is cut off; restore the store from a backup")
            here.write(block)
            left -= len(block)
        here.flush()
        os.fsync(here.fileno())
    os.replace(draft, copy)
    return size


def copied_back(backup: Path, path: Path, holder: KeyHolder) -> Home:
    """A store directory with a backup's files, all durable; the backup stays."""
    if not (backup / CATALOGUE).exists():
        raise StorageError(f"there is no backup at {backup}; give the right path")
    if facts(backup / CATALOGUE).get("copy") != "backup":
        raise StateError(f"{backup} is not a backup; open it, or give the path of one")

    def fill(folder: Path) -> None:
        shutil.copytree(
            backup, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*", LOCK)
        )
        (folder / RESTORING).touch(mode=0o600)
        for each in folder.rglob("*"):
            sync(each)

    if (path / RESTORING).exists() and facts(path / CATALOGUE).get("copy") == "backup":
        remove_broken(path)
    made(path, fill)
    try:
        return Home(path, holder)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


def take_over(store: StoreState, now: int) -> None:
    """Make this copy the only one: from here on nothing opens the others.

    Populating windows and nodes are sealed: a table that goes on in two places would subtract to
    exact counts. Batch numbers and versions of models that the other copy may have given are not
    given again.
    """
    with store.moves:

        def before() -> None:
            last = store.last_batch()
            if store.catalogue.about("vault", ""):
                forgo(store.catalogue, (last + 1, last + AFAR - 1))
            store.catalogue.note(copy="restoring", next_batch=last + AFAR)
            leap(store.catalogue)

        if store.catalogue.about("copy", "") == "backup":
            erase = Erasure(RESTORED, "restored from a backup")
            apply(store, Change("restore", edits=[Also(before)], erase=erase), now)
        windows = sorted(store.catalogue.births())
        store.ledger.forfeit(windows, now, "restored from a backup")
        for tables in store.open_sets.all():
            seal(store, tables, now)
        store.catalogue.note(copy="")
