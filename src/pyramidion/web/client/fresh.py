"""A snapshot that is kept fresh behind the scenes, and refuses when it could not be.

A thread asks the service every so often whether the tables changed (by their etag), and takes
the new ones. Where the service does not answer, the ones at hand serve until they expire, and
not a moment longer. The clock never goes back, over all snapshots that were held.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyramidion.counts.deadline import HighWater
from pyramidion.counts.guarantee import Guarantee
from pyramidion.counts.signing import refuse_older
from pyramidion.counts.snapshot import Snapshot
from pyramidion.counts.snapshot_file import snapshot_from
from pyramidion.errors import PyramidionError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

Fetch = Callable[[str | None, int | None], tuple[bytes, str] | None]
"""The bytes of the snapshot and their etag, unless they have the etag at hand: None, then."""

EVERY = 15.0  # seconds between looks at whether the tables changed
CLOSED = "it was closed"
HASTE = 0.5  # seconds between looks where nothing serves any more


class FreshSnapshot:
    """The complete tables of a stream, in this process, renewed behind the scenes.

    Made by `Client.snapshot`; ends with `close`, or at the end of a ``with``.
    """

    def __init__(
        self,
        fetch: Fetch,
        stream: str,
        verifier: Callable[[], Ed25519PublicKey],
        clock: Callable[[], float],
        *,
        every: float = EVERY,
    ) -> None:
        self._fetch = fetch
        self._stream = stream
        self._verifier = verifier
        self._time = HighWater(wall=lambda: int(clock() * 1_000_000))
        self._every = every
        self._renewing = threading.Lock()
        self._stop = threading.Event()
        self._etag: str | None = None
        self._newest = 0  # when the newest tables that were taken were signed
        self._whole = 0  # from this time on the tables are fetched though they are the same
        self.trouble = ""
        """What kept it from being renewed the last time; empty where nothing did."""
        self.current: Snapshot = self._fetched(None, None)
        """The tables at hand: immutable, and expired when their time is over."""
        weakref.finalize(self, self._stop.set)
        threading.Thread(
            target=_keep, args=(weakref.ref(self), self._stop, every), daemon=True,
            name="pyramidion snapshot",
        ).start()  # fmt: skip

    # --- features ---------------------------------------------------------------------------

    def featurize(self, rows: Any, *, threads: int = 1) -> pa.Table:
        """Features of a batch as Arrow columns of 32-bit floats."""
        return self.current.featurize(rows, threads=threads)

    def featurize_one(self, row: Mapping[str, object] | pa.RecordBatch) -> NDArray[np.float32]:
        """Features of one row, given as a dict or as a record batch of one row."""
        return self.current.featurize_one(row)

    def array(self, rows: Any, *, threads: int = 1) -> NDArray[np.float32]:
        """Features of a batch as a matrix of 32-bit floats."""
        return self.current.array(rows, threads=threads)

    @property
    def names(self) -> list[str]:
        """The names of the feature columns, in order; a withdrawal changes them."""
        return self.current.names

    @property
    def guarantee(self) -> Guarantee:
        """What the tables promise."""
        return self.current.guarantee

    @property
    def expires(self) -> int | None:
        """When the tables at hand end, in microseconds since 1970, unless they are renewed."""
        return self.current.expires

    # --- kept fresh ---------------------------------------------------------------------------

    def renew(self) -> bool:
        """Look now whether the tables changed; whether they did. Raises what keeps it from it."""
        with self._renewing:
            before = self._etag
            tag = None if self._time() >= self._whole or self.current.expired else before
            try:
                found = self._fetched(tag, 0)
            except PyramidionError as problem:
                self.trouble = str(problem)
                raise
            self.trouble = ""
            if self._stop.is_set():
                found.expire(CLOSED)
            self.current = found
            return self._etag != before

    def _fetched(self, etag: str | None, retries: int | None) -> Snapshot:
        answer = self._fetch(etag, retries)
        if answer is None:
            return self.current
        data, tag = answer
        now = self._time()
        found = snapshot_from(
            data, stream=self._stream, verifier=self._verifier(), clock=self._time
        )
        refuse_older("snapshot", found.made, self._newest)
        self._newest = found.made
        # An unchanged answer does not make the tables live longer, so ask for all in good time.
        self._etag, self._whole = tag, now + (int(found.expires or now) - now) // 2
        return found

    def _wait(self) -> float:
        """Seconds until the next look."""
        if self.current.expired:
            return min(HASTE, self._every)
        left = (int(self.current.expires or 0) - self._time()) / 1_000_000
        return max(HASTE / 10, min(self._every, left / 2 if left > 2 * HASTE else left))

    def close(self) -> None:
        """Renew no more, and let go of the tables."""
        self._stop.set()
        self.current.expire(CLOSED)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _keep(held: weakref.ref[FreshSnapshot], stop: threading.Event, wait: float) -> None:
    """Renew for as long as somebody has it."""
    fresh = held()
    wait = wait if fresh is None else fresh._wait()
    del fresh
    while not stop.wait(wait):
        fresh = held()
        if fresh is None:
            return
        try:
            fresh.renew()
        except PyramidionError:  # told by `trouble`; what is at hand serves until it expires
            pass
        except Exception as problem:  # whatever it was, the next look may fare better
            fresh.trouble = type(problem).__name__
        wait = fresh._wait()
        del fresh
