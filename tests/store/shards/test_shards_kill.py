"""Shards that are killed: each acknowledged row is in the sum once, and nothing else is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyramidion import Pyramid
from pyramidion.counts.arena import Arena
from pyramidion.storage.roster import Held
from pyramidion.storage.tables import MemoryTables
from tests.memory import in_memory
from tests.store import inspect
from tests.store.shards.killing import END, POINTS, Ordeal, schedule
from tests.store.shards.streams import DAYS, NAMES, cells, exact, served
from tests.store.stores import same

WINDOW, RETENTION = 10 * DAYS, 50 * DAYS


@pytest.fixture(
    scope="module",
    params=[
        (math.inf, False),
        (1.0, False),
        pytest.param((math.inf, True), marks=pytest.mark.campaign),
        pytest.param((1.0, True), marks=pytest.mark.campaign),
    ],
    ids=["noise off", "noise on", "noise off, at random", "noise on, at random"],
)
def ordeal(request: pytest.FixtureRequest, campaign_seed: int) -> Iterator[Ordeal]:
    epsilon, at_random = request.param
    seed = campaign_seed if at_random else 1 if epsilon == math.inf else 2
    with in_memory() as folder:
        made = Ordeal(folder, seed, epsilon=epsilon, shard_wait="1s")
        if at_random:
            made.go_at_random(Random(seed))
        else:
            made.go()
        made.stream.clock.now = END
        yield made


def in_window(ordeal: Ordeal, name: str, start: float) -> list[pa.Table]:
    """The batches of a shard whose time lies in a window."""
    return [batch for at, batch in ordeal.plan[name] if start <= at < start + WINDOW]


def kept(ordeal: Ordeal) -> list[pa.Table]:
    """The batches in windows that are over, and within the retention."""
    return [
        batch
        for name in NAMES
        for at, batch in ordeal.plan[name]
        for start in [at // WINDOW * WINDOW]
        if start + WINDOW <= END and start + RETENTION > END
    ]


def birth_of(ordeal: Ordeal, name: str, noise: dict[str, np.ndarray]) -> bool:
    """Whether a shard's window was born with just this noise."""
    return any(
        same(noise, {of: np.array(flat) for of, flat in born.items()})
        for born in ordeal.told(name, "born")
    )


def test_each_shard_is_killed_at_each_point_of_sharing() -> None:
    rounds = list(schedule())
    for name in NAMES:
        assert set(POINTS) <= {kills.get(name) for kills in rounds}


def test_every_acknowledged_row_is_in_the_sum_once(ordeal: Ordeal) -> None:
    batches = kept(ordeal)
    for name in NAMES:
        node = ordeal.stream.reopen(name)
        node.advance()
        found = served(node)
        assert found.rows == sum(batch.num_rows for batch in batches)
        counts, windows = exact(node, found, batches), inspect.parts(node).shards._sum
        noise = {of: flat - counts[of] for of, flat in cells(found).items()}
        if not node.settings.private:
            assert not any(flat.any() for flat in noise.values())
        assert same(noise, drawn(ordeal, node, windows))
        ordeal.stream.close(name)


def drawn(ordeal: Ordeal, node: Pyramid, windows: dict[Any, Any]) -> dict[str, np.ndarray]:
    """The noise that the windows of a sum were born with, added up."""
    total: Counter[str] = Counter()
    for (name, file), told in windows.items():
        (arena,) = [a for a in archived(ordeal, node) if a[:2] == (name, file)][:1]
        counts = exact(node, arena[3], in_window(ordeal, name, told.start / 1e6))
        noise = {of: flat - counts[of] for of, flat in cells(arena[3]).items()}
        assert birth_of(ordeal, name, noise)
        for of, flat in noise.items():
            total[of] = total[of] + flat
    return dict(total)


def archived(ordeal: Ordeal, node: Pyramid) -> list[tuple[str, str, float, Arena]]:
    """All tables that ever were in the table store and could be opened by anybody."""
    tables, found = MemoryTables(), []
    keys = {of: bytes.fromhex(v) for n in NAMES for of, v in ordeal.told(n, "key")}
    for name in NAMES:
        for of, chunks in ordeal.told(name, "put"):
            tables.chunks[of] = [bytes.fromhex(chunk) for chunk in chunks]
    layout = inspect.birth(node, 1).layout
    for of, value in keys.items():
        kind, *rest = of.split(".")
        if kind == "window":
            shard, *file, until = rest
            opened = tables.opened(Held.from_bytes(value).generation, layout)
            arena = opened.load(rows=0, max_rows=1)
            found.append((shard, ".".join(file), int(until) / 1e6 - RETENTION, arena))
    return found


def test_no_populating_table_ever_left_its_shard(ordeal: Ordeal) -> None:
    node = ordeal.stream.reopen(NAMES[0])
    everything = archived(ordeal, node)
    assert len(everything) >= 3 * 6
    for name, _, start, arena in everything:
        counts = exact(node, arena, in_window(ordeal, name, start))
        noise = {of: flat - counts[of] for of, flat in cells(arena).items()}
        assert birth_of(ordeal, name, noise)  # all rows of the window, on the noise of its birth
    ordeal.stream.close()


def test_nothing_is_left_in_the_table_store_that_nobody_knows(ordeal: Ordeal) -> None:
    for name in NAMES:
        ordeal.stream.reopen(name).advance()
    entries = ordeal.stream.shard(NAMES[0]).roster.entries()
    known = {window.held.name for window in entries.windows}
    known |= {member.manifest.name for member in entries.members.values() if member.manifest}
    assert set(ordeal.stream.tables.names()) == known
    assert all(window.until > END * 1e6 for window in entries.windows)
    ordeal.stream.close()


def test_a_window_is_drawn_and_charged_in_its_own_shard_alone(ordeal: Ordeal) -> None:
    for name in NAMES:
        node = ordeal.stream.reopen(name)
        report = node.ledger.report()
        drawn = len(ordeal.told(name, "born"))
        assert 7 <= drawn <= len(report.windows)  # a charge comes first, and may be all there is
        assert all(window.spent <= window.budget for window in report.windows)
        ordeal.stream.close(name)
