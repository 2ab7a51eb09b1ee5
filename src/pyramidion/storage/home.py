"""The directory of a store, which one process owns.

lock            held by the process that owns the store
catalogue.db    what is here, see `pyramidion.storage.catalogue`
hot/            segments of raw rows, encrypted
tables/         count tables, encrypted
audit.db        what was done, see `pyramidion.storage.audit_log`
vault-backlog/  files that are sealed to the custodian, on their way to the vault
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

from pyramidion.errors import (
    FormatError,
    KeyHolderError,
    SchemaError,
    StateError,
    StorageError,
)
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.data_keys import DataKey, DataKeys
from pyramidion.storage.disk import explained, remove_stale
from pyramidion.storage.fault_points import reach
from pyramidion.storage.key_holders import FileHolder, KeyHolder, StoreKey
from pyramidion.storage.making import (
    AUDIT,
    BACKLOG,
    CATALOGUE,
    HOT,
    LOCK,
    RESTORING,
    TABLES,
    Note,
    made,
)
from pyramidion.storage.names import FACT as NAMES
from pyramidion.storage.pins import Pins

SMALL = (AUDIT, "broker.json")
"""Files of a store that other processes may begin, too: under a name of their own at first."""

__all__ = ["BACKLOG", "CATALOGUE", "HOT", "LOCK", "TABLES", "Home", "Registration", "undone"]


class Registration(NamedTuple):
    """What a new store is called elsewhere: registered before it is there, undone if it is not."""

    name: str
    add: Callable[[str], object]
    """Register a store by its id."""
    remove: Callable[[str], object]
    """Undo that; nothing where the store of this id was not registered."""


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
            Pins(self.catalogue, self.keys).refuse_changed()
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
        registration: Registration | None = None,
    ) -> Self:
        """Make the directory of a new store, whole or not at all.

        Its tables are made with a fresh ``secret``, unless it has one in common with others.
        ``keys`` are those that facts are sealed under.
        """
        _refuse_inside(path, holder)
        store = secrets.token_hex(8)
        note = {"store": store, "keys": holder.name}
        note |= {} if registration is None else {"registered": registration.name}

        def fill(folder: Path) -> None:
            if registration is not None:
                registration.add(store)
                reach("create.registered")
            store_key = StoreKey.new(holder, store)
            reach("create.keyed")
            catalogue = Catalogue(folder / CATALOGUE, new=True)
            try:
                with catalogue.transaction():
                    catalogue.note(store=store, store_key=store_key.name, **about)
                    held, names = DataKey.new("secret"), DataKey.new(NAMES)
                    if secret is not None:
                        held = replace(held, key=secret)
                    wrapped = DataKeys(catalogue, holder)
                    for key in (held, names, *keys):
                        wrapped.add(key)
                    catalogue.note(secret=held.id, **{NAMES: names.id})
                    Pins(catalogue, wrapped).begin()
                catalogue.truncate_log()
            finally:
                catalogue.close()

        try:
            made(path, fill, note=note, undo=partial(undone, holder, registration))
        except BaseException:
            with suppress(KeyHolderError):
                undone(holder, registration, note)
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
        with explained(self.path):
            (self.path / RESTORING).unlink(missing_ok=True)
        for name in SMALL:
            remove_stale(self.path, f".{name}.*")

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


def undone(holder: KeyHolder, registration: Registration | None, note: Note) -> bool:
    """Undo what was begun for a store that did not come to be; False where that is not known here.

    Its key is dropped, which opens nothing, and its registration.
    """
    registered = "" if registration is None else registration.name
    if note.get("keys", holder.name) != holder.name:
        return False
    if note.get("registered", "") not in ("", registered):
        return False
    store = note.get("store")
    if store is not None:
        holder.drop([name for name in holder.keys() if name.startswith(f"{store}.")])  # noqa: SIM118
        if registration is not None:
            registration.remove(store)
    return True


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
