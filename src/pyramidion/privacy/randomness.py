"""Random words from AES-256 in counter mode, keyed by the operating system, a key a draw.

Who has the key can take the noise off, so key and words are overwritten after the
draw (as far as Python and OpenSSL let us).
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Self

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

CHUNK_WORDS: Final = 2**14  # 128 KB: stays in cache, and is 25 µs of AES with the GIL held
_ZEROS: Final = memoryview(bytes(8 * CHUNK_WORDS))

Source = Callable[[NDArray[np.uint64]], None]


class Words:
    """The random words of one draw in their order, a stretch of them at a time.

    ``source`` writes fresh words over an array; ``spare`` does so from another
    stream, which only the twin reads, for digits beyond a word's 64. The stretch
    grows if one sample should need more than half of it (with tiny chunks, in tests).
    """

    def __init__(self, source: Source, spare: Source, *, chunk: int = CHUNK_WORDS) -> None:
        self._source = source
        self._spare = spare
        self.buffer: NDArray[np.uint64] = np.zeros(chunk, dtype=np.uint64)
        self.position = chunk

    def refill(self) -> None:
        """Move the unread words to the front and put fresh ones behind them."""
        unread = self.buffer[self.position :]
        if 2 * len(unread) > len(self.buffer):
            self.buffer = np.zeros(2 * len(self.buffer), dtype=np.uint64)
        self.buffer[: len(unread)] = unread
        self._source(self.buffer[len(unread) :])
        self.position = 0

    def take(self) -> int:
        """The next word."""
        if self.position == len(self.buffer):
            self.refill()
        self.position += 1
        return int(self.buffer[self.position - 1])

    def take_spare(self) -> int:
        """A word from the other stream."""
        word = np.zeros(1, dtype=np.uint64)
        self._spare(word)
        return int(word[0])


class Randomness:
    """Where noise comes from: one fresh AES-256 key per draw, from the operating system.

    Holds no key itself, so nothing here can outlive a draw or be copied with a table.
    """

    def __init__(self) -> None:
        self._new_key: Callable[[], bytes] = lambda: os.urandom(32)

    @classmethod
    def insecure_from_seed(cls, seed: bytes) -> Self:
        """The same words every time: for tests. Who knows the seed can take the noise off."""
        made = cls()
        draws = itertools.count()
        made._new_key = lambda: hashlib.sha256(b"%d:%b" % (next(draws), seed)).digest()
        return made

    @contextmanager
    def words(self, *, chunk: int = CHUNK_WORDS) -> Iterator[Words]:
        """The words of one draw; key and words are overwritten at the end.

        The spare stream starts half a counter period away, so the two never overlap.
        """
        key = bytearray(self._new_key())
        words = Words(_keystream(key, 0), _keystream(key, 2**127), chunk=chunk)
        key[:] = bytes(len(key))  # OpenSSL has its own copy and clears it when freed
        try:
            yield words
        finally:
            words.buffer.fill(0)


def _keystream(key: bytearray, counter: int) -> Source:
    encryptor = Cipher(AES(key), CTR(counter.to_bytes(16, "big"))).encryptor()

    def write(words: NDArray[np.uint64]) -> None:
        target = words.data.cast("B")
        for start in range(0, len(target), len(_ZEROS)):
            piece = target[start : start + len(_ZEROS)]
            encryptor.update_into(_ZEROS[: len(piece)], piece)

    return write
