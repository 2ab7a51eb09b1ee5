"""Counting a DataFrame of any size: into windows in memory, or into those of a store.

    rows ── judge, count exactly by window ── shuffle by table ── add up ── noise first, then these

One pass over the DataFrame counts all windows. The driver then takes one window after the
other, so it holds the tables of one, and the sum. What a window counts is a function of the
DataFrame alone: whichever tasks failed, were retried or ran twice.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from pyramidion.config.schema import Schema
from pyramidion.config.settings import Settings
from pyramidion.counts.arena import Arena
from pyramidion.counts.guarantee import Guarantee
from pyramidion.counts.layout import Layout
from pyramidion.counts.partials import Partial
from pyramidion.counts.snapshot import Snapshot
from pyramidion.counts.windows import Slots
from pyramidion.errors import ObservationError, PrivacyError, StateError
from pyramidion.privacy.table_noise import TableDesign, sizes_of
from pyramidion.privacy.weights import weights_of
from pyramidion.rows.observations import Door, Errors, checked_errors
from pyramidion.spark import partials
from pyramidion.spark.partials import Counts, Facts, Recipe
from pyramidion.spark.scan import quickest
from pyramidion.spark.session import Source, chosen, context_of, empty, refuse_unsafe
from pyramidion.spark.shuffle import Shuffle
from pyramidion.store.bulk import BulkWindow, refuse_uncountable
from pyramidion.store.pyramid import Pyramid

SHOWN = 5  # reasons, in one message
SPREAD = 4  # tasks for each core add up a window: each holds the fewer tables at once


@dataclass(frozen=True)
class Counted:
    """What was counted into a store: its windows, and how many rows were refused, and why.

    ``before`` are rows of windows that were counted under the same key already.
    """

    windows: tuple[BulkWindow, ...]
    before: int
    refused: int
    problems: dict[str, int]

    @property
    def rows(self) -> int:
        """How many rows were counted now."""
        return sum(window.rows for window in self.windows)


@dataclass(frozen=True)
class Tables:
    """The sealed tables of one window in memory; borders in microseconds, None without a time."""

    start: int | None
    stop: int | None
    arena: Arena = field(repr=False)

    @property
    def rows(self) -> int:
        """How many rows it counts."""
        return self.arena.rows


@dataclass(frozen=True)
class Windows:
    """Windows that were counted without a store: sealed, in order, in the driver's memory."""

    windows: tuple[Tables, ...]
    refused: int
    problems: dict[str, int]
    guarantee: Guarantee
    _door: Door = field(repr=False)

    def snapshot(self) -> Snapshot:
        """The complete tables: the sum of all windows."""
        arena = Arena.total([window.arena for window in self.windows])
        return Snapshot(self._door, arena, self.guarantee)


def count(df: Source, schema: Schema, settings: Settings, *, errors: Errors = "refuse") -> Windows:
    """Count a DataFrame into windows by event time, each sealed with noise of its own.

    They are in memory, under a fresh secret; no ledger knows of them, so the promise is that of
    one release. For a history that a store is to keep, see `count_into`.
    """
    refuse_uncountable(schema, settings)
    checked_errors(errors)
    secret = secrets.token_bytes(32)
    door = Door(schema, settings, secret)
    birth = _birth(door, secret)
    slots = None if schema.time is None else Slots.of_windows(settings)
    df = quickest(chosen(df, schema.columns), schema.time)
    recipe = _recipe(df, door, birth.layout, slots, None)
    windows = []
    with Shuffle(df, recipe) as shuffle:
        facts = shuffle.facts()
        _refuse_bad(facts, errors)
        _refuse_overfull(facts.rows, settings)
        for slot in sorted(facts.rows):
            arena = birth.arena()
            arena.join(_whole(recipe, shuffle.of(slot), facts.rows[slot]))
            arena.seal()
            start, stop = (None, None) if slots is None else (slots.start(slot), slots.stop(slot))
            windows.append(Tables(start, stop, arena))
    promise = birth.guarantee(len(windows))
    return Windows(tuple(windows), facts.refused, facts.problems, promise, door)


def count_into(
    df: Source, store: Pyramid, *, key: str | None = None, errors: Errors = "refuse"
) -> Counted:
    """Count a history into a store: each window of it is charged, noised and sealed, once.

    Every row must be of a window that is over, within retention, and not in the store yet. Bad
    rows refuse all of it before anything is charged, or are left out with ``errors="skip"``.
    Called again with the same ``key``, it goes on with the windows that are not there yet.
    """
    checked_errors(errors)
    bulk = store.bulk(key)
    schema = bulk.door.schema
    df = quickest(chosen(df, schema.columns), schema.time)
    recipe = _recipe(df, bulk.door, bulk.birth.layout, bulk.slots, bulk.latest)
    windows = []
    with Shuffle(df, recipe) as shuffle:
        facts = shuffle.facts()
        _refuse_bad(facts, errors)
        wanted = bulk.wanted(facts.rows)
        for slot in wanted:
            windows.append(bulk.take(slot, _whole(recipe, shuffle.of(slot), facts.rows[slot])))
    before = sum(facts.rows.values()) - sum(window.rows for window in windows)
    return Counted(tuple(windows), before, facts.refused, facts.problems)


def _birth(door: Door, secret: bytes) -> TableDesign:
    settings, shapes = door.settings, door.encoder.shapes
    weights = weights_of(settings, sizes_of(settings, shapes), {})
    labels = door.schema.cardinality
    return TableDesign(settings, shapes, labels, secret, weights=weights, prior=door.encoder.prior)


def _recipe(
    df: Source, door: Door, layout: Layout, slots: Slots | None, latest: int | None
) -> Recipe:
    """What executors are told, once all that can be refused beforehand was."""
    context = context_of(df)
    refuse_unsafe(context)
    door.refuse_types(empty(df))
    parts = 1 + int(str(df.sparkSession.conf.get("spark.sql.shuffle.partitions")))
    spread = max(1, min(SPREAD * context.defaultParallelism, len(layout.tables), parts - 1))
    secret = layout.secret
    keyed_by = door.encoder.hasher.keyed_by
    about = door.schema, door.settings, secret, layout, slots, latest, keyed_by
    return Recipe(*about, parts, spread, partials.HELD)


def _whole(recipe: Recipe, counts: Counts, rows: int) -> Partial:
    """The counts of a window as tables: exact, in memory alone (P1)."""
    made = Partial(recipe.layout, max(rows, 1))
    if set(counts) != set(range(len(recipe.layout.tables))):
        raise StateError("Spark gave back other tables than were counted; this is a bug")
    for table, packed in counts.items():
        made.fill(table, packed)
    made.rows = rows
    _refuse_uneven(recipe, made)
    return made


def _refuse_uneven(recipe: Recipe, counts: Partial) -> None:
    """Every row is once in the prior: a cheap proof that none was lost or counted twice."""
    if recipe.layout.weight == 1 and int(counts._flat(0).sum()) != counts.rows:
        raise PrivacyError("a window counts other rows than it was told of; this is a bug")


def _refuse_bad(facts: Facts, errors: Errors) -> None:
    if facts.refused and errors == "refuse":
        shown = [f"{rows} times: {why}" for why, rows in facts.problems.items()][:SHOWN]
        raise ObservationError(
            f"{facts.refused} rows cannot be counted ({'; '.join(shown)}), so none was; mend them, "
            f'or leave them out with errors="skip"'
        )


def _refuse_overfull(rows: dict[int, int], settings: Settings) -> None:
    most = max(rows.values(), default=0)
    if not most:
        raise ObservationError("there is no row to count; give a DataFrame that has some")
    if most > settings.max_rows_per_window:
        raise StateError(
            f"a window has {most} rows and takes {settings.max_rows_per_window}; choose shorter "
            f"windows or a larger `max_rows_per_window`"
        )
