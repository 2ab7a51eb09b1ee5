"""Disks that are full, read-only or damaged: a clear error, and the store as it was."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pyramidion import Pyramid
from pyramidion.errors import KeyHolderError, StorageError
from pyramidion.storage.disk import create_durably
from pyramidion.storage.key_holders import FileHolder
from tests.store import inspect
from tests.store.inspect import populating, sealed
from tests.store.stores import (
    DAY,
    SCHEMA,
    TIMELESS,
    Stand,
    cells,
    exact,
    observed,
    rows,
    same,
    states,
)


class Disk:
    """A small disk of its own, that can be filled up and made read-only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def remount(self, how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(self.path)], check=True)  # noqa: S607

    def leave(self, pages: int) -> None:
        """Fill the disk up but for so many pages."""
        self.free()
        found = os.statvfs(self.path)
        taken = (found.f_bavail - pages) * found.f_frsize
        with self._ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(taken, 1))

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if os.geteuid():
        pytest.skip("mounting a small disk needs root")
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "pyramidion-test", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting a small disk is not allowed here: {done.stderr.strip()}")
    try:
        yield Disk(place)
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)  # noqa: S607


@pytest.fixture
def small(disk: Disk, stand: Stand) -> Stand:
    """A stand whose store, but not its key, is on the small disk."""
    stand.path = disk.path / "store"
    return stand


# --- full ---------------------------------------------------------------------------------


def test_observing_on_a_full_disk_loses_nothing(disk: Disk, small: Stand) -> None:
    store = small.create(TIMELESS, epsilon=float("inf"))
    batches, refused = [rows(100)], 0
    store.observe(batches[0])
    for pages in range(0, 40, 2):
        disk.leave(pages)
        batch = rows(800, seed=pages)
        before = cells(populating(store))
        try:
            store.observe(batch, key=f"batch {pages}")
        except StorageError as problem:
            refused += 1
            assert "full disk; free some space, nothing was lost" in str(problem)  # noqa: PT017
            assert same(cells(populating(store)), before)
            disk.free()
            assert store.observe(batch, key=f"batch {pages}").accepted == 800
        batches.append(batch)
    disk.free()
    assert refused > 3
    store = small.reopen()
    assert same(cells(populating(store)), exact(store, populating(store), batches))
    assert store.status().hot_rows == 100 + 20 * 800


def test_windows_roll_on_after_a_disk_was_full(disk: Disk, small: Stand) -> None:
    store = small.create(TIMELESS, epsilon=float("inf"), retention="900d")
    batches, refused = [], 0
    for turn in range(24):
        batches.append(rows(300, seed=turn))
        observed(store, batches[-1])
        small.clock.pass_(4 * DAY)
        disk.leave(turn)
        try:
            store.advance()
        except StorageError as problem:
            refused += 1
            assert "free some space, nothing was lost" in str(problem)  # noqa: PT017
        disk.free()
        store.advance()
        assert store.status().hot_rows == 0
    assert refused > 3
    store = small.reopen()
    found = states(store)
    assert sum(count for _, count in found.values()) == 24 * 300
    arenas = [
        sealed(store, n) if state == "sealed" else populating(store, n)
        for n, (state, _) in found.items()
    ]
    total = {name: sum(cells(arena)[name] for arena in arenas) for name in ("", "a", "b", "a,b")}
    assert same(total, exact(store, arenas[0], batches))
    complete = Path(small.path / "tables")
    known = inspect.catalogue(store).all("SELECT file FROM arenas")
    assert {file.name for file in complete.iterdir()} == {row["file"] for row in known}


def test_opening_a_window_on_a_full_disk_loses_nothing(disk: Disk, small: Stand) -> None:
    store = small.create()
    disk.leave(0)
    with pytest.raises(StorageError, match="full disk"):
        store.observe(rows(10))
    disk.free()
    assert store.observe(rows(10)).accepted == 10
    assert small.reopen().status().hot_rows == 10


def test_withdrawing_on_a_full_disk_changes_nothing(disk: Disk, small: Stand) -> None:
    store = small.create()
    observed(store, rows(2_000))
    before = cells(populating(store))
    for pages in range(6):
        disk.leave(pages)
        with pytest.raises(StorageError, match="full disk"):
            store.groups.withdraw("b", why="the law")
        assert store.schema == SCHEMA
        assert same(cells(populating(store)), before)
    disk.free()
    store.groups.withdraw("b", why="the law")
    store = small.reopen()
    assert set(cells(populating(store))) == {"", "a"}
    assert store.status().hot_rows == 2_000


def test_a_store_on_a_full_disk_can_be_closed_and_is_not_left_locked(
    disk: Disk, small: Stand
) -> None:
    store = small.create()
    store.observe(rows(10))
    disk.leave(0)
    with suppress(StorageError):
        store.close()
    disk.free()
    assert small.open().status().hot_rows == 10


def test_no_store_is_made_on_a_full_disk(disk: Disk, small: Stand) -> None:
    disk.leave(3)
    with pytest.raises(StorageError, match="nothing was lost"):
        small.create()
    disk.free()
    assert list(disk.path.iterdir()) == []
    assert FileHolder(small.key).keys() == {}
    assert small.create().observe(rows(5)).accepted == 5


def test_a_backup_on_a_full_disk_leaves_nothing_half(disk: Disk, stand: Stand) -> None:
    store = stand.create()
    observed(store, rows(5_000))
    disk.leave(8)
    with pytest.raises(StorageError, match="full disk"):
        store.admin.backup(disk.path / "backup")
    disk.free()
    assert list(disk.path.iterdir()) == []
    store.admin.backup(disk.path / "backup")
    stand.close()
    place = stand.folder / "restored"
    store = stand.held(Pyramid.restore(disk.path / "backup", place, **stand.given))
    assert store.status().hot_rows == 5_000


def test_a_key_holder_on_a_full_disk_postpones_an_erasure_and_loses_no_key(
    disk: Disk, stand: Stand
) -> None:
    stand.key = disk.path / "store.key"
    store = stand.create()
    store.observe(rows(10))
    stand.clock.pass_(4 * DAY)
    disk.leave(0)
    with pytest.raises(KeyHolderError, match="No space left"):
        store.advance()
    disk.free()
    assert store.advance().rows_erased == 10
    assert stand.key.read_text().count(":") == 1
    assert stand.reopen().status().hot_rows == 0


# --- read-only ----------------------------------------------------------------------------


def test_a_store_on_a_read_only_disk_cannot_be_opened_and_says_so(disk: Disk, small: Stand) -> None:
    small.create().observe(rows(10))
    small.close()
    disk.remount("ro")
    with pytest.raises(StorageError, match="read-only disk; mount it writable"):
        small.open()
    disk.remount("rw")
    assert small.open().status().hot_rows == 10


def test_a_key_holder_on_a_read_only_disk_postpones_an_erasure(disk: Disk, stand: Stand) -> None:
    stand.key = disk.path / "store.key"
    store = stand.create()
    store.observe(rows(10))
    disk.remount("ro")
    assert store.observe(rows(10)).accepted == 10
    stand.clock.pass_(4 * DAY)
    with pytest.raises(KeyHolderError, match="Read-only file system"):
        store.advance()
    disk.remount("rw")
    assert store.advance().rows_erased == 20
    assert stand.reopen().status().hot_rows == 0


def test_a_disk_that_becomes_read_only_takes_nothing_and_loses_nothing(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create()
    store.observe(rows(10))
    before = cells(populating(store))

    def refused(*_: Any) -> None:
        raise OSError(errno.EROFS, "read-only")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", refused)
        with pytest.raises(StorageError, match="read-only disk; mount it writable"):
            store.observe(rows(10))
    assert same(cells(populating(store)), before)
    inspect.catalogue(store)._db.execute("PRAGMA query_only=ON")
    with pytest.raises(StorageError, match=r"catalogue\.db is on a read-only disk"):
        store.observe(rows(10))
    inspect.catalogue(store)._db.execute("PRAGMA query_only=OFF")
    assert same(cells(populating(store)), before)
    assert store.observe(rows(10)).accepted == 10
    assert stand.reopen().status().hot_rows == 20


def test_a_new_file_is_whole_and_over_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new"
    (tmp_path / ".new.new").write_text("half a file that a kill left")
    create_durably(path, b"first")
    with pytest.raises(StorageError, match="new exists already"):
        create_durably(path, b"second")
    assert path.read_bytes() == b"first"

    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refused)
    create_durably(tmp_path / "other", b"third", mode=0o644)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["new", "other"]
