"""Shared tables in Apache Cassandra: chunks cut into pieces that can be read alone.

    CREATE TABLE <keyspace>.pyramidion_chunks (
        name text, shelf int, count int STATIC, chunk int, piece int, data blob,
        PRIMARY KEY ((name, shelf), chunk, piece))

A shelf is a partition of eight chunks, 9 MB, so that a set of tables spreads over the ring; a
chunk lies there in pieces of 4 KB, in order, for Cassandra cannot read a part of a blob. The
cells that a row of features needs take one SELECT ... WHERE (chunk, piece) IN for each shelf that
has some, all at once; a chunk that much is wanted of is read from the first piece to the last.

The numbers: it is requests that cost. 195 cells in 117 chunks took 21 ms of processor time here
and 33 there with a chunk on each shelf, 8 and 17 with eight, about the same with 16 or 32. Pieces
of 1 or 2 KB made no row cheaper, and tables four or two times as dear to publish.

What is written has one content for ever, whoever writes it again: every statement may be sent
twice, so a request that a lost node swallowed goes to the next one. There are no counters, no
batches and no conditions: that a name is new is asked before it is written, which suffices where
names are random. A node that was away while tables were deleted may bring them back; they are
ciphertext under a key that is gone.

A Cassandra that was set up anew has neither table nor keyspace. That is found out by the first
request that it refuses; it reads as empty then, and who writes next makes them again.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyramidion.errors import PyramidionError, StorageError, UnreachableError, refuse_missing
from pyramidion.storage.blocks import Span
from pyramidion.storage.cassandra_url import CassandraUrl
from pyramidion.storage.tables import TableStore

TABLE = "pyramidion_chunks"
PIECE = 4096
"""Bytes of a chunk that are read together, see above."""
SHELF = 8
"""Chunks in a partition, see above."""
MANY = 64
"""Pieces of a chunk beyond which it is read from the first to the last of them."""
AT_ONCE = 64
"""Requests under way at once: the larger ones answer with a megabyte each."""
WITHIN = 10.0
"""Seconds until a request has failed. A node that is silent for one second is passed over."""
LONGEST = 5 * 365 * 86400
"""Seconds a chunk may be told to live; Cassandra refuses an end beyond 2038."""


class CassandraTables(TableStore):
    """Published tables in a keyspace of Cassandra; connects when it is first used."""

    def __init__(self, url: str) -> None:
        refuse_missing("a table store in Cassandra", ["cassandra"], "cassandra")
        self._url = CassandraUrl.read(url)
        self.address = self._url.address
        self._lock = threading.Lock()
        self._held: Connection | None = None

    def put(self, name: str, chunks: Iterable[bytes], count: int, life: float | None) -> None:
        """A row for each piece; a chunk is acknowledged before the next one is sent."""
        ends = 0 if life is None or life > LONGEST else max(1, math.ceil(life))  # 0: never
        with self._explained() as held:
            if any(held.asked("some", [(name, 0, [(0, 0)])]) or ()):
                raise self.taken()
            held.create()
            written = 0
            for number, chunk in enumerate(chunks):
                place = (name, number // SHELF, number + 1, number)
                starts = range(0, len(chunk), PIECE)
                pieces = ((at // PIECE, chunk[at : at + PIECE]) for at in starts)
                held.run("insert", [(*place, piece, data, ends) for piece, data in pieces])
                written += 1
        if written != count:
            raise ValueError(f"{written} chunks, not {count}")

    def read(self, name: str, spans: Sequence[Span]) -> list[bytes]:
        """The pieces that have some of the spans, all asked for at once."""
        wanted: dict[int, set[int]] = {}
        for span in spans:
            wanted.setdefault(span.chunk, set()).update(_pieces(span))
        few: dict[int, list[tuple[int, int]]] = {}
        many = list[tuple[str, int, int, int, int]]()
        for chunk, pieces in wanted.items():
            if len(pieces) > MANY:
                many.append((name, chunk // SHELF, chunk, min(pieces), max(pieces)))
            else:
                few.setdefault(chunk // SHELF, []).extend((chunk, piece) for piece in pieces)
        with self._explained() as held:
            some = held.asked("some", [(name, *each) for each in _portions(few)])
            range_ = held.asked("range", many)
        if some is None or range_ is None:
            raise self.gone(name)
        found = some + range_
        pieces_of = {(chunk, piece): data for rows in found for chunk, piece, data in rows}
        cut = [_cut(pieces_of, span) for span in spans]
        if [len(data) for data in cut] != [span.length for span in spans]:
            raise self.gone(name)
        return cut

    def names(self) -> dict[str, int]:
        """What the keys of all partitions say."""
        found: dict[str, int] = {}
        with self._explained() as held:
            for name, _, count in (held.asked("names", [()]) or [[]])[0]:
                found[name] = max(found.get(name, 0), count)
        return found

    def delete(self, name: str, count: int) -> None:
        """One tombstone for each shelf."""
        with self._explained() as held:
            held.asked("delete", [(name, shelf) for shelf in range(-(-count // SHELF))])

    def close(self) -> None:
        """Close the connections, and end the driver's threads."""
        with self._lock:
            held, self._held = self._held, None
        if held is not None:
            held.close()

    def _connection(self) -> Connection:
        with self._lock:
            if self._held is None:
                self._held = Connection(self._url)
            return self._held

    @contextmanager
    def _explained(self) -> Iterator[Connection]:
        """The driver, whose errors become ours: the one place that knows them."""
        from cassandra import DriverException
        from cassandra.cluster import NoHostAvailable
        from cassandra.protocol import ErrorMessage

        try:
            yield self._connection()
        except PyramidionError:
            raise
        except NoHostAvailable as problem:
            causes = problem.errors.values() if isinstance(problem.errors, dict) else ()
            raise self._told(problem, *causes) from problem
        except (DriverException, ErrorMessage) as problem:
            raise self._told(problem) from problem

    def _told(self, *problems: Exception) -> PyramidionError:
        """What the driver's error and its causes mean, the most telling one first."""
        import cassandra as theirs
        from cassandra.cluster import NoHostAvailable

        where, kind = f"the table store at {self.address}", type(problems[0]).__name__
        if _any(problems, theirs.AuthenticationFailed, theirs.Unauthorized):
            return UnreachableError(
                f"{where} does not let us in; see to the user, the password and the rights of "
                f"the URL it was given by"
            )
        if _any(problems, theirs.Unavailable, theirs.Timeout, theirs.CoordinationFailure):
            return UnreachableError(
                f"{where} has too few nodes that answer for consistency {self._url.asks}; see "
                f"which are down, and try again when they are back"
            )
        if any("[SSL" in str(problem) for problem in problems):  # all that the driver leaves of it
            return UnreachableError(
                f"{where} does not prove who it is; see that `tls` of its URL names who signed the "
                f"certificates of its nodes, and that these name their addresses"
            )
        silent = (NoHostAvailable, theirs.OperationTimedOut, theirs.UnresolvableContactPoints)
        if _any(problems, *silent):
            return UnreachableError(
                f"{where} does not answer ({kind}); see that it runs and that this machine may "
                f"reach it"
            )
        return StorageError(f"{where} refuses ({kind}); see its log")


def _any(problems: Sequence[Exception], *kinds: type[Exception]) -> bool:
    return any(isinstance(problem, kinds) for problem in problems)


def _pieces(span: Span) -> range:
    """The pieces that have a part of a span."""
    return range(span.start // PIECE, -(-(span.start + span.length) // PIECE))


def _portions(
    wanted: dict[int, list[tuple[int, int]]],
) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Shelves, each with no more pieces than are asked for in one request."""
    for shelf, pieces in wanted.items():
        for at in range(0, len(pieces), MANY):
            yield shelf, pieces[at : at + MANY]


def _cut(found: dict[tuple[int, int], bytes], span: Span) -> bytes:
    """The bytes of a span out of pieces; none where one of them is not there."""
    pieces, start = [(span.chunk, piece) for piece in _pieces(span)], span.start % PIECE
    if any(piece not in found for piece in pieces):
        return b""
    return b"".join(found[piece] for piece in pieces)[start : start + span.length]


# --- the driver -------------------------------------------------------------------------------


class Connection:
    """A session of the driver, the statements it has prepared, and the table they are about."""

    def __init__(self, url: CassandraUrl) -> None:
        from cassandra.cluster import Cluster

        self._url = url
        self._cluster = Cluster(url.hosts, **_settings(url))
        self._prepared: dict[str, Any] = {}
        try:
            self._session = self._cluster.connect()
        except BaseException:
            self._cluster.shutdown()
            raise

    def exists(self) -> bool:
        """Whether the table is there; a reader may come before its owner did."""
        if self._prepared:
            return True
        if TABLE in self._named("table_name", "tables"):
            self._prepared = {what: self._prepare(what) for what in _STATEMENTS}
        elif not self._named("keyspace_name", "keyspaces"):
            self._url.new_keyspace()  # refused where nobody could make it
        return bool(self._prepared)

    def create(self) -> None:
        """Make the table where it is not there, and the keyspace if its replication is given."""
        if self.exists():
            return
        if not self._named("keyspace_name", "keyspaces"):
            self._session.execute(self._url.new_keyspace())
        self._session.execute(
            f'CREATE TABLE IF NOT EXISTS "{self._url.keyspace}".{TABLE} '
            "(name text, shelf int, count int STATIC, chunk int, piece int, data blob, "
            "PRIMARY KEY ((name, shelf), chunk, piece)) "
            "WITH compression = {'enabled': 'false'}"  # ciphertext does not compress
        )
        self.exists()

    def asked(self, what: str, each: Sequence[tuple[Any, ...]]) -> list[list[Any]] | None:
        """What `run` gives; None where there is no table, or none any more."""
        from cassandra import InvalidRequest

        if not self.exists():
            return None
        try:
            return self.run(what, each)
        except InvalidRequest:  # as of a table that was dropped under the statements
            self._prepared = {}
            return self.run(what, each) if self.exists() else None

    def run(self, what: str, each: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
        """One statement with several sets of values, all at once; their rows, in order."""
        from cassandra.concurrent import execute_concurrent_with_args

        statement = self._prepared[what]
        done = execute_concurrent_with_args(self._session, statement, each, concurrency=AT_ONCE)
        return [list(result) for _, result in done]

    def close(self) -> None:
        """End the driver's threads."""
        self._cluster.shutdown()

    def _named(self, what: str, among: str) -> set[str]:
        """The names of the tables of our keyspace, or of itself if it is there."""
        from cassandra.query import SimpleStatement

        query = f"SELECT {what} FROM system_schema.{among} WHERE keyspace_name = %s"  # noqa: S608
        asked = SimpleStatement(query, is_idempotent=True)
        return {name for (name,) in self._session.execute(asked, (self._url.keyspace,))}

    def _prepare(self, what: str) -> Any:
        """A statement by its name. The driver asks one node for it: if that is silent, another."""
        from cassandra import OperationTimedOut

        query = _STATEMENTS[what].format(f'"{self._url.keyspace}".{TABLE}')
        try:
            made = self._session.prepare(query)
        except OperationTimedOut:
            made = self._session.prepare(query)
        made.is_idempotent = True
        writes = what in ("insert", "delete")
        made.consistency_level = self._url.writes if writes else self._url.reads
        return made


_STATEMENTS = {
    "insert": (
        "INSERT INTO {} (name, shelf, count, chunk, piece, data) VALUES (?, ?, ?, ?, ?, ?) "
        "USING TTL ?"
    ),
    "some": (
        "SELECT chunk, piece, data FROM {} WHERE name = ? AND shelf = ? AND (chunk, piece) IN ?"
    ),
    "range": (
        "SELECT chunk, piece, data FROM {} WHERE name = ? AND shelf = ? AND chunk = ? "
        "AND piece >= ? AND piece <= ?"
    ),
    "names": "SELECT DISTINCT name, shelf, count FROM {}",
    "delete": "DELETE FROM {} WHERE name = ? AND shelf = ?",
}


def _settings(url: CassandraUrl) -> dict[str, Any]:
    """What the driver is told: four is the protocol of Cassandra 2.2 and everything since."""
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, ExecutionProfile
    from cassandra.policies import (
        ConstantSpeculativeExecutionPolicy,
        DCAwareRoundRobinPolicy,
        ExponentialReconnectionPolicy,
        TokenAwarePolicy,
    )
    from cassandra.query import tuple_factory

    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy()),
        request_timeout=WITHIN,
        retry_policy=_again(),
        row_factory=tuple_factory,
        speculative_execution_policy=ConstantSpeculativeExecutionPolicy(1.0, 2),
    )
    return {
        "port": url.port,
        "protocol_version": 4,
        "compression": False,
        "auth_provider": url.login(),
        "ssl_context": url.tls_context(),
        "execution_profiles": {EXEC_PROFILE_DEFAULT: profile},
        "prepare_on_all_hosts": False,  # a silent one would be waited for
        "idle_heartbeat_interval": WITHIN / 2,
        "idle_heartbeat_timeout": WITHIN / 2,
        "reconnection_policy": ExponentialReconnectionPolicy(0.5, 30),
        "monitor_reporting_enabled": False,
        "connect_timeout": WITHIN / 2,
    }


def _again() -> Any:
    """Every statement here may be sent again: to another node, at the same consistency, twice."""
    from cassandra.policies import RetryPolicy

    class Again(RetryPolicy):  # type: ignore[misc]
        def on_read_timeout(self, *_: Any, retry_num: int, **__: Any) -> tuple[int, None]:
            return (self.RETRY_NEXT_HOST if retry_num < 2 else self.RETHROW), None

        on_write_timeout = on_read_timeout

    return Again()


def cassandra_tables(url: str) -> TableStore:
    """The keyspace of Cassandra that a URL names."""
    return CassandraTables(url)
