"""What was exposed between two moments: what an intruder who was there could read.

    store    all that is on the store's machine: hot rows, models, populating tables, sealed ones
    edge     what an edge has: complete tables, and models; no raw rows
    tables   sealed and complete tables alone

The rule is: more rather than less. Whatever was there at *any* moment of the interval is
exposed, whatever arrived in it too, and where the record is not exact the larger number is
told, and that it is an upper bound. Only row totals, times and names are told, which are
public, and totals of noisy tables, which are paid for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from pyramidion.config.durations import since_epoch
from pyramidion.counts.layout import PRIOR, Layout
from pyramidion.errors import FormatError, SchemaError, StateError, StorageError
from pyramidion.storage.audit_chain import GRANT_USED
from pyramidion.storage.spells import Spell
from pyramidion.storage.vault_files import VaultFiles
from pyramidion.store.exposure.exposed import (
    COMPONENTS,
    ENDED,
    LATER,
    OPEN,
    Component,
    Exposure,
    Forgotten,
    Gap,
    GrantExposed,
    HotExposed,
    ModelExposed,
    ModelsExposed,
    Range,
    VaultExposed,
    WindowExposed,
    merged,
)
from pyramidion.store.exposure.lives import Lives, StepLife, WindowLife
from pyramidion.store.state import StoreState

__all__ = ["COMPONENTS", "Component", "Exposure", "exposure_of", "interval", "persons_of"]

ARRIVED = "_arrived"
"""The column of granted rows that says when each arrived, in microseconds."""


class Entry(Protocol):
    """An entry of an audit log."""

    @property
    def kind(self) -> str: ...

    @property
    def at(self) -> int: ...

    @property
    def facts(self) -> Mapping[str, Any]: ...


# --- the report --------------------------------------------------------------------------


def interval(start: object, stop: object, now: int) -> Range:
    """The moments that were asked for, in microseconds; refuses what cannot be told."""
    first, last = since_epoch(start, "the start"), since_epoch(stop, "the end")
    if last < first:
        raise SchemaError("the interval ends before it begins; give the earlier moment first")
    if last > now + 1:  # a float of seconds is rounded there, and cut here
        raise SchemaError("the interval ends in the future; give an end that is not after now")
    return min(first, now), min(last, now)


def exposure_of(
    store: StoreState,
    start: int,
    stop: int,
    component: Component,
    now: int,
    log: Iterable[Entry] | None = None,
) -> Exposure:
    """Tell what an intruder of one component could read from start to stop, both included."""
    if component not in COMPONENTS:
        raise SchemaError(
            f"there is no component of that name; take one of {', '.join(COMPONENTS)}"
        )
    lives = Lives(store, now)
    readable = [step for step in lives.steps if step.readable(start, stop)]
    steps = tuple(_hot(step, start, stop) for step in readable)
    windows = tuple(_windows(store, lives, start, stop, component))
    epsilon, delta = _promise(store, windows)
    return Exposure(
        component=component,
        start=start,
        stop=stop,
        at=now,
        columns=_columns(lives, store.schema.columns, start) if component == "store" else (),
        unit=store.people.unit,
        hot=steps if component == "store" else (),
        models=_models(lives, readable if component != "tables" else (), start, stop),
        windows=windows,
        k=store.settings.k,
        epsilon=epsilon,
        delta=delta,
        later=_later_in_all(lives, windows, stop),
        forgotten=_forgotten(lives, start),
        vault=_vault(store, start, stop, log),
        gaps=tuple(_gaps(lives, start, stop, raw=component != "tables")),
    )


# --- raw rows ------------------------------------------------------------------------------


def _hot(step: StepLife, start: int, stop: int) -> HotExposed:
    (rows, all_of), (arrived, these) = step.rows(None, stop), step.rows(start, stop)
    met = [part for part in step.came if part.first <= stop]
    return HotExposed(
        step=step.number,
        first=min(part.arrived[0] for part in met),
        last=max(part.arrived_by(stop) for part in met),
        rows=rows,
        arrived=arrived,
        exact=all_of and these,
        gone=step.gone,
    )


def _models(lives: Lives, readable: Sequence[StepLife], start: int, stop: int) -> ModelsExposed:
    """A model never outlives a row it saw, so all it can have seen was hot while it was there."""
    known = lives.models(start, stop) if readable else []
    seen = [
        _hot(step, start, stop)
        for step in readable
        if any(_met(step, model, start, stop) for model in known)
    ]
    return ModelsExposed(
        registered=tuple(
            ModelExposed(name=each.name, since=each.since, until=each.until) for each in known
        ),
        rows=sum(part.rows for part in seen),
        ranges=merged((part.first, part.last) for part in seen),
    )


def _met(step: StepLife, model: Spell, start: int, stop: int) -> bool:
    """Whether rows were hot, and a model registered, at one moment of the interval."""
    last = stop if model.until is None else min(stop, model.until)
    return step.readable(max(start, model.since), last)


def _columns(lives: Lives, known: Sequence[str], start: int) -> tuple[str, ...]:
    """The columns that raw rows had: those of now, and features whose withdrawal ended since."""
    gone = [
        name
        for each in lives.erasures
        if each.gone.kind == "withdrawn" and (each.complete is None or each.complete >= start)
        for name in each.gone.names
    ]
    return tuple(dict.fromkeys([*known, *(name for name in gone if "," not in name)]))


# --- tables --------------------------------------------------------------------------------


def _windows(
    store: StoreState, lives: Lives, start: int, stop: int, component: Component
) -> Iterator[WindowExposed]:
    spent = {report.number: report for report in store.ledger.report().windows}
    like: Layout | None = None
    for window in lives.windows:
        states = _states(window, start, stop)
        if window.born > stop and _seen_before(lives, window, start, stop):
            states = ("populating",)
        if component != "store":
            states = tuple(state for state in states if state == "sealed")
        if not states:
            continue
        report = spent.get(window.number)
        total, noise, like = _noisy_total(store, window, like)
        yield WindowExposed(
            number=window.number,
            start=window.start,
            stop=window.stop,
            born=window.born,
            sealed=window.sealed,
            frozen=window.frozen,
            erased=window.erased,
            rows=window.rows,
            states=states,
            epsilon=math.inf if report is None else report.epsilon,
            delta=1.0 if report is None else report.delta,
            later=_later(lives, window, stop) if "populating" in states else 0,
            noisy_rows=total,
            noise=noise,
        )


def _states(window: WindowLife, start: int, stop: int) -> tuple[str, ...]:
    """What it was at some moment of the interval."""
    if window.born > stop or (window.erased is not None and window.erased < start):
        return ()
    populating = window.frozen is None or window.frozen >= start
    sealed = window.state != "populating" and (window.sealed is None or window.sealed <= stop)
    return ("populating",) * populating + ("sealed",) * sealed


def _seen_before(lives: Lives, window: WindowLife, start: int, stop: int) -> bool:
    """Whether a node that takes the rows of a later window was populating in the interval."""
    return any(
        window.number in node.windows
        and node.born <= stop
        and (node.frozen is None or node.frozen >= start)
        for node in lives.nodes
    )


def _later(lives: Lives, window: WindowLife, stop: int) -> int:
    """Rows that came after the interval and before the window was sealed, at most."""
    return min(_came(lives, stop, window.frozen), window.rows)


def _later_in_all(lives: Lives, windows: Sequence[WindowExposed], stop: int) -> int:
    """The same for all windows: a row is in one of them."""
    open_ = [window.frozen for window in windows if window.later]
    last = None if None in open_ else max((end for end in open_ if end is not None), default=stop)
    return min(_came(lives, stop, last), sum(window.later for window in windows))


def _came(lives: Lives, after: int, until: int | None) -> int:
    """Rows that arrived after a moment and until another; None: now."""
    end = lives.at if until is None else until
    return sum(step.rows(after + 1, end)[0] for step in lives.steps) if end > after else 0


def _noisy_total(
    store: StoreState, window: WindowLife, like: Layout | None
) -> tuple[int | None, float | None, Layout | None]:
    """The sum of the noisy prior, free: it is computed from what is paid for already.

    Also how its tables are laid out, as those of the next window most likely are.
    """
    if window.state != "sealed" or store.schema.weight is not None:
        return None, None, like
    with suppress(FormatError, StorageError, StateError, ValueError, KeyError):  # damaged, or gone
        arena = store.tables.sealed(window.number, like=like)
        prior = arena.layout.index[PRIOR]
        cells, noise = arena.cells(prior), arena.layout.tables[prior].variance
        return int(cells.sum()), (noise * cells.size) ** 0.5, arena.layout
    return None, None, like


def _promise(store: StoreState, windows: Sequence[WindowExposed]) -> tuple[float, float]:
    """The largest window's, for they hold disjoint rows; people may be in all of them."""
    if store.people.unit is not None:
        return store.ledger.over([window.number for window in windows])
    largest = [(window.epsilon, window.delta) for window in windows]
    return max((e for e, _ in largest), default=0.0), max((d for _, d in largest), default=0.0)


# --- what was not exposed, and what is not known ----------------------------------------------


def _forgotten(lives: Lives, start: int) -> Forgotten:
    steps = [step for step in lives.steps if step.gone is not None and step.gone < start]
    windows = [w for w in lives.windows if w.erased is not None and w.erased < start]
    return Forgotten(
        steps=len(steps),
        step_rows=sum(part.rows for step in steps for part in step.came),
        unrecorded=sum(gone is not None and gone < start for gone in lives.unrecorded()),
        windows=tuple(window.number for window in windows),
        window_rows=sum(window.rows for window in windows),
    )


def _gaps(lives: Lives, start: int, stop: int, *, raw: bool) -> Iterator[Gap]:
    """Where more may have been exposed than is told."""
    lost = [gone for gone in lives.unrecorded() if gone is None or gone >= start]
    if raw and lost and lives.begun is not None and lives.begun <= stop:
        some = "1 hot step" if len(lost) == 1 else f"{len(lost)} hot steps"
        last = max((gone for gone in lost if gone is not None), default=None)
        why = f"{some} left so long ago that no record is kept of their rows"
        yield Gap(start=None, stop=last, why=why)
    for begun, end in lives.restored():
        if end >= start and (begun is None or begun <= stop):
            why = "another copy was the store then; this one was restored from a backup of it"
            yield Gap(start=begun, stop=end, why=why)
    for each in lives.spells:
        if each.kind == "clock" and each.meets(start, stop):
            why = "the store's time was wrong, so what happened then may be dated before or after"
            yield Gap(start=each.since or None, stop=each.until, why=why)


def _vault(store: StoreState, start: int, stop: int, log: Iterable[Entry] | None) -> VaultExposed:
    files, rows = VaultFiles(store.catalogue).readable(start, stop)
    grants = None if log is None else tuple(_grants(log, start, stop))
    return VaultExposed(files=files, rows=rows, grants=grants)


def _grants(log: Iterable[Entry], start: int, stop: int) -> Iterator[GrantExposed]:
    """Grants that were open, and all that were made for a broker which ran then.

    Who copied that one's key opens these, ended or still to come. A grant whose end is not told
    is open until another entry ends it.
    """
    begun: dict[str, tuple[Entry, int]] = {}
    ended: dict[str, int] = {}
    opened: dict[str, int] = {}
    brokers: list[int] = []
    for entry in log:
        name = str(entry.facts.get("grant"))
        if entry.kind == "vault.broker":
            brokers.append(entry.at)
        elif entry.kind == "vault.granted":
            begun.setdefault(name, (entry, len(brokers)))
        elif entry.kind in ("vault.expired", "vault.revoked"):
            ended.setdefault(name, entry.at)
        elif entry.kind in GRANT_USED and start <= entry.at <= stop:
            opened[name] = opened.get(name, 0) + 1
    ran = {number for number, since, until in _brokers(brokers) if since <= stop and until >= start}
    for name, (entry, broker) in begun.items():
        until = _earliest(ended.get(name), _moment(entry.facts.get("expires")))
        times = opened.get(name, 0)
        why = _why(entry.at, until, start, stop) if not times else OPEN
        if why == OPEN or broker in ran:
            yield GrantExposed(grant=name, since=entry.at, until=until, opened=times, why=why)


def _why(since: int, until: int | None, start: int, stop: int) -> str:
    if since > stop:
        return LATER
    return OPEN if until is None or until >= start else ENDED


def _brokers(starts: Sequence[int]) -> Iterator[tuple[int, int, float]]:
    """Each broker by its number, from 1, and when it may have run: until the next one did."""
    return zip(count(1), starts, [*starts[1:], math.inf], strict=False)


def _moment(told: object) -> int | None:
    """A time in an audit log: microseconds, or as people write it."""
    if isinstance(told, int) and not isinstance(told, bool):
        return told
    with suppress(SchemaError):
        return since_epoch(told) if isinstance(told, str) else None
    return None


def _earliest(*times: int | None) -> int | None:
    return min((time for time in times if time is not None), default=None)


# --- who is to be told -------------------------------------------------------------------------


def persons_of(
    rows: Iterable[pa.RecordBatch], unit: str, ranges: Sequence[Range], *, arrived: str = ARRIVED
) -> list[Any]:
    """The people behind rows of the vault that arrived in some ranges, each once.

    >>> batch = pa.record_batch({"user": ["ann", "bob", "ann", None], "_arrived": [1, 2, 3, 3]})
    >>> persons_of([batch], "user", [(2, 3)])
    ['bob', 'ann']
    """
    found: dict[Any, None] = {}
    for batch in rows:
        missing = [name for name in (unit, arrived) if name not in batch.schema.names]
        if missing:
            raise SchemaError(
                f"these rows have no column {missing[0]!r}, so nobody can be told; ask for a grant "
                f"of the columns {unit!r} and {arrived!r}"
            )
        inside = within(batch, ranges, arrived=arrived)
        found |= dict.fromkeys(pc.unique(inside.column(unit)).to_pylist())
    return [person for person in found if person is not None]


def within(
    batch: pa.RecordBatch, ranges: Sequence[Range], *, arrived: str = ARRIVED
) -> pa.RecordBatch:
    """The rows that arrived in some ranges.

    >>> within(pa.record_batch({"_arrived": [1, 2, 3, 9]}), [(2, 3)]).num_rows
    2
    """
    times = batch.column(arrived).cast(pa.int64())
    inside = pa.array([False] * batch.num_rows, pa.bool_())
    for first, last in ranges:
        these = pc.and_(pc.greater_equal(times, first), pc.less_equal(times, last))
        inside = pc.or_(inside, these)
    return batch.filter(inside)
