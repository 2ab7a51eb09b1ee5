"""Facts of the catalogue that nobody may change without the store key: they are *pinned*.

The catalogue is a plain database. Whoever can write to the disk could have rows sealed to a
custodian of their own from the next open on, or keep the hot window for ten years. So a digest of
each of these facts, also of one that is not there, is encrypted under the store key: in the table
of keys, where every renewal wraps it anew. A store is opened only if its facts are the pinned ones.

    schema, settings    what is counted, for how long it is kept, at which ε
    vault               where raw rows are sealed, and to which custodian
    shard               which shard of which stream the store is
    store               what its keys are called in the holder
    secret, names       which keys values and names are hashed with
    keyed_by            whether values are known by their text or by their type

So are, in one digest, the states and borders of windows and tree nodes, their table files, and the
ledger: every transaction that changes one of these begins with `Pins.check` and ends with
`Pins.seal`. Row totals are not among them, because every commit of rows changes these; they are
public.

A fact is changed with `Pins.note`, in one transaction with its digest. An earlier digest cannot be
put back once the store key was renewed, which every erasure and release does. Triggers and views,
which could change or hide a fact behind the store's back, are refused.

Store keys that were made since then have ``authenticated`` in their names (``pinned``, if facts
alone were), and only the key holder can name a key: a catalogue without its pins does not open with
one. A store of an earlier version is pinned as it is when it is first opened.
"""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import blake2b

from pyramidion.errors import FormatError
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.ciphers import KEY_BYTES
from pyramidion.storage.data_keys import DataKey, DataKeys

FACTS = {
    "schema": "the schema",
    "settings": "the settings",
    "vault": "the vault's place or its custodian's key",
    "shard": "which shard of which stream it is",
    "store": "its name in the key holder",
    "secret": "the key that values are hashed with",
    "names": "the key that names are hashed with",
    "keyed_by": "whether values are known by their text or by their type",
}
"""What is pinned, and its description in messages."""
PROGRAMS = "triggers or views, of which a catalogue has none"
STATES = "the windows, their table files or the ledger"
TABLES = (
    "SELECT level, number, state, slot, start, stop FROM table_sets ORDER BY level, number",
    "SELECT level, number, window FROM members ORDER BY level, number, window",
    "SELECT id, kind, level, number, key, file, after, current, tables FROM arenas ORDER BY id",
    "SELECT id, window, kind, purpose, amount, at, why FROM ledger ORDER BY id",
)
"""What is authenticated in one digest."""
_STATES = "pin of windows and ledger"
"""The purpose of that digest in the table of keys."""


class Pins:
    """The pinned facts of one store."""

    def __init__(self, catalogue: Catalogue, keys: DataKeys) -> None:
        self._catalogue, self._keys = catalogue, keys

    def note(self, **facts: object) -> None:
        """Change facts and their pins, and no others, in one transaction or as part of one.

        What is pinned is what was given, not what the catalogue made of it.
        """
        with self._catalogue.transaction():
            self._catalogue.note(**facts)
            for name, value in facts.items():
                self._pin(name, str(value))

    def begin(self) -> None:
        """Pin all facts as they are: of a new store, or of one that an earlier version made."""
        with self._catalogue.transaction():
            for name in FACTS:
                self._pin(name, self._value(name))
            self.seal()

    def seal(self) -> None:
        """Authenticate windows, table files and the ledger as they are; within the transaction
        that changed one of them, after `check` at its beginning."""
        with self._catalogue.transaction():
            held = self._keys.find(_STATES) or DataKey.new(_STATES)
            self._keys.put(replace(held, key=self._states()))

    def check(self) -> None:
        """Raise if another program has changed windows, table files or the ledger since the store
        was opened; within a transaction, before it changes anything.

        Otherwise the store would confirm what an intruder changed. Nothing is computed unless
        another connection has written to the catalogue; one that only checkpointed it did no harm.
        """
        version = self._catalogue.version
        if version == self._catalogue.seen:
            return
        if not self._same_states():
            raise FormatError(
                f"{self._catalogue.path} was changed from outside, without the store key: "
                f"{STATES}; restore it from a backup, or undo the change"
            )
        self._catalogue.seen = version

    def _same_states(self) -> bool:
        held = self._keys.find(_STATES)
        return held is not None and held.key == self._states()

    def _states(self) -> bytes:
        digest = blake2b(digest_size=KEY_BYTES)
        for query in TABLES:
            for row in self._catalogue.all(query):
                digest.update(json.dumps(list(row)).encode() + b"\n")
            digest.update(b"\n")
        return digest.digest()

    def changed(self) -> list[str]:
        """Descriptions of the facts that are not as they were pinned."""
        changed = [
            description
            for name, description in FACTS.items()
            if self._pinned(name) != _digest(name, self._value(name))
        ]
        if not self._same_states():
            changed.append(STATES)
        programs = "SELECT 1 FROM sqlite_master WHERE type IN ('trigger', 'view')"
        return [*changed, PROGRAMS] if self._catalogue.one(programs) else changed

    def refuse_changed(self) -> None:
        """Raise if a fact is not as it was pinned; pin a store that an earlier version made."""
        if not any(map(self._pinned, FACTS)):
            if self._keys.pinned:
                raise FormatError(
                    f"{self._catalogue.path} has lost what pins its schema, settings and "
                    f"custodian: it was changed from outside; restore it from a backup"
                )
            self.begin()
        if self._keys.find(_STATES) is None and not self._keys.authenticated:
            self.seal()  # an earlier version made it
        changed = self.changed()
        if changed:
            raise FormatError(
                f"{self._catalogue.path} was changed from outside, without the store key: "
                f"{', '.join(changed)}; restore it from a backup, or undo the change"
            )

    def _value(self, name: str) -> object:
        return self._catalogue.one("SELECT value FROM about WHERE name = ?", name)

    def _pinned(self, name: str) -> bytes | None:
        found = self._keys.find(_purpose(name))
        return None if found is None else found.key

    def _pin(self, name: str, value: object) -> None:
        held = self._keys.find(_purpose(name)) or DataKey.new(_purpose(name))
        self._keys.put(replace(held, key=_digest(name, value)))


def _digest(name: str, value: object) -> bytes:
    """As long as a key. A value is text, or None if there is no such fact; others differ."""
    text = json.dumps([name, value], default=repr)
    return blake2b(text.encode(), digest_size=KEY_BYTES).digest()


def _purpose(name: str) -> str:
    """The purpose of its entry in the table of keys."""
    return f"pin of {name}"
