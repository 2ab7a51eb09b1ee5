"""Files that the copy sealed which a restored store has taken the place of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyramidion import FormatError, Pyramid, SchemaError, StateError, StorageError
from pyramidion.cli import main
from pyramidion.vault.key_pairs import PrivateKey
from pyramidion.vault.parquet import ARRIVED, BATCH, WINDOW
from pyramidion.vault.writer import sealed_whole
from tests.store.stores import CUSTODIAN, HOUR, Stand, observed, rows
from tests.vault.vaults import batches, vault_of


def _restored(stand: Stand, **settings: Any) -> tuple[Pyramid, str]:
    """A restored store, and the name of the file that the other copy sealed since its backup."""
    store = stand.create(**settings)
    observed(store, rows(3))
    vault_of(store).seal()
    vault_of(store).carry()
    store.admin.backup(stand.folder / "backup")
    stand.clock.pass_(HOUR)
    observed(store, rows(4, stand.clock.now))
    vault_of(store).seal()
    vault_of(store).carry()
    name = vault_of(store).files()[-1].name
    stand.close()
    again = Pyramid.restore(stand.folder / "backup", stand.folder / "restored", **stand.given)
    return stand.held(again), name


def test_it_is_named_and_once_taken_in_is_a_file_like_any_other(stand: Stand) -> None:
    store, name = _restored(stand)
    vault = vault_of(store)
    assert {(p.name, p.why) for p in vault.verify()} == {
        (f"{name}.{suffix}", "unknown to this store") for suffix in ("parquet", "json")
    }
    (adopted,) = vault.adopt([name])
    assert (adopted.name, adopted.rows, adopted.stored) == (name, 4, vault._parts.now())
    assert vault.verify() == []
    assert {number: table.num_rows for number, table in batches(store).items()} == {1: 3, 2: 4}
    keys = {"key": PrivateKey.new(), "broker": PrivateKey.new().public}
    asked = vault.request(
        *(0, 1 << 53), columns=[], reason="x", engineer="E", now=1, purpose="erase", **keys
    )
    assert name in [file.header.name for file in asked.files]
    (entry,) = [e for e in store.audit_log.entries() if e.kind == "vault.adopted"]
    assert entry.facts["file"] == name
    assert entry.facts["digest"] == vault.envelopes()[-1].header.digest


def test_it_is_not_taken_in_by_itself(stand: Stand) -> None:
    store, name = _restored(stand)
    store.advance()
    assert name not in [file.name for file in vault_of(store).files()]


def test_what_is_there_already_or_nowhere_is_refused(stand: Stand) -> None:
    store, name = _restored(stand)
    vault = vault_of(store)
    with pytest.raises(StateError, match="already"):
        vault.adopt([name, vault.files()[0].name])
    with pytest.raises(StorageError):
        vault.adopt(["nothing"])
    with pytest.raises(SchemaError, match="no vault names a file"):
        vault.adopt([f"../vault/{name}"])
    assert len(vault.files()) == 1


@pytest.mark.parametrize("suffix", ["parquet", "json"])
def test_a_file_that_was_changed_is_refused(stand: Stand, suffix: str) -> None:
    store, name = _restored(stand)
    path = Path(str(stand.vault)) / f"{name}.{suffix}"
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(FormatError, match="damaged"):
        vault_of(store).adopt([name])


@pytest.mark.parametrize("other", ["store", "custodian", "name"])
def test_a_file_of_another_store_custodian_or_name_is_refused(stand: Stand, other: str) -> None:
    store, name = _restored(stand)
    place, vault = Path(str(stand.vault)), vault_of(store)
    custodian = PrivateKey.new() if other == "custodian" else CUSTODIAN
    table = pa.table({"a": ["x"], BATCH: [9], ARRIVED: [5], WINDOW: [1]})
    told = "other" if other == "store" else vault.store
    made = sealed_whole(place, told, table, custodian.public, lock=False).header.name
    if other == "name":
        for suffix in ("parquet", "json"):
            (place / f"{made}.{suffix}").rename(place / f"{name}x.{suffix}")
        made = f"{name}x"
    with pytest.raises(StateError, match="of another store, custodian or name"):
        vault.adopt([made])


def test_a_file_whose_lock_is_gone_with_its_copy_is_refused(stand: Stand) -> None:
    store, name = _restored(stand, vault_retention="30d")
    with pytest.raises(StateError, match="nobody opens it any more"):
        vault_of(store).adopt([name])


def test_a_shell_takes_it_in_by_the_name_that_verify_tells(
    stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    store, name = _restored(stand)
    stand.close()
    given = ["--data", str(store.path), "--keys", f"file:{stand.key}"]
    given += ["--now", str(stand.clock.now)]
    assert main(["vault", "verify", *given]) == 3
    assert "the vault is not as it was sealed in 2 places" in capsys.readouterr().err
    assert main(["vault", "adopt", f"{name}.parquet", *given]) == 0
    assert "1 file taken in, with 4 rows" in capsys.readouterr().out
    assert main(["vault", "verify", *given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
