"""Windows of the past whose rows were counted elsewhere, such as by Spark.

A history may be too large to pass through the hot window. Its rows are then counted where they
are, exactly, window by window; what comes here are the exact counts of one window at a time,
as raw as its rows (P1) and in memory alone. They join that window's tables as they are born:

    charge ── draw the noise ── add the counts ── seal ── write ── commit

The charge is durable before the noise is drawn, and from then on no older copy of the store opens:
it could release the same rows again. No state between the noise and the sealed tables is ever on
a disk, so nothing can be subtracted from them; where this breaks off the window never was, and its
charge is wasted. One commit makes the window known: sealed, in the complete tables, and noted
under the key of the history, so that each is counted once.

Such a window is one of the past: over, within retention, and the only one of its slot. Its
rows were never hot, so nothing is read from it, it keeps nothing back for that, and it stands
below no node of a tree: its own tables have what a node would cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from pyramidion.config.durations import moment
from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.counts.arena import Arena
from pyramidion.counts.windows import Slots
from pyramidion.errors import PrivacyError, StateError
from pyramidion.privacy.table_noise import TableDesign
from pyramidion.rows.observations import Door
from pyramidion.storage.fault_points import reach
from pyramidion.storage.table_files import sealed_tables
from pyramidion.storage.table_sets import NewSet, window_id
from pyramidion.store.change import Also, Change, Edit, apply
from pyramidion.store.state import StoreState
from pyramidion.store.transitions import complete_file, summed

CHANGED = (
    "the store's tables changed while a history was counted elsewhere; count it again under the "
    "same key"
)


@dataclass(frozen=True)
class BulkWindow:
    """A window that was counted in bulk: its number, borders in microseconds, and rows."""

    window: int
    start: int
    stop: int
    rows: int


def refuse_uncountable(schema: Schema, settings: Settings) -> None:
    """Raise where rows that come in no order, and are nowhere hot, cannot be counted in bulk."""
    if schema.unit is not None:
        raise PrivacyError(
            f"the rows of each person in column {schema.unit!r} are limited by what is hot, and "
            f"rows counted in bulk never are; replay() the history instead"
        )
    if settings.window_rows is not None:
        raise StateError(
            "windows cut by rows have no place for rows that come in no order; make a store whose "
            "`count_window` is a time, or replay() the history"
        )


class Bulk:
    """Takes the exact counts of past windows into a store, each window once."""

    def __init__(
        self,
        store: StoreState,
        move: Callable[[Callable[[], None]], None],
        clock: Callable[[], int],
        key: str | None,
    ) -> None:
        refuse_uncountable(store.schema, store.settings)
        slots = Slots.of_windows(store.settings)
        if store.schema.time is None or slots is None:
            raise StateError(
                "rows without an event time belong to no window of the past; name the column of "
                "the time in the schema, or observe() them"
            )
        self.slots = slots
        self._store = store
        self._move = move
        self._clock = clock
        self._key = key
        self.door: Door = store.door
        """Judges the rows, and makes their keys."""
        self.latest = clock() + store.settings.max_skew_us
        """No row may be of a later time."""

    @property
    def birth(self) -> TableDesign:
        """What its windows are born with, for who lays out counts of theirs."""
        return self._birth(1)

    def _birth(self, number: int) -> TableDesign:
        store = self._store
        return store.births.of(
            number, store.schema, self.door.encoder, above=Fraction(0), hot=False
        )

    # --- which windows -----------------------------------------------------------------------

    def wanted(self, rows: Mapping[int, int]) -> list[int]:
        """The slots that are to be counted, oldest first, by how many rows each has.

        Raises before anything is charged where one of them cannot be; those that were counted
        under the same key are left out.
        """
        now, most = self._clock(), self._store.settings.max_rows_per_window
        done = {slot for slot, count in rows.items() if self._is_done(slot, count)}
        wanted = sorted(slot for slot, count in rows.items() if count and slot not in done)
        for slot in wanted:
            self._refuse_outside(slot, now)
            self._refuse_there(slot)
            if rows[slot] > most:
                raise StateError(
                    f"the window from {self._told(slot)} has {rows[slot]} rows and takes {most}; "
                    f"make a store with shorter windows or a larger `max_rows_per_window`"
                )
        return wanted

    def _refuse_outside(self, slot: int, now: int) -> None:
        slots, settings = self.slots, self._store.settings
        if slots.stop(slot) > now:
            raise StateError(
                f"the window from {self._told(slot)} is not over, so its rows are not history "
                f"yet; leave out rows from that time on, and observe() them"
            )
        oldest = now - settings.retention_us
        if slots.start(slot) <= oldest:
            raise StateError(
                f"the window from {self._told(slot)} is past its retention; leave out rows before "
                f"{moment(slots.start(slots.at(oldest) + 1))}"
            )

    def _refuse_there(self, slot: int) -> None:
        number = self._store.sets.in_slot(slot)
        if number is not None:
            raise StateError(
                f"the store has a window from {self._told(slot)} already, window {number}, and "
                f"rows in it may be counted twice; leave out rows of that window, or give the "
                f"`key` that it was counted under"
            )

    def _told(self, slot: int) -> str:
        return moment(self.slots.start(slot))

    def _name(self, slot: int) -> bytes:
        return self._store.names.of(f"bulk {slot} of {self._key}".encode())

    def _is_done(self, slot: int, rows: int) -> bool:
        """Whether a window was counted under this key; raises where it had other rows then."""
        if self._key is None:
            return False
        before = self._store.catalogue.imported(self._name(slot))
        if before is not None and before != rows:
            raise StateError(
                f"the window from {self._told(slot)} was counted under this key with {before} "
                f"rows, and has {rows} now; give the same rows, or another key for others"
            )
        return before is not None

    # --- one window --------------------------------------------------------------------------

    def take(self, slot: int, counts: Arena) -> BulkWindow:
        """Charge a window, draw its noise, add its counts, seal it: durable on return."""
        taken: list[BulkWindow] = []
        self._move(lambda: taken.append(self._taken(slot, counts)))
        return taken[0]

    def _taken(self, slot: int, counts: Arena) -> BulkWindow:
        store, now = self._store, self._clock()
        with store.moves:
            store.settle()
            if not self.wanted({slot: counts.rows}):
                raise StateError(f"the window from {self._told(slot)} was counted meanwhile")
            number = store.sets.next_window()
            birth = self._birth(number)
            if store.door is not self.door:  # other bins, or a group that came or went
                raise StateError(CHANGED)
            apply(store, self._plan_charge(number, slot, birth, now), now)
            reach("bulk.charged")
            arena = birth.arena()
            arena.join(counts)
            arena.seal()
            apply(store, self._plan_take(number, slot, arena, now), now)
        start, stop = self.slots.start(slot), self.slots.stop(slot)
        return BulkWindow(number, start, stop, arena.rows)

    def _plan_charge(self, number: int, slot: int, birth: TableDesign, now: int) -> Change:
        """Plan the charge; it ends all older copies of the store."""
        window = NewSet(
            window_id(number), slot, self.slots.start(slot), self.slots.stop(slot), (number,)
        )

        def charge() -> None:
            self._store.ledger.open(number, birth.shares, birth.reserves, now, {})

        return Change("charge", begin=[window], edits=[Also(charge)], renew=True)

    def _plan_take(self, number: int, slot: int, arena: Arena, now: int) -> Change:
        """Plan to make a window known that is sealed at birth."""
        store, owner = self._store, window_id(number)
        served = summed(store, {owner: arena})
        edits: list[Edit] = [Also(lambda: store.sets.add_rows(number, arena.rows, now))]
        if self._key is not None:
            edits.append(Also(lambda: store.catalogue.note_import(self._name(slot), arena.rows)))
        return Change(
            "bulk",
            write={sealed_tables(owner): arena, **complete_file(served)},
            states={owner: "sealed"},
            edits=edits,
            served=served,
        )
