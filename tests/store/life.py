"""The life of one store, attacked on the way by someone who keeps every version of every file."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyramidion import Categorical, Label, Pyramid, Schema, Settings
from pyramidion.counts.arena import Arena
from tests.store import inspect
from tests.store.archive import Archive, Counts, Loot, keys_in, loot, on_reach, watched

DAY = 86_400
HOT = 3  # days

SCHEMA = Schema(
    time="t",
    label=Label("score", edges=[2.0, 3.0]),
    features=[Categorical("name"), Categorical("town", domain=["x", "y"])],
    groups=[("name", "town")],
)
SETTINGS = Settings(
    epsilon=1.0,
    buckets=16,
    rows=2,
    count_window="10d",
    retention="30d",
    hot_window=f"{HOT}d",
    hot_step="1d",
    max_skew="1h",
    checkpoint_rows=14,
)
NAME, ONCE, SCORE = "Marked Canary-8a61", "idempotency-canary-77c0", 3.1415926535
EVERYBODY = "Canary of somebody"  # in every other name
MARKED = 6  # the batch that has the marked row; a checkpoint was made just before it
NAMED = {"name", "name,town"}  # the tables that know names

LEAVES, RETIRES, WITHDRAWN = 103.1, 130.1, 131.2  # the days of three erasures
FORKED = 135.1  # another step, and nothing is erased on the way, since day 132 has no rows


@dataclass(frozen=True)
class Batch:
    """A batch that was observed: when, into which window, and its exact counts."""

    number: int
    day: float
    window: int
    rows: int
    names: frozenset[str]
    counts: Counts = field(repr=False)


@dataclass(frozen=True)
class Moment:
    """An attack, and what was to be had."""

    loot: Loot
    hot: frozenset[int]
    """Batches whose rows are hot at that moment."""


@dataclass(frozen=True)
class Image:
    """What a crash would leave, and what the attacker had seen by then."""

    files: dict[str, bytes]
    keys: dict[str, bytes]
    archive: Archive
    day: float


class Life:
    """A store from birth to its end, attacked on the way."""

    def __init__(self, folder: Path) -> None:
        self.disk, self.holder = folder / "disk", folder / "holder"
        self.disk.mkdir()
        self.holder.mkdir()
        self.archive, self.key_archive = Archive(self.disk), Archive(self.holder)
        self.day = 100.0
        self.batches: list[Batch] = []
        self.moments: dict[str, Moment] = {}
        self.images: dict[tuple[float, str], Image] = {}
        """By day and kill point."""

    @property
    def given(self) -> dict[str, Any]:
        """What a store is created and opened with."""
        return {"keys": f"file:{self.holder}/key", "clock": lambda: self.day * DAY}

    def run(self) -> None:
        """From the first row to the last erasure."""
        self.store = Pyramid.create(self.disk / "store", SCHEMA, SETTINGS, **self.given)
        self._door, self._layout = inspect.door(self.store), inspect.birth(self.store, 1).layout
        self._observe(100.1, 5)
        self._observe(100.1, 1, marked=True)
        self._observe(100.2, 1)
        self.attack("the marked row is hot")
        self.store.admin.backup(self.disk / "backup 1")
        self._observe(101.1, 1)
        self._observe(102.5, 1)
        self.attack("the marked row is hot for the last day")
        self._advance(LEAVES)
        self.attack("the step of the marked row has left")
        for day in (103.2, 104.6, 105.1, 107.5, 109.5):
            self._observe(day, 2)
            self.attack(f"day {day}")
        self._observe(110.1, 2)
        self.attack("the window of the marked row is sealed")
        for day in (112.3, 119.7, 120.1, 127.2, 129.5):
            self._observe(day, 3)
            self.attack(f"day {day}")
        self._advance(RETIRES)
        self._observe(RETIRES, 3)
        self.attack("the window of the marked row is erased")
        self._observe(WITHDRAWN - 0.1, 2)
        self.attack("names are known")
        self.store.admin.backup(self.disk / "backup 2")
        self.day = WITHDRAWN
        with self._crashing():
            self.store.groups.withdraw("name", why="regulation")
        self.attack("names are withdrawn")
        self._observe(131.3, 2)
        self._observe(133.1, 2)
        self.attack("names came again")
        self._observe(134.1, 2)
        self.store.admin.backup(self.disk / "backup 3")
        self._observe(134.2, 2)
        self._observe(FORKED, 3)
        self.attack("a backup was made")
        copy = self.disk / "backup 3"
        with closing(Pyramid.restore(copy, self.disk / "restored", **self.given)) as restored:
            restored.observe(rows("restored", self.day))
        self.attack("a backup was restored")

    def _observe(self, day: float, batches: int, *, marked: bool = False) -> None:
        self.day = day
        self.store.advance()
        for _ in range(batches):
            table = rows(f"{len(self.batches) + 1}", day, marked=marked)
            self.store.observe(table, key=ONCE if marked else None)
            self.store.advance()
            self.batches.append(self._counted(table))

    def _counted(self, table: pa.Table) -> Batch:
        number, counts = inspect.last_batch(self.store), Arena.exact(self._layout)
        counts.add(self._door.observations(table))
        ((window, _),) = inspect.hot(self.store).steps[-1].batches[-1].parts
        cells = {name: counts._flat(t).copy() for name, t in self._layout.index.items()}
        names = frozenset(table.column("name").to_pylist())
        return Batch(number, self.day, window, table.num_rows, names, cells)

    def _advance(self, day: float) -> None:
        self.day = day
        with self._crashing():
            self.store.advance()

    def _crashing(self) -> AbstractContextManager[None]:
        """Keep what a crash would leave, at each kill point for the last time."""

        def at(point: str) -> None:
            files, keys = self.archive.image(), self.key_archive.image()
            self.images[self.day, point] = Image(files, keys, self.archive.so_far(), self.day)

        return on_reach(at)

    def attack(self, moment: str) -> None:
        """Loot with the keys that are there now."""
        self.archive.look()
        present = keys_in(file.read_bytes() for file in self.holder.iterdir())
        hot = frozenset(b.number for b in self.batches if int(b.day) + HOT > self.day)
        self.moments[moment] = Moment(loot(self.archive, present), hot)

    @property
    def store_keys(self) -> set[bytes]:
        """Every store key that ever was."""
        return keys_in(data for _, data in self.key_archive.versions)

    def between(self, window: int, start: int, stop: int) -> list[Batch]:
        """The batches that a window took after its first ``start`` rows, up to ``stop``."""
        found, total = [], 0
        for batch in (b for b in self.batches if b.window == window):
            found += [batch] if start <= total < stop else []
            total += batch.rows
        return found


def reopened(image: Image, folder: Path) -> Loot:
    """The attack after a crash, once the store has been opened again."""
    after = Life(folder)
    for place, files in ((after.disk, image.files), (after.holder, image.keys)):
        for name, data in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(data)
            (place / name).chmod(0o600)
    for name in ("hot", "tables"):
        (after.disk / "store" / name).mkdir(exist_ok=True)
    after.day = image.day
    with watched(after.archive):
        Pyramid.open(after.disk / "store", **after.given).close()
    after.archive.close()
    after.archive = after.archive.after(image.archive)
    after.attack("reopened")
    return after.moments["reopened"].loot


def rows(tag: str, day: float, *, marked: bool = False) -> pa.Table:
    """A few rows, whose names nobody else has."""
    names, scores = [f"{EVERYBODY} {i} of {tag}" for i in range(3)], [1.5, 2.5, 3.5]
    if marked:
        names, scores = [*names, NAME], [*scores, SCORE]
    size = len(names)
    towns = ["x", "y", "z", "x"][:size]
    return pa.table({"t": [day * DAY] * size, "score": scores, "name": names, "town": towns})
