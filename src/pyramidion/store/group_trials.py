"""Groups on trial: judged by sealed tables as these fill, kept or dropped, forgotten in time.

A group that was chosen from hot rows is counted on trial, for those rows are few. Sealed tables
say how much it really tells; they are private, so asking them is free. What counts is how rows of
different windows agree, as for a selection it is how rows agree that came at different times. A
group is *kept* while it tells more than its parts by three times the error of that, and *dropped*
where it does not after `trial_windows`. After how many windows is kept with what was chosen;
figures are not, for the windows that told them may go first.

What was chosen goes with the oldest window that was read for it: then its groups go, too,
unless they were chosen again since.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from pyramidion.config.schema import bare
from pyramidion.counts.arena import Arena
from pyramidion.counts.group_gain import SURE, Across, Agreement, gain, gain_across, parts_of
from pyramidion.errors import FormatError, StorageError
from pyramidion.storage.deletions import dropped
from pyramidion.storage.readings import Reading
from pyramidion.store.change import Also
from pyramidion.store.state import StoreState
from pyramidion.store.transitions import drop_tables

_GAINS: WeakKeyDictionary[Arena, dict[str, Agreement | None]] = WeakKeyDictionary()
"""By the complete tables of their time, with which they go."""

MOST_WINDOWS = 64
"""The newest sealed windows, which are read one by one: by more, errors would be smaller still."""

BY_HAND = "named in the schema, or by hand"
NOT_YET = "no sealed window counts it yet"
PAST = "the window that it was chosen from is past its time"


@dataclass(frozen=True)
class GroupStatus:
    """A group that is counted, or was: how it came, what sealed tables say of it, and why.

    ``state`` is "by hand", "trial", "kept" or "dropped". ``gain`` is what two rows with the same
    key, of different windows where it has two, agree more than its parts explain, ``error`` its
    standard error: P2, from sealed tables that are there. Of a dropped one both are None.
    """

    name: str
    features: tuple[str, ...]
    state: str
    windows: int
    gain: float | None
    error: float | None
    why: str


def groups_of(store: StoreState) -> list[GroupStatus]:
    """All groups: by hand, chosen, and dropped ones that are not forgotten."""
    chosen = store.births.chosen
    found = [
        _judged(store, group, chosen=",".join(group) in chosen) for group in store.schema.groups
    ]
    for name, (*_, windows) in store.births.dropped.items():
        told = (name, tuple(name.split(",")), "dropped", int(windows), None, None)
        why = f"its tables told too little in {_counted(int(windows))}" if windows else PAST
        found.append(GroupStatus(*told, why))
    return found


def _judged(store: StoreState, group: tuple[str, ...], *, chosen: bool) -> GroupStatus:
    name = ",".join(group)
    windows, told = 0, None
    if store.complete is not None and store.published:
        tables = store.complete.layout.tables
        windows = max((t.windows for t in tables if bare(t.name) == name), default=0)
        told = _gain(store, store.complete, name) if windows else None
    value, error = (None, None) if told is None else (told.value, told.error)
    if not chosen:
        return GroupStatus(name, group, "by hand", windows, value, error, BY_HAND)
    if value is None or error is None:
        return GroupStatus(name, group, "trial", windows, None, None, NOT_YET)
    if value > SURE * error:
        why = f"it tells {value:.3g} more than its parts, above {SURE:g} errors of {error:.2g}"
        return GroupStatus(name, group, "kept", windows, value, error, why)
    return GroupStatus(name, group, "trial", windows, value, error, _less(value, error, windows))


def _gain(store: StoreState, complete: Arena, name: str) -> Agreement | None:
    """What sealed tables tell, of all groups at once and once for as long as these are served."""
    if complete not in _GAINS:
        _GAINS[complete] = _gains(store, complete)
    return _GAINS[complete].get(name)


def _gains(store: StoreState, complete: Arena) -> dict[str, Agreement | None]:
    """Of each group, by the windows that have it and its parts."""
    judged = _judged_by(store)
    across = {
        (name, windows): Across() for names, windows in judged.values() for name in names
    }  # parts of several groups are summed once
    told: dict[str, Agreement | None] = {}
    for window in sorted({window for _, windows in judged.values() for window in windows}):
        with suppress(FormatError, StorageError):  # a damaged one tells nothing
            arena = store.tables.sealed(window, like=complete.layout)
            for (name, windows), sums in across.items():
                if window in windows:
                    sums.add(arena, arena.layout.index[name])
            for group, (_, windows) in judged.items():
                if windows == (window,):  # by all of its rows, for there are no others
                    told[group] = gain(arena, group, dict.fromkeys(arena.layout.index, arena.rows))
    for group, (names, windows) in judged.items():
        own, *parts = (across[name, windows] for name in names)
        if own.windows > 1:
            told[group] = gain_across(own, parts)
    lost = (group for group in map(",".join, store.schema.groups) if group not in told)
    return told | {group: gain(complete, group, _rows(store)) for group in lost}


def _judged_by(store: StoreState) -> dict[str, tuple[list[str], tuple[int, ...]]]:
    """The tables that groups are judged by, as the newest window names them, and their windows."""
    rows = [row for row in store.tables.windows() if row["window"] not in store.lacking]
    newest = sorted(rows, key=lambda row: -int(row["window"]))[:MOST_WINDOWS]
    names = {int(row["window"]): store.tables.names(row) for row in newest}
    found: dict[str, tuple[list[str], tuple[int, ...]]] = {}
    for group in map(",".join, store.schema.groups):
        parts = next(filter(None, (parts_of(own, group) for own in names.values())), None)
        if parts is not None:
            windows = tuple(number for number, own in names.items() if own.issuperset(parts))
            found[group] = parts, windows
    return found


def _less(value: float, error: float, windows: int) -> str:
    return (
        f"it tells {value:.3g} more than its parts in {_counted(windows)}, not above {SURE:g} "
        f"errors of {error:.2g}"
    )


def _counted(windows: int) -> str:
    return f"{windows} window{'s' if windows != 1 else ''}"


def _rows(store: StoreState) -> dict[str, int]:
    """How many rows each complete table counts: it may have begun late."""
    rows: dict[str, int] = {}
    for row in store.tables.windows():
        for name in store.tables.names(row):
            rows[name] = rows.get(name, 0) + row["rows"]
    return rows


def drop_failed(store: StoreState, now: int) -> list[str]:
    """Drop the groups whose trial is over and that tell too little; which."""
    trial = store.settings.trial_windows
    if not store.births.chosen:
        return []
    over = [g for g in groups_of(store) if g.state == "trial" and g.windows >= trial]
    failed = {group.name: [0.0, 0.0, float(group.windows)] for group in over}
    if failed:
        with suppress(FormatError, StorageError):  # a damaged window can be mended; later, then
            _drop(store, failed, "its tables tell too little", now)
    return list(failed)


def drop_orphans(store: StoreState, windows: Collection[int], now: int) -> None:
    """Drop the groups that were chosen from windows that are to be forgotten, and not since."""
    chosen = store.births.chosen
    gone = [name for name, read in chosen.items() if set(read) <= set(windows)]
    if gone:
        _drop(store, {name: [0.0, 0.0, 0.0] for name in gone}, PAST, now, damaged=True)


def _drop(
    store: StoreState,
    gone: dict[str, list[float]],
    why: str,
    now: int,
    *,
    damaged: bool = False,
) -> None:
    """Erase the tables of chosen groups, and their names in the ledger.

    The record does not say which: that goes in time.
    """
    schema = store.schema
    for name in gone:
        schema = schema.less(name)
    marked = [
        (window, {name: told for name, told in gone.items() if name in values})
        for window, values in store.readings.of("selection").items()
    ]
    read = [
        (old, new)
        for old, new in store.readings.without(gone.__contains__)
        if old.purpose == "weights"
    ]
    kept: list[Reading] = []

    def before() -> None:
        store.pins.note(schema=schema.to_toml())
        store.catalogue.unname_tables(lambda table: bare(table) in gone)
        store.readings.replace(read)
        kept.extend(store.readings.put(window, "selection", told) for window, told in marked)

    def after() -> None:
        store.readings.replaced(read)
        for reading in kept:
            store.readings.learned(reading)
        store.learn(schema)

    drop_tables(
        store,
        lambda table: bare(table) not in gone,
        dropped(len(gone)),
        why,
        now,
        expires="chosen groups were dropped",
        damaged=damaged,
        edits=[Also(before, after, [old.key.id for old, _ in read])],
    )
