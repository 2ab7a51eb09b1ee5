"""Copies of a store: they share the fate of its keys, and only one goes on."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pyramidion import Pyramid
from pyramidion.errors import KeyHolderError, PrivacyError, StateError, StorageError
from pyramidion.storage import disk
from pyramidion.storage.key_holders import FileHolder
from pyramidion.store.backup import copied_back
from tests.store import inspect
from tests.store.inspect import populating, sealed
from tests.store.stores import (
    DAY,
    SCHEMA,
    Stand,
    cells,
    exact,
    noise,
    observed,
    rows,
    same,
    states,
    tiny,
)
from tests.waiting import PATIENCE


def filled(stand: Stand, **settings: Any) -> Pyramid:
    """A store with one sealed window of 30 rows and one populating of 20, these hot."""
    store = stand.create(**settings)
    observed(store, rows(30, seed=1))
    stand.clock.pass_(10 * DAY)
    store.advance()
    observed(store, rows(20, stand.clock.now, seed=2), key="k")
    return store


@pytest.fixture
def backup(stand: Stand) -> Path:
    return stand.folder / "backup"


def restored(stand: Stand, backup: Path, name: str = "restored") -> Pyramid:
    return stand.held(Pyramid.restore(backup, stand.folder / name, **stand.given))


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and not file.name.endswith(("-wal", "-shm"))
    }


# --- making one ---------------------------------------------------------------------------


def test_a_backup_has_the_same_files_and_leaves_the_store_alone(stand: Stand, backup: Path) -> None:
    store = filled(stand)
    assert store.admin.backup(backup) > 0
    for folder in ("hot", "tables"):
        assert content(backup / folder) == content(stand.path / folder)
    assert observed(store, rows(5, stand.clock.now)).accepted == 5
    assert stand.reopen().status().hot_rows == 25


def test_made_again_it_copies_what_is_new_alone(stand: Stand, backup: Path) -> None:
    store = filled(stand)
    store.admin.backup(backup)
    tables = {file: file.stat().st_mtime_ns for file in (backup / "tables").iterdir()}
    again = store.admin.backup(backup)
    assert again == sum((backup / name).stat().st_size for name in ("catalogue.db", "audit.db"))
    observed(store, rows(10, stand.clock.now))
    store.admin.backup(backup)
    assert {file: file.stat().st_mtime_ns for file in (backup / "tables").iterdir()} == tables
    assert restored(stand, backup).status().hot_rows == 30


def test_made_again_it_drops_what_the_store_has_erased(stand: Stand, backup: Path) -> None:
    store = filled(stand)
    store.admin.backup(backup)
    old = content(backup)
    stand.clock.pass_(4 * DAY)
    store.advance()
    store.admin.backup(backup)
    assert content(backup / "hot") == {}
    assert not set(content(backup / "tables").values()) - set(content(stand.path).values())
    assert old["catalogue.db"] != content(backup)["catalogue.db"]


def test_a_backup_cannot_be_opened_as_a_store(stand: Stand, backup: Path) -> None:
    filled(stand).admin.backup(backup)
    stand.close()
    with pytest.raises(StateError, match="is a backup; restore it to a new path"):
        stand.open(backup)
    assert restored(stand, backup).status().hot_rows == 20


def test_a_backup_may_not_lie_in_the_store(stand: Stand) -> None:
    store = filled(stand)
    (stand.folder / "link").symlink_to(stand.path)
    for place in ("", "backup", "hot", "hot/../x"):
        with pytest.raises(StateError):
            store.admin.backup(stand.path / place)
    with pytest.raises(StateError, match="may not lie in the store"):
        store.admin.backup(stand.folder / "link" / "backup")
    store.observe(rows(1))


def test_a_folder_with_other_files_is_not_taken_for_a_backup(stand: Stand, backup: Path) -> None:
    backup.mkdir()
    (backup / "photos.zip").write_text("mine")
    with pytest.raises(StateError, match="is not a backup"):
        filled(stand).admin.backup(backup)
    assert content(backup) == {"photos.zip": b"mine"}


def test_another_store_or_its_backup_is_not_written_over(stand: Stand, backup: Path) -> None:
    other = stand.held(Pyramid.create(stand.folder / "other", SCHEMA, tiny(), **stand.given))
    other.observe(rows(5))
    other.admin.backup(backup)
    other.close()
    before = content(stand.folder / "other"), content(backup)
    store = filled(stand)
    for place in (stand.folder / "other", backup):
        with pytest.raises(StateError, match="is not a backup of this store"):
            store.admin.backup(place)
    assert (content(stand.folder / "other"), content(backup)) == before
    assert stand.open(stand.folder / "other").ledger.report().windows


@pytest.mark.parametrize(
    ("call", "after"), [("fsync", 0), ("replace", 0), ("replace", 1), ("chmod", 1)]
)
def test_a_copy_that_breaks_off_leaves_the_former_backup_whole(
    stand: Stand, backup: Path, monkeypatch: pytest.MonkeyPatch, call: str, after: int
) -> None:
    store = filled(stand)
    store.admin.backup(backup)
    observed(store, rows(10, stand.clock.now))
    real, left = getattr(os, call), [after]

    def full(*given: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "full")
        return real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(StorageError, match="full disk"):
            store.admin.backup(backup)
    shutil.copytree(backup, stand.folder / "broken off")
    store.admin.backup(backup)
    assert content(backup / "hot") == content(stand.path / "hot")
    assert set(content(backup)) == set(content(stand.path))
    stand.close()
    assert restored(stand, stand.folder / "broken off").status().hot_rows == 20


def test_a_backup_made_while_rows_come_in_is_consistent(stand: Stand, backup: Path) -> None:
    store = stand.create(epsilon=float("inf"))
    batches = [rows(10, stand.clock.now, seed=seed) for seed in range(400)]
    done: list[Any] = []
    stop, begun = threading.Event(), threading.Event()

    def observe() -> None:
        for batch in batches:
            if stop.is_set():
                return
            store.observe(batch)
            done.append(batch)
            if len(done) == 2:
                begun.set()

    thread = threading.Thread(target=observe)
    thread.start()
    assert begun.wait(PATIENCE)
    for _ in range(5):
        store.admin.backup(backup)
    stop.set()
    thread.join()
    stand.close()
    store = restored(stand, backup)
    kept = [table.num_rows for _, table, _ in inspect.hot(store).batches()]
    assert store.status().windows[0].rows == sum(kept) == 10 * len(kept)
    assert same(cells(sealed(store, 1)), exact(store, sealed(store, 1), done[: len(kept)]))


# --- restoring one ------------------------------------------------------------------------


def test_a_restored_store_has_what_the_backup_had(stand: Stand, backup: Path) -> None:
    store = filled(stand)
    before = cells(sealed(store, 1)), noise(store, populating(store), [rows(20, seed=2)])
    store.admin.backup(backup)
    stand.close()
    store = restored(stand, backup)
    assert store.status().hot_rows == 20
    assert same(cells(sealed(store, 1)), before[0])
    assert same(noise(store, sealed(store, 2), [rows(20, seed=2)]), before[1])
    assert inspect.served(store).rows == 50


def test_populating_windows_are_sealed_and_new_ones_begin(stand: Stand, backup: Path) -> None:
    filled(stand).admin.backup(backup)
    stand.close()
    store = restored(stand, backup)
    assert states(store) == {1: ("sealed", 30), 2: ("sealed", 20)}
    observed(store, rows(5, stand.clock.now))
    assert states(store)[3] == ("populating", 5)
    assert store.ledger.report().windows[-1].number == 3
    assert store.status().windows[2].start == store.status().windows[1].start


def test_idempotency_keys_of_the_backup_still_work(stand: Stand, backup: Path) -> None:
    filled(stand).admin.backup(backup)
    stand.close()
    store = restored(stand, backup)
    assert store.observe(rows(20, stand.clock.now, seed=2), key="k").accepted == 20
    assert store.status().hot_rows == 20


def test_the_original_is_dead_from_then_on(stand: Stand, backup: Path) -> None:
    original = filled(stand)
    original.admin.backup(backup)
    store = restored(stand, backup)
    with pytest.raises(KeyHolderError, match="taken over by a restored backup"):
        original.observe(rows(5, stand.clock.now))
    original.close()
    with pytest.raises(KeyHolderError, match="taken over by a restored backup"):
        stand.open()
    assert observed(store, rows(5, stand.clock.now)).accepted == 5


def test_a_backup_is_restored_once(stand: Stand, backup: Path) -> None:
    filled(stand).admin.backup(backup)
    stand.close()
    store = restored(stand, backup)
    with pytest.raises(KeyHolderError, match="does not have the key"):
        restored(stand, backup, "again")
    assert not (stand.folder / "again").exists()
    assert observed(store, rows(5, stand.clock.now)).accepted == 5


def test_a_backup_from_before_an_erasure_is_refused(stand: Stand, backup: Path) -> None:
    store = filled(stand)
    store.admin.backup(backup)
    stand.clock.pass_(3 * DAY)
    assert store.advance().steps
    with pytest.raises(KeyHolderError, match="destroyed by an erasure"):
        restored(stand, backup)
    assert not (stand.folder / "restored").exists()
    assert store.observe(rows(5, stand.clock.now)).accepted == 5


def test_only_a_backup_can_be_restored_and_only_to_a_new_place(stand: Stand, backup: Path) -> None:
    store = filled(stand)
    store.admin.backup(backup)
    with pytest.raises(StorageError, match="there is no backup"):
        restored(stand, stand.folder / "nothing")
    with pytest.raises(StateError, match="exists already"):
        Pyramid.restore(backup, stand.path, **stand.given)
    with pytest.raises(StateError, match="is not a backup"):
        restored(stand, stand.path)
    assert not (stand.folder / "restored").exists()
    assert store.observe(rows(5, stand.clock.now)).accepted == 5


def test_no_budget_is_revived(stand: Stand, backup: Path) -> None:
    store = filled(stand, selection_share=0.2)
    store.admin.backup(backup)
    stand.close()
    store = restored(stand, backup)
    for window in (1, 2):
        assert store.ledger.left(window, "selection") == 0
        with pytest.raises(PrivacyError, match=f"window {window} has rho 0 left"):
            store.ledger.spend("selection", Fraction(1, 10**9), [window], now=0)
    report = store.ledger.report()
    assert all(window.left == 0 for window in report.windows)
    kinds = {line.kind for line in report.windows[0].lines}
    assert "forfeit" in kinds
    observed(store, rows(5, stand.clock.now))
    assert store.ledger.left(3, "selection") > 0


def test_the_restored_store_has_a_record_and_one_store_key(stand: Stand, backup: Path) -> None:
    filled(stand).admin.backup(backup)
    before = set(FileHolder(stand.key).keys())
    stand.close()
    store = restored(stand, backup)
    after = set(FileHolder(stand.key).keys())
    assert len(before) == len(after) == 1
    assert before != after
    whys = {record.why: record.done for record in store.status().deletions}
    assert whys["restored from a backup"] is not None


def test_rows_whose_time_was_over_meanwhile_leave_at_once(stand: Stand, backup: Path) -> None:
    filled(stand).admin.backup(backup)
    stand.close()
    stand.clock.pass_(5 * DAY)
    store = restored(stand, backup)
    assert store.status().hot_rows == 0
    assert states(store)[2] == ("sealed", 20)


def test_what_is_copied_back_is_durable_before_the_other_copies_die(
    stand: Stand, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(stand).admin.backup(backup)
    stand.close()
    synced: set[str] = set()
    real = os.fsync

    def watched(descriptor: int) -> None:
        synced.add(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        real(descriptor)

    drop = FileHolder.drop
    seen = []

    def dropped(self: FileHolder, names: Any) -> None:
        seen.append(set(synced))
        drop(self, names)

    monkeypatch.setattr(disk.os, "fsync", watched)
    monkeypatch.setattr(FileHolder, "drop", dropped)
    restored(stand, backup)
    assert {file.name for part in ("hot", "tables") for file in (backup / part).iterdir()} <= seen[
        0
    ]


# --- a crash in between ---------------------------------------------------------------------


def test_a_crash_before_the_copy_has_taken_over_leaves_the_original_alive(
    stand: Stand, backup: Path
) -> None:
    store = filled(stand)
    store.admin.backup(backup)
    place = stand.folder / "restored"
    copied_back(backup, place, FileHolder(stand.key)).close()
    with pytest.raises(StateError, match="is a backup; restore it to a new path"):
        Pyramid.open(place, **stand.given)
    assert observed(store, rows(5, stand.clock.now)).accepted == 5
    assert stand.reopen().status().hot_rows == 25


def test_a_crash_while_the_copy_takes_over_is_finished_by_opening_it(
    stand: Stand, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(stand, selection_share=0.2).admin.backup(backup)
    stand.close()
    place = stand.folder / "restored"
    with monkeypatch.context() as patch:
        patch.setattr(
            "pyramidion.privacy.ledger.Ledger.forfeit",
            lambda *_: (_ for _ in ()).throw(KeyboardInterrupt),
        )
        with pytest.raises(KeyboardInterrupt):
            Pyramid.restore(backup, place, **stand.given)
    with pytest.raises(KeyHolderError):
        stand.open()
    store = stand.open(place)
    assert states(store) == {1: ("sealed", 30), 2: ("sealed", 20)}
    assert store.ledger.left(2, "selection") == 0
    assert observed(store, rows(5, stand.clock.now)).accepted == 5


def test_a_restored_store_gives_no_batch_number_of_the_original(stand: Stand, backup: Path) -> None:
    store = filled(stand)
    store.admin.backup(backup)
    observed(store, rows(5, stand.clock.now))
    last = inspect.last_batch(store)
    stand.close()
    store = restored(stand, backup)
    observed(store, rows(5, stand.clock.now))
    assert inspect.last_batch(store) > last + 1_000
    stand.close()
    store = stand.open(stand.folder / "restored")
    assert store.status().hot_rows == 25
