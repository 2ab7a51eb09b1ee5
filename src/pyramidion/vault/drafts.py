"""A file of the vault while it is written: encrypted from its first byte.

Rows go into it a row group at a time, so that few wait in memory. Its key is in this object
alone, until it is sealed to the custodian and let go of. (Python cannot wipe memory: copies
of it may lie there until the process ends or they are written over. While a file is open,
its rows are hot, so that the key opens nothing that this machine could not read anyway.)
A crash leaves a file that nobody can open, now or later; the next open removes it.
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyramidion.errors import SchemaError
from pyramidion.storage.ciphers import new_key
from pyramidion.storage.data_keys import DataKey
from pyramidion.storage.disk import explained, sync, write_durably
from pyramidion.vault.custody import PublicKey
from pyramidion.vault.envelope import Envelope, Header
from pyramidion.vault.parquet import ARRIVED, BATCH, OWN, digest_of, encrypting

GROUP = 50_000  # rows that are written together: 2 ms a column at most, beside who observes
PIECES = 256  # tables that wait at most; a table of one row takes 10 KB
BUFFER = 1 << 20  # bytes
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


class Draft:
    """One file, from its first row to its envelope."""

    def __init__(self, folder: Path, store: str, schema: pa.Schema, arrived: int) -> None:
        self.name = name_of(arrived)
        self.rows = 0
        self._folder = folder
        self._store = store
        self._schema = schema
        self._key = new_key()
        self._sink: _Sink | None = None
        self._writer: Any = None
        self._waiting: list[pa.Table] = []
        self._arrivals: list[int] = []
        self._batches: list[int] = []

    def add(self, table: pa.Table, batches: Sequence[int], arrivals: Sequence[int]) -> None:
        """Take marked rows of batches that arrived then."""
        self._waiting.append(table)
        self.rows += table.num_rows
        self._batches = _ends([*self._batches, *batches])
        self._arrivals = _ends([*self._arrivals, *arrivals])
        if sum(piece.num_rows for piece in self._waiting) >= GROUP:
            self._flush()
        elif len(self._waiting) >= PIECES:
            self._waiting = [pa.concat_tables(self._waiting).combine_chunks()]

    def _flush(self) -> _Sink:
        """Write what waits as a row group; the first one begins the file."""
        if self._sink is None:
            self._sink = _Sink(self._folder / parquet_of(self.name))
            like = pa.concat_tables(self._waiting)
            self._writer = encrypting(
                self._sink.stream, like, self._key, store=self._store, name=self.name
            )
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=GROUP)
            self._waiting = []
        return self._sink

    def seal(self, custodian: PublicKey, *, lock: bool) -> SealedFile:
        """Write what is left and the envelope, both durable; nobody here has the key any more."""
        sink = self._flush()
        self._writer.close()
        sink.settle()
        header = Header(
            name=self.name,
            store=self._store,
            custodian=custodian.fingerprint,
            first=self._arrivals[0],
            last=self._arrivals[-1],
            first_batch=self._batches[0],
            last_batch=self._batches[-1],
            rows=self.rows,
            size=sink.size,
            columns=tuple(name for name in self._schema.names if name not in OWN),
            digest=sink.digest,
        )
        key = DataKey.new(LOCK) if lock else None
        envelope = Envelope.seal(
            header, self._key, custodian, lock=None if key is None else key.key
        )
        self._key = b""
        data = envelope.to_bytes()
        write_durably(self._folder / envelope_of(self.name), [data])
        return SealedFile(header, digest_of(data), key)

    def drop(self, *, files: bool = True) -> None:
        """Let go of it: its key is gone, and so are its ``files``."""
        self._key, self._waiting = b"", []
        if self._writer is not None:
            with suppress(Exception):  # what it cannot write any more is not wanted either
                self._writer.close()
        if self._sink is not None:
            self._sink.close()
        with explained(self._folder):
            for name in (parquet_of(self.name), envelope_of(self.name)) if files else ():
                (self._folder / name).unlink(missing_ok=True)


def sealed_whole(
    folder: Path, store: str, table: pa.Table, custodian: PublicKey, *, lock: bool
) -> SealedFile:
    """Rows that were read from a vault, with the columns that it adds, in a file of their own."""
    missing = [name for name in OWN if name not in table.column_names]
    if missing:
        raise SchemaError(f"rows of the vault lack {missing[0]}; give them as they were read")
    batches, arrivals = (pc.min_max(table[name]).as_py() for name in (BATCH, ARRIVED))
    draft = Draft(folder, store, table.schema, arrivals["min"])
    try:
        draft.add(table, [*batches.values()], [*arrivals.values()])
        sealed = draft.seal(custodian, lock=lock)
        sync(folder)
    except BaseException:
        draft.drop()
        raise
    return sealed


def store_sealed(folder: Path, data: bytes, envelope: Envelope, lock: DataKey | None) -> SealedFile:
    """Make a file that was sealed elsewhere durable in a folder."""
    name, sealed = envelope.header.name, envelope.to_bytes()
    if not NAME.fullmatch(name):
        raise SchemaError("no vault names a file like that; check which broker answers")
    write_durably(folder / parquet_of(name), [data])
    write_durably(folder / envelope_of(name), [sealed])
    return SealedFile(envelope.header, digest_of(sealed), lock)


class _Sink:
    """A new file that Arrow writes by itself: Python is not asked for each of a thousand pages."""

    def __init__(self, path: Path) -> None:
        self._path, self.size, self.digest = path, 0, ""
        with explained(path):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            self.stream = pa.BufferedOutputStream(pa.OSFile(str(path), "wb"), BUFFER)

    def settle(self) -> None:
        """Make the bytes durable, and digest them; their name is once the folder is synced."""
        with explained(self._path):
            self.stream.close()
            os.fsync(self._descriptor)
            self.size = os.fstat(self._descriptor).st_size
            with mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ) as data:
                self.digest = digest_of(data)
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        with suppress(OSError):
            self.stream.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _ends(numbers: list[int]) -> list[int]:
    return [min(numbers), max(numbers)]
