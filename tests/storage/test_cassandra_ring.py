"""Three nodes of Cassandra, some of them lost: what was acknowledged is there, or it is said."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pyramidion.counts.arena import Arena
from pyramidion.counts.layout import PRIOR, Layout, Table
from pyramidion.errors import UnreachableError
from pyramidion.storage.blocks import Generation
from pyramidion.storage.tables import TableStore, tables_at
from tests.conftest import cassandra_nodes
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.cassandra_nodes.ring import Node

TABLES = 2
LOST = "too few nodes that answer|does not answer"  # whether or not the last one has noticed yet
LAYOUT = Layout(
    (
        Table(PRIOR, "dense", 1, 1, 1000),
        *(Table(f"t{number}", "count-min", 2, 1024, 1000) for number in range(TABLES)),
    ),
    labels=2,
    secret=b"s",
)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[Node]]:
    with cassandra_nodes(tmp_path_factory.mktemp("ring"), 3) as nodes:
        yield nodes


def url(nodes: Sequence[Node]) -> str:
    hosts = ",".join(f"{node.host}:{node.port}" for node in nodes)
    return f"cassandra://{hosts}/ring?consistency=QUORUM&replication=3"


def filled(seed: int) -> Arena:
    """Sealed tables in which no cell is zero, each seed its own."""
    random = np.random.default_rng(seed)

    def fill(_: int, cells: np.ndarray) -> None:
        cells[:] = random.integers(1, 1000, cells.size)

    return Arena.of_cells(LAYOUT, fill, rows=12, max_rows=34)


def is_as_written(store: TableStore, generation: Generation, seed: int) -> bool:
    """Whether all of it comes back, and parts of it do."""
    written, opened = filled(seed), store.opened(generation, LAYOUT)
    whole = opened.load(rows=12, max_rows=34)
    cells = opened.buckets(np.arange(1, TABLES + 1), np.full(TABLES, 1023))
    parts = [np.frombuffer(data, dtype=np.int32) for data in cells]
    every = range(TABLES + 1)
    return all((whole.cells(t) == written.cells(t)).all() for t in every) and all(
        (part == written.cells(t).reshape(-1, 2)[1023]).all() for t, part in enumerate(parts, 1)
    )


class Writer(threading.Thread):
    """Publishes one set of tables after the other until it is told to stop."""

    def __init__(self, store: TableStore) -> None:
        super().__init__(daemon=True)
        self._store = store
        self.acknowledged: list[Generation] = []
        self.problem: Exception | None = None
        self.enough = threading.Event()

    def run(self) -> None:
        try:
            while not self.enough.is_set():
                seed = len(self.acknowledged)
                self.acknowledged.append(self._store.publish(filled(seed), owner="ring"))
        except Exception as problem:
            self.problem = problem

    def wait(self, more: int) -> None:
        """Until so many more are acknowledged."""
        goal = len(self.acknowledged) + more
        wait_for(lambda: len(self.acknowledged) >= goal or self.problem is not None)


@pytest.mark.campaign
def test_a_node_that_is_silent_is_passed_over(nodes: Sequence[Node]) -> None:
    store = tables_at(url(nodes))
    before = store.publish(filled(1), owner="ring")
    os.kill(nodes[2].process.pid, signal.SIGSTOP)
    try:
        meanwhile = store.publish(filled(2), owner="ring")
        assert is_as_written(store, before, 1)
        assert is_as_written(store, meanwhile, 2)
    finally:
        os.kill(nodes[2].process.pid, signal.SIGCONT)
        store.close()


@pytest.mark.campaign
def test_what_was_acknowledged_outlives_one_node_and_without_two_nothing_is_made_up(
    nodes: Sequence[Node],
) -> None:
    store = tables_at(url(nodes))
    writer = Writer(store)
    writer.start()
    writer.wait(3)
    nodes[1].kill()  # amid a write
    writer.wait(3)
    writer.enough.set()
    writer.join()
    assert writer.problem is None
    afresh = tables_at(url(nodes))
    for seed, generation in enumerate(writer.acknowledged):
        assert is_as_written(afresh, generation, seed)

    nodes[0].kill()
    with pytest.raises(UnreachableError, match=LOST):
        is_as_written(afresh, writer.acknowledged[0], 0)
    with pytest.raises(UnreachableError, match=LOST):
        store.publish(filled(0), owner="ring")
    late = tables_at(url(nodes))
    with pytest.raises(UnreachableError, match=LOST):
        late.names()

    last = len(writer.acknowledged) - 1  # two nodes were left then: this one has it
    alone = tables_at(f"{url(nodes)}&reads=ONE")
    assert is_as_written(alone, writer.acknowledged[last], last)

    nodes[2].kill()
    with pytest.raises(UnreachableError, match="does not answer"):
        late.names()
    for each in (store, afresh, late, alone):
        each.close()
