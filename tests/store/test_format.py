"""Formats: newer ones are refused, older ones are brought up to date, whole or not at all."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyramidion import Pyramid
from pyramidion.counts.snapshot import Snapshot
from pyramidion.errors import FormatError, KeyHolderError, StorageError
from pyramidion.storage import catalogue as module
from tests.store import inspect
from tests.store.stores import BEFORE_TABLE_SETS, DAY, Stand, observed, rows, states, unpin
from tests.store.test_snapshots_sent import sent

NOW = module.FORMAT
KEPT = Path(__file__).parent.parent / "data" / "store-format-1"
FORMAT_7 = Path(__file__).parent.parent / "data" / "store-format-7"


def version(path: Path) -> int:
    with sqlite3.connect(path / "catalogue.db") as db:
        found = int(db.execute("PRAGMA user_version").fetchone()[0])
    db.close()
    return found


def set_version(path: Path, number: int) -> None:
    with sqlite3.connect(path / "catalogue.db") as db:
        db.execute(f"PRAGMA user_version={number}")
    db.close()


def test_a_store_says_its_format(stand: Stand) -> None:
    stand.create()
    stand.close()
    assert version(stand.path) == module.FORMAT == 12


def test_a_newer_format_is_refused_and_left_alone(stand: Stand) -> None:
    stand.create().observe(rows(5))
    stand.close()
    set_version(stand.path, NOW + 1)
    before = (stand.path / "catalogue.db").read_bytes()
    with pytest.raises(FormatError, match=rf"format {NOW + 1} .* reads up to {NOW}; upgrade"):
        stand.open()
    assert (stand.path / "catalogue.db").read_bytes() == before
    set_version(stand.path, NOW)
    assert stand.open().status().hot_rows == 5


def test_an_older_format_is_brought_up_to_date(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.create().observe(rows(5))
    stand.close()

    def add(db: sqlite3.Connection) -> None:
        db.execute("CREATE TABLE grants (id INTEGER PRIMARY KEY) STRICT")
        db.execute("ALTER TABLE table_sets ADD COLUMN weight INTEGER NOT NULL DEFAULT 0")

    monkeypatch.setattr(module, "FORMAT", NOW + 1)
    monkeypatch.setitem(module.MIGRATIONS, NOW, add)
    store = stand.open()
    assert inspect.catalogue(store).one("SELECT weight FROM table_sets") == 0
    assert inspect.catalogue(store).all("SELECT * FROM grants") == []
    assert store.status().hot_rows == 5
    store.observe(rows(5))
    stand.close()
    assert version(stand.path) == NOW + 1


def test_several_formats_are_passed_through_in_order(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.create()
    stand.close()
    passed = []
    monkeypatch.setattr(module, "FORMAT", NOW + 3)
    for number in (NOW, NOW + 1, NOW + 2):
        monkeypatch.setitem(module.MIGRATIONS, number, lambda _, n=number: passed.append(n))
    stand.open()
    stand.reopen()
    assert passed == [NOW, NOW + 1, NOW + 2]


def test_a_migration_that_fails_leaves_the_old_format_whole(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.create().observe(rows(5))
    stand.close()

    def first(db: sqlite3.Connection) -> None:
        db.execute("ALTER TABLE table_sets ADD COLUMN weight INTEGER NOT NULL DEFAULT 0")

    def second(db: sqlite3.Connection) -> None:
        db.execute("DROP TABLE imports")
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(module, "FORMAT", NOW + 2)
        patch.setitem(module.MIGRATIONS, NOW, first)
        patch.setitem(module.MIGRATIONS, NOW + 1, second)
        with pytest.raises((StorageError, FormatError), match=r"catalogue\.db"):
            stand.open()
    assert version(stand.path) == NOW
    store = stand.open()
    assert "weight" not in inspect.catalogue(store).all("SELECT * FROM table_sets")[0].keys()  # noqa: SIM118
    assert store.status().hot_rows == 5


def test_a_store_whose_migration_fails_is_not_left_locked(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.create()
    stand.close()

    def broken(_: sqlite3.Connection) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(module, "FORMAT", NOW + 1)
        patch.setitem(module.MIGRATIONS, NOW, broken)
        with pytest.raises(ZeroDivisionError):
            stand.open()
    stand.open()


def test_a_store_from_before_trees_goes_on_flat(stand: Stand) -> None:
    """Of format 5: no nodes, and files that say whose tables of windows they are alone."""
    store = stand.create()
    observed(store, rows(5))
    stand.clock.pass_(10 * DAY)
    store.advance()
    observed(store, rows(5, stand.clock.now))
    stand.close()
    unpin(stand.path, stand.key)
    with sqlite3.connect(stand.path / "catalogue.db") as db:
        db.executescript(BEFORE_TABLE_SETS)
        db.executescript(
            "ALTER TABLE arenas DROP COLUMN node; DROP TABLE members; "
            "DROP TABLE nodes; DROP TABLE shared;"
            "ALTER TABLE batches DROP COLUMN came; ALTER TABLE batches DROP COLUMN since;"
            "ALTER TABLE deletions DROP COLUMN kind; ALTER TABLE deletions DROP COLUMN ids;"
            "ALTER TABLE past_steps DROP COLUMN came_first;"
            "ALTER TABLE past_steps DROP COLUMN came_last;"
            "UPDATE about SET value = json_remove(value, '$.windows', '$.tree_radix', "
            "'$.tree_depth', '$.tree_shares') WHERE name = 'settings'; PRAGMA user_version=5;"
        )
    db.close()
    store = stand.open()
    assert store.settings.levels is None
    stand.clock.pass_(10 * DAY)
    store.advance()
    assert store.status().summarised_rows == 10
    assert store.status().nodes == ()
    assert store.admin.verify() == []
    stand.close()
    assert version(stand.path) == NOW


# --- a store that was written by the first version ------------------------------------------


@pytest.fixture
def kept(stand: Stand) -> dict[str, object]:
    """The store of format 1, copied to where it may be changed; what was recorded of it."""
    shutil.copytree(KEPT / "store", stand.path)
    stand.key.parent.mkdir()
    shutil.copy(KEPT / "store.key", stand.key)
    stand.key.chmod(0o600)  # a checkout does not keep who may read a file
    recorded: dict[str, object] = json.loads((KEPT / "recorded.json").read_text())
    stand.clock.now = recorded["now"]  # type: ignore[assignment]
    return recorded


def test_a_store_of_format_1_opens_and_gives_the_numbers_it_gave(
    stand: Stand, kept: dict[str, object]
) -> None:
    store = stand.open()
    features = store.featurize(kept["rows"])
    # Groups are shrunk to their parts since, and have a column more.
    assert features.column_names == [*kept["names"], "surplus(y=1|a*b)"]  # type: ignore[misc]
    alone = [i for i, name in enumerate(features.column_names) if "*" not in name]
    found = np.array([features[i].to_pylist() for i in alone])
    assert found == pytest.approx(np.array(kept["features"])[alone], abs=1e-6)
    assert {str(k): list(v) for k, v in states(store).items()} == kept["windows"]
    assert store.status().hot_rows == kept["hot_rows"]
    told = json.loads(json.dumps(store.ledger.report().to_dict()))
    for window in told["windows"]:  # sums of the lines, which are told since
        for name in ("tables", "tables_exact", "reserves"):
            del window[name]
    assert told == kept["ledger"]


def test_a_store_of_format_1_goes_on(stand: Stand, kept: dict[str, object]) -> None:
    store = stand.open()
    assert version(stand.path) == NOW
    assert store.models == {}
    assert store.observe(kept["rows"], key="again").accepted == 3
    assert store.observe(kept["rows"], key="batch 4").accepted == 20  # as it was acknowledged then
    stand.clock.pass_(100 * DAY)
    store.advance()
    assert stand.reopen().status().hot_rows == 0


@pytest.mark.parametrize("away", [False, True])
def test_a_store_of_format_1_knows_values_by_their_type(
    stand: Stand, kept: dict[str, object], away: bool
) -> None:
    store = stand.open()
    assert store.keyed_by == "type"
    snapshot = sent(stand, store) if away else store.snapshot()
    assert known(snapshot) == inspect.door(store).encoder.hasher.values([7, "7"]).tolist()
    assert len(set(known(snapshot))) == 2


@pytest.mark.parametrize("away", [False, True])
def test_a_new_store_knows_values_by_their_text(stand: Stand, away: bool) -> None:
    stand.create()
    store = stand.reopen()
    assert store.keyed_by == "text"
    observed(store, rows(5))
    stand.clock.pass_(10 * DAY)
    store.advance()
    assert len(set(known(sent(stand, store) if away else store.snapshot()))) == 1


def known(snapshot: Snapshot) -> list[int]:
    """What a snapshot makes of a number and of its text."""
    return snapshot.encoder.hasher.values([7, "7"]).tolist()


def test_the_store_of_format_1_is_small() -> None:
    assert sum(file.stat().st_size for file in KEPT.rglob("*") if file.is_file()) < 200_000


def test_a_store_of_format_1_does_not_open_with_another_key(
    stand: Stand, kept: dict[str, object]
) -> None:
    stand.key.write_text("{}")
    with pytest.raises(KeyHolderError, match=r"does not have the key|holds no key"):
        Pyramid.open(stand.path, **stand.given)


# --- stores that were written by format 7, flat and as a tree ---------------------------------


@pytest.fixture(params=["flat", "tree"])
def format_7(request: pytest.FixtureRequest, stand: Stand) -> dict[str, Any]:
    """A store of format 7, copied to where it may be changed; what was recorded of it."""
    source = FORMAT_7 / request.param
    shutil.copytree(source / "store", stand.path)
    stand.key.parent.mkdir()
    shutil.copy(source / "store.key", stand.key)
    stand.key.chmod(0o600)  # a checkout does not keep who may read a file
    recorded: dict[str, Any] = json.loads((source / "recorded.json").read_text())
    stand.clock.now = recorded["now"]
    return recorded


def test_format_7_keeps_its_features_and_ledger(stand: Stand, format_7: dict[str, Any]) -> None:
    store = stand.open()
    features = store.featurize(format_7["rows"])
    assert features.column_names == format_7["names"]
    found = np.array([features[name].to_pylist() for name in features.column_names])
    assert found == pytest.approx(np.array(format_7["features"]), abs=1e-6)
    assert {str(k): list(v) for k, v in states(store).items()} == format_7["windows"]
    assert store.status().hot_rows == format_7["hot_rows"]
    assert json.loads(json.dumps(store.ledger.report().to_dict())) == format_7["ledger"]


def test_format_7_keeps_its_exposure_reports(stand: Stand, format_7: dict[str, Any]) -> None:
    store = stand.open()
    for start, stop, report in format_7["exposure"]:
        assert json.loads(json.dumps(store.exposure(start, stop).to_dict())) == report


def test_format_7_goes_on(stand: Stand, format_7: dict[str, Any]) -> None:
    store = stand.open()
    assert version(stand.path) == NOW
    accepted = store.observe(format_7["rows"], key="again").accepted
    assert accepted == len(format_7["rows"])
    stand.clock.pass_(100 * DAY)
    store.advance()
    assert stand.reopen().status().hot_rows == 0
