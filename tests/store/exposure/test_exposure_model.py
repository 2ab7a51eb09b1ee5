"""Exposure reports against a model that knows the life of every row, whatever was done with it.

Random sequences of all that a store does with rows run by a clock that stands still unless the
sequence moves it. After each step the model looks into the store: which batches are hot, which
windows are there, what the vault has. So it knows what could be read when, and a report on any
interval may say more, never less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from pyramidion import Pyramid, Schema
from pyramidion.rows.files import DataFile
from pyramidion.rows.history import in_order
from pyramidion.store.clocks import SystemClock
from pyramidion.store.exposure.exposed import Exposure
from tests.cli.shell import as_bytes
from tests.store import inspect
from tests.store.inspect import settled
from tests.store.stores import DAY, HOUR, SCHEMA, START, Stand, rows
from tests.store.test_bulk import counted

PEOPLE = Schema(
    time="t", label=SCHEMA.label, features=SCHEMA.features, groups=SCHEMA.groups, unit="a"
)
BEGIN = START + 200 * DAY
"""By the clock; there is a past to import."""


class Followed(Stand):
    """Stores that go by the system's clock, and so by the rows of an import until others come."""

    @property
    def given(self) -> dict[str, Any]:
        return super().given | {"clock": SystemClock(self.clock, self.clock)}


@dataclass
class Batch:
    """Rows that came together: when, into which windows, and until when they could be read."""

    came: float
    windows: dict[int, int]
    gone: float | None = None

    @property
    def rows(self) -> int:
        return sum(self.windows.values())


@dataclass
class Seen:
    """What the store had at a moment."""

    at: float
    windows: dict[int, str]
    sealed: int


@dataclass
class World:
    """A store in random hands, and the life of each row."""

    stand: Stand
    random: np.random.Generator
    store: Pyramid
    batches: dict[int, Batch] = field(default_factory=dict)
    lost: list[Batch] = field(default_factory=list)
    """Rows that another copy had, which was restored in place of."""
    seen: list[Seen] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    imports: int = 0
    """Steps at first in which no row is observed."""
    files: int = 0
    backup: tuple[int, int, str] | None = None
    """Which one there is, the last batch in it, and the store key that opens it."""
    copies: int = 0

    @property
    def now(self) -> float:
        return self.stand.clock.now

    def pass_(self, least: float, most: float) -> None:
        self.stand.clock.now = float(round(self.now + self.random.uniform(least, most)))

    def look(self) -> None:
        """Which batches are new, which have left, and what else is there."""
        settled(self.store)
        hot = {batch.number: batch for batch in inspect.hot(self.store).stored(lambda _: True)}
        for number, stored in hot.items():
            if number not in self.batches:
                came = {n: sum(r for w, r in stored.parts if w == n) for n, _ in stored.parts}
                self.batches[number] = Batch(self.now, came)
        for number, batch in self.batches.items():
            if number not in hot and batch.gone is None:
                batch.gone = self.now
        status = self.store.status()
        told = {w.number: w.state for w in status.windows if w.rows}
        vault = 0 if status.vault is None else status.vault.rows
        self.seen.append(Seen(self.now, told, vault))

    # --- what is done -----------------------------------------------------------------------

    def step(self) -> None:
        """Something, after some time."""
        self.pass_(0, self.random.choice([HOUR, 20 * HOUR, 4 * DAY]))
        self.look_before()
        verbs = {
            self.observe: 6 if len(self.done) >= self.imports else 0,
            self.replay: 2,
            self.bulk: 1,
            self.advance: 3,
            self.erase: 1,
            self.reseed: 1,
            self.reopen: 1,
            self.back_up: 1,
            self.restore: 1,
        }
        names, weights = list(verbs), np.array(list(verbs.values()))
        verb = names[self.random.choice(len(names), p=weights / weights.sum())]
        self.done.append(verb.__name__)
        verb()
        self.look()

    def look_before(self) -> None:
        """Time has passed and nothing was done: all is as it was."""
        if self.seen:
            last = self.seen[-1]
            self.seen.append(Seen(self.now, last.windows, last.sealed))

    def observe(self) -> None:
        size = int(self.random.integers(1, 9))
        ages = self.random.choice([0.0, HOUR, 12 * DAY], size)
        self.store.observe(rows(size, self.now - ages, len(self.seen)))

    def replay(self) -> None:
        """A history of any length up to now, longer than the retention now and then."""
        size, length = int(self.random.integers(20, 90)), self.random.choice([2, 30, 150]) * DAY
        times = np.sort(self.now - length + self.random.uniform(0, length, size))
        self.files += 1
        file = self.stand.folder / f"history {self.files}.parquet"
        file.write_bytes(as_bytes(rows(size, times, self.files), "parquet"))
        history = in_order([DataFile(file)], self.store.schema, chunk=int(size // 3))
        for _ in self.store.replay(history):
            self.look()
            if self.random.random() < 0.5:
                self.pass_(1, 3 * HOUR)
                self.look_before()

    def bulk(self) -> None:
        if self.store.schema.unit is not None:  # refused
            return
        bulk = self.store.bulk()
        there = self.store.now / 1e6 - self.random.integers(1, 4) * 10 * DAY
        slot, counts = counted(bulk, rows(5, there, self.files))
        known = "SELECT count(*) FROM table_sets WHERE level = 0 AND slot = ? AND state <> 'erased'"
        if bulk.slots.stop(slot) <= self.store.now and not inspect.catalogue(self.store).one(
            known, slot
        ):
            bulk.take(slot, counts)

    def advance(self) -> None:
        self.store.advance()

    def erase(self) -> None:
        if self.store.schema.unit is not None:
            self.store.erase_person(str(self.random.integers(0, 40)), why="asked for")

    def reseed(self) -> None:
        self.store.admin.reseed(why="somebody was in")

    def reopen(self) -> None:
        path = self.store.path
        self.stand.close()
        self.store = self.stand.open(path)

    def back_up(self) -> None:
        self.files += 1
        self.store.admin.backup(self.stand.folder / f"backup {self.files}")
        self.backup = self.files, inspect.last_batch(self.store), self._key()

    def _key(self) -> str:
        return inspect.catalogue(self.store).about("store_key")

    def restore(self) -> None:
        """From the backup, if nothing was erased or released since; the store itself is lost."""
        if self.backup is None or self._key() != self.backup[-1]:
            return
        (number, last, _), self.backup = self.backup, None
        self.stand.close()
        self.copies += 1
        folder = self.stand.folder
        store = Pyramid.restore(
            folder / f"backup {number}", folder / f"copy {self.copies}", **self.stand.given
        )
        self.store = self.stand.held(store)
        for batch in (batch for n, batch in self.batches.items() if n > last):
            batch.gone = self.now if batch.gone is None else batch.gone  # its store key is dead
            self.lost.append(batch)
        self.batches = {n: batch for n, batch in self.batches.items() if n <= last}

    # --- what is true -----------------------------------------------------------------------

    def readable(self, a: float, b: float) -> int:
        """Rows that could be read at some moment from a to b."""
        return sum(
            batch.rows
            for batch in self.batches.values()
            if batch.came <= b and (batch.gone is None or batch.gone >= a)
        )

    def arrived(self, a: float, b: float) -> int:
        return sum(batch.rows for batch in self.batches.values() if a <= batch.came <= b)

    def forgotten(self, a: float) -> int:
        return sum(
            batch.rows
            for batch in self.batches.values()
            if batch.gone is not None and batch.gone < a
        )

    def windows(self, a: float, b: float) -> set[tuple[int, str]]:
        """What each window was at some moment from a to b."""
        ends = [*pairwise(self.seen), (self.seen[-1], self.seen[-1])]
        return {
            (number, state)
            for seen, after in ends
            if seen.at <= b and after.at >= a
            for number, state in seen.windows.items()
            if state in ("populating", "sealed")
        }

    def later(self, a: float, b: float) -> int:
        """Rows that came afterwards into windows that were populating."""
        windows = {number for number, state in self.windows(a, b) if state == "populating"}
        return sum(
            rows
            for batch in self.batches.values()
            if batch.came > b
            for number, rows in batch.windows.items()
            if number in windows
        )

    def sealed(self, a: float, b: float) -> int:
        """Rows that the vault had at some moment, at least."""
        return max((seen.sealed for seen in self.seen if a <= seen.at <= b), default=0)

    def elsewhere(self, a: float, b: float) -> int:
        """Rows that another copy had."""
        return sum(
            b_.rows for b_ in self.lost if b_.came <= b and (b_.gone is None or b_.gone >= a)
        )

    def intervals(self, number: int) -> Iterator[tuple[float, float]]:
        moments = [seen.at for seen in self.seen]
        for _ in range(number):
            a = float(self.random.choice(moments)) + float(self.random.choice([0, 0, 1, HOUR]))
            b = a + float(self.random.choice([0, 0, 1, 5 * HOUR, 2 * DAY, 40 * DAY]))
            yield min(a, self.now), min(b, self.now)


def lived(stand: Stand, seed: int, steps: int, **settings: object) -> World:
    """A store after so many steps."""
    random = np.random.default_rng(seed)
    stand.clock.now = BEGIN
    schema = PEOPLE if seed % 2 else SCHEMA
    if seed % 3 == 0:
        stand.vault = stand.folder / "vault"
    world = World(stand, random, stand.create(schema, **settings))
    world.imports = 25 if isinstance(stand, Followed) else 0
    for _ in range(steps):
        world.step()
    world.pass_(1, DAY)
    return world


def check(world: World, a: float, b: float, found: Exposure) -> None:
    """A report says no less than what is true, and nothing twice."""
    there = (a - BEGIN) / DAY, (b - BEGIN) / DAY, world.done
    if not found.gaps:
        assert found.rows >= world.readable(a, b), there
        assert found.arrived >= world.arrived(a, b), there
        assert found.later >= world.later(a, b), there
        assert not world.elsewhere(a, b), there
    if not (found.gaps and world.copies):  # another copy had windows and files of its own
        told = {(window.number, state) for window in found.windows for state in window.states}
        assert told >= world.windows(a, b), there
        assert found.vault.rows >= world.sealed(a, b), there
    gone = found.forgotten
    assert gone.step_rows <= world.forgotten(a), there
    assert {window.number for window in found.windows}.isdisjoint(gone.windows), there
    readable = {part.step for part in found.hot}
    assert len(readable) + gone.steps + gone.unrecorded <= _steps(world), there
    assert found.rows + gone.step_rows <= sum(batch.rows for batch in world.batches.values())


def _steps(world: World) -> int:
    return int(inspect.catalogue(world.store).about("next_step", "1")) - 1


TREE = {"windows": "tree", "tree_radix": 2, "tree_depth": 3, "retention": "90d"}
FEW = {"hot_rows": 60, "hot_window": None}


STORES = {0: {}, 1: {}, 2: {}, 3: {}, 8: TREE, 9: TREE, 10: FEW}
BRIEF = {
    (Stand, 0),
    (Stand, 1),
    (Stand, 9),
    (Stand, 10),
    (Followed, 2),
    (Followed, 3),
    (Followed, 8),
}
"""Each kind with people and without, with a vault and without, and with a tree; each store once."""


@pytest.mark.parametrize(
    ("seed", "settings", "kind"),
    [
        pytest.param(
            *(seed, settings, kind),
            marks=() if (kind, seed) in BRIEF else pytest.mark.campaign,
        )
        for kind in (Stand, Followed)
        for seed, settings in STORES.items()
    ],
)
def test_report_never_says_less_than_the_truth(
    stand: Stand, seed: int, settings: dict[str, object], kind: type[Stand]
) -> None:
    world = lived(kind(stand.folder), seed, 40, **settings)
    gaps = 0
    for a, b in world.intervals(60):
        found = world.store.exposure(a, b)
        check(world, a, b, found)
        gaps += bool(found.gaps)
    if not world.copies:
        assert gaps == 0  # nothing is past the retention by the clock
    world.stand.close()


def test_report_says_where_its_record_ends(stand: Stand) -> None:
    """After twice the retention the oldest steps are not remembered, and that is said."""
    world = lived(stand, 2, 90)
    assert world.now > BEGIN + 60 * DAY
    found = [world.store.exposure(a, b) for a, b in world.intervals(60)]
    assert any(each.gaps for each in found)
    for a, b in world.intervals(60):
        check(world, a, b, world.store.exposure(a, b))


def test_import_inside_the_interval_is_counted_whole(stand: Stand) -> None:
    """Also where its history is longer than the retention."""
    store = stand.create(retention="20d", count_window="5d")
    stand.clock.now = BEGIN
    times = np.sort(np.random.default_rng(0).uniform(START, BEGIN, 1_000))
    file = stand.folder / "history.parquet"
    file.write_bytes(as_bytes(rows(1_000, times), "parquet"))
    stand.clock.pass_(HOUR)
    for _ in store.replay(in_order([DataFile(file)], SCHEMA, chunk=100)):
        stand.clock.pass_(60)
    found = store.exposure(BEGIN, stand.clock.now)
    assert (found.rows, found.arrived, found.gaps) == (1_000, 1_000, ())
    assert found.forgotten.steps == found.forgotten.unrecorded == 0
    assert len({part.step for part in found.hot}) == len(found.hot)
    before = store.exposure(START, BEGIN)
    assert (before.rows, before.windows) == (0, ())
    stand.clock.pass_(DAY)
    store.advance()
    stand.clock.pass_(1)
    after = store.exposure(stand.clock.now, stand.clock.now)
    assert after.rows + after.forgotten.step_rows == 1_000
