"""The data keys of one store, their erasure, and the renewal of the store key.

    1  a new store key is made and held
    2  one transaction: survivors are wrapped by it, the dropped keys and what they opened
       leave the catalogue, a deletion record enters it
    3  the write-ahead log is emptied
    4  the old store key is destroyed in its holder: from here on the dropped keys are gone
    5  files under dropped keys are unlinked, the record says when

A renewal is an erasure that drops no key: 1, 3, 4, and a transaction that wraps all keys anew.
After it no older copy of the store opens; `StoreState.charge_release` says what that is for.

A crash before 2 leaves a store key nobody uses, a crash after it an old store key; both
are destroyed when the store is opened again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from pyramidion.errors import FormatError, KeyHolderError
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.ciphers import new_key
from pyramidion.storage.deletions import Deleted
from pyramidion.storage.fault_points import reach
from pyramidion.storage.key_holders import KeyHolder, StoreKey

PAST = "past its time"
"""Why something is erased by itself."""


@dataclass(frozen=True)
class DataKey:
    """A key that is in no catalogue yet."""

    id: int
    purpose: str
    key: bytes

    @classmethod
    def new(cls, purpose: str) -> DataKey:
        """A fresh key under a fresh number."""
        return cls(int.from_bytes(os.urandom(8), "little") >> 1, purpose, new_key())


class DataKeys:
    """Data keys in the catalogue, wrapped by a store key that the holder has."""

    def __init__(self, catalogue: Catalogue, holder: KeyHolder) -> None:
        self._catalogue = catalogue
        self.holder = holder
        self._store = catalogue.about("store")
        self._store_key = StoreKey(holder, catalogue.about("store_key"))
        self.unfinished = False
        """Whether the store key was renewed and older ones, or files to erase, are still there."""

    def add(self, key: DataKey) -> int:
        """Put a key into the catalogue, under the store key that the catalogue names then."""
        with self._catalogue.transaction():
            wrapped = self._store_key.wrap(key.key, _context(key.purpose, key.id))
            self._catalogue.run("INSERT INTO keys VALUES (?, ?, ?)", key.id, key.purpose, wrapped)
        return key.id

    def get(self, number: int) -> bytes:
        """A data key."""
        with self._catalogue.lock:
            rows = self._catalogue.all("SELECT purpose, wrapped FROM keys WHERE id = ?", number)
            if not rows:
                raise FormatError("a data key is not in the catalogue; restore it from a backup")
            purpose, wrapped = rows[0]["purpose"], rows[0]["wrapped"]
            return self._store_key.unwrap(wrapped, _context(purpose, number))

    def numbers(self) -> list[int]:
        """The numbers of all data keys."""
        return [row["id"] for row in self._catalogue.all("SELECT id FROM keys")]

    def find(self, purpose: str) -> DataKey | None:
        """The only key of a purpose; None where there is none."""
        with self._catalogue.lock:
            rows = self._catalogue.all("SELECT id FROM keys WHERE purpose = ?", purpose)
            if len(rows) > 1:
                raise FormatError(
                    f"{self._catalogue.path} has a key twice that there is one of ({purpose}); "
                    f"restore it from a backup"
                )
            return DataKey(rows[0]["id"], purpose, self.get(rows[0]["id"])) if rows else None

    def put(self, key: DataKey) -> None:
        """Put a key into the catalogue in place of the one with its number; in a transaction."""
        self._catalogue.run("DELETE FROM keys WHERE id = ?", key.id)
        self.add(key)

    @property
    def pinned(self) -> bool:
        """Whether the store key was made for a catalogue whose facts are pinned."""
        return self._store_key.pinned

    @property
    def authenticated(self) -> bool:
        """Whether it was made for a catalogue whose windows and ledger are authenticated."""
        return self._store_key.authenticated

    def must_be_held(self) -> None:
        """Refuse to go on where the holder does not have the store key."""
        self._store_key.wrap(b"", "a probe")

    def erase(
        self,
        gone: Deleted,
        why: str,
        clock: Callable[[], int],
        forget: Callable[[int], Collection[int]],
        forgotten: Callable[[], None],
        unlink: Callable[[], None],
    ) -> None:
        """Destroy data keys for good; the record is dated by the clock.

        ``forget`` drops what they opened from the catalogue and says which they are,
        ``forgotten`` does the same in memory once that is so, ``unlink`` removes the files.
        What fails after that leaves `unfinished`, for `finish` to try again.
        """
        reach("erase.before")
        with self._alone():
            self._erase(gone, why, clock(), forget)
            forgotten()
            reach("erase.committed")
            self.finish(clock, unlink)
        reach("erase.after")

    def _alone(self) -> AbstractContextManager[object]:
        """No other copy of this store may erase meanwhile, where the holder can see to that."""
        alone: AbstractContextManager[object] = getattr(self.holder, "alone", nullcontext)()
        return alone

    def _erase(
        self, gone: Deleted, why: str, at: int, forget: Callable[[int], Collection[int]]
    ) -> None:
        def change() -> None:
            self._drop(forget(at))
            self._catalogue.run(
                "INSERT INTO deletions (what, why, holder, at, kind, ids) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                *(gone.what, why, self.holder.name, at, gone.kind, gone.ids),
            )

        fresh = self._fresh()
        reach("erase.added")
        self._replace(fresh, change)

    def renew(self, change: Callable[[], object]) -> None:
        """Renew the store key in the transaction of a change: no older copy opens after it.

        No data key is dropped, so nothing is erased and no deletion is recorded. Raises before
        the commit where another copy of the store has taken over. Where the older key cannot be
        destroyed it raises after the commit, and the store is `unfinished`.
        """
        reach("renew.before")
        with self._alone():
            fresh = self._fresh()
            reach("renew.added")
            self._replace(fresh, change)
            reach("renew.committed")
            self.settle()
            self.unfinished = False
        reach("renew.after")

    def _fresh(self) -> StoreKey:
        """A new store key, held and not in use yet."""
        self.must_be_held()
        return StoreKey.new(self.holder, self._store)

    def _replace(self, fresh: StoreKey, change: Callable[[], object]) -> None:
        """Change the catalogue, and wrap all keys by a new store key, in one transaction."""
        with self._catalogue.lock:  # nobody wraps a key until the new store key is in use
            with self._catalogue.transaction():
                change()
                self._rewrap(fresh)
                reach("rewrap.before")
                self.must_be_held()  # or another copy has taken over meanwhile
            self._store_key, self.unfinished = fresh, True

    def finish(self, clock: Callable[[], int], unlink: Callable[[], None]) -> None:
        """Destroy what an erasure left: old store keys, then files; the record says when.

        Until then the rows could be read.
        """
        self.settle()
        unlink()
        reach("erase.unlinked")
        self._catalogue.run("UPDATE deletions SET done = ? WHERE done IS NULL", clock())
        self.unfinished = False

    def _drop(self, keys: Collection[int]) -> None:
        for key in keys:
            self._catalogue.run("DELETE FROM keys WHERE id = ?", key)

    def _rewrap(self, fresh: StoreKey) -> None:
        rows = self._catalogue.all("SELECT id, purpose, wrapped FROM keys")
        contexts = {_context(row["purpose"], row["id"]): row for row in rows}
        wrapped = {context: row["wrapped"] for context, row in contexts.items()}
        for place, (context, each) in enumerate(fresh.rewrap(self._store_key, wrapped).items()):
            self._catalogue.run(
                "UPDATE keys SET wrapped = ? WHERE id = ?", each, contexts[context]["id"]
            )
            if place == len(rows) // 2:
                reach("rewrap.half")
        self._catalogue.note(store_key=fresh.name)

    def settle(self) -> None:
        """Finish an erasure: empty the log, then destroy every store key but the current one."""
        with self._alone():
            self._settle()

    def _settle(self) -> None:
        self._catalogue.truncate_log()
        reach("erase.truncated")
        self.must_be_held()  # the keys of a copy that has taken over are not ours to destroy
        self._destroy_others()
        reach("erase.destroyed")

    def _destroy_others(self) -> None:
        """Destroy all store keys but ours, until ours is the only one, or is not there any more.

        A copy that renews its key at the same time may add one while others are destroyed.
        """
        destroyed: set[str] = set()
        while others := self._others():
            if others <= destroyed:
                raise KeyHolderError(
                    f"{self.holder.name} still has store keys that were destroyed; see to it, "
                    f"nothing is released until they are gone"
                )
            self.holder.drop(sorted(others))
            destroyed |= others
        self.must_be_held()  # or another copy has destroyed ours

    def _others(self) -> set[str]:
        """The names of the store's keys that are not in use."""
        names = {name for name in list(self.holder.keys()) if name.startswith(f"{self._store}.")}
        return names - {self._store_key.name}


def _context(purpose: str, number: int) -> str:
    return f"{purpose} {number}"
