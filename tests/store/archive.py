"""An attacker with a perfect memory: every version of every file, and the keys there are now.

`Archive` watches folders while a store works in them. It looks before and after every call
that can change a file, and at every SQL statement, so that no version escapes it. `loot`
tries all keys on all bytes and gives what could be read.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from hashlib import blake2b
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pyramidion.counts.arena import MAGIC as ARENA
from pyramidion.counts.layout import Layout, Table
from pyramidion.errors import FormatError
from pyramidion.storage import fault_points as killpoints
from pyramidion.storage import records
from pyramidion.storage.ciphers import KEY_BYTES, MAGIC, NONCE, TAG, opened, sealed_size

CALLS = ("write", "fsync", "fdatasync", "ftruncate", "truncate", "replace", "rename", "unlink")
WRAPPED = NONCE + KEY_BYTES + TAG
ALL = 1 << 26  # bytes: more than any file here has

Counts = dict[str, np.ndarray]
"""Cells of each table by its name."""


class Archive:
    """Every version of every file in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.versions: dict[tuple[str, bytes], None] = {}
        """Each version of each file, by its path, in the order they were seen."""
        self._now: dict[str, bytes] = {}
        self._stats: dict[str, tuple[int, int, int]] = {}
        self._catalogues: dict[tuple[bytes, bytes], None] = {}
        self._held: dict[tuple[int, int], int] = {}
        self._lock = threading.Lock()

    def look(self) -> None:
        """Keep what is new."""
        with self._lock:
            self._now, before = self._read(), self._now
            changed = [name for name in self._now if before.get(name) != self._now[name]]
            self.versions.update(dict.fromkeys((name, self._now[name]) for name in changed))
            for name in {name.removesuffix("-wal") for name in changed}:
                if "catalogue.db" in name and not name.endswith("-shm") and name in self._now:
                    log = self._now.get(f"{name}-wal", b"")
                    self._catalogues[self._now[name], log] = None

    def _read(self) -> dict[str, bytes]:
        found = {}
        for folder, _, names in os.walk(self.folder):
            for name in names:
                path = os.path.join(folder, name)
                short = path.removeprefix(f"{self.folder}/")
                with suppress(FileNotFoundError):
                    found[short] = self._bytes(short, path, name.endswith((".rows", ".tables")))
        return found

    def _bytes(self, short: str, path: str, grows: bool) -> bytes:
        """A file's bytes.

        One that only grows is read when it has grown. SQLite's stay open: closing one
        would undo SQLite's locks.
        """
        known = os.stat(path)
        stats = known.st_ino, known.st_size, known.st_mtime_ns
        if grows and self._stats.get(short) == stats:
            return self._now[short]
        held = self._held.get((known.st_dev, known.st_ino))
        descriptor = os.open(path, os.O_RDONLY) if held is None else held
        try:
            data = os.pread(descriptor, ALL, 0)
        finally:
            if held is None and "catalogue.db" in path:
                self._held[known.st_dev, known.st_ino] = descriptor
            elif held is None:
                os.close(descriptor)
        if grows and len(data) == known.st_size:
            self._stats[short] = stats
        return data

    def image(self) -> dict[str, bytes]:
        """All files as they are now: what a crash would leave."""
        self.look()
        return dict(self._now)

    def close(self) -> None:
        """Let go of the files."""
        while self._held:
            os.close(self._held.popitem()[1])

    def catalogues(self) -> list[Catalogue]:
        """What each version of each catalogue says, its log included."""
        return [said_by(data, log) for data, log in list(self._catalogues)]

    def after(self, earlier: Archive) -> Archive:
        """The versions of both, those of the earlier one first."""
        both = Archive(self.folder)
        both.versions = {**earlier.versions, **self.versions}
        both._catalogues = {**earlier._catalogues, **self._catalogues}
        return both

    def so_far(self) -> Archive:
        """The versions there are by now; looks no further."""
        copy = Archive(self.folder)
        copy.versions, copy._catalogues = dict(self.versions), dict(self._catalogues)
        return copy

    def wrapped(self, purposes: Iterable[str]) -> dict[str, set[bytes]]:
        """Wrapped keys in raw bytes, also of freed pages: they follow the name of their purpose."""
        found: dict[str, set[bytes]] = {}
        for purpose in purposes:
            text = purpose.encode()
            found[purpose] = {
                data[match.end() : match.end() + WRAPPED]
                for _, data in self.versions
                for match in re.finditer(re.escape(text), data)
                if len(data) >= match.end() + WRAPPED
            }
        return found

    def records(self) -> set[tuple[str, bytes]]:
        """Sealed records in all versions of the segments of hot rows, with the segment's name."""
        found = set()
        for file, data in self._named("rows"):
            for match in re.finditer(re.escape(MAGIC), data):
                at = match.end() + 4
                size = sealed_size(int.from_bytes(data[at : at + 8], "little"))
                found.add((file, data[match.start() : match.start() + size]))
        return found

    def tables(self) -> set[tuple[str, bytes]]:
        """Name and bytes of all versions of table files."""
        return set(self._named("tables"))

    def _named(self, ending: str) -> Iterator[tuple[str, bytes]]:
        """Versions of files by the name they have or will have, wherever they lie."""
        for name, data in self.versions:
            if match := re.search(rf"[0-9a-f]+\.{ending}", Path(name).name):
                yield match[0], data


@contextmanager
def watched(*archives: Archive) -> Iterator[None]:
    """Have archives look before and after everything that can change a file."""

    def look(*_: object) -> None:
        for archive in archives:
            archive.look()

    def seen(call: Callable[..., Any]) -> Callable[..., Any]:
        def both(*given: Any, **named: Any) -> Any:
            look()
            try:
                return call(*given, **named)
            finally:
                look()

        return both

    class Connection(sqlite3.Connection):
        close = seen(sqlite3.Connection.close)
        backup = seen(sqlite3.Connection.backup)

    connect = sqlite3.connect

    def connected(*given: Any, **named: Any) -> sqlite3.Connection:
        made = connect(*given, factory=Connection, **named)
        made.set_trace_callback(look)
        return made

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, seen(getattr(os, name)))
        patch.setattr(sqlite3, "connect", connected)
        look()
        yield
        look()


@contextmanager
def on_reach(call: Callable[[str], None]) -> Iterator[None]:
    """Have something called at every kill point."""
    reach = killpoints.reach
    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith("pyramidion.") and getattr(module, "reach", None) is reach:
                patch.setattr(module, "reach", call)
        yield


def keys_in(texts: Iterable[bytes]) -> set[bytes]:
    """Store keys in the files of a key holder, whatever these look like."""
    found = [key.decode() for text in texts for key in re.findall(b"[0-9a-f]{64}", text)]
    return {bytes.fromhex(key) for key in found}


@dataclass
class Catalogue:
    """What one version of a catalogue says."""

    keys: set[tuple[int, str, bytes]] = field(default_factory=set)
    """Number, purpose and wrapped bytes."""
    tables: dict[str, tuple[str, frozenset[int]]] = field(default_factory=dict)
    """Kind and windows of each table file."""
    batches: set[tuple[str, int]] = field(default_factory=set)
    """Segment and number."""
    sealed: set[tuple[int, bytes]] = field(default_factory=set)
    """Number of a batch, and what is known of it."""
    digests: set[bytes] = field(default_factory=set)

    def _ask(self, ask: Callable[[str], Iterable[Any]]) -> None:
        self.keys.update(ask("SELECT id, purpose, wrapped FROM keys"))
        sealed = frozenset(
            n for (n,) in ask("SELECT number FROM table_sets WHERE level = 0 AND state = 'sealed'")
        )
        files = "SELECT file, kind, level, number, current FROM arenas"
        for file, kind, level, number, current in ask(files):
            if kind != "complete":
                self.tables[file] = kind, frozenset([None if level else number])
            elif current:
                self.tables[file] = kind, sealed
        step = "FROM batches JOIN steps ON steps.number = batches.step"
        self.batches.update(ask(f"SELECT file, batches.number {step}"))
        self.sealed.update(ask("SELECT number, sealed FROM batches"))
        self.digests.update(d for (d,) in ask("SELECT once FROM arrivals"))


@cache
def said_by(data: bytes, log: bytes) -> Catalogue:
    """What a catalogue and its log say; those caught half written say less."""
    said = Catalogue()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "catalogue.db"
        path.write_bytes(data)
        path.with_name("catalogue.db-wal").write_bytes(log)
        with closing(sqlite3.connect(path)) as db, suppress(sqlite3.DatabaseError):
            said._ask(db.execute)
    return said


@dataclass(frozen=True)
class Tables:
    """Count tables that could be read, or a difference of such."""

    file: str
    kind: str
    windows: frozenset[int]
    rows: int
    cells: Counts = field(repr=False)

    def minus(self, other: Tables, kind: str = "difference") -> Tables:
        """Cell by cell, in the tables that both have."""
        cells = {
            name: self.cells[name] - other.cells[name] for name in self.cells if name in other.cells
        }
        return Tables("", kind, self.windows - other.windows, self.rows - other.rows, cells)


@dataclass
class Loot:
    """All that could be read."""

    keys: dict[int, bytes] = field(default_factory=dict)
    """Data keys by number."""
    batches: dict[int, list[pa.Table]] = field(default_factory=dict)
    """Raw rows by the number of their batch: more than one where they were rewritten."""
    known: set[int] = field(default_factory=set)
    """Batches of which it could be read where they lie and what became of their rows."""
    tables: list[Tables] = field(default_factory=list)
    digests: frozenset[bytes] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.batches or self.tables or self.keys)

    @property
    def columns(self) -> set[str]:
        """Columns of the raw rows."""
        return {name for found in self.batches.values() for t in found for name in t.column_names}

    def values(self, column: str) -> set[object]:
        """Values of a column in the raw rows."""
        tables = [table for found in self.batches.values() for table in found]
        columns = [t.column(column) for t in tables if column in t.column_names]
        return {value for found in columns for value in found.to_pylist()}

    def links(self, once: str) -> bool:
        """Whether it can be told that a batch came under this idempotency key."""
        return any(
            blake2b(once.encode(), key=key, person=b"idempotency", digest_size=16).digest()
            in self.digests
            for key in self.keys.values()
        )

    @cached_property
    def states(self) -> list[Tables]:
        """Each state of each window's tables, also where it follows from two complete tables."""
        complete = [tables for tables in self.tables if tables.kind == "complete"]
        found = [tables for tables in self.tables if tables.kind != "complete"]
        for more, less in permutations(complete, 2):
            if less.windows < more.windows and len(more.windows - less.windows) == 1:
                found.append(more.minus(less, "derived"))
        return found + [tables for tables in complete if len(tables.windows) == 1]

    def differences(self) -> Iterator[tuple[int, Tables, Tables]]:
        """Each two states of one window's tables, the earlier one first."""
        for later, earlier in permutations(self.states, 2):
            if later.windows == earlier.windows and later.rows >= earlier.rows:
                (window,) = later.windows
                yield window, earlier, later


def loot(archive: Archive, store_keys: Iterable[bytes]) -> Loot:
    """Try all store keys on all wrapped keys, and what that gives on all files."""
    said = archive.catalogues()
    found = Loot(digests=frozenset().union(*(each.digests for each in said)))
    found.keys = _unwrapped(archive, said, [AESGCM(key) for key in store_keys])
    keys = set(found.keys.values())
    numbers: dict[str, dict[str, int]] = {}
    for file, number in {batch for each in said for batch in each.batches}:
        numbers.setdefault(file, {})[f"batch {number}"] = number
    for file, record in archive.records():
        for context, plain in _opened(record, keys, numbers.get(file, [])):
            table = records.from_bytes(plain)
            found.batches.setdefault(numbers[file][context], []).append(table)
    for number, sealed in {known for each in said for known in each.sealed}:
        if list(_opened(sealed, keys, [f"of batch {number}"])):
            found.known.add(number)
    kinds: dict[str, tuple[str, frozenset[int]]] = {}
    for each in said:
        for file, about in each.tables.items():
            kinds.setdefault(file, about)  # as it was written: complete tables stay what they were
    for file, data in archive.tables():
        for _, plain in _opened(data, keys, [file]):
            found.tables.append(_tables(plain, file, *kinds.get(file, ("unknown", frozenset()))))
    return found


def _unwrapped(archive: Archive, said: list[Catalogue], ciphers: list[AESGCM]) -> dict[int, bytes]:
    """Data keys by number: wrapped ones in raw bytes may be those of any number."""
    named = {(number, purpose) for each in said for number, purpose, _ in each.keys}
    wrapped = archive.wrapped({purpose for _, purpose in named})
    tries = (
        (number, f"{purpose} {number}".encode(), each)
        for number, purpose in named
        for each in wrapped[purpose]
    )
    found: dict[int, bytes] = {}
    for number, context, each in tries:
        for cipher in ciphers if number not in found else ():
            with suppress(InvalidTag):
                found[number] = cipher.decrypt(each[:NONCE], each[NONCE:], context)
    return found


def _opened(
    data: bytes, keys: Iterable[bytes], contexts: Iterable[str]
) -> Iterator[tuple[str, bytes]]:
    """What a key opens, in whatever context."""
    for key in keys:
        for context in contexts:
            with suppress(FormatError):
                yield context, opened(key, data, context.encode(), what="loot")


def _tables(plain: bytes, file: str, kind: str, windows: frozenset[int]) -> Tables:
    """The cells in a table file; the stream's secret is not needed to subtract them."""
    start = len(ARENA) + 8
    length = int.from_bytes(plain[start - 4 : start], "little")
    head = json.loads(plain[start : start + length])
    layout = Layout(tuple(Table(**t) for t in head["tables"]), head["labels"], b"", head["weight"])
    block, at, cells = plain[start + length : -32], 0, {}
    for table in layout.tables:
        size = layout.nbytes_of(table)
        width = np.int64 if table.wide else np.int32
        cells[table.name] = np.frombuffer(block[at : at + size], width).astype(np.int64)
        at += -(-size // 64) * 64
    return Tables(file, kind, windows, head["rows"], cells)
