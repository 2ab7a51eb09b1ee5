"""Processes that are killed while they make something: the next one leaves nothing of it behind."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from pyramidion import Pyramid, StateError
from pyramidion.storage.key_holders import FileHolder
from pyramidion.storage.making import RESTORING, sweep
from pyramidion.vault.key_pairs import PrivateKey
from pyramidion.web.service.service import Service
from tests.dying import died
from tests.store import inspect
from tests.store.stores import DAY, SCHEMA, Clock, rows, tiny

POINTS = ("create.noted", "create.keyed", "create.filled", "create.renamed")
CUSTODIAN = PrivateKey(bytes(range(64)))


class World:
    """A folder with stores, their keys, and a vault."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, Clock()
        self.store = folder / "data" / "store"
        self.given = {"keys": f"file:{folder}/keys/store.key", "clock": self.clock}

    def create(self, **more: object) -> Pyramid:
        return Pyramid.create(self.store, SCHEMA, tiny(), **self.given, **more)  # type: ignore[arg-type]

    def open(self) -> Pyramid:
        return Pyramid.open(self.store, **self.given)  # type: ignore[arg-type]

    def restore(self) -> Pyramid:
        return Pyramid.restore(self.folder / "backup", self.store, **self.given)  # type: ignore[arg-type]

    def backed_up(self) -> None:
        """Make a backup."""
        with self.open() as opened:
            opened.admin.backup(self.folder / "backup")

    def vaulted(self) -> None:
        """Make a store whose rows are sealed."""
        with self.create(vault=str(self.folder / "vault"), custodian=CUSTODIAN.public) as made:
            made.observe(rows(20, self.clock.now))
            self.clock.pass_(10 * DAY)
            made.advance()

    def served(self) -> None:
        """Make a stream by a service."""
        with Service(self.store.parent, keys=f"file:{self.folder}/keys/{{stream}}.key") as service:
            service.create("store", SCHEMA, tiny())

    def killed(self, verb: str, point: str) -> None:
        """Do something in another process, which is killed at a point."""
        assert died(getattr(World(self.folder), verb), at=point)

    @property
    def beside(self) -> set[str]:
        return {path.name for path in self.store.parent.iterdir()}

    @property
    def owners(self) -> set[str]:
        """Whose keys there are."""
        found = FileHolder(self.folder / "keys" / "store.key").keys()
        return {name.partition(".")[0] for name in found}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("point", POINTS)
def test_killed_create_leaves_nothing_after_the_next(world: World, point: str) -> None:
    world.killed("create", point)
    made = world.open() if point == "create.renamed" else world.create()
    with made:
        assert world.owners == {inspect.catalogue(made).about("store")}
    assert world.beside == {"store"}
    with world.open() as opened:
        assert opened.observe(rows(5, world.clock.now)).accepted == 5


@pytest.mark.parametrize("point", POINTS[:-1])
def test_killed_creation_of_a_stream_leaves_nothing_after_a_start(world: World, point: str) -> None:
    world.killed("served", point)
    assert len(world.beside) == 2
    with Service(world.store.parent, keys=f"file:{world.folder}/keys/{{stream}}.key") as service:
        assert world.beside == {".service"}
        assert world.owners == set()
        assert service.every == []


@pytest.mark.parametrize("point", ["create.noted", "create.filled", "create.renamed"])
def test_killed_restore_can_be_done_again(world: World, point: str) -> None:
    with world.create() as made:
        made.observe(rows(20, world.clock.now))
        made.admin.backup(world.folder / "backup")
    world.store.rename(world.folder / "lost")
    world.killed("restore", point)
    if point == "create.renamed":
        with pytest.raises(StateError, match="restore"):
            world.open()
    with world.restore() as restored:
        assert restored.status().hot_rows == 20
    assert world.beside == {"store"}
    assert not (world.store / RESTORING).exists()


def test_a_backup_is_not_taken_for_a_broken_restore(world: World) -> None:
    with world.create() as made:
        made.admin.backup(world.folder / "backup")
        made.admin.backup(world.folder / "other")
    world.store.rename(world.folder / "lost")
    with pytest.raises(StateError, match="exists already"):
        Pyramid.restore(world.folder / "backup", world.folder / "other", **world.given)  # type: ignore[arg-type]


@pytest.mark.parametrize("point", ["create.noted", "create.filled"])
def test_killed_backup_leaves_nothing_after_the_next(world: World, point: str) -> None:
    world.create().close()
    world.killed("backed_up", point)
    world.backed_up()
    left = {path.name for path in world.folder.iterdir()}
    assert left == {"data", "keys", "backup"}


def test_killed_upload_leaves_nothing_in_the_vault(world: World) -> None:
    world.killed("vaulted", "vault.uploaded")
    place = world.folder / "vault"
    assert any(path.name.startswith(".") for path in place.iterdir())
    world.clock.pass_(20 * DAY)
    with world.open() as opened:
        opened.advance()
        opened.close()
    names = [path.name for path in place.iterdir()]
    assert names
    assert not any(name.startswith(".") for name in names)


# --- what is not ours ---------------------------------------------------------------------------


def draft(world: World, note: dict[str, str] | None = None) -> Path:
    """What a killed process leaves."""
    made = world.store.with_name(".store.0123abcd")
    made.mkdir(parents=True)
    (made / "lock").write_text(json.dumps(note or {}))
    (made / "hot").mkdir()
    return made


def test_draft_of_a_dead_process_is_removed(world: World) -> None:
    left = draft(world)
    assert sweep(world.store) == 1
    assert not left.exists()


def test_draft_in_use_is_left_alone(world: World) -> None:
    left = draft(world)
    lock = os.open(left / "lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        assert sweep(world.store) == 0
        assert left.exists()
    finally:
        os.close(lock)


@pytest.mark.parametrize("name", ["notes.txt", "photos"])
def test_directory_with_foreign_files_is_left_alone(world: World, name: str) -> None:
    left = draft(world)
    (left / name).touch()
    assert sweep(world.store) == 0
    assert (left / name).exists()


def test_other_names_are_left_alone(world: World) -> None:
    world.store.parent.mkdir(parents=True)
    for name in (".store.backup", ".store.0123abcde", ".other.0123abcd", "store.0123abcd"):
        (world.store.parent / name).mkdir()
        (world.store.parent / name / "lock").touch()
    (world.store.parent / ".store.ffffffff").symlink_to(world.folder)
    before = world.beside
    assert sweep(world.store) == 0
    assert world.beside == before


def test_key_of_another_holder_is_not_dropped(world: World) -> None:
    left = draft(world, {"store": "aa", "keys": "file:/elsewhere"})
    FileHolder(world.folder / "keys" / "store.key").add("aa.1", bytes(32))
    world.create().close()
    assert left.exists()
    assert "aa" in world.owners


def test_stale_small_files_are_removed_when_the_store_is_opened(world: World) -> None:
    world.create().close()
    old, young = world.store / ".broker.json.0123abcd", world.store / ".audit.db.0123abcd"
    old.touch()
    young.touch()
    os.utime(old, (0, 0))
    world.open().close()
    assert not old.exists()
    assert young.exists()
