"""What the catalogue says of schema, settings and custodian cannot be changed without the key."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pyramidion import Pyramid
from pyramidion.errors import FormatError
from pyramidion.storage.pins import FACTS, Pins
from pyramidion.vault.key_pairs import PrivateKey
from tests.store import test_selection as selection
from tests.store.stores import (
    BEFORE_TABLE_SETS,
    CUSTODIAN,
    DAY,
    TIMELESS,
    Stand,
    observed,
    rows,
    unpin,
)

INTRUDER = PrivateKey(bytes(range(100, 164)))


def written(path: Path, *commands: str, **values: Any) -> None:
    """Write to the catalogue of a store, without any key."""
    with closing(sqlite3.connect(path / "catalogue.db")) as db, db:
        for command in commands:
            db.execute(command, values)


def read(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path / "catalogue.db")) as db:
        return db.execute(query).fetchall()


def custody(path: Path) -> None:
    """Have raw rows sealed to an intruder from now on."""
    written(
        path,
        "UPDATE about SET value = json_set(value, '$.custodian', :code) WHERE name = 'vault'",
        code=INTRUDER.public.to_code(),
    )


CHANGES: dict[str, Callable[[Path], None]] = {
    "the vault's place or its custodian's key": custody,
    "the settings": lambda path: written(
        path,
        "UPDATE about SET value = json_set(value, '$.hot_window', '3650d') WHERE name = 'settings'",
    ),
    "the schema": lambda path: written(
        path, "UPDATE about SET value = value || :more WHERE name = 'schema'", more="\n# more\n"
    ),
    "which shard of which stream it is": lambda path: written(
        path, "INSERT INTO about VALUES ('shard', '{}')"
    ),
    "its name in the key holder": lambda path: written(
        path, "UPDATE about SET value = 'another' WHERE name = 'store'"
    ),
    "the key that values are hashed with": lambda path: written(
        path,
        "UPDATE about SET value = (SELECT value FROM about WHERE name = 'names') "
        "WHERE name = 'secret'",
    ),
    "the key that names are hashed with": lambda path: written(
        path, "DELETE FROM about WHERE name = 'names'"
    ),
    "whether values are known by their text or by their type": lambda path: written(
        path, "UPDATE about SET value = 'type' WHERE name = 'keyed_by'"
    ),
}


def vaulted(stand: Stand) -> Pyramid:
    """A store with a vault and some rows."""
    stand.vault = stand.folder / "vault"
    store = stand.create()
    observed(store, rows(20))
    return store


def test_every_pinned_fact_is_changed_here() -> None:
    assert set(CHANGES) == set(FACTS.values())


@pytest.mark.parametrize(("fact", "change"), CHANGES.items(), ids=list(CHANGES))
def test_a_fact_that_was_changed_is_named_at_open(
    fact: str, change: Callable[[Path], None], stand: Stand
) -> None:
    vaulted(stand)
    stand.close()
    change(stand.path)
    with pytest.raises(FormatError, match=rf"changed from outside.*: {fact}; restore it"):
        stand.open()


def test_a_store_whose_change_was_undone_opens(stand: Stand) -> None:
    vaulted(stand)
    stand.close()
    ((before,),) = read(stand.path, "SELECT value FROM about WHERE name = 'vault'")
    custody(stand.path)
    with pytest.raises(FormatError, match="custodian"):
        stand.open()
    written(stand.path, "UPDATE about SET value = :old WHERE name = 'vault'", old=before)
    assert stand.open().status().hot_rows == 20


def test_a_vault_that_was_put_in_is_refused(stand: Stand) -> None:
    stand.create()
    stand.close()
    place = f'{{"url": "{stand.folder}/theirs", "custodian": "{INTRUDER.public.to_code()}"}}'
    written(stand.path, "INSERT INTO about VALUES ('vault', :place)", place=place)
    with pytest.raises(FormatError, match="the vault's place or its custodian's key"):
        stand.open()


def test_a_catalogue_that_lost_its_pins_is_refused(stand: Stand) -> None:
    """Also where it says that an earlier version wrote it."""
    vaulted(stand)
    stand.close()
    custody(stand.path)
    written(
        stand.path,
        "DELETE FROM keys WHERE purpose LIKE 'pin of %'",
        *(command for command in BEFORE_TABLE_SETS.split(";") if command.strip()),
        "ALTER TABLE deletions DROP COLUMN kind",
        "ALTER TABLE deletions DROP COLUMN ids",
        "PRAGMA user_version = 8",
    )
    with pytest.raises(FormatError, match="has lost what pins its schema, settings and custodian"):
        stand.open()


def test_a_pin_that_was_taken_away_is_named(stand: Stand) -> None:
    vaulted(stand)
    stand.close()
    custody(stand.path)
    written(stand.path, "DELETE FROM keys WHERE purpose = 'pin of vault'")
    with pytest.raises(FormatError, match="the vault's place or its custodian's key"):
        stand.open()


PROGRAMS = {
    "trigger": "CREATE TRIGGER t AFTER INSERT ON table_sets BEGIN SELECT 1; END",
    "view": "CREATE VIEW v AS SELECT * FROM about",
}


@pytest.mark.parametrize("command", PROGRAMS.values(), ids=list(PROGRAMS))
def test_programs_in_the_catalogue_are_refused(command: str, stand: Stand) -> None:
    store = vaulted(stand)
    written(stand.path, command)
    (found,) = store.admin.verify()
    assert "triggers or views" in found.why
    stand.close()
    with pytest.raises(FormatError, match="triggers or views"):
        stand.open()


def test_a_trigger_cannot_have_its_own_schema_pinned(stand: Stand) -> None:
    store = vaulted(stand)
    written(
        stand.path,
        "CREATE TRIGGER t AFTER INSERT ON about WHEN new.name = 'schema' "
        "AND new.value NOT LIKE '%# theirs' BEGIN "
        "UPDATE about SET value = value || '# theirs' WHERE name = 'schema'; END",
    )
    store.groups.withdraw("a,b", why="not needed")
    stand.close()
    written(stand.path, "DROP TRIGGER t")
    with pytest.raises(FormatError, match="the schema"):
        stand.open()


def test_a_fact_that_is_no_text_is_refused(stand: Stand) -> None:
    vaulted(stand)
    stand.close()
    written(
        stand.path,
        "CREATE TABLE other (name TEXT PRIMARY KEY, value)",
        "INSERT INTO other SELECT name, CAST(value AS BLOB) FROM about WHERE name = 'settings'",
        "INSERT INTO other SELECT name, value FROM about WHERE name != 'settings'",
        "DROP TABLE about",
        "ALTER TABLE other RENAME TO about",
    )
    with pytest.raises(FormatError, match="the settings"):
        stand.open()


def test_a_pin_of_another_fact_is_refused(stand: Stand) -> None:
    vaulted(stand)
    stand.close()
    written(
        stand.path,
        "UPDATE keys SET wrapped = (SELECT wrapped FROM keys WHERE purpose = 'pin of schema') "
        "WHERE purpose = 'pin of settings'",
    )
    with pytest.raises(FormatError, match="does not open with the store key"):
        stand.open()


def test_pins_of_another_number_are_refused(stand: Stand) -> None:
    vaulted(stand)
    stand.close()
    written(stand.path, "UPDATE keys SET id = id + 1 WHERE purpose = 'pin of vault'")
    with pytest.raises(FormatError, match="does not open with the store key"):
        stand.open()


def test_pins_from_before_a_renewal_are_refused(stand: Stand) -> None:
    store = vaulted(stand)
    (old,) = read(stand.path, "SELECT id, wrapped FROM keys WHERE purpose = 'pin of schema'")
    ((schema,),) = read(stand.path, "SELECT value FROM about WHERE name = 'schema'")
    store.groups.withdraw("a,b", why="not needed")
    stand.close()
    written(
        stand.path,
        "UPDATE about SET value = :schema WHERE name = 'schema'",
        "UPDATE keys SET wrapped = :wrapped WHERE id = :number",
        schema=schema,
        number=old[0],
        wrapped=old[1],
    )
    with pytest.raises(FormatError, match="does not open with the store key"):
        stand.open()


def test_a_backup_that_was_changed_is_not_restored(stand: Stand) -> None:
    store = vaulted(stand)
    store.admin.backup(stand.folder / "backup")
    stand.close()
    custody(stand.folder / "backup")
    with pytest.raises(FormatError, match="custodian"):
        Pyramid.restore(stand.folder / "backup", stand.folder / "again", **stand.given)


# --- what may be changed ----------------------------------------------------------------------


def _attached(stand: Stand, store: Pyramid) -> None:
    store.admin.attach_vault(str(stand.folder / "vault"), CUSTODIAN.public)


LEGITIMATE: dict[str, Callable[[Stand, Pyramid], object]] = {
    "a group comes": lambda _, store: store.groups.add(["b", "c"]),
    "a feature goes": lambda _, store: store.groups.withdraw("a", why="not needed"),
    "groups are chosen": lambda _, store: store.groups.select(),
    "a vault is attached": _attached,
    "the store key is renewed": lambda _, store: store.admin.reseed(why="a break-in"),
}


@pytest.mark.parametrize("change", LEGITIMATE.values(), ids=list(LEGITIMATE))
def test_a_change_by_the_store_is_pinned_with_it(
    change: Callable[[Stand, Pyramid], object], stand: Stand
) -> None:
    store = selection.fed(stand, stand.create(selection.SCHEMA, **selection.MUCH), 1)
    change(stand, store)
    assert store.admin.verify() == []
    schema = store.schema
    assert stand.reopen().schema == schema


def test_a_fact_and_its_pin_change_together(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stand.create()

    def failed(*_: object) -> None:
        raise FormatError("as if killed")

    with monkeypatch.context() as patch:
        patch.setattr(Pins, "_pin", failed)
        with pytest.raises(FormatError, match="as if killed"):
            store.groups.withdraw("a,b", why="not needed")
    assert stand.reopen().schema.groups == (("a", "b"),)


# --- while it is open -------------------------------------------------------------------------


@pytest.mark.parametrize(("fact", "change"), CHANGES.items(), ids=list(CHANGES))
def test_verify_names_what_was_changed_meanwhile(
    fact: str, change: Callable[[Path], None], stand: Stand
) -> None:
    store = vaulted(stand)
    assert store.admin.verify() == []
    change(stand.path)
    (found,) = store.admin.verify()
    assert (found.kind, found.window) == ("catalogue", None)
    assert found.why == f"changed from outside: {fact}"


def test_verify_names_pins_that_do_not_open(stand: Stand) -> None:
    store = vaulted(stand)
    written(stand.path, "UPDATE keys SET wrapped = zeroblob(60) WHERE purpose = 'pin of vault'")
    (found,) = store.admin.verify()
    assert found.kind == "catalogue"
    assert "does not open with the store key" in found.why


def test_a_change_by_the_store_does_not_pin_that_of_an_intruder(stand: Stand) -> None:
    store = vaulted(stand)
    custody(stand.path)
    store.groups.withdraw("a,b", why="not needed")
    stand.close()
    with pytest.raises(FormatError, match="custodian"):
        stand.open()


# --- a store that an earlier version wrote ----------------------------------------------------


def test_an_earlier_store_is_pinned_when_it_is_opened(stand: Stand) -> None:
    vaulted(stand)
    stand.close()
    unpin(stand.path, stand.key)
    assert stand.open().admin.verify() == []
    stand.close()
    custody(stand.path)
    with pytest.raises(FormatError, match="custodian"):
        stand.open()


def test_an_earlier_store_cannot_lose_its_pins_after_a_renewal(stand: Stand) -> None:
    vaulted(stand)
    stand.close()
    unpin(stand.path, stand.key)
    stand.open().admin.reseed(why="a break-in")
    stand.close()
    written(stand.path, "DELETE FROM keys WHERE purpose LIKE 'pin of %'")
    with pytest.raises(FormatError, match="has lost what pins"):
        stand.open()


# --- windows, table files and the ledger ------------------------------------------------------

STATE_CHANGES = {
    "a window is sealed": "UPDATE table_sets SET state = 'sealed'",
    "a window begins later": "UPDATE table_sets SET start = start + 1, stop = stop + 1",
    "a window is gone": "DELETE FROM members",
    "a file is superseded": "UPDATE arenas SET current = 0",
    "a checkpoint has more rows": "UPDATE arenas SET after = after + 1",
    "a budget is larger": "UPDATE ledger SET amount = '2' WHERE kind = 'budget'",
    "a table cost nothing": "DELETE FROM ledger WHERE kind = 'table'",
}


@pytest.mark.parametrize("command", STATE_CHANGES.values(), ids=list(STATE_CHANGES))
def test_changed_windows_files_or_ledger_are_refused(command: str, stand: Stand) -> None:
    store = stand.create()
    observed(store, rows(5))
    written(stand.path, command)
    assert any("the windows, their table files or the ledger" in d.why for d in verified(store))
    stand.close()
    with pytest.raises(FormatError, match="the windows, their table files or the ledger"):
        stand.open()


def verified(store: Any) -> Any:
    return store.admin.verify()


def test_store_without_the_digest_of_windows_is_refused(stand: Stand) -> None:
    observed(stand.create(), rows(5))
    stand.close()
    written(stand.path, "DELETE FROM keys WHERE purpose = 'pin of windows and ledger'")
    with pytest.raises(FormatError, match="the windows, their table files or the ledger"):
        stand.open()


def test_store_of_an_earlier_version_is_authenticated_at_its_first_open(stand: Stand) -> None:
    observed(stand.create(), rows(5))
    stand.close()
    unpin(stand.path, stand.key)
    stand.open()
    stand.close()
    written(stand.path, "UPDATE ledger SET amount = '2' WHERE kind = 'budget'")
    with pytest.raises(FormatError, match="the windows, their table files or the ledger"):
        stand.open()


def test_windows_by_rows_stay_authenticated_when_their_first_row_comes(stand: Stand) -> None:
    store = stand.create(TIMELESS, count_window="20 rows", hot_window="3d")
    observed(store, rows(5).drop_columns(["t"]))
    assert verified(store) == []
    assert stand.reopen().status().windows[0].rows == 5


def test_store_does_not_confirm_what_an_intruder_changed_while_it_was_open(stand: Stand) -> None:
    store = stand.create()
    observed(store, rows(5))
    written(stand.path, "UPDATE ledger SET amount = '2' WHERE kind = 'budget'")
    stand.clock.pass_(10 * DAY)
    with pytest.raises(FormatError, match="the windows, their table files or the ledger"):
        store.advance()
    stand.close()
    with pytest.raises(FormatError, match="the windows, their table files or the ledger"):
        stand.open()


def test_checkpoint_by_another_program_does_no_harm(stand: Stand) -> None:
    store = stand.create()
    observed(store, rows(5))
    written(stand.path, "PRAGMA wal_checkpoint(TRUNCATE)")
    stand.clock.pass_(10 * DAY)
    assert store.advance().sealed == [1]
    assert stand.reopen().status().summarised_rows == 5
