"""What is due, and in which order: windows are sealed, hot rows and old windows are erased.

The steps themselves are in `pyramidion.store.transitions`. Hot rows whose time is over and windows
past their retention go in one erasure, whatever fails on the way.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from pyramidion.errors import FormatError, PyramidionError, StorageError
from pyramidion.storage.fault_points import reach
from pyramidion.storage.hot import Step
from pyramidion.store.change import apply
from pyramidion.store.group_trials import drop_failed, drop_orphans
from pyramidion.store.state import Leaving, StoreState, call_all
from pyramidion.store.superseded_bins import drop_bins, superseded
from pyramidion.store.transitions import checkpoint_tables, nodes_over, plan_expire, retire, seal
from pyramidion.store.window_opener import WindowOpener
from pyramidion.store.windows import TableSet


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
    """Does what is due in one store."""

    def __init__(self, store: StoreState, opener: WindowOpener) -> None:
        self._store, self._opener = store, opener

    def is_due(self, now: int, *, held: bool = False) -> bool:
        """Whether `advance` would do something. Takes no lock, so nobody waits for the answer."""
        store = self._store
        rolls = not held and (
            store.open_sets.over(now)
            or store.hot.leaving(now)
            or store.past(now)
            or nodes_over(store, now)
        )
        return bool(
            rolls
            or store.open_sets.full()
            or store.open_sets.next(now) is not None
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
            over = [window for window in store.open_sets.over(now) if window.arena.rows]
            past, since = set(self._past(now)), store.open_sets.first
            if since:
                recent = {number for number in self._past(own) if number >= since}
                past = {number for number in past if number < since} | recent
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
        over = [window for window in store.open_sets.over(now) if window.arena.rows]
        return store.past(now) + [w.number for w in over if (w.start or now) <= oldest]

    def advance(self, now: int, *, held: bool = False) -> Advance:
        """Do all that is due; while ``held`` nothing is sealed, and nothing leaves."""
        store = self._store
        done = Advance()
        with store.moves:
            store.settle()
            if not held:
                self._roll(now, done)
            for tables in store.open_sets.full():
                checkpoint_tables(store, tables, now)
                done.checkpoints += [] if tables.level else [tables.number]
            slot = store.open_sets.next(now)
            if slot is not None:
                done.opened.append(self._opener.open(slot, now))
            if not held:
                with suppress(FormatError, StorageError):  # a damaged window can be mended; later
                    drop_bins(store, superseded(store), "tables in newer bins have filled", now)
            if done.sealed:
                drop_failed(store, now)
        return done

    def _roll(self, now: int, done: Advance) -> None:
        """Seal what is over, and forget what is past its time."""
        store = self._store
        for window in store.open_sets.over(now):
            with store.arrivals:
                store.passed(window, now)
                window.closed = True  # or rows could come while an empty one is dropped
            (done.sealed if window.arena.rows else done.dropped).append(window.number)
            seal(store, window, now)
        for node in nodes_over(store, now):
            done.nodes.append(node.number)
            seal(store, node, now)
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
        leaving = Leaving(steps, past, now)
        told = [partial(each.rows_leaving, leaving) for each in store.observers]
        problem = call_all(told) or problem  # whatever it is: rows leave when their time is over
        done.checkpoints += self._checkpoint_before(steps, now)
        done.steps, done.rows_erased = len(steps), sum(step.rows for step in steps)
        done.retired = past
        apply(store, plan_expire(store, steps, past), now)
        later = call_all([each.rows_left for each in store.observers])
        problem = problem or later
        if problem is not None:
            raise problem

    def _retired(self, numbers: list[int], now: int) -> PyramidionError | None:
        """Retire windows; a damaged table file does not keep hot rows from being erased."""
        why = "the window they were read from is past its time"
        try:
            if numbers:
                retire(self._store, numbers, now)
                drop_bins(self._store, numbers, why, now, damaged=True)
                drop_orphans(self._store, numbers, now)
        except (FormatError, StorageError) as problem:
            return problem
        return None

    def _checkpoint_before(self, steps: Collection[Step], now: int) -> list[int]:
        """Rows may only leave when a checkpoint has them; the windows that got one."""
        store = self._store
        reach("step.before")
        made = []
        for tables in [*store.open_sets.taking(), *store.open_sets.nodes()]:
            if any(self._has_after(step, tables) for step in steps):
                checkpoint_tables(store, tables, now)
                made += [] if tables.level else [tables.number]
        reach("step.checkpointed")
        return made

    def _has_after(self, step: Step, tables: TableSet) -> bool:
        """Whether a step has rows that the checkpoint of a table set has not."""
        return any(
            not tables.windows.isdisjoint(dict(batch.parts))
            for batch in step.batches
            if batch.number > tables.after
        )
