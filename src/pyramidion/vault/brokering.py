"""A broker for the store in a directory, and how others find it there.

It takes neither the store's lock nor its keys: what it must know stands in the catalogue, and
files that the place does not have yet are read from the store's backlog. ``broker.json`` says
where it answers, and by which key; it is gone when the broker ends in order.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from pyramidion.errors import FormatError, StateError, StorageError
from pyramidion.storage.audit_log import AUDIT_LOG, AuditLog
from pyramidion.storage.catalogue import facts, told
from pyramidion.storage.disk import explained, write_durably
from pyramidion.storage.home import BACKLOG, CATALOGUE
from pyramidion.vault.broker import Broker
from pyramidion.vault.broker_http import BrokerServer
from pyramidion.vault.custody import PublicKey
from pyramidion.vault.places import Place, place_at
from pyramidion.vault.reader import Hello, hello

NOTE = "broker.json"


class Near:
    """A store's sealed files: from its backlog while they are there, else from their place.

    What the store has erased is not given, though the place may still have it.
    """

    def __init__(self, path: Path, place: Place) -> None:
        self._path, self._place = path, place

    def get(self, name: str) -> bytes:
        """The bytes of a file."""
        self._refuse_erased(name.partition(".")[0])
        path = self._path / BACKLOG / name
        with explained(path), suppress(FileNotFoundError):
            return path.read_bytes()
        return self._place.get(name)

    def _refuse_erased(self, name: str) -> None:
        path = self._path / CATALOGUE
        query = "SELECT count(*) FROM vault_files WHERE name = ? AND gone IS NULL"
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
                known = db.execute(query, (name,)).fetchone()[0]
        except sqlite3.Error as problem:
            raise told(problem, path) from None
        if not known:
            raise StateError(f"vault file {name} was erased since it was granted; ask again")


@contextmanager
def broker_at(path: Path) -> Iterator[Broker]:
    """A broker for the vault of a store, with a key of its own; all its grants end with it."""
    if not (path / CATALOGUE).exists():
        raise StorageError(f"there is no store at {path}; give the right path")
    said = facts(path / CATALOGUE)
    if said.get("copy"):
        raise StateError(f"{path} is a backup; give the store itself")
    if "vault" not in said:
        raise StateError(f"the store at {path} has no vault; attach one, or make one with a vault")
    try:
        vault = json.loads(said["vault"])
        url, custodian = str(vault["url"]), PublicKey.from_code(vault["custodian"])
    except (ValueError, KeyError, TypeError):
        raise FormatError(f"{path} does not say its vault; restore it from a backup") from None
    files = Near(path, place_at(url))
    log = AuditLog(path / AUDIT_LOG)
    try:
        broker = Broker(files, said["store"], custodian, log)
        try:
            yield broker
        finally:
            broker.close()
    finally:
        log.close()


@contextmanager
def announced(path: Path, server: BrokerServer) -> Iterator[None]:
    """Say in the store's directory where its broker is; refused where there is another one."""
    _refuse_second(path)
    note, draft = path / NOTE, path / f".{NOTE}.{secrets.token_hex(4)}"
    key = server.broker.public
    noted = {"address": server.address, "broker": key.to_code(), "fingerprint": key.fingerprint}
    write_durably(draft, [json.dumps(noted).encode()])
    with explained(note):
        os.replace(draft, note)
    try:
        yield
    finally:
        with suppress(OSError):
            if json.loads(note.read_bytes()) == noted:
                note.unlink()


def found_at(path: Path) -> tuple[str, Hello]:
    """The address of a store's broker, and who answers there: it must be the one that said so."""
    address, code = _noted(path)
    found = hello(address)
    if found.broker.to_code() != code:
        raise StateError(
            f"another broker answers at {address} than the one of the store at {path}; start that "
            f"again"
        )
    return address, found


def _noted(path: Path) -> tuple[str, str]:
    try:
        noted = json.loads((path / NOTE).read_bytes())
        return str(noted["address"]), str(noted["broker"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise StateError(
        f"no broker runs for the store at {path}; start `pyramidion vault broker`, or say where it "
        f"answers"
    )


def _refuse_second(path: Path) -> None:
    try:
        address, _ = found_at(path)
    except (StateError, StorageError, FormatError):
        return
    raise StateError(
        f"a broker for the store at {path} answers at {address} already; stop that one first"
    )
