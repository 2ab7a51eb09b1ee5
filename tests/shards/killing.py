"""Three shards, each a process of its own, killed again and again while they observe and share.

Each child opens its store and goes on where its shard was; what it appends to a file is the
acknowledgement, the noise that its windows are born with, and a copy of all that it writes to the
table store and to the roster. The process that keeps the plan has no store open.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from pyramidion import Pyramid, killpoints
from pyramidion.counts.arena import Arena
from pyramidion.privacy.birth import Birth
from pyramidion.storage.roster import Roster
from pyramidion.storage.tables import FileTables
from tests.forking import forked
from tests.redis_servers import RedisServer
from tests.shards.streams import DAYS, NAMES, Stream
from tests.store.stores import START, cells, rows

PATIENCE = 120.0  # seconds until a child that does not end is taken to hang
EVERY, DAY_MANY = 2.5, 75.0  # days between batches, and of all
END = START + DAY_MANY * DAYS
POINTS = [point for point in killpoints.POINTS if point.startswith("share.")]
OTHERS = ["seal.written", "seal.after", "erase.committed", "erase.destroyed", "commit.before",
          "commit.after", "checkpoint.written", "retire.after"]  # fmt: skip
OUTSIDE = 8  # kills of all three at once, at random moments


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
        self.random = Random(seed)
        self.plan = plan(seed)
        self.kills: Counter[str] = Counter()
        self.pace = 0.0  # seconds between two batches: kills must come before the end
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
        lines = self.file(name).read_bytes().splitlines()
        found = (json.loads(line) for line in lines)
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
            os.write(made.fileno(), json.dumps(told).encode() + b"\n")

        arena, put, add = Birth.arena, FileTables.put, Roster._add

        def born(self: Birth, *given: Any) -> Arena:
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
            watching.enter_context(patch.object(Birth, "arena", born))
            watching.enter_context(patch.object(FileTables, "put", written))
            watching.enter_context(patch.object(Roster, "_add", added))
            yield tell

    # --- the children ----------------------------------------------------------------------

    def _live(self, name: str, where: str) -> None:
        """What a child does until it is killed."""
        with self._watched(name) as tell:
            killpoints.arm(where)
            try:
                now = [START]
                given = self.stream.given(name) | {"clock": lambda: now[0]}
                first = self.done(name)
                now[0] = self.plan[name][first][0] if first < len(self.plan[name]) else END
                with Pyramid.open(self.stream.path(name), **given) as store:
                    for index in range(first, len(self.plan[name])):
                        now[0], batch = self.plan[name][index]
                        store.observe(batch, key=f"batch {index}")
                        tell({"acknowledged": index})
                        time.sleep(self.pace)
                    now[0] = END
                    store.advance()
                    tell({"ended": True})
            except BaseException:
                tell({"error": traceback.format_exc()})

    def _started(self, name: str, where: str) -> int:
        child = forked()
        if child == 0:
            try:
                self._live(name, where)
            finally:
                os._exit(0)
        return child

    def run(
        self,
        wheres: dict[str, str],
        delay: float | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Let the shards go on together, each until its kill point, or all for a time."""
        children = {name: self._started(name, where) for name, where in wheres.items()}
        meanwhile()
        if delay is not None:
            time.sleep(delay)
        for name, child in children.items():
            if delay is not None:
                os.kill(child, signal.SIGKILL)
            status = _waited(child)
            if os.WIFSIGNALED(status):
                self.kills[wheres[name].partition(":")[0] or "outside"] += 1
            assert not self.told(name, "error"), self.told(name, "error")[0]

    def go(self) -> None:
        """From the first row to the last, through all kills."""
        rest = [*POINTS, *POINTS, *OTHERS]
        pending = self.random.sample(rest, len(rest)) + self.random.sample(POINTS, len(POINTS))
        outside = OUTSIDE
        while not all(map(self.ended, NAMES)):
            going = [name for name in NAMES if not self.ended(name)]
            first = len(pending) > len(rest)  # every point of sharing, while there is much to come
            if not first and outside and (outside == OUTSIDE or self.random.random() < 0.5):
                outside -= 1
                self.run(dict.fromkeys(going, ""), delay=self.random.uniform(0.02, 0.2))
            else:
                self.run({n: f"{pending.pop()}:1" if pending else "" for n in going})
        for name in NAMES:  # once more: each has told all the others by now
            self.run({name: ""})

    def go_without(self, server: RedisServer) -> None:
        """The same through fewer kills, while the Redis that they meet in is emptied at random."""
        pending, outside = self.random.sample(POINTS, len(POINTS)), OUTSIDE // 2
        self.pace = 0.15

        def emptied() -> None:
            time.sleep(self.random.uniform(0.0, 0.5))
            server.kill()
            time.sleep(self.random.uniform(0.0, 0.2))
            server.start()
            self.kills["redis"] += 1

        while not all(map(self.ended, NAMES)):
            going = [name for name in NAMES if not self.ended(name)]
            if outside and self.random.random() < 0.5:
                outside -= 1
                delay = self.random.uniform(0.0, 0.3)
                self.run(dict.fromkeys(going, ""), delay=delay, meanwhile=emptied)
            else:
                points = {n: f"{pending.pop()}:1" if pending else "" for n in going}
                self.run(points, meanwhile=emptied)


def _waited(child: int) -> int:
    """How a child ended; one that hangs is killed."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("a child did not end")
