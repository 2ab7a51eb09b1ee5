"""Count tables as encrypted chunks, of which small blocks can be read alone.

    table     its cells, bucket after bucket: rows x width of them
    block     as many whole buckets as 128 bytes hold, at least one; zeros up to 16 bytes
    chunk     block | tag | block | tag | ... | tag of the chunk         at most about 1 MB

A chunk is AES-256-GCM; who loads it whole checks that one tag. Its ciphertext is AES in counter
mode from counter 2 on (NIST SP 800-38D), so a block of it can be decrypted alone; a tag of its
own, keyed BLAKE2b over the ciphertext, vouches for it. What each tag covers includes the name
of the set of tables and the place in it, so that no chunk and no block can be moved, swapped or
taken from another set.

Nonces are places, so a key must never encrypt two contents. That is why the key is made here,
with a random name, for one arena that can change no more, and why nobody can give one.

128 bytes and a tag: a row of 39 features in 5 hash rows reads 195 blocks, 28 KB, and tables grow
by an eighth. With 64 bytes they would grow by a quarter, with 256 a row would read 53 KB.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from numpy.typing import NDArray

from pyramidion.counts.arena import Arena
from pyramidion.counts.layout import Layout
from pyramidion.errors import FormatError, PrivacyError
from pyramidion.storage.ciphers import new_key

BLOCK = 128  # bytes of cells that are read and checked together, see above
CHUNK = 1 << 20  # bytes of cells in a chunk: encrypting one stalls other threads 0.3 ms
TAG = 16
_AES = 16

_nonce = Struct("<IQ")
_place = Struct("<QQ")
_bound = Struct("<QQQ")

Indices = NDArray[np.int64]


class Span(NamedTuple):
    """Some bytes of a chunk."""

    chunk: int
    start: int
    length: int


@dataclass(frozen=True)
class Generation:
    """The name of one set of published tables, and the key that opens it; neither comes again."""

    name: str
    key: bytes = field(repr=False)

    @classmethod
    def new(cls, owner: str) -> Generation:
        """A fresh name, beginning with its owner's, and a fresh key."""
        return cls(f"{owner}.{os.urandom(12).hex()}", new_key())

    @cached_property
    def ciphers(self) -> tuple[bytes, bytes]:
        """The key that encrypts, and the key of the blocks' tags."""
        made = (blake2b(key=self.key, digest_size=32, person=use) for use in (_ENCRYPT, _TAG))
        encrypt, tag = (digest.digest() for digest in made)
        return encrypt, tag


_ENCRYPT, _TAG = b"pyramidion chunk", b"pyramidion block"


class Blocks:
    """Where the buckets of each table of a layout lie in chunks."""

    def __init__(self, layout: Layout) -> None:
        tables, labels = layout.tables, layout.labels
        self.layout = layout
        self.bucket = _numbers((8 if table.wide else 4) * labels for table in tables)
        """Bytes of a bucket of each table: its cells of all labels."""
        self.buckets = _numbers(table.rows * table.width for table in tables)
        self.per_block = np.maximum(1, BLOCK // self.bucket)
        """Buckets in a block."""
        self.plain = self.per_block * self.bucket
        self.size = -(-self.plain // _AES) * _AES
        """Bytes of a block, without its tag."""
        self.per_chunk = np.maximum(1, CHUNK // self.size)
        """Blocks in a chunk."""
        self.blocks = -(-self.buckets // self.per_block)
        chunks = -(-self.blocks // self.per_chunk)
        self.first = np.concatenate([[0], np.cumsum(chunks)])
        """Number of the first chunk of each table, and of all."""

    @property
    def count(self) -> int:
        """How many chunks there are."""
        return int(self.first[-1])

    def chunks_of(self, table: int) -> range:
        """The numbers of the chunks of a table."""
        return range(int(self.first[table]), int(self.first[table + 1]))

    def inside(self, table: int, chunk: int) -> int:
        """How many blocks a chunk has."""
        before = (chunk - int(self.first[table])) * int(self.per_chunk[table])
        return min(int(self.per_chunk[table]), int(self.blocks[table]) - before)

    def whole(self, table: int, chunk: int) -> Span:
        """A chunk from end to end."""
        return Span(chunk, 0, self.inside(table, chunk) * (int(self.size[table]) + TAG) + TAG)

    @property
    def lengths(self) -> list[int]:
        """Bytes of every chunk, in their order."""
        tables = range(len(self.layout.tables))
        return [self.whole(t, chunk).length for t in tables for chunk in self.chunks_of(t)]

    def spans(self, tables: Indices, blocks: Indices) -> list[Span]:
        """Where some blocks of some tables lie, tags included."""
        record = self.size[tables] + TAG
        chunks = self.first[tables] + blocks // self.per_chunk[tables]
        starts = blocks % self.per_chunk[tables] * record
        found = zip(chunks.tolist(), starts.tolist(), record.tolist(), strict=True)
        return [Span(*each) for each in found]


def _numbers(values: Iterable[int]) -> Indices:
    return np.array(list(values), dtype=np.int64)


# --- out ------------------------------------------------------------------------------------


class Encrypted:
    """Sealed tables, encrypted under a name and a key that are made for them alone.

    Nothing else gets into a table store: a populating table never leaves its owner, since two
    states of it subtract to exact counts, and neither does one that exact counts were taken off.
    """

    def __init__(self, arena: Arena, owner: str) -> None:
        if not isinstance(arena, Arena) or not arena.sealed or arena.raw:
            raise PrivacyError(
                "only sealed and complete tables are shared, and these are populating or as raw "
                "as their rows; seal the window first"
            )
        self._arena = arena
        self.generation = Generation.new(owner)
        self.blocks = Blocks(arena.layout)

    def __iter__(self) -> Iterator[bytes]:
        """The chunks, in order; the same bytes each time."""
        for table in range(len(self._arena.layout.tables)):
            cells = self._arena.cells(table).reshape(-1).view(np.uint8)
            for chunk in self.blocks.chunks_of(table):
                yield self._chunk(table, chunk, cells)

    def _chunk(self, table: int, chunk: int, cells: NDArray[np.uint8]) -> bytes:
        blocks, count = self.blocks, self.blocks.inside(table, chunk)
        plain, size = int(blocks.plain[table]), int(blocks.size[table])
        number = chunk - int(blocks.first[table])
        start = number * int(blocks.per_chunk[table]) * plain
        some = cells[start : start + count * plain]
        padded = np.zeros((count, size), dtype=np.uint8)
        whole = some.size // plain
        padded[:whole, :plain] = some[: whole * plain].reshape(whole, plain)
        padded[whole:, : some.size - whole * plain] = some[whole * plain :]
        encrypt, tag = self.generation.ciphers
        bound = _about(self.generation, table, number, count)
        sealed = AESGCM(encrypt).encrypt(_nonce.pack(table, number), padded.data, bound)
        first = number * int(blocks.per_chunk[table])
        return _with_tags(sealed, size, tag, self.generation, table, first)


def _with_tags(
    sealed: bytes, size: int, tag: bytes, generation: Generation, table: int, first: int
) -> bytes:
    view, out = memoryview(sealed), bytearray()
    named = _named(generation)
    for number, at in enumerate(range(0, len(view) - TAG, size), first):
        block = view[at : at + size]
        out += block
        out += _tag(tag, named, table, number, block)
    out += view[-TAG:]
    return bytes(out)


def _about(generation: Generation, table: int, number: int, count: int) -> bytes:
    return _bound.pack(table, number, count) + generation.name.encode()


def _named(generation: Generation) -> bytes:
    return blake2b(generation.name.encode(), digest_size=16).digest()


def _tag(key: bytes, named: bytes, table: int, block: int, data: Any) -> bytes:
    place = _place.pack(table, block)
    return blake2b(data, digest_size=TAG, key=key, salt=place, person=named).digest()


# --- in -------------------------------------------------------------------------------------


class Opened:
    """Chunks and blocks of one generation, decrypted; what is not as it was written is refused."""

    def __init__(self, generation: Generation, layout: Layout, *, where: str) -> None:
        self.generation = generation
        self.blocks = Blocks(layout)
        self._where = where
        encrypt, self._tag = generation.ciphers
        self._gcm = AESGCM(encrypt)
        self._aes = Cipher(AES(encrypt), ECB())  # noqa: S305  counters of counter mode, each once
        self._named = _named(generation)

    def chunk(self, table: int, chunk: int, data: bytes, out: NDArray[np.uint8]) -> None:
        """Write the cells of a whole chunk into ``out``, the cells of its table."""
        blocks, count = self.blocks, self.blocks.inside(table, chunk)
        plain, size = int(blocks.plain[table]), int(blocks.size[table])
        if len(data) != count * (size + TAG) + TAG:
            raise self._damaged()
        found = np.frombuffer(data, dtype=np.uint8)
        sealed = np.empty(count * size + TAG, dtype=np.uint8)
        sealed[:-TAG].reshape(count, size)[:] = found[:-TAG].reshape(count, size + TAG)[:, :size]
        sealed[-TAG:] = found[-TAG:]
        number = chunk - int(blocks.first[table])
        bound = _about(self.generation, table, number, count)
        try:
            opened = self._gcm.decrypt(_nonce.pack(table, number), sealed.data, bound)
        except InvalidTag:
            raise self._damaged() from None
        cells = np.frombuffer(opened, dtype=np.uint8)
        if plain < size:
            cells = cells.reshape(count, size)[:, :plain].reshape(-1)
        start = number * int(blocks.per_chunk[table]) * plain
        room = out[start : start + count * plain]
        room[:] = cells[: room.size]

    def some(self, tables: Indices, places: Indices, found: Sequence[bytes]) -> list[memoryview]:
        """The plain bytes of some blocks of some tables, given as they were stored."""
        self._check(tables, places, found)
        sizes = self.blocks.size[tables]
        stream = memoryview(self._keystream(tables, places, sizes))
        joined = np.frombuffer(b"".join(block[:-TAG] for block in found), dtype=np.uint8)
        plain = memoryview(np.bitwise_xor(joined, np.frombuffer(stream, dtype=np.uint8)).data)
        stops = np.cumsum(sizes).tolist()
        return [plain[a:b] for a, b in zip([0, *stops], stops, strict=False)]

    def _check(self, tables: Indices, places: Indices, found: Sequence[bytes]) -> None:
        key, named, sizes = self._tag, self._named, self.blocks.size[tables].tolist()
        for table, place, size, data in zip(
            tables.tolist(), places.tolist(), sizes, found, strict=True
        ):
            view = memoryview(data)
            good = len(data) == size + TAG and compare_digest(
                _tag(key, named, table, place, view[:-TAG]), view[-TAG:]
            )
            if not good:
                raise self._damaged()

    def _keystream(self, tables: Indices, places: Indices, sizes: Indices) -> bytes:
        """What GCM's counter mode adds to these blocks: the counters, encrypted one by one."""
        each = sizes // _AES
        numbers, inside = np.divmod(places, self.blocks.per_chunk[tables])
        counters = np.empty((int(each.sum()), 4), dtype="<u4")
        counters[:, 0] = np.repeat(tables, each)
        counters[:, 1] = np.repeat(numbers & 0xFFFFFFFF, each)
        counters[:, 2] = np.repeat(numbers >> 32, each)
        ahead = np.arange(len(counters)) - np.repeat(np.cumsum(each) - each, each)
        at = 2 + np.repeat(inside * each, each) + ahead
        counters[:, 3] = at.astype(">u4").view("<u4")
        encryptor = self._aes.encryptor()
        return encryptor.update(counters.tobytes()) + encryptor.finalize()

    def _damaged(self) -> FormatError:
        return FormatError(
            f"shared tables at {self._where} are not as their owner wrote them, or under another "
            f"key; fetch a new card, and see who can write there"
        )
