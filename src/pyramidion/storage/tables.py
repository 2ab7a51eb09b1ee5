"""Shared tables: where sealed and complete tables are published for readers elsewhere.

The embedded store stays owner and truth: its catalogue has the keys, its files the tables. A
`TableStore` holds copies, as chunks of bytes that it cannot read, under random names. A copy is
written once, never changed, read in parts or whole, and deleted after its key was destroyed.

    memory      the reference, read it first
    files       file:/path, a directory that readers can mount
    redis       redis://..., rediss://..., redis+cluster://..., see `pyramidion.storage.redis`
    cassandra   cassandra://..., see `pyramidion.storage.cassandra`

To write another one, implement the four methods that take opaque bytes, and have it pass
tests/storage/contracts/test_table_store.py against the real thing.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyramidion.counts.arena import Arena
from pyramidion.counts.layout import Layout
from pyramidion.errors import ExpiredError, SchemaError, StateError, StorageError
from pyramidion.storage.blocks import Encrypted, Generation, Indices, Opened, Span
from pyramidion.storage.disk import explained, sync, write_durably

SCHEMES = {
    "file": "pyramidion.storage.tables:file_tables",
    "redis": "pyramidion.storage.redis:redis_tables",
    "rediss": "pyramidion.storage.redis:redis_tables",
    "redis+cluster": "pyramidion.storage.redis:redis_tables",
    "rediss+cluster": "pyramidion.storage.redis:redis_tables",
    "cassandra": "pyramidion.storage.cassandra:cassandra_tables",
}
"""Where each kind of table store is made of its URL; the module is imported when it is used."""


class TableStore(ABC):
    """Holds published tables: chunks of opaque bytes by name and number, each written once."""

    address = ""
    """What errors call it: where it is, without passwords."""

    # --- what a store must do -----------------------------------------------------

    @abstractmethod
    def put(self, name: str, chunks: Iterable[bytes], count: int, life: float | None) -> None:
        """Keep ``count`` chunks under a new name, numbered from 0.

        They can be read when this returns. A store that can, forgets them by itself after
        ``life`` seconds, should their owner never come back to delete them. A name is written
        once: where it is there already, finished or not, raises, by `taken`, and changes nothing.
        """

    @abstractmethod
    def read(self, name: str, spans: Sequence[Span]) -> list[bytes]:
        """The bytes of some spans, in their order, in one round trip.

        Raises `ExpiredError`, by `gone`, where one is not there; never zeros, never fewer bytes.
        """

    @abstractmethod
    def names(self) -> dict[str, int]:
        """Every name with how many chunks it has, those of broken-off writes included."""

    @abstractmethod
    def delete(self, name: str, count: int) -> None:
        """Remove so many chunks of a name, those that are there; quietly where none is."""

    def close(self) -> None:  # noqa: B027  most have nothing to let go of
        """Let go of connections and files."""

    def gone(self, name: str) -> ExpiredError:
        """What `read` raises for what is not there; the name is random and tells nothing."""
        return ExpiredError(
            f"shared tables {name} are not at {self.address} any more: newer ones took their "
            f"place, or it lost them; fetch a new card"
        )

    def taken(self) -> StateError:
        """What `put` raises for a name that is there already."""
        return StateError(f"{self.address} has chunks under a new name already; retry")

    # --- what all do alike ----------------------------------------------------------

    def publish(self, arena: Arena, *, owner: str, life: float | None = None) -> Generation:
        """Write sealed or complete tables, under a name and a key of their own.

        What is populating, or as raw as its rows, is refused. Write the key down once this
        returns; without it the chunks are noise.
        """
        encrypted = Encrypted(arena, owner)
        name, lengths = encrypted.generation.name, encrypted.blocks.lengths
        self.put_whole(name, encrypted, lengths, life)
        return encrypted.generation

    def put_whole(
        self, name: str, chunks: Iterable[bytes], lengths: Sequence[int], life: float | None
    ) -> None:
        """Keep chunks under a new random name, all of them or none.

        A server that was restarted amid this has lost the first ones and taken the others
        without a word, so at the end it is asked for all. A random name that is there already
        was sent twice, by a driver whose connection was cut off.
        """
        try:
            self.put(name, chunks, len(lengths), life)
            if not self.has(name, lengths):
                raise StorageError(
                    f"the table store at {self.address} lost tables while they were written, as "
                    f"when it is restarted; try again"
                )
        except StateError as problem:
            self._try_delete(name, len(lengths))
            raise StorageError(
                f"the table store at {self.address} was cut off while tables were written; "
                f"try again"
            ) from problem
        except BaseException:
            self._try_delete(name, len(lengths))
            raise

    def _try_delete(self, name: str, count: int) -> None:
        """What a broken-off write left goes at once, or with the owner's next look at `names`."""
        with suppress(Exception):  # the first error is the one to tell
            self.delete(name, count)

    def has(self, name: str, lengths: Sequence[int]) -> bool:
        """Whether every chunk of a name is there, to its last byte; only that is read."""
        try:
            self.read(name, [Span(chunk, size - 1, 1) for chunk, size in enumerate(lengths)])
        except ExpiredError:
            return False
        return True

    def opened(self, generation: Generation, layout: Layout) -> PublishedTables:
        """Published tables, for who has their key and knows how they are laid out."""
        return PublishedTables(self, generation, layout)


class PublishedTables:
    """One set of tables in a table store; whatever is read of it is what its owner wrote."""

    def __init__(self, store: TableStore, generation: Generation, layout: Layout) -> None:
        self._store = store
        self._name = generation.name
        self._opened = Opened(generation, layout, where=store.address)
        self.blocks = self._opened.blocks

    def load(self, *, rows: int, max_rows: int) -> Arena:
        """All tables, in memory and sealed."""
        return Arena.of_cells(self.blocks.layout, self._load, rows=rows, max_rows=max_rows)

    def _load(self, table: int, cells: NDArray[Any]) -> None:
        """Chunk by chunk: redis-py takes twice as long for eight of them in one answer, and a
        thread that reads ahead waits for the interpreter longer than for the network."""
        out = cells.view(np.uint8)
        for chunk in self.blocks.chunks_of(table):
            (data,) = self._store.read(self._name, [self.blocks.whole(table, chunk)])
            self._opened.chunk(table, chunk, data, out)

    def buckets(self, tables: Indices, buckets: Indices) -> list[memoryview]:
        """The cells of some buckets, each of one table: one round trip, every block checked.

        A bucket is ``row * width + place``, its cells those of all labels.
        """
        blocks = self.blocks
        per, size = blocks.per_block[tables], blocks.bucket[tables]
        places, inside = np.divmod(buckets, per)
        some, where, which = _distinct(tables, places)
        found = self._store.read(self._name, blocks.spans(some, where))
        plain = self._opened.some(some, where, found)
        starts = (inside * size).tolist()
        return [
            plain[block][start : start + length]
            for block, start, length in zip(which, starts, size.tolist(), strict=True)
        ]


def _distinct(tables: Indices, places: Indices) -> tuple[Indices, Indices, list[int]]:
    """Each block once, and for each bucket which one it is in: several may share a block."""
    found, which = np.unique((tables << _BLOCKS) | places, return_inverse=True)
    return found >> _BLOCKS, found & ((1 << _BLOCKS) - 1), which.tolist()


_BLOCKS = 44  # bits for the number of a block: of 128 bytes, 2 PB in a table


# --- memory: the reference ----------------------------------------------------------------------


class MemoryTables(TableStore):
    """Published tables in a dict, for tests and for reading how a store behaves."""

    address = "this process"

    def __init__(self) -> None:
        self.chunks: dict[str, list[bytes]] = {}

    def put(self, name: str, chunks: Iterable[bytes], count: int, life: float | None) -> None:
        """Keep them; this process ends before their life does, or deletes them."""
        del life
        if name in self.chunks:
            raise self.taken()
        held = self.chunks[name] = []
        held.extend(chunks)
        if len(held) != count:
            raise ValueError(f"{len(held)} chunks, not {count}")

    def read(self, name: str, spans: Sequence[Span]) -> list[bytes]:
        """Slices of chunks."""
        held = self.chunks.get(name, [])
        found = [held[s.chunk][s.start : s.start + s.length] for s in spans if s.chunk < len(held)]
        if [len(data) for data in found] != [span.length for span in spans]:
            raise self.gone(name)
        return found

    def names(self) -> dict[str, int]:
        """The dict's keys."""
        return {name: len(chunks) for name, chunks in self.chunks.items()}

    def delete(self, name: str, count: int) -> None:
        """Drop the list."""
        del count
        self.chunks.pop(name, None)


# --- files --------------------------------------------------------------------------------------


class FileTables(TableStore):
    """Published tables in a directory: a folder for each name, a file for each chunk.

    A folder is written under another name first, so that nobody meets half of one.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self.address = f"file:{self.folder}"
        with explained(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def put(self, name: str, chunks: Iterable[bytes], count: int, life: float | None) -> None:
        """Files that are durable on return; a directory forgets nothing by itself."""
        del life
        place, draft = self.folder / name, self.folder / f"{name}{_DRAFT}"
        with explained(place):
            if place.exists() or draft.exists():
                raise self.taken()
            draft.mkdir(mode=0o700)
            written = 0
            for number, chunk in enumerate(chunks):
                write_durably(draft / str(number), [chunk])
                written += 1
            if written != count:
                raise ValueError(f"{written} chunks, not {count}")
            draft.rename(place)
            sync(self.folder)

    def read(self, name: str, spans: Sequence[Span]) -> list[bytes]:
        """Parts of files; none is read whole for a part of it."""
        open_files: dict[int, int] = {}
        try:
            with explained(self.folder / name):
                for chunk in {span.chunk for span in spans}:
                    open_files[chunk] = self._open(name, chunk)
                found = [os.pread(open_files[s.chunk], s.length, s.start) for s in spans]
        finally:
            for descriptor in open_files.values():
                os.close(descriptor)
        if [len(data) for data in found] != [span.length for span in spans]:
            raise self.gone(name)
        return found

    def _open(self, name: str, chunk: int) -> int:
        try:
            return os.open(self.folder / name / str(chunk), os.O_RDONLY)
        except FileNotFoundError:
            raise self.gone(name) from None

    def names(self) -> dict[str, int]:
        """The folders and how many files each has."""
        with explained(self.folder):
            folders = [path for path in self.folder.iterdir() if path.is_dir()]
            return {path.name.removesuffix(_DRAFT): len(list(path.iterdir())) for path in folders}

    def delete(self, name: str, count: int) -> None:
        """Remove the folder, finished or not."""
        del count
        with explained(self.folder / name):
            for folder in (self.folder / name, self.folder / f"{name}{_DRAFT}"):
                if folder.exists():
                    shutil.rmtree(folder)
            sync(self.folder)


_DRAFT = ".draft"


def file_tables(url: str) -> TableStore:
    """The directory that a URL names."""
    return FileTables(url.removeprefix("file:").removeprefix("//"))


# --- by URL -------------------------------------------------------------------------------------


def tables_at(url: str) -> TableStore:
    """The table store that a URL names; connected when it is first used.

    >>> tables_at("gopher://somebody:secret@far/away")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    pyramidion.errors.SchemaError: this is no URL of a table store; one begins with ...
    """
    scheme = url.partition(":")[0]
    if scheme not in SCHEMES:
        *most, last = (f"{known}:" for known in SCHEMES)
        raise SchemaError(
            f"this is no URL of a table store; one begins with {', '.join(most)} or {last}"
        )
    module, _, maker = SCHEMES[scheme].partition(":")
    made: TableStore = getattr(import_module(module), maker)(url)
    return made
