"""A shard: which part of which stream a store is; how a stream begins and how one joins it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path

from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.errors import SchemaError, StateError
from pyramidion.storage import manifests
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.ciphers import opened, sealed
from pyramidion.storage.data_keys import DataKey, DataKeys
from pyramidion.storage.home import Registration
from pyramidion.storage.key_holders import FileHolder, holder_at
from pyramidion.storage.pins import Pins
from pyramidion.storage.roster import Roster, checked_word
from pyramidion.storage.tables import FileTables, tables_at

ABOUT = "shard"
"""The fact in the catalogue that says which shard of which stream a store is."""
WHERE = "where shards meet"
"""The purpose of the key that this is sealed under."""


@dataclass(frozen=True)
class Shard:
    """Which part of which stream a store is, and where it meets the others.

    ``keys`` names the key holder that all shards of the stream reach, ``tables`` the table store
    where sealed windows are published. Keys may lie in neither.

    >>> shard = Shard("clicks", "node-1", keys="file:/keys/clicks", tables="file:/shared")
    >>> shard.owner(b"the stream's secret")
    'a747aa9b101b9995'
    """

    stream: str
    name: str
    keys: str
    tables: str

    def __post_init__(self) -> None:
        checked_word("a stream", self.stream)
        checked_word("a shard", self.name)

    @property
    def roster(self) -> Roster:
        """The stream's shards and keys."""
        return Roster(holder_at(self.keys), self.stream)

    def owner(self, secret: bytes) -> str:
        """What the names of its published tables begin with: a keyed hash of stream and shard.

        Whoever runs the table store reads these names.
        """
        named = f"{self.stream}.{self.name}".encode()
        key = secret[:64]
        return blake2b(named, key=key, digest_size=8, person=b"owner of tables").hexdigest()

    @property
    def anywhere(self) -> Shard:
        """The same from whatever directory a process is started in."""
        holder, tables = holder_at(self.keys), tables_at(self.tables)
        tables.close()
        keys = holder.name if self.keys.startswith("file:") else self.keys
        shared = tables.address if isinstance(tables, FileTables) else self.tables
        return replace(self, keys=keys, tables=shared)

    def sealed(self, key: DataKey) -> str:
        """As the catalogue has it: encrypted, so that a password may stand in a URL.

        The key is the store's own. It leaves the store with nothing, unlike the stream's secret.
        """
        text = json.dumps(asdict(self.anywhere)).encode()
        data = b"".join(sealed(key.key, [text], ABOUT.encode()))
        return json.dumps({"key": key.id, "sealed": data.hex()})

    @classmethod
    def opened(cls, text: str, keys: DataKeys) -> Shard:
        """What `sealed` made."""
        found = json.loads(text)
        return cls._opened(found["sealed"], keys.get(found["key"]))

    @classmethod
    def _opened(cls, text: str, key: bytes) -> Shard:
        data = opened(key, bytes.fromhex(text), ABOUT.encode(), what=WHERE)
        return cls(**json.loads(data))

    @classmethod
    def recorded(
        cls, catalogue: Catalogue, keys: DataKeys, secret: bytes, pins: Pins
    ) -> Shard | None:
        """Which shard a store is, by its catalogue; None where it is none.

        A store of format 7 or earlier kept this under a key that follows from the stream's secret:
        it is sealed anew.
        """
        told = catalogue.about(ABOUT, "")
        if told and not told.startswith("{"):
            key = DataKey.new(WHERE)
            moved = cls._opened(told, _former_key(secret)).sealed(key)
            with catalogue.transaction():
                keys.add(key)
                pins.note(**{ABOUT: moved})
            catalogue.truncate_log()
            told = moved
        return cls.opened(told, keys) if told else None

    def refuse_unsafe(self, store: Path) -> None:
        """Raise where keys would lie beside what they open."""
        holder, tables = holder_at(self.keys), tables_at(self.tables)
        beside = [store, tables.folder] if isinstance(tables, FileTables) else [store]
        tables.close()
        for place in beside:
            if isinstance(holder, FileHolder) and _inside(holder.path, place):
                raise SchemaError(
                    f"the keys of a stream may not lie beside what they open; keep them outside "
                    f"{place}, best on another disk"
                )


def _former_key(secret: bytes) -> bytes:
    return blake2b(key=secret[:64], digest_size=32, person=b"shards meet").digest()


def _inside(path: Path, place: Path) -> bool:
    return path.resolve().is_relative_to(place.resolve())


def refuse_unsharded(settings: Settings, shard: Shard | None) -> None:
    """Raise for shards without a stream, and for a stream that nobody else could join."""
    if shard is None and settings.shards > 1:
        raise SchemaError(
            f"setting 'shards' is {settings.shards}, and this store would be no shard of a stream; "
            f"say of which with shard=, or leave 'shards' at 1"
        )
    if shard is not None and settings.shards == 1:
        raise SchemaError(
            "setting 'shards' is 1, so no other store could join the stream; set it to how many "
            "are to take rows"
        )


def refuse_sharing(shard: Shard | None) -> None:
    """Raise in a shard: what it serves is the sum of a stream, which has no file of its own."""
    if shard is not None:
        raise StateError(
            f"this store is a shard of stream {shard.stream!r}, which gives the other shards what "
            f"it has sealed and shares no complete tables; take snapshots of any shard instead"
        )


def founded(shard: Shard, store: Path) -> bytes:
    """Begin a stream; the secret that all its shards count with."""
    shard.refuse_unsafe(store)
    return shard.roster.found(shard.name)


def joining(shard: Shard, store: Path) -> tuple[Schema, Settings, bytes, str, Registration]:
    """Schema, settings, secret and reading rule of a stream, and how a store registers in it."""
    shard.refuse_unsafe(store)
    roster, tables = shard.roster, tables_at(shard.tables)
    secret = roster.secret()
    try:
        for member in roster.entries().members.values():
            if member.manifest is not None:
                told = manifests.get(tables, member.manifest)
                settings = Settings.from_dict(json.loads(told.settings))
                registration = _registration(shard, roster, settings.shards)
                schema = Schema.from_toml(told.schema)
                return schema, settings, secret, told.keyed_by, registration
    finally:
        tables.close()
    raise StateError(
        f"no shard of stream {shard.stream!r} has told its schema yet; let one advance first"
    )


def _registration(shard: Shard, roster: Roster, most: int) -> Registration:
    return Registration(
        f"{shard.stream}.{shard.name}",
        lambda store: roster.join(shard.name, most, store),
        lambda store: roster.leave_unmade(shard.name, store),
    )
