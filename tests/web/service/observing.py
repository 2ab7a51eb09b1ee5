"""Senders of observations, and what of theirs a store holds, to the cell."""

from __future__ import annotations

import itertools
import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import httpx
import numpy as np

from pyramidion import Pyramid
from tests.clocked import NOW
from tests.store.inspect import populating
from tests.store.stores import cells, exact
from tests.web.service.services import Process, told_rows

OBSERVATIONS = "/v1/streams/s/observations"
ROWS = 3
"""In each request; which ones follows from its key."""


class Observer(threading.Thread):
    """Somebody who observes, one request after the other, and keeps what was acknowledged."""

    def __init__(self, caller: httpx.Client, name: str) -> None:
        super().__init__(name=name)
        self._caller = caller
        self.acknowledged: list[str] = []
        self.open = ""
        """The key of the request that no answer came to."""
        self.refused: list[httpx.Response] = []
        self.go_on = True

    def run(self) -> None:
        """Observe until told to stop, or nobody answers."""
        number = 0
        while self.go_on:
            self.open = f"{self.name}-{number}"
            try:
                answer = send(self._caller, self.open)
            except httpx.HTTPError:
                return
            if answer.status_code == 200:
                self.acknowledged.append(self.open)
            else:
                self.refused.append(answer)
            self.open = ""
            number += 1


def send(caller: httpx.Client, key: str) -> httpx.Response:
    """The observations of one key, by one request."""
    return caller.post(OBSERVATIONS, json=of_key(key), headers={"Idempotency-Key": key})


def of_key(key: str) -> list[dict[str, object]]:
    """The rows that go with a key: others than those of other keys."""
    return told_rows(ROWS, NOW, seed=zlib.crc32(key.encode()))


@contextmanager
def store_of(served: Process) -> Iterator[Pyramid]:
    """The store of a service that does not run."""
    assert served.process.poll() is not None
    keys = served.keys.replace("{stream}", "s")
    with Pyramid.open(served.data / "s", keys=keys, clock=lambda: NOW) as store:
        yield store


def unanswered_but_there(served: Process, acknowledged: list[str], unknown: list[str]) -> int:
    """How many requests without an answer are counted, besides all those that have one.

    Raises unless each row of those is hot and counted once in every table, and nothing else is.
    """
    with store_of(served) as store:
        left = _flat(cells(populating(store))) - _exact(store, acknowledged)
        single = [_exact(store, [key]) for key in unknown]
        for size in range(len(unknown) + 1):
            for some in itertools.combinations(single, size):
                if np.array_equal(left, sum(some, np.zeros_like(left))):
                    assert store.status().hot_rows == ROWS * (len(acknowledged) + size)
                    return size
    raise AssertionError("the tables hold something else than what was sent")


def _exact(store: Pyramid, keys: Iterable[str]) -> np.ndarray:
    """The cells of all tables after the observations of some keys, without noise."""
    rows = [row for key in keys for row in of_key(key)]
    return _flat(exact(store, populating(store), [rows] if rows else []))


def _flat(tables: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([tables[name].ravel() for name in sorted(tables)])
