"""Copies of a store, and stores from copies.

A backup holds the same encrypted files and a consistent copy of the catalogue. Its keys
are wrapped by the store key of the moment, which the next erasure destroys: so a backup can
never bring back what was erased, and one must be made after each hot step. Making it again
in the same place copies only what is new.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pyramidion.errors import StateError, StorageError
from pyramidion.lifecycle import Lifecycle
from pyramidion.storage.disk import explained, remove, sync_folder
from pyramidion.storage.home import CATALOGUE, HOT, TABLES, Home, made
from pyramidion.storage.keys import KeyHolder


def back_up(home: Home, lifecycle: Lifecycle, path: Path) -> int:
    """Bring a backup up to date, or make it; the bytes that were copied."""
    if path.absolute().is_relative_to(home.path.absolute()):
        raise StateError(f"a backup may not lie in the store; choose a path outside {home.path}")
    new = not path.exists() or not any(path.iterdir())
    if not new and not (path / CATALOGUE).exists():
        raise StateError(f"{path} is not a backup; choose an empty or new directory")
    with lifecycle.moves:
        if not new:
            return _copy(home, lifecycle, path)
        copied: list[int] = []
        made(path, lambda folder: copied.append(_copy(home, lifecycle, folder)))
        return copied[0]


def _copy(home: Home, lifecycle: Lifecycle, path: Path) -> int:
    fresh = path / f".{CATALOGUE}.new"
    with explained(path):
        fresh.unlink(missing_ok=True)
        with lifecycle.arrivals:
            home.catalogue.copy_to(fresh)
            segments = {step.file: step.length for step in lifecycle.hot.steps}
        arenas = {row["file"] for row in home.catalogue.all("SELECT file FROM arenas")}
        copied = sum(_copy_file(home.path / TABLES, path / TABLES, name) for name in arenas)
        for name, length in segments.items():
            copied += _copy_file(home.path / HOT, path / HOT, name, length)
        with fresh.open("rb+") as file:
            os.fsync(file.fileno())
        copied += fresh.stat().st_size
        os.replace(fresh, path / CATALOGUE)
        sync_folder(path)
        for folder, known in ((TABLES, arenas), (HOT, set(segments))):
            strangers = {each.name for each in (path / folder).iterdir()} - known
            remove(path / folder, strangers)
    return copied


def _copy_file(source: Path, target: Path, name: str, length: int | None = None) -> int:
    """Copy a file that only grows, up to a length; one that is there already is left alone."""
    size = (source / name).stat().st_size if length is None else length
    copy = target / name
    if copy.exists() and copy.stat().st_size == size:
        return 0
    with (source / name).open("rb") as there, copy.open("wb") as here:
        os.chmod(copy, 0o600)
        left = size
        while left:
            block = there.read(min(left, 1 << 20))
            if not block:
                raise StorageError(f"{source / name} is cut off; restore the store from a backup")
            here.write(block)
            left -= len(block)
        here.flush()
        os.fsync(here.fileno())
    return size


def copied_back(backup: Path, path: Path, holder: KeyHolder) -> Home:
    """A store directory with a backup's files; the backup stays."""
    if not (backup / CATALOGUE).exists():
        raise StorageError(f"there is no backup at {backup}; give the right path")

    def fill(folder: Path) -> None:
        shutil.copytree(backup, folder, dirs_exist_ok=True)

    made(path, fill)
    try:
        return Home(path, holder)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
