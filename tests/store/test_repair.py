"""Damaged and tampered files: found by `verify`, and mended for nothing where others tell."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from pyramidion import Pyramid
from pyramidion.counts.arena import Arena
from pyramidion.errors import KeyHolderError, StateError, StorageError
from pyramidion.storage.table_files import TableFile, TableFiles
from pyramidion.storage.table_sets import window_id
from pyramidion.store.repair import NOT_THE_SUM
from tests.store import inspect
from tests.store.inspect import sealed
from tests.store.stores import DAY, Stand, cells, observed, rows, same, states


def three(stand: Stand, **settings: Any) -> Pyramid:
    """A store with three sealed windows, the rows of a fourth, and all rows hot."""
    store = stand.create(hot_window="50d", **settings)
    for number in range(4):
        observed(store, rows(30, stand.clock.now, seed=number))
        if number < 3:
            stand.clock.pass_(10 * DAY)
            store.advance()
    return store


def file_of(store: Pyramid, kind: str, window: int | None = None) -> Path:
    (row,) = (r for r in inspect.table_files(store).current(kind) if r["number"] == window)
    return store.path / "tables" / row["file"]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def tamper(store: Pyramid, kind: Any, window: int | None = None) -> None:
    """Change tables as somebody would who has the keys: the file authenticates."""
    tables = inspect.table_files(store)
    (row,) = (r for r in tables.current(kind) if r["number"] == window)
    old = tables.of(row)
    arena = Arena(old.layout, old.max_rows)
    arena._block[:] = old._block
    arena._flat(0)[:] += 1_000
    arena.rows = old.rows
    arena.seal()
    role = TableFile(kind, None if window is None else window_id(window))
    with tables.write(arena, role) as file, inspect.catalogue(store).transaction():
        tables.supersede(role)
        file.add()
        inspect.authenticate(store)


def complete(store: Pyramid) -> Any:
    return cells(inspect.served(store))


# --- verify ---------------------------------------------------------------------------------


def test_nothing_is_found_in_a_sound_store(stand: Stand) -> None:
    store = three(stand)
    assert store.admin.verify() == []
    assert stand.reopen().admin.verify() == []


@pytest.mark.parametrize(("kind", "window"), [("sealed", 2), ("checkpoint", 4), ("complete", None)])
def test_a_flipped_bit_is_found_in_tables(stand: Stand, kind: str, window: int | None) -> None:
    store = three(stand)
    path = file_of(store, kind, window)
    flip(path)
    (found,) = store.admin.verify()
    assert (found.kind, found.window) == (kind, window)
    assert path.name in found.why


def test_a_flipped_bit_is_found_in_hot_rows(stand: Stand) -> None:
    store = three(stand)
    flip(store.path / "hot" / inspect.hot(store).steps[1].file)
    (found,) = store.admin.verify()
    assert (found.kind, found.window) == ("hot", None)
    assert found.why.startswith("batch 2: ")


def test_files_that_are_gone_are_found(stand: Stand) -> None:
    store = three(stand)
    for window in (1, 3):
        file_of(store, "sealed", window).unlink()
    assert {(each.kind, each.window) for each in store.admin.verify()} == {
        ("sealed", 1),
        ("sealed", 3),
    }


@pytest.mark.parametrize(("kind", "window"), [("sealed", 2), ("complete", None)])
def test_tables_that_were_changed_with_the_right_key_do_not_add_up(
    stand: Stand, kind: str, window: int | None
) -> None:
    store = three(stand)
    tamper(store, kind, window)
    assert [(each.kind, each.why) for each in store.admin.verify()] == [("complete", NOT_THE_SUM)]


def test_a_key_holder_that_is_away_is_no_damage(stand: Stand) -> None:
    store = three(stand)
    away = stand.key.rename(stand.key.with_suffix(".away"))
    with pytest.raises(KeyHolderError):
        store.admin.verify()
    away.rename(stand.key)


# --- complete tables are the sum of the windows -----------------------------------------------


@pytest.mark.parametrize("how", ["flipped", "gone", "another key", "other windows"])
def test_complete_tables_that_cannot_be_read_are_summed_again_at_open(
    stand: Stand, how: str
) -> None:
    store = three(stand)
    before, path, spent = complete(store), file_of(store, "complete"), store.ledger.report()
    if how == "another key":
        query = "UPDATE keys SET wrapped = zeroblob(length(wrapped)) WHERE purpose = 'complete'"
        inspect.catalogue(store).run(query)
    if how == "other windows":
        inspect.change_catalogue(store, "UPDATE arenas SET kind = 'x' WHERE kind = 'complete'")
    stand.close()
    if how == "flipped":
        flip(path)
    if how == "gone":
        path.unlink()
    store = stand.open()
    assert same(complete(store), before)
    assert store.ledger.report() == spent
    assert store.admin.verify() == []
    assert file_of(store, "complete") != path
    stand.clock.pass_(50 * DAY)
    assert store.advance().retired


def test_a_window_that_was_retired_before_a_crash_is_not_summed_again(stand: Stand) -> None:
    store = three(stand)
    rows = store.status().summarised_rows
    catalogue = inspect.catalogue(store)
    first = catalogue.one("SELECT rows FROM table_sets WHERE level = 0 AND number = 1")
    inspect.change_catalogue(
        store, "UPDATE table_sets SET state = 'retired' WHERE level = 0 AND number = 1"
    )
    flip(file_of(store, "complete"))
    again = stand.reopen()
    assert again.status().summarised_rows == rows - first


def test_a_damaged_window_does_not_keep_the_store_from_opening(stand: Stand) -> None:
    store = three(stand)
    before, path = complete(store), file_of(store, "sealed", 2)
    stand.close()
    flip(path)
    store = stand.open()
    assert same(complete(store), before)
    assert store.featurize(rows(3)).num_rows == 3
    assert observed(store, rows(5, stand.clock.now)).accepted == 5


def both_damaged(stand: Stand, *windows: int) -> Pyramid:
    store = three(stand, epsilon=math.inf)
    paths = [file_of(store, "complete"), *(file_of(store, "sealed", n) for n in windows)]
    stand.close()
    for path in paths:
        flip(path)
    return stand.open()


def test_where_both_are_damaged_the_other_windows_are_served(stand: Stand) -> None:
    store = both_damaged(stand, 2)
    assert inspect.lacking(store) == {2}
    assert store.snapshot().rows == 60
    assert store.snapshot().guarantee.windows == 2
    assert store.training_set().guarantee.level == "P1"
    stand.clock.pass_(10 * DAY)
    store.advance()
    assert store.snapshot().rows == 90
    store = stand.reopen()
    assert (store.snapshot().rows, inspect.lacking(store)) == (90, {2})
    assert [(each.kind, each.window) for each in store.admin.verify()] == [("sealed", 2)]


def test_hot_rows_of_a_window_that_is_lacking_are_not_taken_off_for_training(stand: Stand) -> None:
    store = both_damaged(stand, 2)
    counted = inspect.parts(store).serving._counted(lambda _: True)
    assert set(counted.tables) == {1, 3}
    assert counted.hidden == 60


def test_a_window_that_is_lacking_retires_on_time(stand: Stand) -> None:
    store = both_damaged(stand, 1, 3)
    stand.clock.pass_(20 * DAY)
    assert store.advance().retired == [1]
    assert inspect.lacking(store) == {3}
    assert store.snapshot().rows == 60
    stand.clock.pass_(30 * DAY)
    assert store.advance().retired == [2, 3, 4]
    assert inspect.lacking(store) == set()
    with pytest.raises(StateError, match="no window is sealed"):
        store.snapshot()


def test_damaged_windows_do_not_keep_others_beyond_their_time(stand: Stand) -> None:
    store = three(stand, epsilon=math.inf)
    for window in (1, 2):
        flip(file_of(store, "sealed", window))
    stand.clock.pass_(20 * DAY)
    assert store.advance().retired == [1]
    assert inspect.lacking(store) == {2}
    assert store.snapshot().rows == 60


def test_a_store_of_which_nothing_sealed_is_left_opens(stand: Stand) -> None:
    store = both_damaged(stand, 1, 2, 3)
    assert inspect.served(store) is None
    assert store.status().guarantee is None
    stand.clock.pass_(10 * DAY)
    store.advance()
    assert store.snapshot().rows == 30
    assert stand.reopen().snapshot().rows == 30


# --- mend --------------------------------------------------------------------------------------


def test_a_sound_store_has_nothing_to_mend(stand: Stand) -> None:
    store = three(stand)
    files = stand.files("tables")
    assert store.admin.mend() == []
    assert stand.files("tables") == files


@pytest.mark.parametrize("window", [1, 2, 3])
def test_one_damaged_window_is_what_the_complete_tables_have_beyond_the_others(
    stand: Stand, window: int
) -> None:
    store = three(stand)
    spent, before = store.ledger.report(), cells(sealed(store, window))
    layout, path = sealed(store, window).layout, file_of(store, "sealed", window)
    flip(path)
    store = stand.reopen()
    assert [(each.kind, each.window) for each in store.admin.mend()] == [("sealed", window)]
    assert same(cells(sealed(store, window)), before)
    assert store.admin.verify() == []
    assert store.ledger.report() == spent
    assert not path.exists()
    for old, new in zip(layout.tables, sealed(store, window).layout.tables, strict=True):
        assert (old.name, old.bound, old.windows) == (new.name, new.bound, new.windows)
        assert new.variance == pytest.approx(old.variance, rel=1e-9)


def test_the_only_window_is_mended_too(stand: Stand) -> None:
    store = stand.create()
    observed(store, rows(30))
    stand.clock.pass_(10 * DAY)
    store.advance()
    before = cells(sealed(store, 1))
    flip(file_of(store, "sealed", 1))
    store.admin.mend()
    assert same(cells(sealed(store, 1)), before)


def test_tables_that_some_windows_lack_are_mended(stand: Stand) -> None:
    store = stand.create()
    store.groups.withdraw("a,b", why="to add it later")
    observed(store, rows(30))
    stand.clock.pass_(10 * DAY)
    store.advance()
    store.groups.add(("a", "b"))
    observed(store, rows(30, stand.clock.now))
    stand.clock.pass_(10 * DAY)
    store.advance()
    for window in (1, 2):
        before = cells(sealed(store, window))
        flip(file_of(store, "sealed", window))
        store.admin.mend()
        assert same(cells(sealed(store, window)), before)


def test_a_complete_file_damaged_while_the_store_is_open_is_written_anew(stand: Stand) -> None:
    store = three(stand)
    before = complete(store)
    flip(file_of(store, "complete"))
    flip(file_of(store, "sealed", 3))
    assert {each.kind for each in store.admin.mend()} == {"sealed", "complete"}
    assert store.admin.verify() == []
    assert same(complete(stand.reopen()), before)


def test_complete_tables_that_were_changed_with_the_right_key_are_summed_again(
    stand: Stand,
) -> None:
    store = three(stand)
    before = complete(store)
    tamper(store, "complete")
    store = stand.reopen()
    old = store.snapshot()
    assert [each.why for each in store.admin.mend()] == [NOT_THE_SUM]
    assert same(complete(store), before)
    assert store.admin.verify() == []
    assert old.expired


def test_two_damaged_windows_cannot_be_told_apart(stand: Stand) -> None:
    store = three(stand)
    for window in (1, 3):
        flip(file_of(store, "sealed", window))
    with pytest.raises(StateError, match=r"tables of window 1, 3 any more; rebuild\(\)"):
        store.admin.mend()


def test_a_window_that_the_complete_tables_lack_cannot_be_mended(stand: Stand) -> None:
    store = both_damaged(stand, 2)
    with pytest.raises(StateError, match="tables of window 2 any more"):
        store.admin.mend()


def test_mending_that_fails_changes_nothing(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    store = three(stand)
    flip(file_of(store, "sealed", 2))
    with monkeypatch.context() as patch:
        patch.setattr(TableFiles, "write", lambda *_: (_ for _ in ()).throw(StorageError("full")))
        with pytest.raises(StorageError, match="full"):
            store.admin.mend()
    assert len(store.admin.verify()) == 1
    store.admin.mend()
    assert store.admin.verify() == []
    assert states(store)[2] == ("sealed", 30)
