"""What a custodian finds in a vault, and vaults whose disk or place refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyramidion import Pyramid
from pyramidion.vault.envelope import Envelope, joined
from pyramidion.vault.key_pairs import PrivateKey
from pyramidion.vault.parquet import BATCH, decrypted, unmarked
from pyramidion.vault.vault import Vault
from pyramidion.vault.writer import Draft
from tests.store.stores import CUSTODIAN


def vault_of(store: Pyramid) -> Vault:
    """The vault of a store that has one."""
    assert store.vault is not None
    return store.vault


def opened(vault: Vault, envelope: Envelope, key: PrivateKey = CUSTODIAN) -> pa.Table:
    """The rows of one file, with the columns that the vault adds."""
    data = vault._backlog.get(f"{envelope.header.name}.parquet")
    opening = envelope.key(key)
    if envelope.locked:
        opening = joined(opening, vault.locks()[envelope.header.name])
    return pa.Table.from_batches(decrypted(data, opening, envelope.header))


def tables(store: Pyramid) -> list[pa.Table]:
    """The rows of every file, by the time they arrived."""
    vault = vault_of(store)
    return [opened(vault, envelope) for envelope in vault.envelopes()]


def batches(store: Pyramid) -> dict[int, pa.Table]:
    """Every sealed batch as it was observed; one that is in two files fails here."""
    found: dict[int, pa.Table] = {}
    for table in tables(store):
        for number in sorted(set(table[BATCH].to_pylist())):
            assert number not in found
            found[number] = unmarked(table.filter(pc.equal(table[BATCH], number)))
    return found


def sealed(store: Pyramid) -> dict[int, pa.Table]:
    """Every acknowledged batch, once all are sealed."""
    vault_of(store).seal()
    return batches(store)


def refusing(monkeypatch: Any, times: int) -> Callable[[], int]:
    """Have the disk refuse the next files; how often it still will."""
    seal, left = Draft.seal, [times]

    def refused(self: Draft, *given: Any, **named: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise OSError("the disk refuses")
        return seal(self, *given, **named)

    monkeypatch.setattr(Draft, "seal", refused)
    return lambda: left[0]


class Down:
    """A place that fails so many times, then works."""

    def __init__(self, place: Any, times: int) -> None:
        self._place, self.left = place, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)

    def _fail(self) -> None:
        if self.left:
            self.left -= 1
            raise ConnectionError("s3://secret-bucket is away")

    def put(self, name: str, data: Any) -> None:
        """As the place does, or fail."""
        self._fail()
        self._place.put(name, data)

    def delete(self, name: str) -> None:
        """As the place does, or fail."""
        self._fail()
        self._place.delete(name)


def down(store: Pyramid, times: int = 1_000_000) -> Down:
    """Have the place of a store be down so many times."""
    vault = vault_of(store)
    vault._backlog._place = away = Down(vault.place, times)
    return away
