"""Idempotency keys: how a batch is recognised when it is sent again.

A key belongs to its sender, and stands for one content: the same key of another sender is another
key, and other rows under a key that was used are refused instead of being taken for the first ones.

A store keeps keyed hashes alone. Their secret is erased with the hot step of the rows, and that of
a content is derived from the sender's key as well: who has the store cannot try contents out, not
even of rows that were erased since, unless that key can be guessed. Senders draw keys at random.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

CONTENT = 16
"""Bytes of a content's hash."""


class Once(NamedTuple):
    """A key, whose it is, and a hash of what came under it."""

    key: str
    sender: str = ""
    """The id of a token; empty for callers in this process."""
    content: bytes = b""
    """Empty where the sender may send anything again, as with numbered batches."""

    @property
    def name(self) -> tuple[str, str]:
        """What stands for one content."""
        return self.sender, self.key


def key_digest(once: Once, secret: bytes) -> bytes:
    """A sender's key as a store keeps it."""
    told, person = once.key.encode(), b"idempotency"
    if once.sender:
        told, person = f"{once.sender}\n".encode() + told, b"sender and key"
    return blake2b(told, key=secret, person=person, digest_size=16).digest()


def content_digest(once: Once, secret: bytes) -> bytes:
    """A content as a store keeps it."""
    key = blake2b("\n".join(once.name).encode(), key=secret, person=b"content").digest()
    return blake2b(once.content, key=key, digest_size=CONTENT).digest()
