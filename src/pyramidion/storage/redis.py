"""Shared tables in Redis, or in a Redis Cluster: a string for each chunk.

    pyramidion:<name>:<number>    a chunk, with a time to live
    pyramidion:names              how many chunks each name has

A row's cells are read by one pipeline of GETRANGE: one round trip, and in a Cluster one for each
node that has some, all at once. Names are random, so keys tell nothing; what a server can tell
is how many sets of tables there are, how large, and which of their places are read how often.

Redis may lose everything: it is restarted without persistence, runs out of memory, evicts. What
is missing is said to be missing, and the owner publishes it anew; nothing reads as zero.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from pyramidion.errors import (
    PyramidionError,
    SchemaError,
    StorageError,
    UnreachableError,
    refuse_missing,
)
from pyramidion.storage.blocks import Span
from pyramidion.storage.tables import TableStore

PREFIX = "pyramidion"
INDEX = f"{PREFIX}:names"
LONG = 65_536
"""Bytes of a span that GET gives faster, with all that comes after, than GETRANGE copies it."""
WITHIN = 5.0
"""Seconds that a connection or an answer may take, unless the URL says `socket_timeout`."""


class RedisTables(TableStore):
    """Published tables in Redis; connects when it is first used, and again when it was cut off."""

    def __init__(self, url: str) -> None:
        refuse_missing("a table store in Redis", ["redis"], "redis")
        parts = urlsplit(url)
        scheme, self._cluster = parts.scheme.removesuffix(_CLUSTER), _CLUSTER in parts.scheme
        port = "" if parts.port is None else f":{parts.port}"
        self.address = f"{parts.scheme}://{parts.hostname or 'localhost'}{port}{parts.path}"
        self._url = f"{scheme}{url[len(parts.scheme) :]}"
        self._lock = threading.Lock()
        self._held: Any = None

    def put(self, name: str, chunks: Iterable[bytes], count: int, life: float | None) -> None:
        """A string for each chunk, that ends by itself; none is ever written over another."""
        ends = None if life is None else max(1, math.ceil(life * 1000))
        with self._explained() as redis:
            if not redis.hsetnx(INDEX, name, count):
                raise self.taken()
            written = 0
            for number, chunk in enumerate(chunks):
                if not redis.set(_key(name, number), chunk, nx=True, px=ends):
                    raise self.taken()
                written += 1
            redis.hset(INDEX, name, count)  # a restart meanwhile lost it
        if written != count:
            raise ValueError(f"{written} chunks, not {count}")

    def read(self, name: str, spans: Sequence[Span]) -> list[bytes]:
        """One pipeline of GETRANGE; where a key is not there Redis gives no bytes."""
        if not spans:
            return []
        with self._explained() as redis:
            if len(spans) == 1 and spans[0].length >= LONG and not spans[0].start:
                found = [(redis.get(_key(name, spans[0].chunk)) or b"")[: spans[0].length]]
            else:
                found = self._piped(redis, name, spans)
        if [len(data) for data in found] != [span.length for span in spans]:
            raise self.gone(name)
        return found

    def _piped(self, redis: Any, name: str, spans: Sequence[Span]) -> list[bytes]:
        pipeline = redis.pipeline(transaction=False)
        keys = {chunk: _key(name, chunk) for chunk in {span.chunk for span in spans}}
        for chunk, start, length in spans:
            pipeline.getrange(keys[chunk], start, start + length - 1)
        found: list[bytes] = pipeline.execute()
        return found

    def names(self) -> dict[str, int]:
        """What the index says."""
        with self._explained() as redis:
            found = redis.hgetall(INDEX)
        return {name.decode(): int(count) for name, count in found.items()}

    def delete(self, name: str, count: int) -> None:
        """Unlink the strings, then forget the name."""
        with self._explained() as redis:
            pipeline = redis.pipeline(transaction=False)
            for number in range(count):
                pipeline.unlink(_key(name, number))
            pipeline.execute()
            redis.hdel(INDEX, name)

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            held, self._held = self._held, None
        if held is not None:
            held.close()

    # --- the driver -----------------------------------------------------------------

    def _redis(self) -> Any:
        from redis import Redis, RedisCluster
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        with self._lock:
            if self._held is None:
                maker: Any = RedisCluster if self._cluster else Redis
                # A connection that a restart cut off is made again at once; then we say so.
                again = Retry(NoBackoff(), 1)
                within = {"socket_timeout": WITHIN, "socket_connect_timeout": WITHIN}
                try:
                    self._held = maker.from_url(self._url, retry=again, **within)
                except (ValueError, TypeError) as problem:
                    raise SchemaError(
                        f"the URL of {self.address} has an option that redis-py does not know"
                    ) from problem
            return self._held

    @contextmanager
    def _explained(self) -> Iterator[Any]:
        """The driver, whose errors become ours: the one place that knows them."""
        from redis import exceptions as theirs

        try:
            yield self._redis()
        except PyramidionError:
            raise
        except (theirs.AuthenticationError, theirs.NoPermissionError) as problem:
            raise UnreachableError(
                f"the table store at {self.address} does not let us in; see to the user, the "
                f"password and the rights of the URL it was given by"
            ) from problem
        except theirs.OutOfMemoryError as problem:
            raise StorageError(
                f"the table store at {self.address} is full; raise its maxmemory, nothing was lost"
            ) from problem
        except (
            theirs.ConnectionError,
            theirs.TimeoutError,
            theirs.ClusterError,
            theirs.ClusterDownError,
            theirs.MasterDownError,
            theirs.RedisClusterException,
        ) as problem:
            raise UnreachableError(
                f"the table store at {self.address} does not answer ({type(problem).__name__}); "
                f"see that it runs and that this machine may reach it"
            ) from problem
        except theirs.RedisError as problem:
            raise StorageError(
                f"the table store at {self.address} refuses ({type(problem).__name__}); see its log"
            ) from problem


_CLUSTER = "+cluster"


def redis_tables(url: str) -> TableStore:
    """The Redis that a URL names."""
    return RedisTables(url)


def _key(name: str, number: int) -> str:
    return f"{PREFIX}:{name}:{number}"
