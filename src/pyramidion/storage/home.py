"""The directory of a store, which one process owns.

lock            held by the process that owns the store
catalogue.db    what is here, see `pyramidion.storage.catalogue`
hot/            segments of raw rows, encrypted
tables/         count tables, encrypted
audit.db        what was done, see `pyramidion.audit_log`
vault-backlog/  files that are sealed to the custodian, on their way to the vault
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from pyramidion.errors import (
    FormatError,
    KeyHolderError,
    SchemaError,
    StateError,
    StorageError,
)
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.data_keys import DataKey, DataKeys
from pyramidion.storage.disk import explained, sync
from pyramidion.storage.keys import FileHolder, KeyHolder, StoreKey
from pyramidion.storage.names import FACT as NAMES

CATALOGUE, LOCK, HOT, TABLES = "catalogue.db", "lock", "hot", "tables"
BACKLOG = "vault-backlog"


class Home:
    """An open store directory: locked, its catalogue and keys at hand."""

    def __init__(self, path: Path, holder: KeyHolder) -> None:
        self.path = path
        if not (path / CATALOGUE).exists():
            raise StorageError(f"there is no store at {path}; give the right path, or create one")
        _refuse_inside(path, holder)
        self._lock = _locked(path)
        self._owner = os.getpid()
        try:
            self.catalogue = Catalogue(path / CATALOGUE)
            self.keys = DataKeys(self.catalogue, holder)
            self.keys.must_be_held()
        except BaseException:
            os.close(self._lock)
            raise

    @classmethod
    def create(
        cls,
        path: Path,
        holder: KeyHolder,
        about: dict[str, str],
        secret: bytes | None = None,
        keys: Sequence[DataKey] = (),
    ) -> Self:
        """Make the directory of a new store, whole or not at all.

        Its tables are made with a fresh ``secret``, unless it has one in common with others.
        ``keys`` are those that facts are sealed under.
        """
        _refuse_inside(path, holder)
        store = secrets.token_hex(8)

        def fill(folder: Path) -> None:
            store_key = StoreKey.new(holder, store)
            catalogue = Catalogue(folder / CATALOGUE, new=True)
            try:
                with catalogue.transaction():
                    catalogue.note(store=store, store_key=store_key.name, **about)
                    held, names = DataKey.new("secret"), DataKey.new(NAMES)
                    if secret is not None:
                        held = replace(held, key=secret)
                    for key in (held, names, *keys):
                        DataKeys(catalogue, holder).add(key)
                    catalogue.note(secret=held.id, **{NAMES: names.id})
                catalogue.truncate_log()
            finally:
                catalogue.close()

        try:
            made(path, fill)
        except BaseException:
            with suppress(KeyHolderError):
                holder.drop([name for name in holder.keys() if name.startswith(f"{store}.")])  # noqa: SIM118
            raise
        return cls(path, holder)

    @property
    def is_backup(self) -> bool:
        """Whether this is a copy that another store may go on from."""
        return self.catalogue.about("copy", "") == "backup"

    @property
    def is_copy(self) -> bool:
        """Whether this is a backup that is being made a store."""
        return self.catalogue.about("copy", "") != ""

    def settle(self) -> None:
        """Finish an erasure that was broken off. Of a copy, nothing is touched yet."""
        if not self.is_backup:
            self.keys.settle()

    def settled(self, now: int) -> None:
        """Note that erasures which were broken off are complete."""
        self.catalogue.run("UPDATE deletions SET done = ? WHERE done IS NULL", now)

    @property
    def owned(self) -> bool:
        """Whether this process opened it; a forked child did not."""
        return os.getpid() == self._owner

    def refuse_other_process(self) -> None:
        """A forked child shares memory and files with the owner and must not use them."""
        if not self.owned:
            raise StateError(
                "this store belongs to the process that this one was forked from; open it here "
                "after closing it there"
            )

    def close(self) -> None:
        """Let go of the catalogue and the lock."""
        try:
            self.catalogue.close()
        finally:
            os.close(self._lock)


def made(path: Path, fill: Callable[[Path], None]) -> None:
    """Make a store directory under another name, and rename it when it is whole."""
    with explained(path):
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise StateError(f"{path} exists already; open it, or choose another path")
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        draft.mkdir(mode=0o700)
        try:
            for folder in (HOT, TABLES):
                (draft / folder).mkdir(mode=0o700)
            (draft / LOCK).touch(mode=0o600)
            fill(draft)
            sync(draft)
            os.rename(draft, path)
            sync(path.parent)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise


def _refuse_inside(path: Path, holder: KeyHolder) -> None:
    if isinstance(holder, FileHolder) and holder.path.resolve().is_relative_to(path.resolve()):
        raise SchemaError(
            f"the store key may not lie in the store it opens; keep it outside {path}, best on "
            f"another disk"
        )


def _locked(path: Path) -> int:
    with explained(path / LOCK):
        lock = os.open(path / LOCK, os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
        os.close(lock)
        raise StateError(
            f"the store at {path} is open in another process{f' ({owner})' if owner else ''}; "
            f"close it there first"
        ) from None
    except OSError as problem:
        os.close(lock)
        raise FormatError(f"{path} cannot be locked; move it to a local disk") from problem
    with explained(path / LOCK):
        try:
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
        except BaseException:
            os.close(lock)
            raise
    return lock
