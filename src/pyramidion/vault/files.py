"""The sealed files of a vault: their names, their rows in the catalogue, and the vault's status."""

from __future__ import annotations

import re
import secrets
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from pyramidion.errors import FormatError
from pyramidion.storage.audit_log import Fact
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.data_keys import DataKey, DataKeys
from pyramidion.storage.vault_files import NewVaultFile, VaultFiles
from pyramidion.vault.envelope import Envelope, Header
from pyramidion.vault.parquet import digest_of

LOWEST, HIGHEST = -(1 << 62), 1 << 62
LOCK = "vault file"
NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
"""What a file may be called: no path leads out of the place."""


def name_of(arrived: int) -> str:
    """A fresh name for a file whose first row arrived then.

    >>> name_of(1_357_534_800_000_000)[:17]
    '20130107T050000Z-'
    """
    moment = datetime.fromtimestamp(arrived // 1_000_000, UTC)
    return f"{moment:%Y%m%dT%H%M%SZ}-{secrets.token_hex(8)}"


def parquet_of(name: str) -> str:
    """The object that has the rows."""
    return f"{name}.parquet"


def envelope_of(name: str) -> str:
    """The object that has the header and the sealed key."""
    return f"{name}.json"


@dataclass(frozen=True)
class SealedFile:
    """A file that is durable and whole; the catalogue does not know it yet."""

    header: Header
    envelope: str
    """The digest of the envelope as it was written."""
    lock: DataKey | None


@dataclass(frozen=True)
class FileStatus:
    """A sealed file. Times are arrivals in microseconds; ``stored`` is None in the backlog."""

    name: str
    first: int
    last: int
    first_batch: int
    last_batch: int
    rows: int
    locked: bool
    stored: int | None

    @classmethod
    def of(cls, row: sqlite3.Row) -> FileStatus:
        """A row of the catalogue."""
        arrivals, batches = (row["first"], row["last"]), (row["first_batch"], row["last_batch"])
        locked = row["lock"] is not None
        return cls(row["name"], *arrivals, *batches, row["rows"], locked, row["stored"])


@dataclass(frozen=True)
class VaultStatus:
    """What a vault holds, and what is on its way."""

    url: str
    custodian: str
    """The fingerprint of the custodian's key."""
    files: int
    rows: int
    first: int | None
    last: int | None
    alone: int
    """Rows, at most, that are neither hot nor in a window that is kept: in the vault alone."""
    waiting_rows: int
    """Hot rows that are in no sealed file yet."""
    backlog_files: int
    backlog_bytes: int
    backlog_since: int | None
    """When the newest rows of the oldest file in the backlog arrived."""
    to_delete: int
    """Files that no key opens any more and that the place has not deleted yet."""
    problem: str | None
    """What kind of error kept the place from taking files, the last time."""


class Files:
    """The files that are sealed and not erased."""

    def __init__(self, catalogue: Catalogue, keys: DataKeys, get: Callable[[str], bytes]) -> None:
        self._files, self._keys, self._get = VaultFiles(catalogue), keys, get

    def between(self, first: int | None = None, last: int | None = None) -> list[sqlite3.Row]:
        """Those with rows that arrived from ``first`` up to, not with, ``last``."""
        start, stop = LOWEST if first is None else first, HIGHEST if last is None else last
        return self._files.between(start, stop)

    def rows_before(self, moment: int) -> int:
        """Rows of files that have some which arrived before a moment."""
        return self._files.rows_before(moment)

    def named(self, name: str) -> list[sqlite3.Row]:
        """The one of this name, if there is one."""
        return self._files.named(name)

    def past(self, kept: int, now: int) -> list[sqlite3.Row]:
        """Those of which the last row arrived so long ago."""
        return self._files.past(kept, now)

    def oldest(self) -> int | None:
        """When the last row of the file arrived whose time is over first."""
        return self._files.oldest()

    def lock(self, row: sqlite3.Row) -> bytes:
        """The lock of a file that has one."""
        return self._keys.get(row["lock"])

    def envelope(self, row: sqlite3.Row) -> Envelope:
        """The envelope of a file as it lies in the place; another one is refused."""
        data = self._get(envelope_of(row["name"]))
        if digest_of(data) != row["envelope"]:
            raise FormatError(
                f"the envelope of vault file {row['name']} is not the one that was sealed; restore "
                f"it from a copy of the vault"
            )
        return Envelope.from_bytes(data)


def told_of(header: Header) -> dict[str, Fact]:
    """What the audit log tells of a file that was sealed."""
    names = ("digest", "rows", "first", "last")
    return {"file": header.name} | {name: getattr(header, name) for name in names}


def know(catalogue: Catalogue, keys: DataKeys, file: SealedFile, stored: int | None = None) -> None:
    """Put a sealed file into the catalogue; within a transaction."""
    header = file.header
    if file.lock is not None:
        keys.add(file.lock)
    VaultFiles(catalogue).insert(
        NewVaultFile(
            name=header.name,
            first=header.first,
            last=header.last,
            first_batch=header.first_batch,
            last_batch=header.last_batch,
            rows=header.rows,
            digest=header.digest,
            envelope=file.envelope,
            lock=None if file.lock is None else file.lock.id,
            stored=stored,
        )
    )
