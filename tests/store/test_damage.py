"""Files that are missing or damaged: named, and the others left alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyramidion import Pyramid
from pyramidion.errors import FormatError, KeyHolderError, PyramidionError, StorageError
from tests.store import inspect
from tests.store.stores import (
    DAY,
    SCHEMA,
    Stand,
    observed,
    rows,
    states,
    tiny,
)

# --- missing and damaged ------------------------------------------------------------------


def test_a_store_whose_key_is_missing_cannot_be_opened_and_is_left_alone(stand: Stand) -> None:
    stand.create().observe(rows(10))
    stand.close()
    before = content(stand)
    away = stand.key.rename(stand.key.with_suffix(".away"))
    with pytest.raises(KeyHolderError, match="holds no key at all; mount it"):
        stand.open()
    assert content(stand) == before
    away.rename(stand.key)
    assert stand.open().status().hot_rows == 10


def test_where_there_is_no_store_that_is_said(stand: Stand) -> None:
    with pytest.raises(StorageError, match="there is no store at"):
        stand.open()
    stand.path.mkdir()
    with pytest.raises(StorageError, match="there is no store at"):
        stand.open()


def test_a_store_is_not_made_over_something_else(stand: Stand) -> None:
    stand.path.mkdir()
    (stand.path / "thesis.tex").write_text("mine")
    with pytest.raises(PyramidionError, match="exists already"):
        stand.create()
    assert (stand.path / "thesis.tex").read_text() == "mine"
    assert not stand.key.exists()


def content(stand: Stand) -> dict[str, bytes]:
    """All files but those that are opening's own business."""
    return {
        file.name: file.read_bytes()
        for file in stand.path.rglob("*")
        if file.is_file() and file.name != "lock" and not file.name.endswith(("-wal", "-shm"))
    }


@pytest.fixture
def files(stand: Stand) -> dict[str, Path]:
    """A closed store with each kind of file, by kind."""
    store = stand.create(hot_window="20d")
    observed(store, rows(50))
    stand.clock.pass_(10 * DAY)
    store.advance()
    observed(store, rows(50, stand.clock.now))
    found = inspect.catalogue(store).all("SELECT kind, file FROM arenas WHERE current = 1")
    kinds = {row["kind"]: stand.path / "tables" / row["file"] for row in found}
    kinds["hot"] = stand.path / "hot" / inspect.hot(store).steps[-1].file
    stand.close()
    assert set(kinds) == {"hot", "checkpoint", "sealed", "complete"}
    return kinds


def used(stand: Stand) -> None:
    """Open the store and read every file of it."""
    stand.open().groups.withdraw("a,b", why="to read all")


KINDS = ["hot", "checkpoint", "sealed"]
"""Those that nothing else has; complete tables are made again, see test_tampering."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_a_damaged_file_is_named_and_the_others_are_left_alone(
    stand: Stand, files: dict[str, Path], kind: str, place: float
) -> None:
    path = files[kind]
    good = path.read_bytes()
    damaged = bytearray(good)
    damaged[int(place * (len(good) - 1))] ^= 0x10
    path.write_bytes(damaged)
    before = {name: data for name, data in content(stand).items() if name != "catalogue.db"}
    with pytest.raises(FormatError, match=path.name):
        used(stand)
    stand.close()
    assert {n: d for n, d in content(stand).items() if n in before} == before
    path.write_bytes(good)
    used(stand)
    assert states(stand.reopen()) == {1: ("sealed", 50), 2: ("populating", 50)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_was_cut_off_is_named(stand: Stand, files: dict[str, Path], kind: str) -> None:
    path = files[kind]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FormatError, match=path.name):
        used(stand)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_gone_is_named(stand: Stand, files: dict[str, Path], kind: str) -> None:
    away = files[kind].rename(stand.folder / "away")
    with pytest.raises(StorageError, match=files[kind].name):
        used(stand)
    stand.close()
    away.rename(files[kind])
    used(stand)


def test_two_table_files_cannot_be_swapped(stand: Stand, files: dict[str, Path]) -> None:
    one, other = files["sealed"].read_bytes(), files["checkpoint"].read_bytes()
    files["sealed"].write_bytes(other)
    files["checkpoint"].write_bytes(one)
    with pytest.raises(FormatError, match=r"\.tables is damaged or under another key"):
        used(stand)


def test_a_damaged_catalogue_is_named(stand: Stand, files: dict[str, Path]) -> None:
    path = stand.path / "catalogue.db"
    good = path.read_bytes()
    path.write_bytes(b"\0" * 100 + good[100:])
    with pytest.raises(FormatError, match=r"catalogue\.db is damaged or not a catalogue"):
        stand.open()
    path.write_bytes(good)
    assert stand.open().status().hot_rows == 100


@pytest.mark.parametrize("purpose", ["hot step", "checkpoint", "secret"])
def test_a_damaged_data_key_is_named(stand: Stand, files: dict[str, Path], purpose: str) -> None:
    store = stand.open()
    catalogue = inspect.catalogue(store)
    query = "UPDATE keys SET wrapped = zeroblob(length(wrapped)) WHERE purpose = ?"
    catalogue.run(query, purpose)
    stand.close()
    with pytest.raises(FormatError, match=f"the key of {purpose} .* does not open"):
        used(stand)


def test_a_file_that_nobody_knows_is_removed_at_the_next_open(
    stand: Stand, files: dict[str, Path]
) -> None:
    for folder in ("hot", "tables"):
        (stand.path / folder / "left by a crash").write_bytes(b"half")
    stand.open()
    assert "left by a crash" not in stand.files("hot") | stand.files("tables")


def test_only_the_owner_can_read_anything_of_a_store(stand: Stand) -> None:
    old = os.umask(0)
    try:
        store = stand.create()
        observed(store, rows(10))
        store.admin.backup(stand.folder / "backup")
    finally:
        os.umask(old)
    for top in (stand.path, stand.folder / "backup"):
        assert top.stat().st_mode & 0o077 == 0
        for each in top.rglob("*"):
            assert each.stat().st_mode & 0o077 == 0, each


def test_a_store_made_with_settings_that_cannot_work_leaves_nothing(stand: Stand) -> None:
    with pytest.raises(PyramidionError):
        Pyramid.create(stand.path, SCHEMA, tiny(shares={"nothing": 2}), **stand.given)
    assert not stand.path.exists()
    assert not stand.key.exists()
