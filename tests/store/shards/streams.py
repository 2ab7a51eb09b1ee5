"""Streams of several small shards for tests: one clock, one table store, one holder of keys."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pyramidion import Pyramid, Schema, Settings, Shard
from pyramidion.counts.arena import Arena
from pyramidion.storage.tables import FileTables
from tests.store import inspect
from tests.store.inspect import settled
from tests.store.stores import SCHEMA, Clock, cells, exact, rows, tiny

NAMES = ("one", "two", "three")
DAYS = 86_400.0
SHARDED = {"shards": 3, "weights": "equal", "shard_wait": "2d"}

__all__ = ["NAMES", "Stream", "cells", "exact", "rows", "settled"]


class Stream:
    """Three places for shards."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"file:{folder}/shared"
        """Where the table store is."""
        self.clock = Clock()
        self.nodes: dict[str, Pyramid] = {}
        self.sent: dict[str, list[pa.Table]] = {}
        """The batches that each shard took."""

    def shard(self, name: str) -> Shard:
        """What a shard is told."""
        keys = f"file:{self.folder}/keys/stream.key"
        return Shard("clicks", name, keys=keys, tables=self.url)

    def given(self, name: str) -> dict[str, Any]:
        """What a store is created and opened with."""
        return {"keys": f"file:{self.folder}/keys/{name}.key", "clock": self.clock}

    def path(self, name: str) -> Path:
        """Where a shard lies."""
        return self.folder / name

    def settings(self, **given: Any) -> Settings:
        """Settings of a stream of three."""
        return tiny(**SHARDED | given)

    def begin(self, *names: str, schema: Schema = SCHEMA, **settings: Any) -> dict[str, Pyramid]:
        """A stream with its shards, open."""
        first, *others = names or NAMES
        self.nodes[first] = Pyramid.create(
            self.path(first),
            schema,
            self.settings(**settings),
            shard=self.shard(first),
            **self.given(first),
        )
        for name in others:
            self.join(name)
        return self.nodes

    def join(self, name: str) -> Pyramid:
        """One more shard."""
        made = Pyramid.join(self.path(name), self.shard(name), **self.given(name))
        self.nodes[name] = made
        return made

    def reopen(self, name: str) -> Pyramid:
        """A shard, closed if it is open, and opened."""
        if name in self.nodes:
            self.nodes.pop(name).close()
        self.nodes[name] = Pyramid.open(self.path(name), **self.given(name))
        return self.nodes[name]

    def close(self, *names: str) -> None:
        """Close some shards, or all."""
        for name in names or tuple(self.nodes):
            self.nodes.pop(name).close()

    def observe(self, name: str, size: int, seed: int = 0) -> pa.Table:
        """Rows for one shard, at the present time."""
        batch = rows(size, self.clock.now, seed)
        self.nodes[name].observe(batch)
        settled(self.nodes[name])
        self.sent.setdefault(name, []).append(batch)
        return batch

    def advance(self, days: float = 0.0, rounds: int = 2) -> None:
        """Let time pass; all shards do what is due, often enough to hear of one another."""
        self.clock.pass_(days * DAYS)
        for _ in range(rounds):
            for node in self.nodes.values():
                node.advance()

    def all_sent(self) -> list[pa.Table]:
        """Every batch of every shard."""
        return [batch for batches in self.sent.values() for batch in batches]

    @property
    def tables(self) -> FileTables:
        """What the shards share."""
        return FileTables(self.folder / "shared")


def served(node: Pyramid) -> Arena:
    """The tables that a shard serves."""
    found = inspect.served(node)
    assert found is not None
    return found


def noise_in(node: Pyramid, arena: Arena, batches: Iterable[Any]) -> dict[str, np.ndarray]:
    """Cells less exact counts."""
    counts = exact(node, arena, batches)
    return {name: found - counts[name] for name, found in cells(arena).items()}
