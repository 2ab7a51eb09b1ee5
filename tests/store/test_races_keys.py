"""Copies of one store at once: the last store key is never destroyed, nor an old one outlived."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator
from fcntl import LOCK_NB, flock
from typing import Any

import pytest

from pyramidion import Pyramid
from pyramidion.errors import KeyHolderError, PyramidionError, StateError, StorageError
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.key_holders import FileHolder
from tests.store import inspect
from tests.store.inspect import settled
from tests.store.stores import DAY, TIMELESS, Stand, observed, rows
from tests.waiting import PATIENCE as LONG


class Meeting:
    """Two that erase copies of one store, in turns where nothing keeps them from it.

    The first is under its new store key and about to look for others to destroy, then the
    second is as far and has looked; the first destroys what it finds, the second what it found.
    Where the second has to wait for the first, the first goes on alone.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._there, self._looked, self._dropped, self._met = (threading.Event() for _ in range(4))
        self._truncate, self._drop, self._flock = Catalogue.truncate_log, FileHolder.drop, flock
        self._problems: list[BaseException] = []
        monkeypatch.setattr(Catalogue, "truncate_log", lambda its: self._emptying(its))
        monkeypatch.setattr(FileHolder, "drop", lambda its, names: self._dropping(its, names))
        monkeypatch.setattr("fcntl.flock", self._locking)

    def of(self, first: Callable[[], Any], second: Callable[[], Any]) -> list[BaseException]:
        """Have both done; what they raised."""
        one, other = (
            threading.Thread(target=self._kept, args=[work], daemon=True)
            for work in (first, second)
        )
        one.start()
        assert self._there.wait(LONG)
        other.start()
        for thread in (one, other):
            thread.join(LONG)
            assert not thread.is_alive()
        assert self._met.is_set()
        return self._problems

    def _kept(self, work: Callable[[], Any]) -> None:
        try:
            work()
        except BaseException as problem:
            self._problems.append(problem)

    def _emptying(self, catalogue: Catalogue) -> None:
        if not self._there.is_set():
            self._there.set()
            assert self._looked.wait(LONG)
        self._truncate(catalogue)

    def _dropping(self, holder: FileHolder, names: Collection[str]) -> None:
        second = not self._looked.is_set()
        if second:
            self._looked.set()
            assert self._dropped.wait(LONG)
        self._drop(holder, names)
        (self._met if second else self._dropped).set()
        assert self._met.wait(LONG)

    def _locking(self, file: int, how: int) -> None:
        try:
            self._flock(file, how | LOCK_NB)
        except BlockingIOError:
            if how & LOCK_NB:
                raise
            self._looked.set()
            self._met.set()
            self._flock(file, how)


@pytest.fixture
def original(stand: Stand) -> Pyramid:
    """A store with a backup; a hot step of it is due to be erased."""
    store = stand.create()
    for _ in range(3):
        observed(store, rows(20, stand.clock.now))
        stand.clock.pass_(DAY)
    store.admin.backup(stand.folder / "backup")
    return store


def usable(stand: Stand, *names: str) -> list[str]:
    """The stores that still open and take rows, all closed before."""
    stand.close()
    found = []
    for name in names:
        try:
            with Pyramid.open(stand.folder / name, **stand.given) as store:
                store.observe(rows(1, stand.clock.now))
        except PyramidionError:
            continue
        found.append(name)
    return found


def restoring(stand: Stand, name: str) -> Callable[[], Pyramid]:
    """Restores the backup under a name."""
    backup = stand.folder / "backup"
    return lambda: stand.held(Pyramid.restore(backup, stand.folder / name, **stand.given))


def test_the_original_that_erases_as_its_backup_is_restored_stays(
    stand: Stand, original: Pyramid, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = Meeting(monkeypatch).of(original.advance, restoring(stand, "copy"))
    assert [type(problem) for problem in problems] == [KeyHolderError]
    assert usable(stand, "store", "copy") == ["store"]


def test_the_copy_that_is_restored_as_the_original_begins_to_erase_stays(
    stand: Stand, original: Pyramid, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = Meeting(monkeypatch).of(restoring(stand, "copy"), original.advance)
    assert [type(problem) for problem in problems] == [KeyHolderError]
    assert usable(stand, "store", "copy") == ["copy"]


def test_of_two_that_restore_one_backup_at_once_one_has_it(
    stand: Stand, original: Pyramid, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = Meeting(monkeypatch).of(restoring(stand, "one"), restoring(stand, "two"))
    assert [type(problem) for problem in problems] == [KeyHolderError]
    assert usable(stand, "store", "one", "two") == ["one"]


# --- an erasure that another program keeps from being finished ---------------------------------


@pytest.fixture
def reader(stand: Stand) -> Iterator[Callable[[Pyramid], sqlite3.Connection]]:
    """Begins to read a store's catalogue from outside, so that its log cannot be emptied."""
    opened: list[sqlite3.Connection] = []

    def begin(store: Pyramid) -> sqlite3.Connection:
        inspect.catalogue(store).run("PRAGMA busy_timeout = 20")
        opened.append(sqlite3.connect(stand.path / "catalogue.db"))
        opened[-1].execute("BEGIN")
        opened[-1].execute("SELECT count(*) FROM about").fetchall()
        return opened[-1]

    yield begin
    for connection in opened:
        connection.close()


def served(store: Pyramid) -> bool:
    """Whether there are complete tables to be had."""
    try:
        store.snapshot()
    except StateError:
        return False
    return True


@pytest.fixture
def unsettled(stand: Stand, reader: Any) -> tuple[Pyramid, sqlite3.Connection]:
    """A store that sealed its first window and could not destroy the old store key.

    Its backup has that window with fewer rows: the two sealed tables would subtract.
    """
    store = stand.create(TIMELESS, count_window=100)
    observed(store, rows(60, seed=1))
    store.admin.backup(stand.folder / "backup")
    outside = reader(store)
    store.observe(rows(40, seed=2))
    with pytest.raises(StorageError, match="erasure is not complete"):
        settled(store)
    assert inspect.served(store) is not None
    assert not served(store)
    return store, outside


def test_a_withdrawal_serves_no_seal_whose_old_states_can_still_be_opened(
    stand: Stand, unsettled: tuple[Pyramid, sqlite3.Connection]
) -> None:
    store, _ = unsettled
    with pytest.raises(StorageError, match="erasure is not complete"):
        store.groups.withdraw("a", why="law")
    assert not served(store)
    copy = restoring(stand, "copy")()  # so the machine may be lost here and go on from there
    assert served(copy)
    assert not served(store)


def test_a_seal_is_served_once_the_backup_from_before_it_is_dead(
    stand: Stand,
    unsettled: tuple[Pyramid, sqlite3.Connection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, outside = unsettled
    real, before = FileHolder.drop, list[bool]()

    def drop(holder: FileHolder, names: Collection[str]) -> None:
        before.append(served(store))
        real(holder, names)

    monkeypatch.setattr(FileHolder, "drop", drop)
    outside.close()
    store.groups.withdraw("a", why="law")
    assert served(store)
    assert before[0] is False
    with pytest.raises(KeyHolderError, match="does not have the key"):
        restoring(stand, "copy")()


def test_a_dead_store_that_has_an_erasure_to_finish_leaves_its_heirs_key_alone(
    stand: Stand, unsettled: tuple[Pyramid, sqlite3.Connection]
) -> None:
    store, outside = unsettled
    copy = restoring(stand, "copy")()
    outside.close()
    for verb in (store.advance, lambda: store.groups.withdraw("a", why="law")):
        with pytest.raises(KeyHolderError, match="taken over by a restored backup"):
            verb()
    assert observed(copy, rows(5)).accepted == 5
    assert usable(stand, "store", "copy") == ["copy"]
