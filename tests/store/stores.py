"""Small stores for tests: tables of a few cells, a clock that stands still until it is moved."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pyramidion import Categorical, Label, Pyramid, Schema, Settings
from pyramidion.counts.arena import Arena
from pyramidion.storage.key_holders import AUTHENTICATED, FileHolder
from pyramidion.vault.key_pairs import PrivateKey
from tests.store import inspect

HOUR, DAY = 3_600.0, 86_400.0
START = 1_000 * DAY
SECOND = 1_000_000  # microseconds

CUSTODIAN = PrivateKey(bytes(range(64)))

SCHEMA = Schema(
    time="t",
    label=Label("y", classes=[0, 1]),
    features=[Categorical("a"), Categorical("b", domain=["x", "y"])],
    groups=[("a", "b")],
)
TIMELESS = Schema(label=SCHEMA.label, features=SCHEMA.features, groups=SCHEMA.groups)
TINY = {
    "epsilon": 1.0,
    "buckets": 16,
    "rows": 2,
    "count_window": "10d",
    "retention": "50d",
    "hot_window": "3d",
    "hot_step": "1d",
    "max_skew": "1h",
    "max_rows_per_window": 100_000,
    "weights_share": 0.0,
}


BEFORE_TABLE_SETS = """
CREATE TABLE windows (number INTEGER PRIMARY KEY, state TEXT NOT NULL, slot INTEGER NOT NULL,
    start INTEGER, stop INTEGER, rows INTEGER NOT NULL DEFAULT 0) STRICT;
INSERT INTO windows SELECT number, state, slot, start, stop, rows FROM table_sets WHERE level = 0;
CREATE TABLE nodes (number INTEGER PRIMARY KEY, level INTEGER NOT NULL, place INTEGER NOT NULL,
    state TEXT NOT NULL) STRICT;
INSERT INTO nodes SELECT number, level, slot, state FROM table_sets WHERE level > 0;
CREATE TABLE former (node INTEGER NOT NULL REFERENCES nodes,
    window INTEGER NOT NULL REFERENCES windows, PRIMARY KEY (node, window)) STRICT, WITHOUT ROWID;
INSERT INTO former SELECT number, window FROM members WHERE level > 0;
DROP TABLE members;
ALTER TABLE former RENAME TO members;
CREATE INDEX members_of_window ON members (window);
CREATE TABLE former (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, window INTEGER REFERENCES windows,
    key INTEGER NOT NULL REFERENCES keys, file TEXT NOT NULL, after INTEGER NOT NULL,
    current INTEGER NOT NULL, tables TEXT NOT NULL, node INTEGER REFERENCES nodes) STRICT;
INSERT INTO former SELECT id, kind, CASE WHEN level = 0 THEN number END, key, file, after, current,
    tables, CASE WHEN level > 0 THEN number END FROM arenas;
DROP TABLE arenas;
ALTER TABLE former RENAME TO arenas;
DROP TABLE table_sets;
"""
"""Makes a catalogue what it was in format 10: windows and nodes in tables of their own."""


def tiny(**given: Any) -> Settings:
    """Settings of a store that opens in milliseconds."""
    return Settings(**TINY | given)


def rows(size: int, at: Any = START, seed: int = 0) -> pa.Table:
    """Rows of `SCHEMA` at some event times, in seconds."""
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "t": np.broadcast_to(np.asarray(at, dtype=np.float64), size).copy(),
            "y": random.integers(0, 2, size),
            "a": random.integers(0, 40, size).astype(str),
            "b": random.choice(["x", "y", "z"], size),
        }
    )


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        """Seconds since the epoch."""
        return self.now

    def pass_(self, seconds: float) -> float:
        """Let time pass; what it is then."""
        self.now += seconds
        return self.now


class Stand:
    """A place for one store and its key, and the handles that must be closed at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "store"
        self.key = folder / "keys" / "store.key"
        self.clock = Clock()
        self.vault: Path | str | None = None
        """Where new stores seal what they observe, to `CUSTODIAN`."""
        self._open: list[Pyramid] = []

    @property
    def given(self) -> dict[str, Any]:
        """What a store is created and opened with."""
        return {"keys": f"file:{self.key}", "clock": self.clock}

    def held(self, store: Pyramid) -> Pyramid:
        """Close this one, too, when the test is over."""
        self._open.append(store)
        return store

    def create(self, schema: Schema = SCHEMA, **settings: Any) -> Pyramid:
        """A new store."""
        given = self.given
        if self.vault is not None:
            given |= {"vault": str(self.vault), "custodian": CUSTODIAN.public}
        return self.held(Pyramid.create(self.path, schema, tiny(**settings), **given))

    def open(self, path: Path | None = None) -> Pyramid:
        """The store, opened."""
        return self.held(Pyramid.open(path or self.path, **self.given))

    def reopen(self) -> Pyramid:
        """The store, closed and opened again."""
        self.close()
        return self.open()

    def close(self) -> None:
        """Close all that is open."""
        while self._open:
            self._open.pop().close()

    def files(self, folder: str) -> set[str]:
        """Names of the files in a folder of the store."""
        return {file.name for file in (self.path / folder).iterdir()}


def observed(store: Pyramid, batch: Any, **given: Any) -> Any:
    """Observe, and wait for what that sets off."""
    receipt = store.observe(batch, **given)
    inspect.settled(store)
    return receipt


# --- what is in the tables ------------------------------------------------------------


def cells(arena: Arena) -> dict[str, np.ndarray]:
    """The cells of each table, also of a populating one."""
    return {
        name: arena._flat(number).astype(np.int64) for name, number in arena.layout.index.items()
    }


def exact(store: Pyramid, arena: Arena, batches: Iterable[Any]) -> dict[str, np.ndarray]:
    """What the cells of these tables would be without noise, after some batches."""
    door, encoder = inspect.door(store), inspect.encoder(store, arena)
    counted = Arena.exact(arena.layout)
    for batch in batches:
        counted.add(door.observations(batch).under(encoder))
    return cells(counted)


def noise(store: Pyramid, arena: Arena, batches: Iterable[Any]) -> dict[str, np.ndarray]:
    """Cells less the exact counts of some batches."""
    counts = exact(store, arena, batches)
    return {name: found - counts[name] for name, found in cells(arena).items()}


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    """Whether two sets of tables have the same cells."""
    return one.keys() == other.keys() and all((one[name] == other[name]).all() for name in one)


def states(store: Pyramid) -> dict[int, tuple[str, int]]:
    """State and rows of each window by number."""
    return {window.number: (window.state, window.rows) for window in store.status().windows}


# --- failures ---------------------------------------------------------------------------


def failing_once(monkeypatch: Any, place: Any, name: str, problem: Exception) -> list[Exception]:
    """Have a call fail the first time; the list is empty once that has happened."""
    real, left = getattr(place, name), [problem]

    def call(*given: Any, **named: Any) -> Any:
        if left:
            raise left.pop()
        return real(*given, **named)

    monkeypatch.setattr(place, name, call)
    return left


# --- earlier versions -------------------------------------------------------------------


def unpin(path: Path, key: Path) -> None:
    """Make a closed store one that an earlier version wrote: nothing pins what it says."""
    held = FileHolder(key).keys()
    names = {name: name.replace(f".{AUTHENTICATED}.", ".") for name in held}
    key.write_text(json.dumps({names[name]: held[name].hex() for name in held}))
    with closing(sqlite3.connect(path / "catalogue.db")) as db, db:
        (name,) = db.execute("SELECT value FROM about WHERE name = 'store_key'").fetchone()
        db.execute("UPDATE about SET value = ? WHERE name = 'store_key'", [names[name]])
        db.execute("DELETE FROM keys WHERE purpose LIKE 'pin of %'")
