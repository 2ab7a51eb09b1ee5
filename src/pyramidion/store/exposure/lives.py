"""The lives of hot steps and windows, as the catalogue remembers them.

All times are the clock's, when an intruder can have been there. Rows of an imported history
*arrive* at the times that they say themselves, and *come* when they are imported.

When a step's rows came is in ``batches`` while they are hot, and in ``past_steps`` afterwards.
When a window was opened, its first line in the ledger says; when it was sealed or erased, and
when a step left, the deletion records. What was erased could be read until the erasure was
*complete*, not just begun: one that was broken off is complete when a later one is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

from pyramidion.storage.batches import Batches
from pyramidion.storage.deletions import Deleted, Kind
from pyramidion.storage.spells import Spell, spells
from pyramidion.storage.table_sets import TableSets
from pyramidion.store.state import StoreState

LEFT: tuple[Kind, ...] = ("expired",)
SEALED: tuple[Kind, ...] = ("sealed", "ended")
"""Kinds of records of what left, and of what was sealed."""
Noun = Literal["steps", "windows", "nodes"]


class Came(NamedTuple):
    """Rows that came from one moment to another, both included."""

    first: int
    last: int
    rows: int
    arrived: tuple[int, int]
    """Their first and last arrival, by which the vault knows them."""

    def arrived_by(self, stop: int) -> int:
        """The last arrival of those that came by a moment, at most."""
        live = self.arrived == (self.first, self.last)
        return min(self.last, stop) if live else self.arrived[1]


@dataclass(frozen=True)
class StepLife:
    """A hot step: its rows, and when nothing could read them any more (None: they are hot)."""

    number: int
    came: tuple[Came, ...]
    """Batch by batch while hot, in the order they came; of one that left, all in one."""
    gone: int | None

    def rows(self, start: int | None, stop: int) -> tuple[int, bool]:
        """How many rows came from start to stop at most, and whether that is exact.

        >>> step = StepLife(1, (Came(0, 9, 100, (0, 9)),), None)
        >>> step.rows(None, 9), step.rows(0, 20), step.rows(3, 20), step.rows(10, 20)
        ((100, True), (100, True), (100, False), (0, True))
        """
        met = [
            part
            for part in self.came
            if part.first <= stop and (start is None or part.last >= start)
        ]
        inside = all(part.last <= stop and (start is None or part.first >= start) for part in met)
        return sum(part.rows for part in met), inside

    def readable(self, start: int, stop: int) -> bool:
        """Whether rows of it could be read at some moment from start to stop.

        >>> step = StepLife(1, (Came(3, 5, 100, (3, 5)),), 7)
        >>> [step.readable(*each) for each in ((0, 2), (0, 3), (7, 9), (8, 9))]
        [False, True, True, False]
        """
        return self.came[0].first <= stop and (self.gone is None or self.gone >= start)


@dataclass(frozen=True)
class WindowLife:
    """A window that took rows. Times are None where that has not happened, or is not known."""

    number: int
    state: str
    start: int | None
    stop: int | None
    rows: int
    born: int
    sealed: int | None
    frozen: int | None
    """When no state before the sealed one could be read any more."""
    erased: int | None


@dataclass(frozen=True)
class NodeLife:
    """A node of a tree: its windows, and until when a populating state of it could be read."""

    number: int
    windows: frozenset[int]
    born: int
    frozen: int | None
    """None: it can, or it is not known."""


class Erasure(NamedTuple):
    """A deletion record, and when it was complete; None: it is not."""

    gone: Deleted
    at: int
    complete: int | None


class Lives:
    """All that is remembered of one store at one moment, in one reading."""

    def __init__(self, store: StoreState, now: int) -> None:
        self._catalogue = store.catalogue
        self.at = now
        self._horizon = now - store.settings.retention_us
        with self._catalogue.lock:  # nothing is committed meanwhile
            self.erasures = list(_erasures(self._catalogue.deletions()))
            self._left = _by_number(self.erasures, LEFT, "steps")
            self.spells = spells(self._catalogue)
            self.steps = [*self._past_steps(), *self._hot_steps()]
            self.windows = list(self._windows())
            self.nodes = list(self._nodes())
            self._next_step = int(self._catalogue.about("next_step", "1"))
            self.begun: int | None = min(self._catalogue.births().values(), default=None)
            """When the first window was opened: nothing was there before."""

    # --- hot steps -----------------------------------------------------------------------

    def _past_steps(self) -> Iterator[StepLife]:
        for row in Batches(self._catalogue).past_steps(self._horizon):
            came = row["came_first"], row["came_last"]
            part = Came(*came, row["rows"], (row["start"], row["stop"]))
            gone = self._gone(row["number"], row["left"])
            yield self._replayed(StepLife(row["number"], (part,), gone))

    def _gone(self, number: int, left: int) -> int | None:
        records = [each for each in self.erasures if each.at == left]
        found = self._left.get(number)
        return _complete([found] if found in records else records, left)

    def _hot_steps(self) -> Iterator[StepLife]:
        batches: dict[int, list[Came]] = {}
        for row in Batches(self._catalogue).all():
            part = Came(row["came"], row["came"], row["rows"], (row["since"], row["arrived"]))
            batches.setdefault(row["step"], []).append(part)
        for number in sorted(batches):
            yield self._replayed(StepLife(number, tuple(batches[number]), None))

    def _replayed(self, step: StepLife) -> StepLife:
        """A step that an earlier version filled in a replay: its rows came at any time of that."""
        replay = self._replay_of("steps", step.number)
        if replay is None:
            return step
        end = _end(replay, self.at)
        whole = Came(
            min(replay.since, *(part.first for part in step.came)),
            max(end, *(part.last for part in step.came)),
            sum(part.rows for part in step.came),
            (
                min(part.arrived[0] for part in step.came),
                max(part.arrived[1] for part in step.came),
            ),
        )
        return StepLife(step.number, (whole,), _latest(step.gone, replay, self.at))

    def _replay_of(self, what: Literal["steps", "windows"], number: int) -> Spell | None:
        """The last replay that filled a step or a window, if an earlier version noted one."""
        replays = [each for each in self.spells if each.kind == "replay"]
        return next((s for s in replays[::-1] if _within(number, getattr(s, what))), None)

    def unrecorded(self) -> list[int | None]:
        """When each hot step left of which no more than that is known; None: nor when."""
        known = {step.number for step in self.steps}
        return [
            self._left_at(number) for number in range(1, self._next_step) if number not in known
        ]

    def _left_at(self, number: int) -> int | None:
        found, replay = self._left.get(number), self._replay_of("steps", number)
        if found is None:
            return None
        return _latest(found.complete, replay, self.at)

    # --- windows -------------------------------------------------------------------------

    def _windows(self) -> Iterator[WindowLife]:
        born = self._catalogue.births()
        sealed = _by_number(self.erasures, SEALED, "windows")
        erased = _by_number(self.erasures, LEFT, "windows")
        for row in TableSets(self._catalogue).windows():
            number = row["number"]
            if not row["rows"]:
                continue
            seal, end = sealed.get(number), erased.get(number)
            replay = self._replay_of("windows", number)
            frozen, gone = (None if each is None else each.complete for each in (seal, end))
            yield WindowLife(
                number=number,
                state=row["state"],
                start=row["start"],
                stop=row["stop"],
                rows=row["rows"],
                born=born.get(number, 0),
                sealed=None if seal is None else seal.at,
                frozen=_latest(frozen, replay, self.at),
                erased=_latest(gone, replay, self.at),
            )

    def _nodes(self) -> Iterator[NodeLife]:
        ended = [_by_number(self.erasures, kinds, "nodes") for kinds in (SEALED, LEFT)]
        born = self._catalogue.births()
        for (_, number), windows in TableSets(self._catalogue).members().items():
            end = next((found[number] for found in ended if number in found), None)
            yield NodeLife(
                number=number,
                windows=frozenset(windows),
                born=min((born[window] for window in windows if window in born), default=0),
                frozen=None if end is None else end.complete,
            )

    # --- what is not known ---------------------------------------------------------------

    def restored(self) -> list[tuple[int | None, int]]:
        """From when to when another copy was the store, of which this one knows nothing.

        It begins after the last row that this copy has; None: not even that is known.
        """
        ends = [each.at for each in self.erasures if each.gone.kind == "restored"]
        moments = [part.last for step in self.steps for part in step.came]
        # Rows that came at that very moment may be the first ones of this copy.
        return [(max((a for a in moments if a < end), default=None), end) for end in ends]

    def models(self, start: int, stop: int) -> list[Spell]:
        """The models that were registered meanwhile."""
        return [each for each in self.spells if each.kind == "model" and each.meets(start, stop)]


def _within(number: int, span: tuple[int, int | None]) -> bool:
    """Whether a number is one from the first of two on, up to and without the second."""
    return span[0] <= number and (span[1] is None or number < span[1])


def _end(replay: Spell, now: int) -> int:
    return now if replay.until is None else replay.until


def _latest(moment: int | None, replay: Spell | None, now: int) -> int | None:
    """A moment by the clock that an earlier version noted by the rows of a replay, at most."""
    return moment if moment is None or replay is None else max(moment, _end(replay, now))


def _erasures(rows: Sequence[sqlite3.Row]) -> Iterator[Erasure]:
    """Each record, complete when it was, or a later one that destroyed the same keys."""
    dones = [row["done"] for row in rows]
    for place, row in enumerate(rows):
        ends = (done for done in islice(dones, place, None) if done and done >= row["at"])
        gone = Deleted.read(row["kind"], row["what"], row["ids"])
        yield Erasure(gone, row["at"], next(ends, None))


def _by_number(
    erasures: Sequence[Erasure], kinds: Sequence[Kind], noun: Noun
) -> dict[int, Erasure]:
    """The records of a hot step, a window or a node, by its number; the last one counts."""
    return {
        number: each
        for each in erasures
        if each.gone.kind in kinds
        for number in getattr(each.gone, noun)
    }


def _complete(records: Sequence[Erasure], left: int) -> int | None:
    ends = [each.complete for each in records]
    if None in ends:
        return None
    return max((end for end in ends if end is not None), default=left)
