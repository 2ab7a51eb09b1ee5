"""Where sealed files are stored: a local directory, or anything that fsspec reaches.

A file gets its name when it is whole. A place is not trusted with anything: what lies there
is encrypted, and whatever was changed is found out by who reads it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from pyramidion.errors import SchemaError, StorageError, refuse_missing
from pyramidion.storage.ciphers import Buffer
from pyramidion.storage.disk import explained, sync, write_all
from pyramidion.storage.fault_points import reach

PIECE = 1 << 22  # bytes that are handed over at once

WHOLE = {"abfs", "abfss", "adl", "az", "gcs", "gs", "memory", "oci", "oss", "s3", "s3a"}
"""Schemes where an object is there whole or not at all, so that it needs no other name first."""


class Place(Protocol):
    """A flat folder of files."""

    url: str
    """Where it is, without credentials."""

    def make(self) -> None:
        """Make the folder, if it is not there; later it must be."""

    def put(self, name: str, data: Buffer) -> None:
        """Write a file, whole and durable on return; one of this name is replaced."""

    def get(self, name: str) -> bytes:
        """All bytes of a file; StorageError where there is none."""

    def size(self, name: str) -> int | None:
        """How long a file is; None where there is none."""

    def names(self) -> list[str]:
        """All files, in order."""

    def delete(self, name: str) -> None:
        """Remove a file, if it is there."""


def place_at(url: str) -> Place:
    """The place that a path or URL names.

    >>> place_at("/srv/vault").url
    '/srv/vault'
    """
    refuse_password(url)
    path = local_path(url)
    if path is not None:
        return Folder(path)
    return Remote(url)


def local_path(url: str) -> Path | None:
    """The directory that a plain path or a ``file:`` URL names; None: it is elsewhere."""
    if not url.strip():
        raise SchemaError("a vault needs a place; give a directory, or a URL that fsspec knows")
    if "://" not in url and "::" not in url and not url.startswith("file:"):
        return Path(url).expanduser().absolute()
    if url.startswith("file:"):
        return Path(unquote(urlsplit(url).path)).absolute()
    return None


def refuse_password(url: str) -> None:
    """A URL is written down in the store, so it must not hold what opens the place."""
    if any(urlsplit(part).password is not None or "?" in part for part in url.split("::")):
        raise SchemaError(
            "the URL of a vault is kept in the store, so it may hold no password and no query; "
            "give credentials by the environment, or in fsspec's configuration"
        )


def _draft_of(name: str) -> str:
    """What a file is called until it is whole: always the same, so that the next try removes it."""
    return f".{name}.new"


class Folder:
    """A local directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = str(path)

    def make(self) -> None:
        """Make the folder; an unmounted one is not made again behind one's back."""
        with explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)

    def put(self, name: str, data: Buffer) -> None:
        """Write under another name, sync, rename, sync; what a kill left of it is removed."""
        draft = self.path / _draft_of(name)
        with explained(self.path / name):
            self._remove_drafts(name)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                write_all(descriptor, memoryview(data))
                os.fsync(descriptor)
                reach("vault.uploaded")
                os.replace(draft, self.path / name)
            except BaseException:
                draft.unlink(missing_ok=True)
                raise
            finally:
                os.close(descriptor)
            sync(self.path)

    def get(self, name: str) -> bytes:
        """All bytes of a file."""
        with explained(self.path / name):
            return (self.path / name).read_bytes()

    def size(self, name: str) -> int | None:
        """How long a file is."""
        with explained(self.path / name):
            try:
                return (self.path / name).stat().st_size
            except FileNotFoundError:
                return None

    def names(self) -> list[str]:
        """All files that are whole."""
        with explained(self.path):
            return sorted(p.name for p in self.path.iterdir() if not p.name.startswith("."))

    def delete(self, name: str) -> None:
        """Remove a file, and what a kill left of it, and make that durable."""
        with explained(self.path / name):
            (self.path / name).unlink(missing_ok=True)
            self._remove_drafts(name)
            sync(self.path)

    def _remove_drafts(self, name: str) -> None:
        """A store writes a file of this name alone, once at a time; so a draft is nobody's."""
        for draft in (_draft_of(name), *(p.name for p in self.path.glob(f".{name}.*.new"))):
            (self.path / draft).unlink(missing_ok=True)


class Remote:
    """Whatever fsspec reaches by a URL, such as ``s3://bucket/vault`` or ``memory://vault``."""

    def __init__(self, url: str) -> None:
        refuse_missing("a vault that is not a local directory", ["fsspec"], "vault")
        self.url = url
        self._known: tuple[Any, str] | None = None

    @property
    def _there(self) -> tuple[Any, str]:
        """The file system and the folder in it; looked up when first needed: it may be down."""
        if self._known is None:
            from fsspec.core import url_to_fs

            try:
                system, root = url_to_fs(self.url)
            except (ImportError, ValueError):
                raise SchemaError(
                    f"fsspec does not reach {self.url} here; install what its scheme needs"
                ) from None
            self._known = system, str(root).rstrip("/")
        return self._known

    def _path(self, name: str) -> str:
        return f"{self._there[1]}/{name}"

    def make(self) -> None:
        """Make the folder, where there are such."""
        system, root = self._there
        system.makedirs(root, exist_ok=True)

    def put(self, name: str, data: Buffer) -> None:
        """Write in one go where that is atomic, else under another name first."""
        system, _ = self._there
        schemes = {system.protocol} if isinstance(system.protocol, str) else set(system.protocol)
        whole = bool(schemes & WHOLE)
        path = self._path(name if whole else _draft_of(name))
        view = memoryview(data).cast("B")
        with system.open(path, "wb") as file:
            for start in range(0, len(view), PIECE):
                file.write(bytes(view[start : start + PIECE]))
        if not whole:
            if system.exists(self._path(name)):  # not every file system replaces one
                system.rm_file(self._path(name))
            system.mv(path, self._path(name))

    def get(self, name: str) -> bytes:
        """All bytes of a file."""
        try:
            return bytes(self._there[0].cat_file(self._path(name)))
        except FileNotFoundError:
            pass
        raise StorageError(f"{name} is not in the vault; restore it from a copy of the vault")

    def size(self, name: str) -> int | None:
        """How long a file is."""
        system, _ = self._there
        system.invalidate_cache()
        try:
            return int(system.info(self._path(name))["size"])
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        """All files that are whole."""
        system, root = self._there
        system.invalidate_cache()
        found = (str(path).rstrip("/").rpartition("/")[2] for path in system.ls(root, detail=False))
        return sorted(name for name in found if not name.startswith("."))

    def delete(self, name: str) -> None:
        """Remove a file, if it is there."""
        system, _ = self._there
        for each in (name, _draft_of(name)):
            if system.exists(self._path(each)):
                system.rm_file(self._path(each))
