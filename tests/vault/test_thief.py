"""A stolen machine: its store, its key holder and its vault, without the custodian's key.

The thief tries every key that lies anywhere, and every 32 bytes of every file, on every
file of the vault. The same attack with the custodian's key finds the rows: it can succeed.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pyramidion import FormatError, Pyramid
from pyramidion.storage.ciphers import NONCE
from pyramidion.vault.envelope import Envelope, joined
from pyramidion.vault.key_pairs import PrivateKey
from pyramidion.vault.parquet import decrypted
from tests.store.archive import keys_in, said_by
from tests.store.stores import CUSTODIAN, DAY, HOUR, Stand, rows
from tests.vault.vaults import vault_of

MARK = "canary-7f3a"


def _lived(stand: Stand, **settings: object) -> Pyramid:
    """A store whose marked row has left the hot window and lies in the vault alone."""
    store = stand.create(**settings)
    batch = rows(50)
    store.observe(batch.set_column(2, "a", pa.array([MARK] * 50)))
    stand.clock.pass_(4 * DAY)
    store.advance()
    vault_of(store).carry()
    assert store.status().hot_rows == 0
    return store


def _store_keys(folder: Path) -> set[bytes]:
    return keys_in(path.read_bytes() for path in folder.rglob("*.key"))


def _data_keys(folder: Path, store_keys: Iterable[bytes]) -> set[bytes]:
    """What the store keys unwrap in any catalogue, and the store keys themselves."""
    found = set(store_keys)
    for catalogue in folder.rglob("catalogue.db"):
        log = catalogue.with_name("catalogue.db-wal")
        said = said_by(catalogue.read_bytes(), log.read_bytes() if log.exists() else b"")
        for number, purpose, wrapped in said.keys:
            for key in store_keys:
                try:
                    context = f"{purpose} {number}".encode()
                    found.add(AESGCM(key).decrypt(wrapped[:NONCE], wrapped[NONCE:], context))
                except InvalidTag:
                    continue
    return found


def _envelopes(folder: Path) -> list[tuple[Envelope, Path]]:
    """Every envelope, and the file it is of."""
    return [
        (Envelope.from_bytes(path.read_bytes()), path.with_suffix(".parquet"))
        for path in folder.rglob("*.json")
    ]


def _read(envelope: Envelope, path: Path, keys: Iterable[bytes]) -> bool:
    """Whether one of these keys opens the rows of a file."""
    for key in keys:
        try:
            table = pa.Table.from_batches(decrypted(path.read_bytes(), key, envelope.header))
        except (FormatError, ValueError):
            continue
        return MARK in table["a"].to_pylist()
    return False


def stolen(folder: Path, private: Iterable[PrivateKey] = ()) -> bool:
    """Whether a row is found with all that lies in a folder, and some private keys."""
    keys = _data_keys(folder, _store_keys(folder))
    for envelope, path in _envelopes(folder):
        theirs = set(keys)
        for key in private:
            try:
                half = envelope.key(key)
            except FormatError:
                continue
            theirs |= {half, *(joined(half, lock) for lock in keys if len(lock) == len(half))}
        if _read(envelope, path, theirs):
            return True
    return False


@pytest.mark.parametrize("settings", [{}, {"vault_retention": "30d"}], ids=["open", "locked"])
def test_a_stolen_machine_yields_no_row_of_the_vault(
    stand: Stand, settings: dict[str, object]
) -> None:
    _lived(stand, **settings)
    stand.close()
    assert not stolen(stand.folder)
    assert not stolen(stand.folder, [PrivateKey.new()])
    assert stolen(stand.folder, [CUSTODIAN])  # the same attack, with the key that it lacks


def test_nothing_in_a_stolen_machine_is_a_files_key(stand: Stand) -> None:
    store = _lived(stand)
    keys = [envelope.key(CUSTODIAN) for envelope in vault_of(store).envelopes()]
    stand.close()
    for path in stand.folder.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        assert not any(key in data or key.hex().encode() in data for key in keys)


def test_no_file_shows_a_value_or_begins_like_one_that_is_not_encrypted(stand: Stand) -> None:
    _lived(stand)
    stand.close()
    for path in [*stand.folder.rglob("*.parquet"), *stand.path.rglob("*")]:
        data = path.read_bytes() if path.is_file() else b""
        assert MARK.encode() not in data
        assert not re.match(rb"PAR1|ARROW1", data)


def test_a_file_that_was_erased_opens_no_more_with_the_custodians_key_and_all_old_files(
    stand: Stand, tmp_path: Path
) -> None:
    store = _lived(stand, vault_retention="10d")
    archive = tmp_path / "archive"
    stand.close()
    shutil.copytree(stand.folder, archive, ignore=shutil.ignore_patterns("archive", "keys"))
    shutil.copytree(stand.folder / "keys", archive / "keys")
    assert stolen(archive, [CUSTODIAN])  # while its time is not over
    shutil.rmtree(archive / "keys")  # an archive has every file but no old key: those die
    store = stand.open()
    stand.clock.pass_(10 * DAY + HOUR)
    store.advance()
    stand.close()
    shutil.copytree(stand.folder / "keys", archive / "keys")
    assert not stolen(archive, [CUSTODIAN])
