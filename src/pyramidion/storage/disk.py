"""Files that are there when a call returns, and errors of the disk in our own words."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyramidion.errors import FailedError, StorageError
from pyramidion.storage.fault_points import reach

STALE = 60.0  # seconds
_REMEDIES = {
    errno.ENOSPC: "is on a full disk; free some space, nothing was lost",
    errno.EDQUOT: "is over its quota; free some space, nothing was lost",
    errno.EFBIG: "would be larger than this disk allows; move the store to another one",
    errno.EROFS: "is on a read-only disk; mount it writable",
    errno.EACCES: "may not be used; run as the owner of the store, or give the rights",
    errno.EPERM: "may not be used; run as the owner of the store, or give the rights",
    errno.ENOENT: "is not there; give the right path, or restore it from a backup",
}


_PASSING = (*_REMEDIES, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR)
"""Errors that say nothing about what was written before."""
_REFUSING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Errors of a disk that works but takes nothing."""


class Health:
    """Whether what a store has written can be trusted.

    After a failed sync it is not known what is on the disk: the system may have dropped what it
    could not write, and then a second sync succeeds without it. So nothing is written, synced or
    removed any more. When the store is opened again, it goes by what is there.
    """

    def __init__(self) -> None:
        self.failed = False

    def fail(self) -> FailedError:
        """The error to raise; from here on `refuse` raises it."""
        self.failed = True
        return FailedError(
            "the disk failed while the store wrote to it, so the store takes nothing more; check "
            "the disk and open the store again: rows that were refused may be in, and are counted "
            "once if they are sent again under the same key"
        )

    def refuse(self) -> None:
        """Raise if the disk has failed."""
        if self.failed:
            raise self.fail()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A write: if the disk itself fails, the store becomes failed."""
        self.refuse()
        try:
            yield
        except OSError as problem:
            if isinstance(problem, StorageError) or problem.errno in _PASSING:
                raise
            raise self.fail() from None

    @contextmanager
    def syncing(self, *, again: bool) -> Iterator[None]:
        """A sync: if it fails, the store becomes failed.

        A full or read-only disk is an exception if the same bytes will be written ``again``.
        """
        self.refuse()
        try:
            yield
        except OSError as problem:
            if again and problem.errno in _REFUSING:
                raise
            raise self.fail() from None


def told(problem: OSError, path: Path | str) -> StorageError:
    """An error of the operating system as one sentence."""
    remedy = _REMEDIES.get(problem.errno or 0)
    if remedy is None:
        reason = os.strerror(problem.errno) if problem.errno else "it is not known why"
        remedy = f"cannot be used ({reason}); see to the disk"
    return StorageError(f"{path} {remedy}")


@contextmanager
def explained(path: Path | str) -> Iterator[None]:
    """Errors of the operating system become a `StorageError` that names the path."""
    try:
        yield
    except StorageError:
        raise
    except OSError as problem:
        raise told(problem, path) from None


def write_durably(path: Path, parts: Iterable[bytes], *, mode: int = 0o600) -> None:
    """Write a new file and its name; both are durable on return. A broken one is removed."""
    with explained(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            for part in parts:
                write_all(descriptor, part)
            os.fsync(descriptor)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        sync(path.parent)


def replace_durably(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Put a file in the place of another, or of none; whoever reads sees one of the two, whole.

    The caller holds a lock, so that a draft which is there is what a killed process left.
    """
    draft = path.with_name(f".{path.name}.new")
    with explained(path):
        draft.unlink(missing_ok=True)
    write_durably(draft, [data], mode=mode)
    reach("draft.written")
    with explained(path):
        os.replace(draft, path)
        sync(path.parent)


def create_durably(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Write a new file, whole or not at all; raises if there is one of this name."""
    draft = path.with_name(f".{path.name}.new")
    with explained(path):
        draft.unlink(missing_ok=True)
    write_durably(draft, [data], mode=mode)
    with explained(path):
        try:
            os.link(draft, path)
        except FileExistsError:
            raise StorageError(f"{path} exists already; choose another name") from None
        except OSError:  # a disk without links
            os.rename(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        sync(path.parent)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all bytes, however many calls that takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(path: Path) -> bytes:
    """A whole file."""
    with explained(path):
        return path.read_bytes()


def remove_stale(folder: Path, pattern: str) -> None:
    """Unlink drafts of a minute ago: nobody takes so long to write a small file, so it was killed.

    For files that several processes may begin at once, without a lock.
    """
    for path in folder.glob(pattern):
        with suppress(OSError):  # gone meanwhile
            if time.time() - path.stat().st_mtime > STALE:
                path.unlink()


def remove(folder: Path, names: Iterable[str]) -> None:
    """Unlink files of a folder, those that are there."""
    with explained(folder):
        for name in names:
            (folder / name).unlink(missing_ok=True)
        sync(folder)
