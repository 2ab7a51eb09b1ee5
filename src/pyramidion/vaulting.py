"""A store and its vault: how one is attached, opened, and relieved of a person's rows.

What a vault is made of needs an extra, so it is imported only where a store has one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyramidion.erasing import theirs_of
from pyramidion.errors import SchemaError, StateError
from pyramidion.extras import refuse_missing
from pyramidion.lifecycle import Lifecycle
from pyramidion.untold import Untold

if TYPE_CHECKING:
    from types import ModuleType

    from pyramidion.vault.custody import PublicKey
    from pyramidion.vault.reader import GrantedRows
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


def attach_vault(store: Lifecycle, folder: Path, url: str, custodian: PublicKey) -> None:
    """Give a store that has none a vault, which is owed what is observed from now on.

    By who holds the lock of arrivals.
    """
    if store.catalogue.about(ABOUT, ""):
        raise StateError("this store has a vault already; it keeps the one it has")
    about = _part("vault").attached(url, custodian, folder)
    with store.catalogue.transaction():
        store.catalogue.note(vault=about, vaulted=store.last_batch())


def opened_vault(store: Lifecycle, folder: Path, log: Untold, now: Callable[[], int]) -> Vault:
    """The vault of a store that has one."""
    told = store.catalogue.about(ABOUT)
    surroundings = _part("surroundings").Surroundings(
        store.catalogue,
        store.keys,
        store.hot,
        store.settings,
        store.arrivals,
        store.erase,
        now,
        folder,
        log,
    )
    vault: Vault = _part("vault").Vault(told, surroundings)
    store.erasing.append(lambda *_: vault.losing())
    return vault


def erase_from_vault(
    store: Lifecycle,
    vault: Vault | None,
    person: str | int,
    rows: GrantedRows,
    why: str,
    move: Move,
) -> list[str | None]:
    """Seal each granted file anew without a person's rows; the new names, None where one went."""
    theirs = theirs_of(store, person, why)
    if vault is None:
        raise StateError("this store has no vault, so nothing of the person is in one")
    vault.refuse_strange(rows.grant)
    return [
        move(partial(vault.replace, name, [table], why=why))
        for name, table in _part("forgetting").without(rows, theirs)
    ]
