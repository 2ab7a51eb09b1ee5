"""Stores that are killed again and again: each run is a forked process, the model stays here.

The process that keeps the model has everything imported and no store open, so a child
starts in milliseconds. It opens the store, goes on with the plan and tells through a pipe
what is done; that is the acknowledgement. It dies by SIGKILL, at a kill point or by us.
What it was in the middle of is then either wholly done or not at all: the store says which.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

from pyramidion import Pyramid, Settings, killpoints
from tests.forking import forked
from tests.store import killing_checks as checks
from tests.store import killing_workload as work
from tests.store.killing_model import Born, Model, births_told

PATIENCE = 120.0  # seconds until a child that does not end is taken to hang
VERBS = 9  # of one run, unless it is killed
SPEND = Fraction(1, 1_000_000)
REBUILD = Fraction(1, 100)

OUTSIDE = 3  # kills from outside, of each store
TWICE = 2  # times that each is killed again before anybody looks at it
TRIES = 20
KILLS = [
    point
    for point in killpoints.POINTS
    if not point.startswith(
        ("read.", "vault.", "broker.", "person.", "log.", "node.", "select.", "share.", "bulk.")
    )
]
"""Of the others, a file of its own: rows are read where there are a thousand."""

MOST = {"append": 4, "commit": 4, "erase": 3, "rewrap": 3, "step": 3}
"""At which passing of a point it kills, at most, by the first word of its name; else once."""

Sabotage = Callable[[], None]
"""Breaks the store, in the child alone: to see that it is found out."""


class Ordeal:
    """One store and its model, through many kills."""

    def __init__(self, folder: Path, seed: int, settings: Settings) -> None:
        self.folder = folder
        self.plan = work.Plan(seed, settings)
        self.next = 0
        """The verb that is to be done, or may have been when the store was killed."""
        self.problems: list[tuple[str, str]] = []
        self.log: list[str] = []
        vault = {"vault": str(folder / "vault"), "custodian": checks.CUSTODIAN.public}
        created = Pyramid.create(folder / "store", work.SCHEMA, settings, **self._given(0), **vault)
        self.model = Model(settings, created._lifecycle.secret)
        created.close()

    def _given(self, now: int) -> dict[str, Any]:
        return {
            "keys": f"file:{self.folder / 'key'}",
            "clock": lambda: now,
        }

    # --- the child -----------------------------------------------------------------------

    def _live(self, pipe: int, where: str, sabotage: Sabotage | None) -> None:
        """What a child does until it is killed."""
        lock = threading.Lock()

        def tell(told: dict[str, Any]) -> None:
            with lock:
                os.write(pipe, json.dumps(told).encode() + b"\n")

        if sabotage is not None:
            sabotage()
        killpoints.arm(where)
        try:
            now = [self.plan[self.next].now]
            given = self._given(0) | {"clock": lambda: now[0]}
            with births_told(tell), Pyramid.open(self.folder / "store", **given) as store:
                for index in range(self.next, self.next + VERBS):
                    verb = self.plan[index]
                    now[0] = verb.now
                    done = perform(store, verb, again=index == self.next)
                    tell({"verb": index, "done": done})
        except BaseException:
            tell({"error": traceback.format_exc()})

    def run(
        self, where: str = "", delay: float | None = None, sabotage: Sabotage | None = None
    ) -> bool:
        """Let a child go on, until the kill point or for a time; whether it was killed."""
        self.plan[self.next + VERBS]  # made here once, not by each child
        reader, writer = os.pipe()
        child = forked()
        if child == 0:
            try:
                os.close(reader)
                self._live(writer, where, sabotage)
            finally:
                os._exit(0)
        os.close(writer)
        if delay is not None:
            time.sleep(delay)
            os.kill(child, signal.SIGKILL)
        told, ended = _read_all(reader, child)
        status = os.waitpid(child, 0)[1]
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        self.log.append(f"{where or delay}: {'killed' if killed else 'finished'}")
        if not ended:
            self.problems.append(("reopens", f"a child did not end, {self.log[-3:]}"))
        for line in told.splitlines():
            self._hear(json.loads(line))
        return killed and ended

    # --- what is heard and seen ------------------------------------------------------------

    def _hear(self, told: dict[str, Any]) -> None:
        if "error" in told:
            self.problems.append(("reopens", told["error"]))
        elif "born" in told:
            self.model.born.append(Born(told["born"]))
        else:
            self._done(self.plan[told["verb"]], told["done"])
            self.next = told["verb"] + 1

    def _done(self, verb: work.Verb, done: Any) -> None:
        if verb.kind in ("observe", "resend"):
            try:
                self.model.observed(verb, tuple(done))
            except ValueError as problem:
                self.problems.append(("receipts", str(problem)))
        elif verb.kind == "withdraw" and done:
            self.model.withdrew(verb.name)
        elif verb.kind == "reseed":
            self.model.reseeded(verb)
        elif verb.kind == "spend" and done:
            self.model.spent[why(verb)] = done

    @property
    def sound(self) -> bool:
        """Whether nothing was wrong so far."""
        return not self.problems

    def check(self) -> None:
        """Open the store here, see whether all is as it must be, and close it."""
        verb = self.plan[self.next]
        try:
            with self._opened(verb.now) as store:
                self._settle(store, verb)
                found = list(checks.problems(store, self.model, verb.now))
        except Exception:
            found = [("reopens", traceback.format_exc())]
        self.problems += [(fact, f"{told}, after {self.log[-3:]}") for fact, told in found]

    @contextmanager
    def _opened(self, now: int) -> Iterator[Pyramid]:
        with (
            births_told(self._hear),
            Pyramid.open(self.folder / "store", **self._given(now)) as store,
        ):
            yield store

    def _settle(self, store: Pyramid, verb: work.Verb) -> None:
        """Ask the store whether the verb that it was killed in is done."""
        if is_done(store, verb):
            self._done(verb, outcome(store, verb))


def _read_all(pipe: int, child: int) -> tuple[bytes, bool]:
    """What the child told until it ended; whether it did, in time."""
    told, until = b"", time.monotonic() + PATIENCE
    try:
        while True:
            left = until - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
                return told, False
            data = os.read(pipe, 1 << 16)
            if not data:
                return told, True
            told += data
    finally:
        os.close(pipe)


# --- verbs --------------------------------------------------------------------------------


def why(verb: work.Verb) -> str:
    """What the ledger says of a spend."""
    return f"verb {verb.index}"


def is_done(store: Pyramid, verb: work.Verb) -> bool:
    """Whether a verb was carried out by a process that was killed before it could say so."""
    if verb.kind == "observe":
        return store._lifecycle.last_batch() >= verb.number
    if verb.kind == "withdraw":
        return verb.name not in store.schema.table_names
    if verb.kind == "add":
        return work.GROUP in store.schema.table_names
    if verb.kind == "reseed":
        return any(record.why == why(verb) for record in store.status().deletions)
    return verb.kind == "spend" and bool(_paid(store, verb))


def outcome(store: Pyramid, verb: work.Verb) -> Any:
    """What a verb that is done has to say."""
    if verb.kind == "observe":
        batches = [batch for step in store._lifecycle.hot.steps for batch in step.batches]
        (receipt,) = (batch.receipt for batch in batches if batch.number == verb.number)
        return [receipt.accepted, receipt.refused, receipt.late]
    return _paid(store, verb) if verb.kind == "spend" else True


def _paid(store: Pyramid, verb: work.Verb) -> list[int]:
    return sorted(line.window for line in store._home.catalogue.lines() if line.why == why(verb))


def perform(store: Pyramid, verb: work.Verb, *, again: bool) -> Any:
    """Carry out a verb; ``again``: it may be done already, which an idempotency key finds out."""
    if again and verb.key is None and is_done(store, verb):
        return outcome(store, verb)
    if verb.kind in ("observe", "resend"):
        if verb.advance:
            store.advance()
        receipt = store.observe(verb.table, key=verb.key, errors="skip")
        return [receipt.accepted, receipt.refused, receipt.late]
    if verb.kind == "advance":
        store.advance()
    elif verb.kind == "withdraw":
        store.withdraw(verb.name, why="asked for")
    elif verb.kind == "add":
        store.add_group(work.GROUP.split(","))
    elif verb.kind == "reseed":
        store.reseed(why=why(verb))
    elif verb.kind == "rebuild":
        for window in rebuildable(store)[-1:]:
            store.rebuild(window, why=why(verb), share=REBUILD)
    else:
        windows = sorted(store._lifecycle.populating)
        if windows:
            store.ledger.spend("selection", SPEND, windows, verb.now, why(verb))
        return windows
    return True


def rebuildable(store: Pyramid) -> list[int]:
    """The sealed windows whose rows are all hot."""
    hot = Counter[int]()
    for batch in store._lifecycle.hot.stored(lambda _: True):
        for window, rows in batch.parts:
            hot[window] += rows
    found = [window for window in store.status().windows if window.state == "sealed"]
    return [window.number for window in found if hot[window.number] == window.rows]


# --- lives --------------------------------------------------------------------------------


@dataclass
class Aftermath:
    """What all the kills came to."""

    hits: Counter[str] = field(default_factory=Counter)
    outside: int = 0
    twice: int = 0
    problems: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0.0

    def against(self, fact: str) -> list[str]:
        """What speaks against a fact."""
        assert fact in checks.FACTS
        return [told for of, told in self.problems if of == fact]


def lived_through(folder: Path, seed: int) -> Aftermath:
    """The life of one store: killed at every point, in any order, and from outside in between."""
    after, random = Aftermath(), Random(seed)
    settings = work.BY_ROWS if seed % 5 == 4 else work.BY_TIME
    gc.collect()
    gc.freeze()  # or each child would copy what its collector looks at
    ordeal = Ordeal(folder / str(seed), seed, settings)
    began = time.monotonic()
    ordeal.run()
    whole = time.monotonic() - began
    ordeal.check()
    kills = [*KILLS, *["outside"] * OUTSIDE, *["twice"] * TWICE]
    for kill in random.sample(kills, len(kills)):
        for tried in range(TRIES):
            hit = ordeal.sound and _killed(ordeal, kill, whole, tried, random, after)
            if hit or not ordeal.sound:
                break
        if ordeal.sound:
            ordeal.check()
    after.problems = ordeal.problems
    return after


def _killed(
    ordeal: Ordeal, kill: str, whole: float, tried: int, random: Random, after: Aftermath
) -> bool:
    if kill == "outside":
        hit = ordeal.run(delay=random.uniform(0, whole / 2**tried))
        after.outside += hit
    elif kill == "twice":
        hit = all(ordeal.run(f"{random.choice(KILLS)}:1") for _ in range(2))
        after.twice += hit
    else:
        most = 1 if tried else MOST.get(kill.partition(".")[0], 1)
        hit = ordeal.run(f"{kill}:{random.randint(1, most)}")
        after.hits[kill] += hit
    return hit
