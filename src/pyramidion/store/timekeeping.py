"""When clocks disagree: the alarm is noted, and a person's answer sets the store's time.

While there is an alarm rows go on arriving, at the store's own time. They go to hot steps and
windows that took none before: whichever clock turns out to be right, these can be dated by it, and
rows that came before the alarm keep their dates. There are two answers:

- *correct*: the system's clock was wrong and has been set right. The store's own time was right all
  along, and goes on.
- *confirm*: the system's clock is right. The store's time becomes what it shows, later or earlier:

      later    what came during the alarm is dated as much later: none of it leaves too early
      earlier  what is dated in the future is dated now: it leaves late, and never later than what
               comes now

  Where that passes the border of a window, all populating windows are sealed first, so that none
  takes rows during more blocks of time than its noise reckons with.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import NamedTuple

from pyramidion.counts.windows import Slots
from pyramidion.errors import StateError, StorageError
from pyramidion.storage.batches import Batches
from pyramidion.storage.hot import Step
from pyramidion.storage.outbox import AuditOutbox
from pyramidion.storage.spells import doubted
from pyramidion.store.change import Also
from pyramidion.store.clocks import ALARM, FOLLOWS, LIMIT, SECOND, Alarm, StoreClock
from pyramidion.store.contributions import People
from pyramidion.store.recovery import recall
from pyramidion.store.reseed import end_windows
from pyramidion.store.state import StoreState, call_all, raise_first
from pyramidion.store.windows import NEVER

FAR = 1 << 62


class Move(NamedTuple):
    """The store's time is set from one to another; what came from these numbers on goes along."""

    was: int
    now: int
    step: int = FAR
    window: int = FAR

    @property
    def later(self) -> int:
        """By how much the time is later."""
        return max(0, self.now - self.was)


class Timekeeping:
    """Keeps what one store knows of its clocks."""

    def __init__(self, store: StoreState, clock: StoreClock, log: AuditOutbox) -> None:
        self._store, self._clock, self._log = store, clock, log
        self._noted = False
        if clock.alarm is not None:
            self._hold(clock.alarm)

    def _hold(self, alarm: Alarm) -> None:
        """Have rows go to steps and windows that took none before."""
        self._store.hot.first, self._store.open_sets.first = alarm.step, alarm.window

    def note(self, *, again: bool = False) -> None:
        """Note an alarm, once or ``again``: in the catalogue, and for the audit log.

        A disk that takes nothing does not keep the alarm from holding what is due.
        """
        alarm, store = self._clock.alarm, self._store
        if alarm is None or (self._noted and not again):
            return
        if not alarm.step:
            step, window = int(store.catalogue.about("next_step", "1")), store.sets.next_window()
            self._clock.alarm = alarm = replace(alarm, step=step, window=window)
            self._hold(alarm)
        with suppress(StorageError), store.catalogue.transaction():
            if not store.catalogue.about(ALARM, ""):
                store.catalogue.note(**{ALARM: alarm.to_json()})
                ahead = (alarm.shown - alarm.at) // SECOND
                self._log.note("clock.alarm", alarm.at, system=alarm.shown, ahead=ahead)
            self._noted = True

    # --- answers ------------------------------------------------------------------------------

    def correct(self, why: str) -> None:
        """The system's clock was wrong and is right again: go on by the store's own time."""
        self._refuse_agreeing()
        self._clock.refuse_apart()
        own = self._clock.present()
        with self._store.moves, self._store.arrivals:
            with self._store.catalogue.transaction():
                self._store.catalogue.forget(ALARM)
                self._log.note("clock.corrected", own, why=why)
            self._clock.correct()
            self._release()

    def confirm(self, why: str) -> None:
        """The clock is right: the store's time is what it shows, later or earlier."""
        clock = self._clock
        if clock.follows != "rows" and clock.shown() >= clock.present():
            self._refuse_agreeing()
        with self._store.moves, self._store.arrivals:  # no row comes between the two times
            alarm = clock.alarm or Alarm(0, 0, step=FAR, window=FAR)
            was, now = clock.now(), clock.shown()
            now = was if was - LIMIT <= now < was else now  # it waits for a clock that is behind
            move = Move(was, now, alarm.step, alarm.window)
            with self._at(move):
                self._change(move, why)
                self._settle(move)
            raise_first(call_all([each.tables_published for each in self._store.observers]))

    def _change(self, move: Move, why: str) -> None:
        """Set the time in the catalogue, in one transaction."""
        dead = list[int]()  # filled by the edit itself, within the transaction
        confirmed = Also(lambda: self._confirmed(move, why, dead), keys=dead)
        if self._passes_border(move):
            end_windows(self._store, why, move.now, [confirmed])
        else:
            with self._store.catalogue.transaction():
                self._store.pins.check()
                confirmed.run()
                self._store.pins.seal()

    @contextmanager
    def _at(self, move: Move) -> Iterator[None]:
        """Date records by the new time; where time goes back begin another count of people.

        If it fails, the count from before goes on.
        """
        store, people, present = self._store, self._store.people, self._store.present
        store.present = lambda: move.now
        if move.now < move.was:
            store.people = People(store.schema, store.settings, move.now)
        try:
            yield
        except BaseException:
            store.people = people
            raise
        finally:
            store.present = present

    def _refuse_agreeing(self) -> None:
        if self._clock.alarm is None:
            raise StateError("the clocks agree, so there is nothing to settle; advance the store")

    def _release(self) -> None:
        self._store.hot.first = self._store.open_sets.first = 0
        self._noted = False

    # --- dates --------------------------------------------------------------------------------

    def _passes_border(self, move: Move) -> bool:
        """Whether windows would take rows of a time that is not theirs."""
        slots = self._store.open_sets.slots
        if move.now < move.was:
            return True
        return slots is not None and slots.at(move.was) != slots.at(move.now)

    def _confirmed(self, move: Move, why: str, dead: list[int]) -> None:
        """Set the time, and date what goes along; within a transaction."""
        store, batches = self._store, Batches(self._store.catalogue)
        for step in self._steps(move):
            batches.set_step_start(step.number, self._start_of(step, move))
        batches.move_later(move.step, move.later)
        self._date_windows(move)
        store.catalogue.limit_dates(move.now)
        self._doubt(move)
        if move.now < move.was:
            dead += store.uncounted.move(store.people.block_at(move.now))
        store.catalogue.forget(ALARM)
        store.catalogue.note(**{"clock": move.now, FOLLOWS: "system"})
        ahead = (move.now - move.was) // SECOND
        self._log.note("clock.confirmed", move.now, why=why, former=move.was, ahead=ahead)

    def _doubt(self, move: Move) -> None:
        """Note from when to when records may be dated wrongly, for exposure reports."""
        alarm, back = self._clock.alarm, move.now < self._clock.present()
        if back or alarm is not None:
            since = 0 if back or alarm is None else alarm.at
            doubted(self._store.catalogue, since, move.now)

    def _date_windows(self, move: Move) -> None:
        sets, slots = self._store.sets, self._store.open_sets.slots
        for row in sets.windows("opening", "populating", "sealed", "retired"):
            if row["number"] < move.window and (row["start"] or 0) <= move.now:
                continue
            if slots is None:
                start = min((row["start"] or move.now) + move.later, move.now)
                slot, stop = row["slot"], row["stop"]
            else:
                later = max(0, slots.at(move.now) - slots.at(move.was))
                slot = min(row["slot"] + later, slots.at(move.now))
                start, stop = slots.start(slot), slots.stop(slot)
            sets.set_dates(row["number"], slot, start, stop)

    def _steps(self, move: Move) -> list[Step]:
        return [
            step
            for step in self._store.hot.steps
            if step.number >= move.step or step.start > move.now
        ]

    def _start_of(self, step: Step, move: Move) -> int:
        slots = Slots.of_steps(self._store.settings)
        return min(step.start + move.later, slots.start(slots.at(move.now)))

    def _settle(self, move: Move) -> None:
        """The same in memory, when it is durable."""
        store = self._store
        for step in self._steps(move):
            step.start = self._start_of(step, move)
        for window in store.open_sets.windows():
            row = store.sets.row(window.id)
            if row is not None:
                window.slot, window.start, window.stop = row["slot"], row["start"], row["stop"]
        self._clock.confirm(move.now)
        self._release()
        store.forget_dates()
        if move.now < move.was:
            store.open_sets.passed = NEVER
            recall(store)
