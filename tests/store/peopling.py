"""Streams of people for tests, and a model that says which rows a store must have counted."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from pyramidion import Pyramid, Schema
from pyramidion.counts.arena import Arena
from pyramidion.storage.data_keys import DataKey
from tests.memory import MEMORY
from tests.store import inspect
from tests.store.inspect import settled
from tests.store.stores import DAY, HOUR, SCHEMA, START, Stand, cells, exact, rows

PEOPLE = Schema(
    time="t",
    label=SCHEMA.label,
    features=SCHEMA.features,
    groups=SCHEMA.groups,
    unit="who",
    weight="p",
)
EXACT = {"epsilon": float("inf"), "k": 2, "p_min": 0.5}
WINDOW = 10  # days


def of(who: Sequence[str], at: Any = START, seed: int = 0) -> pa.Table:
    """Rows of `PEOPLE`, one for each name."""
    made = rows(len(who), at, seed)
    p = np.random.default_rng(seed).choice([0.5, 1.0], len(who))
    return made.append_column("who", pa.array(who, pa.string())).append_column("p", pa.array(p))


@dataclass(frozen=True)
class Event:
    """A batch, after some hours: who is in it, and how many hours old each row is."""

    after: float
    who: list[str]
    ages: list[float]
    reopened: bool
    advanced: bool


EVENTS = st.lists(
    st.integers(0, 12).flatmap(
        lambda size: st.builds(
            Event,
            after=st.sampled_from([0.0, 1.0, 11.0, 23.0, 24.0, 50.0, 72.0]),
            who=st.lists(st.sampled_from("abc"), min_size=size, max_size=size),
            ages=st.lists(
                st.sampled_from([-1.0, 0.0, 0.0, 30.0, 200.0]), min_size=size, max_size=size
            ),
            reopened=st.booleans(),
            advanced=st.booleans(),
        )
    ),
    min_size=1,
    max_size=12,
)


@dataclass
class Model:
    """Which rows count, by plain loops."""

    k: int
    block: int
    """In days."""
    counted: dict[int, list[pa.Table]] = field(default_factory=dict)
    """By the slot of their window."""
    accepted: Counter[int] = field(default_factory=Counter)
    _block: int = -1
    _people: Counter[str] = field(default_factory=Counter)

    def observe(self, batch: pa.Table, now: float) -> int:
        """Take a batch; how many rows were blanked."""
        blanked, current = 0, int(now // (WINDOW * DAY))
        if now // (self.block * DAY) != self._block:
            self._block, self._people = int(now // (self.block * DAY)), Counter()
        for i in range(batch.num_rows):
            row = batch.slice(i, 1)
            slot = max(int(row["t"][0].as_py() // (WINDOW * DAY)), current)
            self.accepted[slot] += 1
            who = row["who"][0].as_py()
            if self._people[who] < self.k:
                self._people[who] += 1
                self.counted.setdefault(slot, []).append(row)
            else:
                blanked += 1
        return blanked


def batches(events: Sequence[Event]) -> Iterator[tuple[Event, float, pa.Table]]:
    """The batch of each event, and when it comes."""
    now = START
    for number, event in enumerate(events):
        now += event.after * HOUR
        at = now - np.array(event.ages, dtype=np.float64) * HOUR
        yield event, now, of(event.who, at, seed=number)


def lived(
    stand: Stand,
    events: Sequence[Event],
    keep: Callable[[pa.Table], pa.Table] = lambda batch: batch,
    **settings: Any,
) -> tuple[Pyramid, list[int]]:
    """A store that went through a stream, and how many rows of each batch were blanked."""
    store, blanked = stand.create(PEOPLE, **EXACT | settings), list[int]()
    for event, now, batch in batches(events):
        stand.clock.now = now
        if event.reopened:
            store = stand.reopen()
        if event.advanced:
            store.advance()
        blanked.append(store.observe(keep(batch)).blanked)
        settled(store)
    return store, blanked


def arenas(store: Pyramid) -> dict[int, Arena]:
    """The tables of each window by its slot; none is erased."""
    known = inspect.catalogue(store).all(
        "SELECT number, slot, state FROM table_sets "
        "WHERE level = 0 AND rows > 0 AND state <> 'erased'"
    )
    return {
        row["slot"]: inspect.populating(store, row["number"])
        if row["state"] == "populating"
        else inspect.sealed(store, row["number"])
        for row in known
    }


def expected(store: Pyramid, arena: Arena, batches: Sequence[pa.Table]) -> dict[str, Any]:
    """What tables would be with these rows in them."""
    return exact(store, arena, batches) if batches else cells(Arena.exact(arena.layout))


@contextmanager
def a_stand() -> Iterator[Stand]:
    """A stand of its own, for each example of a property; all streams have one secret."""
    where = MEMORY if os.access(MEMORY, os.W_OK) else None
    new = DataKey.new

    def known(purpose: str) -> DataKey:
        made = new(purpose)
        return replace(made, key=bytes(32)) if purpose == "secret" else made

    folders = tempfile.TemporaryDirectory(prefix="pyramidion-", dir=where)
    with folders as folder, patch.object(DataKey, "new", known):
        made = Stand(Path(folder))
        try:
            yield made
        finally:
            made.close()
