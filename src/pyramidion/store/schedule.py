"""What is due, and in which order: windows seal, hot rows and old windows are forgotten.

The moves themselves are the lifecycle's; here is when. Hot rows whose time is over and
windows past their retention go in one erasure, whatever fails on the way.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field

from pyramidion.errors import FormatError, PyramidionError, StorageError
from pyramidion.storage.data_keys import PAST
from pyramidion.storage.deletions import expired
from pyramidion.storage.fault_points import reach
from pyramidion.storage.hot import Step
from pyramidion.store.group_trials import drop_failed, drop_orphans
from pyramidion.store.lifecycle import Leaving, Lifecycle
from pyramidion.store.node_ends import close_nodes, over
from pyramidion.store.nodes import Node
from pyramidion.store.superseding import drop_bins, superseded
from pyramidion.store.windows import Window


@dataclass
class Advance:
    """What `advance` did."""

    sealed: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    steps: int = 0
    rows_erased: int = 0
    retired: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    checkpoints: list[int] = field(default_factory=list)
    opened: list[int] = field(default_factory=list)
    trained: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(vars(self).values())


@dataclass(frozen=True)
class Due:
    """What `advance` would do at a moment, in public numbers."""

    at: int
    """The moment, in microseconds since 1970."""
    sealed: tuple[int, ...]
    """Windows that are over."""
    retired: tuple[int, ...]
    """Windows past their retention: their tables would be erased."""
    steps: int
    """Hot steps past their time: their rows would be erased."""
    rows: int

    @property
    def erases(self) -> bool:
        """Whether windows or hot rows would be erased."""
        return bool(self.retired or self.steps)


class Schedule:
    """Moves what is due in one store."""

    def __init__(self, store: Lifecycle) -> None:
        self._store = store

    def is_due(self, now: int, *, held: bool = False) -> bool:
        """Whether `advance` would do something. Takes no lock, so nobody waits for the answer."""
        store = self._store
        rolls = not held and (
            store.windows.over(now) or store.hot.leaving(now) or store.past(now) or over(store, now)
        )
        return bool(
            rolls
            or store.windows.full()
            or store.nodes.full()
            or store.windows.next(now) is not None
            or store.keys.unfinished
        )

    def due(self, now: int, own: int | None = None) -> Due:
        """What `advance` would seal and erase.

        What came while clocks disagree would be dated anew: it is as old as by the store's
        ``own`` time.
        """
        store = self._store
        own = now if own is None else own
        with store.moves, store.arrivals:
            over = [window for window in store.windows.over(now) if window.arena.rows]
            past = set(self._past(now))
            if store.windows.first:
                recent = {number for number in self._past(own) if number >= store.windows.first}
                past = {number for number in past if number < store.windows.first} | recent
            first = store.hot.first
            steps = [step for step in store.hot.leaving(now) if not first or step.number < first]
            steps += [step for step in store.hot.leaving(own) if first and step.number >= first]
            return Due(
                now,
                tuple(window.number for window in over),
                tuple(sorted(past)),
                len(steps),
                sum(step.rows for step in steps),
            )

    def _past(self, now: int) -> list[int]:
        """Windows past their retention, also those that would be sealed first."""
        store, oldest = self._store, now - self._store.settings.retention_us
        over = [window for window in store.windows.over(now) if window.arena.rows]
        return store.past(now) + [w.number for w in over if (w.start or now) <= oldest]

    def advance(self, now: int, *, held: bool = False) -> Advance:
        """Do all that is due; while ``held`` nothing is sealed, and nothing leaves."""
        store = self._store
        done = Advance()
        with store.moves:
            store.settle()
            if not held:
                self._roll(now, done)
            for window in store.windows.full():
                store.checkpoint(window)
                done.checkpoints.append(window.number)
            for node in store.nodes.full():
                store.checkpoint(node)
            slot = store.windows.next(now)
            if slot is not None:
                done.opened.append(store.open(slot, now))
            if not held:
                with suppress(FormatError, StorageError):  # a damaged window can be mended; later
                    drop_bins(store, superseded(store), "tables in newer bins have filled", now)
            if done.sealed:
                drop_failed(store, now)
        return done

    def _roll(self, now: int, done: Advance) -> None:
        """Seal what is over, and forget what is past its time."""
        store = self._store
        for window in store.windows.over(now):
            with store.arrivals:
                store.passed(window, now)
                window.closed = True  # or rows could come while an empty one is dropped
            (done.sealed if window.arena.rows else done.dropped).append(window.number)
            store.close_window(window, now)
        done.nodes += close_nodes(store, now)
        self._forget(now, done)
        store.forget_past()

    # --- forgetting ----------------------------------------------------------------------------

    def _forget(self, now: int, done: Advance) -> None:
        """Hot rows whose time is over and windows past retention: one erasure for all."""
        store = self._store
        past = store.past(now, remember=True)
        problem: Exception | None = self._retired(past, now)
        if problem is not None:
            past = []
        with store.arrivals:
            steps = store.hot.leaving(now)
            for step in steps:
                step.closed = True
        if not steps and not past:
            if problem is not None:
                raise problem
            return
        problem = self._last_call(Leaving(steps, past, now)) or problem
        done.checkpoints += self._checkpoint_before(steps)
        done.steps, done.rows_erased = len(steps), sum(step.rows for step in steps)
        done.retired = past
        nodes = store.nodes_over(past, "retired")
        gone = expired([step.number for step in steps], past, nodes)
        store.erase(gone, PAST, now, steps=steps, windows=past)
        later = self._left()
        problem = problem or later
        if problem is not None:
            raise problem

    def _last_call(self, leaving: Leaving) -> Exception | None:
        """Tell everybody that rows leave; one that fails keeps neither them nor the others."""
        store = self._store
        problems = []
        for call in store.leaving:
            try:
                call(leaving)
            except Exception as problem:  # whatever it is: rows leave when their time is over
                problems.append(problem)
        return problems[0] if problems else None

    def _left(self) -> Exception | None:
        """Tell everybody that rows have left, also where one fails."""
        problems = []
        for call in self._store.left:
            try:
                call()
            except Exception as problem:  # the others are told all the same
                problems.append(problem)
        return problems[0] if problems else None

    def _retired(self, numbers: list[int], now: int) -> PyramidionError | None:
        """Retire windows; a damaged table file does not keep hot rows from being erased."""
        why = "the window they were read from is past its time"
        try:
            if numbers:
                self._store.retire(numbers)
                drop_bins(self._store, numbers, why, now, damaged=True)
                drop_orphans(self._store, numbers, now)
        except (FormatError, StorageError) as problem:
            return problem
        return None

    def _checkpoint_before(self, steps: Collection[Step]) -> list[int]:
        """Rows may only leave when a checkpoint has them."""
        store = self._store
        reach("step.before")
        made = []
        for window in store.windows.taking():
            if any(self._has_after(step, window) for step in steps):
                store.checkpoint(window)
                made.append(window.number)
        for node in store.nodes.all():
            if any(self._has_after(step, node) for step in steps):
                store.checkpoint(node)
        reach("step.checkpointed")
        return made

    def _has_after(self, step: Step, held: Window | Node) -> bool:
        windows = held.members if isinstance(held, Node) else {held.number}
        return any(
            not windows.isdisjoint(dict(batch.parts))
            for batch in step.batches
            if batch.number > held.after
        )
