"""A store that shares its tables: publishes the complete ones, and takes back those before.

The store is owner and truth. When its complete tables change, for whatever reason,

    1  the key of those that are shared dies with the erasure that the change is a part of
    2  the new ones are published, under a name and a key of their own
    3  the chunks of the former ones are deleted

None of this keeps the store from its work: where the table store does not answer, it is tried
again at the next `advance` after a while, and `status` says why. Whether all that should be there
is there is looked after every minute; what was lost is published anew.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from hashlib import blake2b

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pyramidion.counts.snapshot import Snapshot
from pyramidion.counts.snapshot_file import arena_of
from pyramidion.errors import ExpiredError, PyramidionError, StateError
from pyramidion.storage.blocks import Blocks, Generation
from pyramidion.storage.cards import card_bytes
from pyramidion.storage.ciphers import opened, sealed
from pyramidion.storage.data_keys import DataKey
from pyramidion.storage.deletions import LOST, SHARED
from pyramidion.storage.publications import PLACE, EncryptedPlace, Publications
from pyramidion.storage.tables import TableStore, tables_at
from pyramidion.store.access import Access
from pyramidion.store.change import Also, Change, Erasure, apply
from pyramidion.store.shard import Shard, refuse_sharing
from pyramidion.store.snapshots import Serving
from pyramidion.store.state import StoreState

LOOK = 60_000_000  # microseconds between looks at what is there
AGAIN = 10_000_000  # and between tries, where that failed


@dataclass(frozen=True)
class SharedStatus:
    """Where tables are shared, and whether those that are served now are."""

    at: str
    current: bool
    to_delete: int
    """Former ones whose keys are destroyed and whose chunks are still there."""
    problem: str = ""


class TablePublisher:
    """Publishes the complete tables of a store for readers elsewhere: `store.publisher`.

    A shard cannot publish, because its complete tables are the sum of a stream; this is why these
    methods are not in `store.shards`.

    Parameters
    ----------
    access : Access
        The open store.
    sharing : Sharing
        Keeps what is published in step with the store.
    shard : Shard, optional
        Which shard the store is, if it is one.

    Examples
    --------
    >>> import tempfile
    >>> from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    >>> from pyramidion import Categorical, Label, Pyramid, Schema, Settings
    >>> carrier = Categorical("carrier", domain=["AA", "UA"])
    >>> schema = Schema(features=[carrier], label=Label("late", classes=[0, 1]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     given = {"keys": f"file:{folder}/key"}
    ...     with Pyramid.create(f"{folder}/store", schema, Settings(epsilon=1.0), **given) as store:
    ...         _ = store.observe({"carrier": ["AA", "UA"], "late": [0, 1]})
    ...         _ = store.admin.reseed(why="seal the window")
    ...         store.publisher.start(f"file:{folder}/tables")
    ...         card = store.publisher.card(stream="flights", signer=Ed25519PrivateKey.generate())
    ...         print(store.status().shared.current, len(card) > 0)
    ...         store.publisher.stop()
    ...         print(store.status().shared)
    True True
    None
    """

    def __init__(self, access: Access, sharing: Sharing, shard: Shard | None) -> None:
        self._access = access
        self._sharing = sharing
        self._shard = shard

    def start(self, url: str) -> None:
        """Publish the complete tables at a URL, now and whenever they change.

        They are encrypted there, under a key that is destroyed when newer tables replace them.
        Whoever has a `card` can read them. The URL is stored encrypted, so it may hold a password.
        """
        self._access.check_open()
        refuse_sharing(self._shard)
        now = self._access.now()

        def start() -> None:
            where = self._sharing.begin(url, now)
            self._access.outbox.append("tables.shared", self._access.present(), where=where)

        self._access.run(start)

    def stop(self) -> None:
        """Stop publishing: destroy the keys of what is published, then delete it."""
        now = self._access.begin()

        def stop() -> None:
            where = self._sharing.end(now)
            self._access.outbox.append("tables.unshared", self._access.present(), where=where)

        self._access.run(stop)

    def card(self, *, stream: str, signer: Ed25519PrivateKey) -> bytes:
        """Return a signed credential that opens the published tables, for `SharedTables`.

        It expires after a day, or earlier with the first window in the tables.

        Parameters
        ----------
        stream : str
            The name of the stream that is written into the card.
        signer : Ed25519PrivateKey
            The key that readers trust.
        """
        now = self._access.begin()
        self._access.start_due_work(now)
        return self._sharing.card(stream=stream, now=now, signer=signer)


class Sharing:
    """The tables that a store shares; all but `card` and `status` by the keeper."""

    def __init__(self, store: StoreState, serving: Serving) -> None:
        self._store, self._serving = store, serving
        self._publications = Publications(store.catalogue, store.keys)
        self._owner = blake2b(store.secret, digest_size=8, person=b"owner of tables").hexdigest()
        self._tables: TableStore | None = None
        self._published: tuple[Snapshot, Generation] | None = None
        self._problem = ""
        self._next = 0
        place = self._publications.place
        if place is not None:
            self._tables = tables_at(self._url(place))

    # --- where ------------------------------------------------------------------------

    def begin(self, url: str, now: int) -> str:
        """Share tables at a URL from now on; where that is, without passwords."""
        tables = tables_at(url)
        tables.names()  # or it cannot be used, and that is told now
        if self._tables is not None and self._tables.address != tables.address:
            raise StateError(
                f"this store shares its tables at {self._tables.address}; stop that first"
            )
        key = DataKey.new("where tables are shared")
        text = b"".join(sealed(key.key, [url.encode()], PLACE.encode()))
        with self._store.catalogue.transaction():
            self._publications.set_place(key, text)
        if self._tables is not None:
            self._tables.close()
        self._tables, self._next = tables, 0
        self.advance(now)
        return tables.address

    def _url(self, place: EncryptedPlace) -> str:
        key = self._store.keys.get(place.key)
        return opened(key, place.url, PLACE.encode(), what="where tables are shared").decode()

    def end(self, now: int) -> str:
        """Share no more: destroy the keys, then delete the chunks; where they were."""
        if self._tables is None:
            raise StateError("this store shares no tables, so there is nothing to stop")
        address, place = self._tables.address, self._publications.place
        self._published = None
        if place is not None:  # or the keys are gone already, and deleting failed
            keys = [place.key, *self._publications.keys()]

            def forget() -> None:
                self._publications.forget_keys()
                self._publications.forget_place()

            erase = Erasure(SHARED, "shared no more")
            change = Change("unpublish", edits=[Also(forget, keys=keys)], erase=erase)
            apply(self._store, change, now)
        self._delete()
        self._tables.close()
        self._tables = None
        return address

    # --- in step with the store ---------------------------------------------------------

    def write(self, at: int) -> Collection[int]:  # noqa: ARG002
        """The keys of published tables that are not current any longer die with every erasure."""
        return self._publications.forget_stale_keys()

    def remember(self) -> None:
        """What is published is looked up in the catalogue."""

    def due(self, now: int) -> bool:
        """Whether `advance` has something to do, or to look after."""
        if self._tables is None:
            return False
        return now >= self._next or (not self._problem and not self._in_step())

    def _in_step(self) -> bool:
        served, published = self._serving.current, self._published
        same = served is None if published is None else published[0] is served
        return same and not self._waiting()

    def _waiting(self) -> list[tuple[str, int]]:
        """Names and chunks of those whose keys are gone."""
        return self._publications.to_delete()

    def advance(self, now: int) -> None:
        """Publish what is served and not shared; delete what is shared and not served."""
        if not self.due(now):
            return
        try:
            try:
                self._look(now)
            finally:
                self._delete()
            self._problem, self._next = "", now + LOOK
        except PyramidionError as problem:  # the store goes on; `status` says it
            self._problem, self._next = str(problem), now + AGAIN

    def _look(self, now: int) -> None:
        tables, served = self._connected(), self._serving.current
        self._forget_strangers(tables)
        if served is None:
            self._published = None
            return
        found = self._known(served)
        if found is not None and not tables.has(found.name, _lengths(served)):
            self._lose(found.name, now)
            found = None
        self._published = (served, found or self._publish(tables, served, now))

    def _connected(self) -> TableStore:
        if self._tables is None:
            raise StateError("this store shares no tables; give it a place first")
        return self._tables

    def _known(self, served: Snapshot) -> Generation | None:
        """What was published of the tables that are served."""
        found = self._publications.find(self._file(), arena_of(served).layout.fingerprint)
        return None if found is None else Generation(found[0], self._store.keys.get(found[1]))

    def _file(self) -> str:
        return str(self._store.tables.complete_file())

    def _publish(self, tables: TableStore, served: Snapshot, now: int) -> Generation:
        arena, file = arena_of(served), self._file()
        life = None if served.expires is None else (served.expires - now) / 1_000_000
        generation = tables.publish(arena, owner=self._owner, life=life)
        key = DataKey(DataKey.new("").id, "shared tables", generation.key)
        with self._store.catalogue.transaction():
            layout, chunks = arena.layout.fingerprint, Blocks(arena.layout).count
            self._publications.add(generation.name, key, file, layout, chunks)
        return generation

    def _lose(self, name: str, now: int) -> None:
        """The table store lost them, or a part: what is left goes, its key first."""
        key = self._publications.key_of(name)
        edits = [Also(lambda: self._publications.forget_keys(name), keys=[key])]
        apply(self._store, Change("unpublish", edits=edits, erase=Erasure(LOST, "lost")), now)

    def _forget_strangers(self, tables: TableStore) -> None:
        """What a crash left before the catalogue knew it: nobody has its key."""
        known = self._publications.names()
        for name, chunks in tables.names().items():
            if name.startswith(f"{self._owner}.") and name not in known:
                tables.delete(name, chunks)

    def _delete(self) -> None:
        for name, chunks in self._waiting():
            self._connected().delete(name, chunks)
            self._publications.delete(name)

    # --- what is told -------------------------------------------------------------------

    def card(self, *, stream: str, now: int, signer: Ed25519PrivateKey) -> bytes:
        """A card for the tables that are shared now."""
        if self._tables is None:
            raise StateError(
                "this store shares no tables; share them first, or take a snapshot instead"
            )
        published, served = self._published, self._serving.current
        if published is None or published[0] is not served:
            raise ExpiredError(
                "the tables that are served are not shared yet; ask again in a moment"
                + (f" ({self._problem})" if self._problem else "")
            )
        return card_bytes(*published, stream=stream, now=now, signer=signer)

    def status(self) -> SharedStatus | None:
        """Where tables are shared; None: nowhere."""
        if self._tables is None:
            return None
        served, published = self._serving.current, self._published
        current = published is not None and published[0] is served
        waiting = len(self._waiting())
        return SharedStatus(self._tables.address, current, waiting, self._problem)

    def close(self) -> None:
        """Let go of the connections."""
        if self._tables is not None:
            self._tables.close()


def _lengths(served: Snapshot) -> list[int]:
    """Bytes of every chunk of the tables that are served."""
    return Blocks(arena_of(served).layout).lengths
