"""Names that senders give (of histories, sequences of batches), as the catalogue keeps them.

How far an import came is known by a keyed hash of what it is called, of its row totals and of its
first and last time. The stream's hashing secret is no key for that: every snapshot carries it,
so whoever has a snapshot and the catalogue could try out times. The key here leaves the store
with nothing.

A store of format 7 or earlier had hashes under the secret. They are hashed once more, under this
key, when such a store is opened; so every name is hashed under both.
"""

from __future__ import annotations

from hashlib import blake2b

from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.data_keys import DataKey, DataKeys
from pyramidion.storage.pins import Pins

FACT = "names"
"""The fact in the catalogue that says which data key it is, and the key's purpose."""
SIZE = 16  # bytes of a hash


class Names:
    """Keyed hashes of names, for one store."""

    def __init__(self, catalogue: Catalogue, keys: DataKeys, secret: bytes, pins: Pins) -> None:
        self._secret = secret
        if not catalogue.about(FACT, ""):
            _migrate(catalogue, keys, pins)
        self._key = keys.get(int(catalogue.about(FACT)))

    def of(self, name: bytes) -> bytes:
        """What the catalogue knows a name by."""
        former = blake2b(name, key=self._secret[:64], digest_size=SIZE).digest()
        return _under(self._key, former)


def _migrate(catalogue: Catalogue, keys: DataKeys, pins: Pins) -> None:
    key = DataKey.new(FACT)
    with catalogue.transaction():
        keys.add(key)
        pins.note(**{FACT: key.id})
        for row in catalogue.all("SELECT input FROM imports"):
            catalogue.run(
                "UPDATE imports SET input = ? WHERE input = ?",
                _under(key.key, row["input"]),
                row["input"],
            )
    catalogue.truncate_log()


def _under(key: bytes, former: bytes) -> bytes:
    return blake2b(former, key=key, digest_size=SIZE).digest()
