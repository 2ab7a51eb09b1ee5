"""Three shards, each a process of its own, killed again and again while they observe and share.

Each child opens its store and goes on where its shard was; what it appends to a file is the
acknowledgement, the noise that its windows are born with, and a copy of all that it writes to the
table store and to the roster. The process that keeps the plan has no store open.

A child waits after each batch until its store has done what is due. So what it does, and where it
dies, follows from the plan and from its own kills alone, however busy the machine is.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from pyramidion import Pyramid
from pyramidion.counts.arena import Arena
from pyramidion.privacy.table_noise import TableDesign
from pyramidion.storage import fault_points as killpoints
from pyramidion.storage.roster import Roster
from pyramidion.storage.tables import FileTables
from tests.dying import ended, started
from tests.redis_servers import Outage, RedisServer
from tests.store.inspect import settled
from tests.store.shards.streams import DAYS, NAMES, Stream
from tests.store.stores import START, cells, observed, rows

EVERY, DAY_MANY = 2.5, 75.0  # days between batches, and of all
END = START + DAY_MANY * DAYS
POINTS = [point for point in killpoints.POINTS if point.startswith("share.")]
GIVEN = POINTS[:-1]
"""The points that a shard comes to with each window that it seals."""
OTHERS = ["commit.before", "erase.committed", "seal.written",
          "commit.after", "erase.destroyed", "seal.after"]  # fmt: skip
CALLS = (40, 100, 180, 300, 450, 600)
"""Numbers of the calls into the operating system before which a shard dies."""

Kills = dict[str, str]
"""Where each shard is to die: at a point, before a call by its number, or nowhere."""


OUTAGES = [
    ("one", "share.before", "HGETALL:1", 0),
    ("two", "share.put", "HSETNX:1", 0),
    ("three", "share.kept", "SET:2", 0),
    ("one", "share.written", "HSET:1", 0),
    ("two", "share.told", "HSET:2", 0),
    ("three", "share.told", "UNLINK:1", 3),
    ("one", "share.put", "SET:3", 4),
    ("two", "share.kept", "HGETALL:1", 6),
    ("three", "share.written", "GETRANGE:3", 5),
    ("one", "share.forgotten", "HDEL:2", 2),
    ("two", "share.forgotten", "GETRANGE:5", 0),
]
"""Each shard, where it dies, before which of its commands Redis ends, and for how many uses."""


def schedule() -> Iterator[Kills]:
    """The kills of all shards, round by round; before the first window is past its retention."""
    for turn in range(len(GIVEN)):  # each shard at each point, all three at different ones
        yield {name: GIVEN[(turn + place) % len(GIVEN)] for place, name in enumerate(NAMES)}
    for others in (OTHERS[:3], OTHERS[3:]):
        yield dict(zip(NAMES, others, strict=True))
    for calls in (CALLS[:3], CALLS[3:]):
        yield {name: str(call) for name, call in zip(NAMES, calls, strict=True)}
    for name in NAMES:  # alone: the first that comes to the end of a retention destroys the keys
        yield {name: "share.forgotten"}
    yield dict(zip(NAMES, ("retire.after", "checkpoint.written", "share.told"), strict=True))


def plan(seed: int) -> dict[str, list[tuple[float, pa.Table]]]:
    """When which rows come to which shard."""
    random = Random(seed)
    times = np.arange(START, END - 1, EVERY * DAYS)
    return {
        name: [
            (at, rows(random.randint(1, 30), at, seed=random.randrange(2**32)))
            for at in (times + random.uniform(0, DAYS)).tolist()
            if random.random() < 0.9
        ]
        for name in NAMES
    }


class Ordeal:
    """A stream and its plan, through many kills."""

    def __init__(self, folder: Path, seed: int, *, url: str = "", **settings: Any) -> None:
        self.stream = Stream(folder)
        self.stream.url = url or self.stream.url
        self.plan = plan(seed)
        self.kills: list[Kills] = []
        """The rounds that were run, each shard having died where it was to."""
        self.hurried = False
        """Whether a child does not wait for what its store does behind the scenes."""
        for name in NAMES:
            self.file(name).parent.mkdir(exist_ok=True)
            self.file(name).touch()
        with self._watched(None):
            self.stream.begin(**settings)
            self.stream.close()
        gc.collect()
        gc.freeze()  # or each child would copy what its collector looks at

    # --- what is told ----------------------------------------------------------------------

    def file(self, name: str) -> Path:
        """What the children of a shard have told."""
        return self.stream.folder / "told" / f"{name}.jsonl"

    def told(self, name: str, what: str) -> list[Any]:
        """Everything of one kind."""
        found = []
        for line in self.file(name).read_bytes().splitlines():
            with suppress(ValueError):  # empty, or its writer was killed in the middle of it
                found.append(json.loads(line))
        return [told[what] for told in found if what in told]

    def done(self, name: str) -> int:
        """How many batches of a shard were acknowledged."""
        return len(set(self.told(name, "acknowledged")))

    def ended(self, name: str) -> bool:
        """Whether a shard has come to the end of its plan."""
        return bool(self.told(name, "ended"))

    @contextmanager
    def _watched(self, name: str | None) -> Iterator[Any]:
        """Have everything told that is drawn, and that leaves a store."""
        made = open(self.file(name or NAMES[0]), "ab", buffering=0)  # noqa: SIM115

        def tell(told: dict[str, Any]) -> None:
            os.write(made.fileno(), b"\n" + json.dumps(told).encode() + b"\n")

        arena, put, add = TableDesign.arena, FileTables.put, Roster._add

        def born(self: TableDesign, *given: Any) -> Arena:
            found = arena(self, *given)
            tell({"born": {of: flat.tolist() for of, flat in cells(found).items()}})
            return found

        def written(self: FileTables, of: str, chunks: Iterable[bytes], *rest: Any) -> None:
            held = list(chunks)
            tell({"put": [of, [chunk.hex() for chunk in held]]})
            put(self, of, held, *rest)

        def added(self: Roster, of: str, value: bytes) -> None:
            tell({"key": [of, value.hex()]})
            add(self, of, value)

        with ExitStack() as watching:
            watching.callback(made.close)
            watching.enter_context(patch.object(TableDesign, "arena", born))
            watching.enter_context(patch.object(FileTables, "put", written))
            watching.enter_context(patch.object(Roster, "_add", added))
            yield tell

    # --- the children ----------------------------------------------------------------------

    def _live(self, name: str, watching: Iterable[AbstractContextManager[object]] = ()) -> None:
        """What a child does until it is killed."""
        with ExitStack() as held:
            tell = held.enter_context(self._watched(name))
            for each in watching:
                held.enter_context(each)
            now, first = [START], self.done(name)
            given = self.stream.given(name) | {"clock": lambda: now[0]}
            now[0] = self.plan[name][first][0] if first < len(self.plan[name]) else END
            with Pyramid.open(self.stream.path(name), **given) as store:
                settled(store)
                for index in range(first, len(self.plan[name])):
                    now[0], batch = self.plan[name][index]
                    (Pyramid.observe if self.hurried else observed)(
                        store, batch, key=f"batch {index}"
                    )
                    tell({"acknowledged": index})
                now[0] = END
                store.advance()
                tell({"ended": True})

    def _started(self, name: str, where: str) -> int:
        """A child that dies at a point, or before a call."""
        call = int(where) if where.isdecimal() else 0
        return started(lambda: self._live(name), at="" if call else where, call=call)

    def run(self, kills: Kills) -> None:
        """Let some shards go on together, each until it dies."""
        children = {name: self._started(name, where) for name, where in kills.items()}
        dead = {name: ended(child) for name, child in children.items()}
        missed = [name for name in kills if dead[name] != bool(kills[name])]
        assert self.hurried or not missed, f"round {len(self.kills)} did not kill {missed}"
        self.kills.append(kills)

    def run_without(self, name: str, where: str, outage: Outage) -> None:
        """Let one shard go on until it dies, while the Redis that they meet in ends and starts."""
        child = started(lambda: self._live(name, [outage.of_child()]), at=where)
        missed = [] if outage.seen() else [f"the end of Redis before {outage.end}"]
        missed += [] if ended(child) == bool(where) else [where]
        assert not missed, f"round {len(self.kills)}: shard {name!r} never came to {missed}"
        self.kills.append({name: where})

    def go_without(self, server: RedisServer) -> None:
        """The same one by one, while the Redis that they meet in loses all it has."""
        for name, where, end, uses in OUTAGES:
            self.run_without(name, where, Outage(server, end, uses))
        assert not any(map(self.ended, NAMES))
        self.run(dict.fromkeys(NAMES, ""))

    def go(self) -> None:
        """From the first row to the last, through all kills."""
        for kills in schedule():
            self.run(kills)
        assert not any(map(self.ended, NAMES))
        self.run(dict.fromkeys(NAMES, ""))
        for name in NAMES:  # once more: each has told all the others by now
            self.run({name: ""})

    def go_at_random(self, random: Random) -> None:
        """From the first row to the last through kills at any moment, as many as come."""
        self.hurried = True
        for _ in range(60):
            going = [name for name in NAMES if not self.ended(name)]
            places = [*POINTS, *OTHERS, *(str(random.randrange(1, 1_000)) for _ in range(20))]
            self.run({name: random.choice(places) for name in going})
        self.hurried = False
        for _ in range(2):
            self.run(dict.fromkeys(NAMES, ""))
