"""A store that shares its tables: readers have what it serves, until it must be forgotten."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pyramidion import Pyramid
from pyramidion.counts.snapshot import Snapshot
from pyramidion.errors import (
    ExpiredError,
    FormatError,
    PyramidionError,
    StateError,
    UnreachableError,
)
from pyramidion.storage.shared import SharedTables
from pyramidion.storage.tables import FileTables, TableStore
from pyramidion.store.publish import AGAIN, LOOK
from tests.redis_servers import RedisServer, needed
from tests.store import inspect
from tests.store.stores import DAY, SECOND, START, Stand, failing_once, observed, rows
from tests.waiting import PATIENCE

SIGNER = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


@pytest.fixture
def shared(stand: Stand) -> Pyramid:
    """A store that shares one sealed window in a directory."""
    store = stand.create()
    rolled(stand, store)
    store.publisher.start(url(stand))
    return store


def url(stand: Stand) -> str:
    return f"file:{stand.folder / 'shared'}"


def rolled(stand: Stand, store: Pyramid, windows: int = 1) -> None:
    for _ in range(windows):
        observed(store, rows(50, stand.clock.now, seed=int(stand.clock.now)))
        stand.clock.pass_(10 * DAY)
        store.advance()


def card(store: Pyramid) -> bytes:
    return store.publisher.card(stream="s", signer=SIGNER)


def reader(stand: Stand, data: bytes, where: str | TableStore | None = None) -> SharedTables:
    key, clock = SIGNER.public_key(), stand.clock
    where = url(stand) if where is None else where
    return SharedTables(data, where, stream="s", key=key, clock=clock)


def both(tables: SharedTables) -> tuple[Snapshot, Snapshot]:
    return tables.snapshot(), tables.snapshot(cached=False)


def names(stand: Stand) -> set[str]:
    return set(FileTables(stand.folder / "shared").names())


def same(one: Snapshot, other: Snapshot) -> bool:
    batch = rows(40, seed=5)
    equal = one.array(batch).tobytes() == other.array(batch).tobytes()
    some = batch.slice(0, 5).to_pylist()
    return equal and all(
        one.featurize_one(row).tobytes() == other.featurize_one(row).tobytes() for row in some
    )


# --- what a reader has ---------------------------------------------------------------------------


def test_a_reader_has_the_features_of_the_store(stand: Stand, shared: Pyramid) -> None:
    for found in both(reader(stand, card(shared))):
        assert same(found, shared.snapshot())
        assert found.guarantee == shared.snapshot().guarantee
        assert found.names == shared.snapshot().names
        assert found.tables == shared.snapshot().tables
        assert found.rows == 50


@pytest.mark.parametrize("settings", [{"passthrough": 4}, {"delta": 1e-6}, {"epsilon": 1e9}])
def test_whatever_the_settings(stand: Stand, settings: dict[str, float]) -> None:
    store = stand.create(**settings)
    rolled(stand, store, 3)
    store.publisher.start(url(stand))
    assert all(same(found, store.snapshot()) for found in both(reader(stand, card(store))))


def test_a_store_may_share_from_the_first(stand: Stand) -> None:
    from tests.store.stores import SCHEMA, tiny

    store = stand.held(Pyramid.create(stand.path, SCHEMA, tiny(), **stand.given, tables=url(stand)))
    with pytest.raises(ExpiredError, match="not shared yet"):
        card(store)
    rolled(stand, store)
    assert same(reader(stand, card(store)).snapshot(), store.snapshot())


def test_it_goes_on_after_reopening_and_publishes_nothing_twice(
    stand: Stand, shared: Pyramid
) -> None:
    before, data = names(stand), card(shared)
    store = stand.reopen()
    assert names(stand) == before
    assert store.status().shared is not None
    for each in (data, card(store)):
        assert same(reader(stand, each).snapshot(), store.snapshot())


def test_nothing_populating_is_there(stand: Stand, shared: Pyramid) -> None:
    """The catalogue knows which file each set was made of: complete tables, always."""
    observed(shared, rows(50, stand.clock.now))
    shared.advance()
    found = inspect.catalogue(shared).all(
        "SELECT kind FROM shared JOIN arenas ON arenas.file = shared.file"
    )
    assert [row["kind"] for row in found] == ["complete"]
    assert len(names(stand)) == 1


def test_a_store_that_shares_nothing_has_no_card(stand: Stand) -> None:
    store = stand.create()
    rolled(stand, store)
    assert store.status().shared is None
    with pytest.raises(StateError, match="shares no tables"):
        card(store)
    with pytest.raises(StateError, match="shares no tables"):
        store.publisher.stop()


# --- when it ends --------------------------------------------------------------------------------


def keys_of(store: Pyramid) -> list[int]:
    found = inspect.catalogue(store).all("SELECT id FROM keys WHERE purpose = 'shared tables'")
    return [row["id"] for row in found]


def seal(stand: Stand, store: Pyramid) -> None:
    rolled(stand, store)


def retire(stand: Stand, store: Pyramid) -> None:
    stand.clock.now = START + 50 * DAY
    store.advance()


def withdraw(_: Stand, store: Pyramid) -> None:
    store.groups.withdraw("a,b", why="not needed")
    store.advance()


def reseed(stand: Stand, store: Pyramid) -> None:
    observed(store, rows(50, stand.clock.now))
    store.admin.reseed(why="a laptop was stolen")
    store.advance()


def unshare(_: Stand, store: Pyramid) -> None:
    store.publisher.stop()


ENDS = [seal, retire, withdraw, reseed, unshare]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_the_key_dies_and_then_the_chunks_go(
    stand: Stand, shared: Pyramid, end: Callable[[Stand, Pyramid], None]
) -> None:
    tables, (key,), before = reader(stand, card(shared)), keys_of(shared), names(stand)
    far = tables.snapshot(cached=False)
    far.featurize_one(rows(1).to_pylist()[0])
    end(stand, shared)
    assert key not in keys_of(shared)
    assert not before & names(stand)
    with pytest.raises(ExpiredError):
        tables.snapshot()
    with pytest.raises(ExpiredError):
        far.featurize_one(rows(1).to_pylist()[0])


@pytest.mark.parametrize("end", ENDS[:-1], ids=lambda end: end.__name__)
def test_a_new_card_opens_what_took_its_place(
    stand: Stand, shared: Pyramid, end: Callable[[Stand, Pyramid], None]
) -> None:
    rolled(stand, shared)
    end(stand, shared)
    assert len(names(stand)) == 1
    assert same(reader(stand, card(shared)).snapshot(), shared.snapshot())


def test_the_key_dies_in_the_same_transaction_as_the_tables(
    stand: Stand, shared: Pyramid, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though nobody gets to publish or to delete anything after it."""
    (key,) = keys_of(shared)
    monkeypatch.setattr(inspect.parts(shared).sharing, "advance", lambda _: None)
    rolled(stand, shared)
    assert key not in keys_of(shared)
    assert len(names(stand)) == 1  # the chunks, which nothing opens any more
    monkeypatch.undo()
    store = stand.reopen()
    assert len(names(stand)) == 1
    assert same(reader(stand, card(store)).snapshot(), store.snapshot())


def test_a_card_ends_when_the_first_window_retires(stand: Stand, shared: Pyramid) -> None:
    stand.clock.now = START + 50 * DAY - 60
    data = card(shared)
    tables = reader(stand, data)
    found = both(tables)
    assert tables.expires == int((START + 50 * DAY) * SECOND)
    stand.clock.pass_(60)
    for each in found:
        with pytest.raises(ExpiredError, match="has expired"):
            each.featurize(rows(3))
    with pytest.raises(ExpiredError, match="this card has expired"):
        tables.snapshot(cached=False)
    with pytest.raises(ExpiredError, match="this card has expired"):
        reader(stand, data)


def test_a_card_ends_after_a_day(stand: Stand, shared: Pyramid) -> None:
    tables = reader(stand, card(shared))
    assert tables.expires == int((stand.clock.now + DAY) * SECOND)
    far = tables.snapshot(cached=False)
    stand.clock.pass_(DAY)
    for _ in range(2):
        with pytest.raises(ExpiredError, match="has expired"):
            far.featurize(rows(3))
        stand.clock.now -= DAY / 2  # whatever the clock does then


def test_a_card_that_was_changed_or_is_anothers_is_refused(stand: Stand, shared: Pyramid) -> None:
    data = bytearray(card(shared))
    data[-100] ^= 1
    with pytest.raises(FormatError, match="was changed on its way"):
        reader(stand, bytes(data))
    other = Ed25519PrivateKey.generate()
    with pytest.raises(FormatError):
        reader(stand, shared.publisher.card(stream="s", signer=other))


# --- what is written down ------------------------------------------------------------------------


def test_the_url_is_kept_encrypted(stand: Stand, shared: Pyramid) -> None:
    stand.close()
    with sqlite3.connect(stand.path / "catalogue.db") as db:
        found = db.execute("SELECT value FROM about WHERE name = 'shared'").fetchone()[0]
    assert "file:" not in found
    assert url(stand).encode() not in (stand.path / "catalogue.db").read_bytes()


def test_the_audit_log_tells_it(stand: Stand, shared: Pyramid) -> None:
    shared.publisher.stop()
    told = [(e.kind, e.facts) for e in shared.audit_log.entries() if e.kind.startswith("tables.")]
    facts = {"where": url(stand)}
    assert [(kind, dict(found)) for kind, found in told] == [
        ("tables.shared", facts),
        ("tables.unshared", facts),
    ]


def test_another_place_needs_the_first_to_be_left(stand: Stand, shared: Pyramid) -> None:
    with pytest.raises(StateError, match="stop that first"):
        shared.publisher.start(f"file:{stand.folder / 'elsewhere'}")
    shared.publisher.start(url(stand))  # the same, as with another password
    shared.publisher.stop()
    shared.publisher.start(f"file:{stand.folder / 'elsewhere'}")
    where = f"file:{stand.folder / 'elsewhere'}"
    assert same(reader(stand, card(shared), where).snapshot(), shared.snapshot())


def test_a_restored_backup_goes_on_sharing(stand: Stand, shared: Pyramid) -> None:
    shared.admin.backup(stand.folder / "copy")
    shared.close()
    place = stand.folder / "restored"
    store = stand.held(Pyramid.restore(stand.folder / "copy", place, **stand.given))
    assert len(names(stand)) == 1
    assert same(reader(stand, card(store)).snapshot(), store.snapshot())


# --- crashes and other owners --------------------------------------------------------------------


def test_what_a_crash_left_before_it_was_written_down_goes(stand: Stand, shared: Pyramid) -> None:
    before = names(stand)
    owner = inspect.parts(shared).sharing._owner
    FileTables(stand.folder / "shared").publish(shared.snapshot()._arena, owner=owner)
    FileTables(stand.folder / "shared").publish(shared.snapshot()._arena, owner="theirs")
    stand.clock.pass_(LOOK / SECOND)
    shared.advance()
    left = {name for name in names(stand) if not name.startswith("theirs.")}
    assert left == before
    assert len(names(stand)) == 2


def test_a_full_disk_while_it_is_written_down_leaves_no_key_behind(
    stand: Stand, shared: Pyramid, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyramidion.errors import StorageError

    failing_once(monkeypatch, inspect.parts(shared).sharing, "_publish", StorageError("full"))
    rolled(stand, shared)
    told = shared.status().shared
    assert told is not None
    assert (told.current, told.problem) == (False, "full")
    with pytest.raises(ExpiredError, match=r"not shared yet.* \(full\)"):
        card(shared)
    stand.clock.pass_(AGAIN / SECOND)
    shared.advance()
    assert same(reader(stand, card(shared)).snapshot(), shared.snapshot())


# --- Redis goes away -----------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    needed()
    found = RedisServer(tmp_path / "redis")
    yield found
    found.kill()


def waits_for_redis(store: Pyramid, seconds: float) -> None:
    """How long a store waits for an answer, from now on."""
    tables: Any = inspect.parts(store).sharing._tables
    pool = tables._redis().connection_pool
    pool.connection_kwargs["socket_timeout"] = seconds
    pool.disconnect()
    pool.reset()  # or its connections keep how long they waited so far


def minute(stand: Stand, store: Pyramid) -> None:
    stand.clock.pass_(LOOK / SECOND)
    store.advance()


def test_tables_that_redis_lost_are_restored_by_their_owner(
    stand: Stand, server: RedisServer
) -> None:
    store = stand.create()
    rolled(stand, store)
    store.publisher.start(server.url)
    tables, row = reader(stand, card(store), server.url), rows(1).to_pylist()[0]
    near, far = both(tables)
    expected = store.snapshot().featurize_one(row).tobytes()
    assert far.featurize_one(row).tobytes() == expected
    with server.away():
        with pytest.raises(UnreachableError, match="does not answer") as told:
            far.featurize_one(row)
        assert told.value.status == 503
        with pytest.raises(UnreachableError):
            tables.snapshot()
        assert near.featurize_one(row).tobytes() == expected  # it was loaded
        minute(stand, store)
        status = store.status().shared
        assert status is not None
        assert "does not answer" in status.problem
    with pytest.raises(ExpiredError, match="it lost them"):
        far.featurize_one(row)
    with server.away():
        rolled(stand, store)  # the store goes on without it
    minute(stand, store)
    for found in both(reader(stand, card(store), server.url)):
        assert same(found, store.snapshot())


def test_one_lost_chunk_is_restored_too(stand: Stand, server: RedisServer) -> None:
    store = stand.create()
    rolled(stand, store)
    store.publisher.start(server.url)
    before = set(server.asked("keys", "*:0").decode().split())
    server.asked("del", *before)
    minute(stand, store)
    after = set(server.asked("keys", "*:0").decode().split())
    assert len(after) == 1
    assert not after & before
    assert same(reader(stand, card(store), server.url).snapshot(), store.snapshot())


def test_a_withdrawal_while_redis_is_away_reaches_it_later(
    stand: Stand, server: RedisServer
) -> None:
    store = stand.create()
    rolled(stand, store)
    store.publisher.start(server.url)
    (key,) = keys_of(store)
    waits_for_redis(store, 0.3)
    with server.asleep():
        store.groups.withdraw("a,b", why="not needed")
        store.advance()
        assert key not in keys_of(store)
        told = store.status().shared
        assert told is not None
        assert told.to_delete == 1
    waits_for_redis(store, PATIENCE)
    minute(stand, store)
    assert store.status().shared.to_delete == 0  # type: ignore[union-attr]
    assert len(set(server.asked("keys", "*:0").decode().split())) == 1
    found = reader(stand, card(store), server.url).snapshot()
    assert "a,b" not in found.tables
    assert same(found, store.snapshot())


def test_a_store_opens_without_its_table_store(stand: Stand, server: RedisServer) -> None:
    store = stand.create()
    rolled(stand, store)
    store.publisher.start(server.url)
    stand.close()
    with server.away():
        store = stand.open()
        assert store.snapshot().rows == 50
        with pytest.raises(PyramidionError, match="does not answer"):
            card(store)
    minute(stand, store)
    assert same(reader(stand, card(store), server.url).snapshot(), store.snapshot())


def test_a_place_that_does_not_answer_is_refused_at_first(stand: Stand) -> None:
    needed()
    store = stand.create()
    with pytest.raises(UnreachableError, match="does not answer"):
        store.publisher.start("redis://127.0.0.1:1/0")
    assert store.status().shared is None
    assert np.isfinite(store.settings.epsilon)
