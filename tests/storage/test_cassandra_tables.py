"""What is Cassandra's own about shared tables: its URL, its guards, its leftovers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pyramidion.counts.arena import Arena
from pyramidion.counts.layout import PRIOR, Layout, Table
from pyramidion.errors import ExpiredError, SchemaError, StorageError, UnreachableError
from pyramidion.storage.blocks import Span
from pyramidion.storage.cassandra_url import CassandraUrl
from pyramidion.storage.shared import SharedTables
from pyramidion.storage.tables import TableStore, tables_at
from tests.store.stores import DAY, Stand, observed, rows
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.cassandra_nodes.ring import Node

pytest.importorskip("cassandra", reason="cassandra-driver is not installed here")


@pytest.fixture
def store(cassandra_node: Node) -> Iterator[TableStore]:
    store = tables_at(cassandra_node.url("own", replication=1))
    yield store
    store.close()


def asked(node: Node, query: str) -> list[tuple[object, ...]]:
    """What the node says to who may ask everything."""
    from cassandra.auth import PlainTextAuthProvider
    from cassandra.cluster import Cluster

    from tests.cassandra_nodes.ring import SUPERUSER

    login = PlainTextAuthProvider(*SUPERUSER)
    with Cluster([node.host], port=node.port, auth_provider=login, protocol_version=4) as cluster:
        return [tuple(row) for row in cluster.connect().execute(query)]


# --- by consistency -------------------------------------------------------------------------------


def test_reads_and_writes_need_most_copies_unless_said_otherwise() -> None:
    from cassandra import ConsistencyLevel

    url = CassandraUrl.read("cassandra://one/tables")
    assert url.reads == url.writes == ConsistencyLevel.QUORUM
    mixed = CassandraUrl.read("cassandra://one/tables?consistency=ALL&reads=ONE")
    assert (mixed.reads, mixed.writes) == (ConsistencyLevel.ONE, ConsistencyLevel.ALL)


@pytest.mark.slow
def test_too_few_nodes_for_the_consistency_are_said_to_be(
    cassandra_node: Node, store: TableStore
) -> None:
    store.put("few.1", [b"abc"], 1, None)
    url = cassandra_node.url("own", replication=1)
    reader, writer = tables_at(f"{url}&reads=TWO"), tables_at(f"{url}&writes=TWO")
    with pytest.raises(UnreachableError, match="too few nodes that answer"):
        reader.read("few.1", [Span(0, 0, 3)])
    with pytest.raises(UnreachableError, match="too few nodes that answer"):
        writer.put("few.2", [b"abc"], 1, None)
    assert writer.read("few.1", [Span(0, 0, 3)]) == [b"abc"]
    for each in (reader, writer):
        each.close()


# --- by URL ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("cassandra:///tables", "has hosts"),
        ("cassandra://one:port/tables", "has hosts"),
        ("cassandra://one", "names no keyspace"),
        ("cassandra://one/Robert'); DROP TABLE", "names no keyspace"),
        ("cassandra://one/tables?copies=3", "option that is not known"),
        ("cassandra://one/tables?consistency=MOST", "no consistency of Cassandra"),
        ("cassandra://one/tables?writes=ANY", "no consistency of Cassandra"),
        ("cassandra://one/tables?replication=many", "is a number of copies"),
        ("cassandra://one/tables?replication=dc1:3,'dc2':1", "is a number of copies"),
    ],
)
def test_a_url_that_is_not_understood_is_refused(url: str, told: str) -> None:
    with pytest.raises(SchemaError, match=told):
        tables_at(url)


def test_a_password_is_in_no_error_and_in_no_address() -> None:
    store = tables_at("cassandra://me:s3cret@127.0.0.1:1/tables")
    assert store.address == "cassandra://127.0.0.1:1/tables"
    with pytest.raises(UnreachableError, match="does not answer") as told:
        store.names()
    assert "s3cret" not in str(told.value) + repr(vars(store))


def test_certificates_that_cannot_be_read_are_the_users_mistake() -> None:
    with pytest.raises(SchemaError, match="file of certificates that can be read"):
        tables_at("cassandra://127.0.0.1/tables?tls=/nowhere.pem").names()


# --- schema on demand -----------------------------------------------------------------------------


@pytest.mark.slow
def test_before_its_owner_came_a_keyspace_reads_as_empty(cassandra_node: Node) -> None:
    store = tables_at(cassandra_node.url("not_yet", replication=1))
    assert store.names() == {}
    store.delete("o.1", 2)
    with pytest.raises(ExpiredError):
        store.read("o.1", [Span(0, 0, 1)])
    store.close()


def test_a_keyspace_is_made_only_where_its_replication_is_given(cassandra_node: Node) -> None:
    without = tables_at(cassandra_node.url("made"))
    for asked_for in (without.names, lambda: without.put("o.1", [b"abc"], 1, None)):
        with pytest.raises(SchemaError, match=r"there is no keyspace made .* \?replication=3"):
            asked_for()
    given = tables_at(cassandra_node.url("made", replication="datacenter1:1"))
    given.put("o.1", [b"abc"], 1, None)
    ((replication,),) = asked(
        cassandra_node,
        "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = 'made'",
    )
    assert "NetworkTopologyStrategy" in str(replication)
    assert without.read("o.1", [Span(0, 0, 3)]) == [b"abc"]  # it is there now
    for store in (without, given):
        store.close()


def test_a_refusal_of_the_server_is_told_as_one(cassandra_node: Node) -> None:
    store = tables_at(cassandra_node.url("nobody", replication="no_such_centre:1"))
    with pytest.raises(StorageError, match="refuses"):
        store.put("o.1", [b"abc"], 1, None)
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["KEYSPACE again", "TABLE again.pyramidion_chunks"])
def test_a_schema_that_was_lost_is_made_again_by_an_owner_that_runs(
    cassandra_node: Node, lost: str
) -> None:
    url = cassandra_node.url("again", replication=1)
    owner, reader = tables_at(url), tables_at(url)
    try:
        owner.put("o.1", [b"abc"], 1, None)
        assert reader.read("o.1", [Span(0, 0, 3)]) == [b"abc"]
        asked(cassandra_node, f"DROP {lost}")
        assert not reader.has("o.1", [3])  # lost, and nothing else is said of it
        assert owner.names() == {}
        owner.delete("o.1", 1)
        owner.put("o.2", [b"def"], 1, None)
        assert reader.read("o.2", [Span(0, 0, 3)]) == [b"def"]
        asked(cassandra_node, f"DROP {lost}")
        owner.put("o.3", [b"ghi"], 1, None)  # at once, without a look before
        assert reader.names() == {"o.3": 1}
    finally:
        owner.close()
        reader.close()


def test_tables_are_shared_again_by_a_store_that_runs_when_the_keyspace_is_lost(
    stand: Stand, cassandra_node: Node
) -> None:
    signer, url = Ed25519PrivateKey.generate(), cassandra_node.url("anew", replication=1)
    store = stand.create()
    observed(store, rows(50, stand.clock.now))
    stand.clock.pass_(10 * DAY)
    store.advance()
    store.publisher.start(url)
    asked(cassandra_node, "DROP KEYSPACE anew")
    stand.clock.pass_(61)
    store.advance()
    found = store.status().shared
    assert found is not None
    assert (found.current, found.problem) == (True, "")
    card = store.publisher.card(stream="s", signer=signer)
    with SharedTables(card, url, stream="s", key=signer.public_key(), clock=stand.clock) as shared:
        assert shared.snapshot().rows == 50


# --- guards ---------------------------------------------------------------------------------------


def test_a_wrong_password_is_said_to_be_one(cassandra_node: Node) -> None:
    store = tables_at(cassandra_node.url("own", login="cassandra:wr0ng"))
    with pytest.raises(UnreachableError, match="does not let us in") as told:
        store.names()
    assert "wr0ng" not in str(told.value)


def test_who_may_only_read_can_read_and_nothing_else(
    cassandra_node: Node, store: TableStore
) -> None:
    store.put("o.reader", [b"abc"], 1, None)
    asked(cassandra_node, "CREATE ROLE reader WITH PASSWORD = 'r' AND LOGIN = true")
    asked(cassandra_node, "GRANT SELECT ON KEYSPACE own TO reader")
    reader = tables_at(cassandra_node.url("own", login="reader:r"))
    assert reader.read("o.reader", [Span(0, 0, 3)]) == [b"abc"]
    for refused in (
        lambda: reader.put("o.2", [b"abc"], 1, None),
        lambda: reader.delete("o.reader", 1),
    ):
        with pytest.raises(UnreachableError, match="does not let us in"):
            refused()
    reader.close()


def test_a_node_that_cannot_prove_who_it_is_gets_no_question(
    cassandra_node: Node, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from tests.cassandra_nodes.ring import certified

    other = tmp_path_factory.mktemp("other") / "other.pem"
    other.write_bytes(certified(cassandra_node.host))
    store = tables_at(cassandra_node.url("own", tls=other))
    with pytest.raises(UnreachableError, match="does not prove who it is"):
        store.names()


# --- pieces ---------------------------------------------------------------------------------------


def test_spans_across_pieces_come_whole(store: TableStore) -> None:
    chunk = np.random.default_rng(0).bytes(1 << 20)
    store.put("o.pieces", [chunk, chunk[::-1]], 2, None)
    spans = [
        Span(0, 4090, 12),  # over a border
        Span(0, 0, 4096),
        Span(0, 4096, 4097),
        Span(0, len(chunk) - 1, 1),
        Span(1, 0, len(chunk)),  # all of it
        *(Span(0, at, 5) for at in range(0, len(chunk) - 5, 9999)),  # most of it
    ]
    both = chunk, chunk[::-1]
    expected = [both[s.chunk][s.start : s.start + s.length] for s in spans]
    assert store.read("o.pieces", spans) == expected


def test_chunks_on_several_shelves_are_read_listed_and_deleted_together(store: TableStore) -> None:
    chunks = [f"chunk {number}".encode() for number in range(20)]
    store.put("o.shelves", chunks, 20, None)
    order = np.random.default_rng(0).permutation(20).tolist()
    spans = [Span(number, 0, len(chunks[number])) for number in order]
    assert store.read("o.shelves", spans) == [chunks[number] for number in order]
    assert store.names()["o.shelves"] == 20
    store.delete("o.shelves", 20)
    assert "o.shelves" not in store.names()
    for span in spans:
        with pytest.raises(ExpiredError):
            store.read("o.shelves", [span])


@pytest.mark.parametrize("piece", [0, 1, 2])
def test_a_piece_that_is_lost_is_noticed_never_skipped(
    cassandra_node: Node, store: TableStore, piece: int
) -> None:
    store.put(f"o.lost{piece}", [bytes(3 * 4096)], 1, None)
    key = f"name = 'o.lost{piece}' AND shelf = 0 AND chunk = 0 AND piece = {piece}"
    asked(cassandra_node, f"DELETE FROM own.pyramidion_chunks WHERE {key}")  # noqa: S608
    for span in (Span(0, 0, 3 * 4096), Span(0, 4000, 4296), Span(0, piece * 4096 + 7, 5)):
        if piece in range(span.start // 4096, -(-(span.start + span.length) // 4096)):
            with pytest.raises(ExpiredError):
                store.read(f"o.lost{piece}", [span])


# --- a whole life -----------------------------------------------------------------------------


def test_a_store_shares_its_tables_there_until_their_key_dies(
    stand: Stand, cassandra_node: Node
) -> None:
    signer, url = Ed25519PrivateKey.generate(), cassandra_node.url("life", replication=1)
    store = stand.create()
    observed(store, rows(50, stand.clock.now))
    stand.clock.pass_(10 * DAY)
    store.advance()
    store.publisher.start(url)
    card = store.publisher.card(stream="s", signer=signer)
    with SharedTables(card, url, stream="s", key=signer.public_key(), clock=stand.clock) as shared:
        expected = store.snapshot().array(rows(40, seed=5)).tobytes()
        far = shared.snapshot(cached=False)
        assert shared.snapshot().array(rows(40, seed=5)).tobytes() == expected
        assert far.array(rows(40, seed=5)).tobytes() == expected
        observed(store, rows(50, stand.clock.now, seed=1))
        stand.clock.pass_(10 * DAY)
        store.advance()  # another window is sealed: other tables take their place
        with pytest.raises(ExpiredError):
            far.array(rows(1))


# --- what is left ---------------------------------------------------------------------------------


def test_what_its_owner_never_deletes_ends_by_itself(store: TableStore) -> None:
    store.put("o.short", [b"abc"], 1, 1.0)
    store.put("o.long", [b"abc"], 1, 3600.0)
    store.put("o.ages", [b"abc"], 1, 100 * 365 * 86400.0)  # longer than Cassandra can say
    wait_for(lambda: "o.short" not in store.names())
    assert {"o.long", "o.ages"} <= set(store.names())
    with pytest.raises(ExpiredError):
        store.read("o.short", [Span(0, 0, 3)])


def test_no_file_of_the_server_holds_a_cell(cassandra_node: Node, store: TableStore) -> None:
    mark = 0x6B72616D  # "mark", many times over
    layout = Layout(
        (Table(PRIOR, "dense", 1, 1, 1 << 31), Table("a", "dense", 1, 5000, (1 << 31) - 1)),
        labels=2,
        secret=b"s",
    )

    def fill(_: int, cells: np.ndarray) -> None:
        cells[:] = mark

    generation = store.publish(Arena.of_cells(layout, fill, rows=1, max_rows=2), owner="leftovers")
    store.delete(generation.name, store.opened(generation, layout).blocks.count)
    store.put("afterwards.1", [b"abc"], 1, None)

    def files() -> list[bytes]:
        return [path.read_bytes() for path in cassandra_node.folder.rglob("*") if path.is_file()]

    # The commit log is written in order, and synced now and then.
    wait_for(lambda: any(b"afterwards.1" in data for data in files()))
    assert any(generation.name.encode() in data for data in files())  # it is them that we read
    assert not any(b"markmark" in data for data in files())
