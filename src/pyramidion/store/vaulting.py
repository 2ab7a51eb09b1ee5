"""A store and its vault: how one is attached, opened, and relieved of a person's rows.

What a vault is made of needs an extra, so it is imported only where a store has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyramidion.errors import SchemaError, StateError, refuse_missing
from pyramidion.storage.deletions import Deleted
from pyramidion.storage.outbox import AuditOutbox
from pyramidion.store.change import Also, Change, Erasure, apply
from pyramidion.store.erase_person import checked_person
from pyramidion.store.state import StoreState

if TYPE_CHECKING:
    from types import ModuleType

    from pyramidion.vault.key_pairs import PrivateKey, PublicKey
    from pyramidion.vault.vault import Vault

ABOUT = "vault"
"""The fact in the catalogue that says where a store's vault is, and whose."""
Move = Callable[[Callable[[], Any]], Any]
"""How the keeper does something."""


def _part(name: str) -> ModuleType:
    """What a vault is made of, where its extra is installed."""
    refuse_missing("a vault", ["cryptography.hazmat.primitives.hpke"], "vault")
    return import_module(f"pyramidion.vault.{name}")


def facts_of(vault: str | None, custodian: PublicKey | None, store: Path) -> dict[str, str]:
    """What the catalogue of a new store says of its vault, whose place is made; or nothing."""
    if (vault is None) != (custodian is None):
        raise SchemaError("a vault needs a place and a custodian's public key; give both")
    if vault is None:
        return {}
    return {ABOUT: _part("vault").attached(vault, custodian, store)}


def attach_vault(store: StoreState, folder: Path, url: str, custodian: PublicKey) -> None:
    """Give a store that has none a vault, which is owed what is observed from now on.

    By who holds the lock of arrivals.
    """
    if store.catalogue.about(ABOUT, ""):
        raise StateError("this store has a vault already; it keeps the one it has")
    about = _part("vault").attached(url, custodian, folder)
    with store.catalogue.transaction():
        store.pins.note(**{ABOUT: about})
        store.catalogue.note(vaulted=store.last_batch())


def opened_vault(
    store: StoreState, folder: Path, log: AuditOutbox, now: Callable[[], int]
) -> Vault:
    """The vault of a store that has one."""
    told = store.catalogue.about(ABOUT)
    parts = _part("vault").StoreParts(
        store.catalogue,
        store.keys,
        store.hot,
        store.settings,
        store.arrivals,
        partial(_erase, store),
        now,
        store.present,
        folder,
        log,
        store.schema.time,
    )
    vault: Vault = _part("vault").Vault(told, parts)
    store.with_erasures = (*store.with_erasures, Also(vault.losing))
    return vault


def _erase(
    store: StoreState,
    gone: Deleted,
    why: str,
    now: int,
    *,
    keys: Sequence[int],
    before: Callable[[], None],
) -> None:
    """Destroy keys of the vault's files, and change what the catalogue says of these."""
    erase = Erasure(gone, why)
    apply(store, Change("vault_erase", edits=[Also(before, keys=keys)], erase=erase), now)


def erase_from_vault(
    store: StoreState,
    vault: Vault | None,
    person: str | int,
    grant: str | bytes,
    key: PrivateKey,
    broker: str,
    why: str,
    move: Move,
) -> tuple[str, list[str]]:
    """Have a broker rewrite each granted file without a person's rows; the grant, the new names."""
    column = checked_person(store, person, why)
    if vault is None:
        raise StateError("this store has no vault, so nothing of the person is in one")
    reader, erase_person = _part("reader"), _part("erase_person")
    granted = reader.read_grant(grant)
    granted.refuse_unless("erase")
    vault.refuse_strange(granted)
    locks = vault.new_locks(file.header.name for file in granted.files)
    named = person if isinstance(person, str) else int(person)
    order = erase_person.Order(column, named, {name: lock.key for name, lock in locks.items()})
    names = [
        move(partial(vault.swap, made, locks.get(made.name), why=why))
        for made in reader.rewrite_files(grant, key, broker, order)
    ]
    return granted.id, names
