"""Stores that are killed again and again: each run is a forked process, the model stays here.

The process that keeps the model has everything imported and no store open, so a child
starts in milliseconds. It opens the store, goes on with the plan and tells through a pipe
what is done; that is the acknowledgement. It dies by SIGKILL, at a kill point or before a call.
What it was in the middle of is then either wholly done or not at all: the store says which.

A child waits after each verb until its store has done what is due. So what it does, and where it
dies, follows from the plan and its own kills alone. In a campaign it does not wait.
"""

from __future__ import annotations

import gc
import json
import os
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from pyramidion import Pyramid, Settings
from pyramidion.storage import fault_points as killpoints
from pyramidion.vault.backlog import Backlog
from tests.dying import ended, started
from tests.store import inspect
from tests.store import killing_checks as checks
from tests.store import killing_workload as work
from tests.store.inspect import settled
from tests.store.killing_model import Born, Model, births_told

MOST_VERBS = 100  # until a child must have come to the point where it is to die
SPEND = Fraction(1, 1_000_000)
REBUILD = Fraction(1, 100)

CALLS = 8  # kills before a call, of each store
TWICE = 2  # times that each is killed again before anybody looks at it
KILLS = [
    point
    for point in killpoints.POINTS
    if not point.startswith(
        (
            *("read.", "vault", "broker.", "person.", "log.", "select.", "share."),
            *("bulk.", "create.", "draft.", "abandon.", "mend.", "restore.", "unpublish."),
        )
    )
]
"""Of the others, a file of its own: rows are read where there are a thousand."""

MOST = {"append": 4, "commit": 4, "erase": 3, "rewrap": 3, "step": 3}
"""At which passing of a point it kills, at most, by the first word of its name; else once."""

Sabotage = Callable[[], None]
"""Breaks the store, in the child alone: to see that it is found out."""


class Ordeal:
    """One store and its model, through many kills."""

    def __init__(
        self, folder: Path, seed: int, settings: Settings, *, hurried: bool = False
    ) -> None:
        self.folder = folder
        self.hurried = hurried
        """Whether a child goes on while its store still does what is due, behind the scenes."""
        self.plan = work.Plan(seed, settings)
        self.next = 0
        """The verb that is to be done, or may have been when the store was killed."""
        self.problems: list[tuple[str, str]] = []
        self.log: list[str] = []
        vault = {"vault": str(folder / "vault"), "custodian": checks.CUSTODIAN.public}
        created = Pyramid.create(folder / "store", work.SCHEMA, settings, **self._given(0), **vault)
        self.model = Model(settings, inspect.secret(created))
        created.close()

    def _given(self, now: int) -> dict[str, Any]:
        return {
            "keys": f"file:{self.folder / 'key'}",
            "clock": lambda: now,
        }

    # --- the child -----------------------------------------------------------------------

    def _live(self, pipe: int, verbs: int, sabotage: Sabotage | None) -> None:
        """What a child does until it is killed."""
        lock = threading.Lock()

        def tell(told: dict[str, Any]) -> None:
            with lock:
                os.write(pipe, json.dumps(told).encode() + b"\n")

        if sabotage is not None:
            sabotage()
        now = [self.plan[self.next].now]
        given = self._given(0) | {"clock": lambda: now[0]}
        with births_told(tell), self._carried():
            try:
                with Pyramid.open(self.folder / "store", **given) as store:
                    self._wait(store)
                    for index in range(self.next, self.next + verbs):
                        verb = self.plan[index]
                        now[0] = verb.now
                        done = perform(store, verb, again=index == self.next)
                        tell({"verb": index, "done": done})
                        self._wait(store)
            except BaseException:
                tell({"error": traceback.format_exc()})

    def _wait(self, store: Pyramid) -> None:
        """Until the store has done what is due, and its vault has stored what it sealed."""
        if not self.hurried:
            settled(store)
            vault = store.vault
            assert vault is not None
            vault.carry()

    @contextmanager
    def _carried(self) -> Iterator[None]:
        """Have no thread store what the vault seals; `_wait` does."""
        if self.hurried:
            yield
        else:
            with patch.object(Backlog, "wake", lambda backlog: None):
                yield

    def run(
        self, at: str = "", *, call: int = 0, verbs: int = 0, sabotage: Sabotage | None = None
    ) -> bool:
        """Let a child go on until a point, before a call, or for some verbs; whether it died."""
        verbs = verbs or MOST_VERBS
        self.plan[self.next + verbs]  # made here once, not by each child
        reader, writer = os.pipe()
        child = started(lambda: self._live(writer, verbs, sabotage), at=at, call=call)
        os.close(writer)
        told = _read_all(reader)
        killed = ended(child)
        self.log.append(f"{at or call or verbs}: {'killed' if killed else 'finished'}")
        for line in told.splitlines():
            self._hear(json.loads(line))
        return killed

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
            self._carried(),
            Pyramid.open(self.folder / "store", **self._given(now)) as store,
        ):
            yield store

    def _settle(self, store: Pyramid, verb: work.Verb) -> None:
        """Ask the store whether the verb that it was killed in is done."""
        if is_done(store, verb):
            self._done(verb, outcome(store, verb))


def _read_all(pipe: int) -> bytes:
    """What the child told until it ended; the test's own timeout bounds a child that hangs."""
    with os.fdopen(pipe, "rb") as told:
        return told.read()


# --- verbs --------------------------------------------------------------------------------


def why(verb: work.Verb) -> str:
    """What the ledger says of a spend."""
    return f"verb {verb.index}"


def is_done(store: Pyramid, verb: work.Verb) -> bool:
    """Whether a verb was carried out by a process that was killed before it could say so."""
    if verb.kind == "observe":
        return inspect.last_batch(store) >= verb.number
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
        batches = [batch for step in inspect.hot(store).steps for batch in step.batches]
        (receipt,) = (batch.receipt for batch in batches if batch.number == verb.number)
        return [receipt.accepted, receipt.refused, receipt.late]
    return _paid(store, verb) if verb.kind == "spend" else True


def _paid(store: Pyramid, verb: work.Verb) -> list[int]:
    return sorted(line.window for line in inspect.catalogue(store).lines() if line.why == why(verb))


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
        store.groups.withdraw(verb.name, why="asked for")
    elif verb.kind == "add":
        store.groups.add(work.GROUP.split(","))
    elif verb.kind == "reseed":
        store.admin.reseed(why=why(verb))
    elif verb.kind == "rebuild":
        for window in rebuildable(store)[-1:]:
            store.admin.rebuild(window, why=why(verb), share=REBUILD)
    else:
        windows = sorted(inspect.windows(store))
        if windows:
            store.ledger.spend("selection", SPEND, windows, verb.now, why(verb))
        return windows
    return True


def rebuildable(store: Pyramid) -> list[int]:
    """The sealed windows whose rows are all hot."""
    hot = Counter[int]()
    for batch in inspect.hot(store).stored(lambda _: True):
        for window, rows in batch.parts:
            hot[window] += rows
    found = [window for window in store.status().windows if window.state == "sealed"]
    return [window.number for window in found if hot[window.number] == window.rows]


# --- lives --------------------------------------------------------------------------------


@dataclass
class Aftermath:
    """What all the kills came to."""

    kills: list[str] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)

    def against(self, fact: str) -> list[str]:
        """What speaks against a fact."""
        assert fact in checks.FACTS
        return [told for of, told in self.problems if of == fact]


def places(seed: int) -> list[str]:
    """Where a store is killed in its life: at each point and before calls, in any order."""
    random = Random(seed)
    found = [f"{point}:{random.randint(1, MOST.get(point.partition('.')[0], 1))}"
             for point in KILLS]  # fmt: skip
    found += [str(random.randrange(1, 400)) for _ in range(CALLS)]
    twice = [" ".join(f"{point}:1" for point in random.choices(KILLS, k=2)) for _ in range(TWICE)]
    return random.sample(found + twice, len(found + twice))


def lived_through(folder: Path, seed: int, *, hurried: bool = False) -> Aftermath:
    """The life of one store, with all its kills; a look at it after each."""
    settings = work.BY_ROWS if seed % 5 == 4 else work.BY_TIME
    gc.collect()
    gc.freeze()  # or each child would copy what its collector looks at
    ordeal = Ordeal(folder / str(seed), seed, settings, hurried=hurried)
    ordeal.run(verbs=9)
    ordeal.check()
    for place in places(seed):
        for each in place.split():
            call = int(each) if each.isdecimal() else 0
            died = ordeal.run("" if call else each, call=call)
            assert died or not ordeal.sound or hurried, f"store {seed} never came to {each}"
        ordeal.check()
        if not ordeal.sound:
            break
    return Aftermath(places(seed), ordeal.problems)
