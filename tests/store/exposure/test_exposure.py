"""What was exposed between two moments, against a twin that follows every row by itself."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression

from pyramidion import Categorical, Label, Pyramid, Schema
from pyramidion.errors import SchemaError, StorageError
from pyramidion.rows.files import DataFile
from pyramidion.rows.history import Replay, in_order
from pyramidion.store.exposure import exposure_of, persons_of
from pyramidion.store.exposure.exposed import Exposure
from pyramidion.store.exposure.lives import Came, StepLife
from pyramidion.store.exposure.text import sentences
from tests.cli.shell import as_bytes
from tests.memory import MEMORY
from tests.store import inspect
from tests.store.inspect import settled
from tests.store.stores import DAY, HOUR, SCHEMA, START, Stand, failing_once, observed, rows, states

HOT, STEP = 3 * DAY, DAY


@dataclass
class Row:
    """One row: when it came, in which window, and since when nothing opens it."""

    arrived: float
    window: int
    gone: float | None = None


@dataclass
class Twin:
    """Follows every row by itself, and looks at the windows whenever something happened."""

    store: Pyramid
    rows: list[Row] = field(default_factory=list)
    seen: list[tuple[float, dict[int, str]]] = field(default_factory=list)

    def observe(self, size: int, now: float, seed: int) -> None:
        before = states(self.store)
        observed(self.store, rows(size, now, seed))
        for number, (_, total) in states(self.store).items():
            new = total - before.get(number, ("", 0))[1]
            self.rows += [Row(now, number) for _ in range(new)]
        self.passed(now)

    def passed(self, now: float) -> None:
        settled(self.store)
        for row in self.rows:
            leaves = row.arrived // STEP * STEP + HOT
            if row.gone is None and leaves <= now:
                row.gone = now
        self.seen.append((now, {n: state for n, (state, _) in states(self.store).items()}))

    def exposed(self, a: float, b: float) -> int:
        return sum(r.arrived <= b and (r.gone is None or r.gone >= a) for r in self.rows)

    def arrived(self, a: float, b: float) -> int:
        return sum(a <= r.arrived <= b for r in self.rows)

    def forgotten(self, a: float) -> int:
        return sum(r.gone is not None and r.gone < a for r in self.rows)

    def windows(self, a: float, b: float) -> set[tuple[int, str]]:
        """What each window that took rows was at some moment."""
        taken = {row.window for row in self.rows}
        found = set()
        for (begun, told), (ended, _) in zip(self.seen, [*self.seen[1:], (b + 1, {})], strict=True):
            if begun <= b and ended >= a:
                found |= {(n, state) for n, state in told.items() if n in taken}
        return {(n, state) for n, state in found if state != "erased"}

    def later(self, a: float, b: float) -> int:
        seen = {n for n, state in self.windows(a, b) if state == "populating"}
        return sum(row.arrived > b and row.window in seen for row in self.rows)

    def cut(self, a: float, b: float) -> bool:
        """Whether the interval begins or ends inside the arrivals of a step that has left."""
        steps: dict[float, list[float]] = {}
        for row in self.rows:
            if row.gone is not None:
                steps.setdefault(row.arrived // STEP, []).append(row.arrived)
        return any(
            min(s) <= b < max(s) or (min(s) < a <= max(s)) for s in steps.values() if max(s) >= a
        )


@dataclass
class Year:
    """A store after a year, and its twin."""

    stand: Stand
    twin: Twin
    end: float

    @property
    def store(self) -> Pyramid:
        return self.twin.store

    def intervals(self, number: int, seed: int) -> Iterator[tuple[float, float]]:
        random = np.random.default_rng(seed)
        moments = [when for when, _ in self.twin.seen]
        for place in range(number):
            a = random.choice(moments) if place % 3 == 0 else random.uniform(START - DAY, self.end)
            length = random.choice([0, HOUR, 5 * HOUR, DAY, 9 * DAY, 60 * DAY])
            b = min(a + length, self.end)
            yield float(round(a)), float(round(max(b, a)))


@pytest.fixture(scope="module")
def year() -> Iterator[Year]:
    where = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="pyramidion-", dir=where) as folder:
        stand = Stand(Path(folder))
        yield lived(stand)
        stand.close()


def lived(stand: Stand) -> Year:
    """Some rows every few hours, and now and then a reseed, and a closed store."""
    twin = Twin(stand.create(count_window="20d", retention="400d"))
    random = np.random.default_rng(7)
    for event in range(260):
        now = round(stand.clock.pass_(float(random.integers(1, 60)) * HOUR))
        stand.clock.now = float(now)
        if random.random() < 0.3:
            twin.store.advance()
            twin.passed(now)
        if event in (90, 91, 200):
            twin.store.admin.reseed(why="somebody was in")
            twin.passed(now)
        twin.observe(int(random.integers(1, 9)), now, event)
        if event == 150:
            twin.store = stand.reopen()
            twin.passed(now)
    return Year(stand, twin, stand.clock.now)


# --- against the twin -------------------------------------------------------------------------


@pytest.mark.slow
def test_a_year_saw_steps_leave_windows_seal_and_reseeds(year: Year) -> None:
    assert year.end > START + 300 * DAY
    assert sum(row.gone is not None for row in year.twin.rows) > 900
    assert {state for _, told in year.twin.seen for state in told.values()} == {
        "populating",
        "sealed",
    }


@pytest.mark.slow
def test_raw_rows_are_those_that_the_twin_has_and_never_fewer(year: Year) -> None:
    exact = 0
    for a, b in year.intervals(120, seed=1):
        found = year.store.exposure(a, b)
        assert found.rows >= year.twin.exposed(a, b), (a, b)
        assert found.arrived >= year.twin.arrived(a, b), (a, b)
        if found.exact:
            assert (found.rows, found.arrived) == (
                year.twin.exposed(a, b),
                year.twin.arrived(a, b),
            )
            exact += 1
        assert found.exact or year.twin.cut(a, b), (a, b)
    assert exact > 50


def test_forgotten_rows_are_those_that_were_gone_before(year: Year) -> None:
    for a, b in year.intervals(30, seed=2):
        assert year.store.exposure(a, b).forgotten.step_rows == year.twin.forgotten(a)


def test_windows_are_visible_as_what_they_were(year: Year) -> None:
    for a, b in year.intervals(60, seed=3):
        found = year.store.exposure(a, b)
        told = {(w.number, state) for w in found.windows for state in w.states}
        assert told == year.twin.windows(a, b), (a, b)


@pytest.mark.slow
def test_rows_that_came_later_into_tables_that_were_seen_are_never_fewer(year: Year) -> None:
    for a, b in year.intervals(50, seed=4):
        found = year.store.exposure(a, b)
        assert found.later >= year.twin.later(a, b), (a, b)
        assert found.later <= sum(row.arrived > b for row in year.twin.rows) + 70


def test_an_edge_and_the_tables_show_sealed_windows_alone_and_no_raw_row(year: Year) -> None:
    for component in ("edge", "tables"):
        for a, b in year.intervals(30, seed=5):
            found = year.store.exposure(a, b, component=component)
            sealed = {n for n, state in year.twin.windows(a, b) if state == "sealed"}
            assert {window.number for window in found.windows} == sealed
            assert all(window.states == ("sealed",) for window in found.windows)
            assert (found.hot, found.later, found.columns) == ((), 0, ())


def test_a_report_is_the_same_after_reopening(year: Year) -> None:
    asked = list(year.intervals(12, seed=6))
    before = [year.store.exposure(a, b) for a, b in asked]
    year.twin.store = year.stand.reopen()
    assert [year.store.exposure(a, b) for a, b in asked] == before


def test_each_window_tells_what_it_spent_and_a_noisy_total(year: Year) -> None:
    found = year.store.exposure(year.end - DAY, year.end)
    spent = {w.number: (w.epsilon, w.delta) for w in year.store.ledger.report().windows}
    for window in found.windows:
        assert (window.epsilon, window.delta) == spent[window.number]
        if window.states == ("sealed",):
            assert abs(window.noisy_rows - window.rows) < 12 * window.noise
            assert window.noisy_rows is not None
    assert (found.epsilon, found.delta, found.k) == (1.0, 1e-9, 1)
    assert json.dumps(found.to_dict())


# --- what is asked ----------------------------------------------------------------------------


def test_an_interval_before_the_store_existed_exposed_nothing(year: Year) -> None:
    found = year.store.exposure("1971-01-01", "1971-02-01")
    assert (found.rows, found.windows, found.later, found.gaps) == (0, (), 0, ())
    assert found.exact


@pytest.mark.parametrize(
    ("start", "stop", "given", "told"),
    [
        (START, START + 900 * DAY, {}, "ends in the future"),
        (START + DAY, START, {}, "ends before it begins"),
        ("long ago", START, {}, "the start must be seconds since 1970 or a date"),
        (START, START, {"component": "moon"}, "take one of store, edge, tables"),
    ],
)
def test_what_cannot_be_told_is_refused(
    year: Year, start: Any, stop: Any, given: dict[str, Any], told: str
) -> None:
    with pytest.raises(SchemaError, match=told):
        year.store.exposure(start, stop, **given)


# --- the record ----------------------------------------------------------------------------------


def live(stand: Stand, days: int, size: int = 10, **settings: Any) -> Pyramid:
    """A store that took some rows every day at noon."""
    store = stand.create(**settings)
    for day in range(days):
        stand.clock.now = START + (day + 0.5) * DAY
        store.advance()
        observed(store, rows(size, stand.clock.now, day))
    return store


def test_a_past_step_is_remembered_as_long_as_the_retention_and_no_longer(stand: Stand) -> None:
    store = live(stand, 70)
    ask = inspect.catalogue(store).one
    assert ask("SELECT count(*) FROM past_steps") == 50 - 3
    horizon = (stand.clock.now - 50 * DAY) * 1e6
    assert ask("SELECT min(start) FROM past_steps") > horizon
    stand.clock.pass_(60 * DAY)
    assert store.advance()
    assert ask("SELECT count(*) FROM past_steps") == 0


def test_a_quiet_store_forgets_past_steps_too(stand: Stand) -> None:
    store = live(stand, 8)
    stand.clock.now = START + 40 * DAY
    store.advance()
    left = inspect.catalogue(store).one("SELECT count(*) FROM past_steps")
    assert left == 8
    stand.clock.now = START + 53 * DAY
    store.advance()  # the window retires
    assert inspect.catalogue(store).one("SELECT min(number) FROM past_steps") == 4
    stand.clock.now = START + 56 * DAY
    store.advance()  # nothing else is due
    assert inspect.catalogue(store).one("SELECT min(number) FROM past_steps") == 7


def test_what_is_past_the_retention_is_told_as_a_gap(stand: Stand) -> None:
    store = live(stand, 70)
    found = store.exposure(START + 5 * DAY, START + 6 * DAY)
    assert [gap.stop for gap in found.gaps] == [int((START + 22.5 * DAY) * 1e6)]
    assert "no record is kept" in found.gaps[0].why
    assert not found.exact
    assert store.exposure(START + 40 * DAY, START + 41 * DAY).gaps == ()


def test_a_window_that_was_erased_since_is_told_without_its_tables(stand: Stand) -> None:
    store = live(stand, 70)
    found = store.exposure(START + 45 * DAY, START + 46 * DAY)
    first = found.windows[0]
    assert (first.number, first.states, first.noisy_rows) == (1, ("sealed",), None)
    assert first.erased == int((START + 50.5 * DAY) * 1e6)
    assert store.exposure(START + 51 * DAY, START + 52 * DAY).forgotten.windows == (1,)


def test_rows_can_be_read_until_an_erasure_is_complete(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = live(stand, 3)
    stand.clock.now = START + 3.5 * DAY
    holder = inspect.keys(store).holder
    failing_once(monkeypatch, holder, "drop", StorageError("not now"))
    with pytest.raises(StorageError, match="not now"):
        store.advance()
    stand.clock.now = START + 3.75 * DAY
    assert store.exposure(START + 3.7 * DAY, stand.clock.now).rows == 30
    stand.clock.now = START + 3.9 * DAY
    store.advance()
    assert store.exposure(START + 3.7 * DAY, START + 3.8 * DAY).rows == 30
    stand.clock.now = START + 3.99 * DAY
    assert store.exposure(START + 3.95 * DAY, stand.clock.now).rows == 20


def test_rows_can_be_read_while_models_are_trained_before_they_leave(stand: Stand) -> None:
    store = live(stand, 3)
    stand.clock.now = START + 3.5 * DAY
    hours = [HOUR]
    inspect.told(store, lambda _: stand.clock.pass_(hours.pop() if hours else 0))  # as training
    store.advance()
    assert store.exposure(START + 3.5 * DAY + 1800, START + 3.5 * DAY + 1800).rows == 30
    stand.clock.pass_(HOUR)
    assert store.exposure(stand.clock.now, stand.clock.now).rows == 20


def test_a_reseed_ends_what_can_be_subtracted(stand: Stand) -> None:
    store = live(stand, 4)
    seen = START + 3.6 * DAY
    for day in (4, 5):
        if day == 5:
            stand.clock.now = START + 4.7 * DAY
            store.admin.reseed(why="somebody was in")
        stand.clock.now = START + (day + 0.5) * DAY
        observed(store, rows(10, stand.clock.now, day))
    found = store.exposure(seen, seen)
    assert found.later == 10
    assert [(w.number, w.later) for w in found.windows] == [(1, 10)]


def history_of(stand: Stand) -> Replay:
    """Two hundred rows of twenty days, ten days before now."""
    stand.clock.now = START + 30 * DAY
    file = stand.folder / "history.parquet"
    file.write_bytes(as_bytes(rows(200, START + np.arange(200) * DAY / 10), "parquet"))
    return in_order([DataFile(file)], SCHEMA, chunk=50)


def test_a_history_is_exposed_while_it_is_replayed(stand: Stand) -> None:
    store, began = stand.create(), START + 30 * DAY
    for _ in store.replay(history_of(stand)):
        stand.clock.pass_(HOUR)
    first_hour = store.exposure(began, began + HOUR)
    assert (first_hour.rows, first_hour.arrived) == (100, 100)
    while_it_ran = store.exposure(began, stand.clock.now)
    assert (while_it_ran.rows, while_it_ran.arrived) == (200, 200)
    assert {w.number for w in while_it_ran.windows} == {1, 2}
    ranges = while_it_ran.ranges
    assert ranges[0][0] < (START + 5 * DAY) * 1e6  # by arrivals, as the vault knows them
    assert ranges[-1][1] < (START + 20 * DAY) * 1e6
    as_told = store.exposure(START + 10 * DAY, START + 10 * DAY + HOUR)
    assert (as_told.rows, as_told.windows) == (0, ())
    store.advance()
    stand.clock.pass_(DAY)
    after = store.exposure(stand.clock.now - HOUR, stand.clock.now)
    assert (after.rows, after.forgotten.step_rows) == (0, 200)


def test_a_replay_that_is_broken_off_exposes_what_came(stand: Stand) -> None:
    store = stand.create()
    going = store.replay(history_of(stand))
    next(going)
    stand.clock.pass_(DAY)
    assert store.exposure(stand.clock.now, stand.clock.now).rows == 50
    going.close()


def test_records_of_an_import_are_dated_by_the_clock(stand: Stand) -> None:
    history = history_of(stand)
    store, made = stand.create(), stand.clock.now * 1e6
    for _ in store.replay(history):
        stand.clock.pass_(HOUR)
    now = stand.clock.now * 1e6
    deletions = store.status().deletions
    assert len(deletions) > 1
    assert all(made <= each.at <= (each.done or 0) <= now for each in deletions)
    lines = inspect.catalogue(store).lines()
    assert len({line.window for line in lines}) > 1
    assert all(made <= line.at <= now for line in lines)


@pytest.mark.parametrize("ended", [True, False])
def test_a_replay_of_an_earlier_version_ran_all_the_time_that_it_noted(
    stand: Stand, ended: bool
) -> None:
    """Its rows are known by their arrivals alone, and records are dated by these."""
    store, began = stand.create(), START + 30 * DAY
    for _ in store.replay(history_of(stand)):
        stand.clock.pass_(HOUR)
    until = stand.clock.now
    db, back = inspect.catalogue(store), int(20 * DAY * 1e6)
    db.run("UPDATE batches SET came = arrived")
    db.run("UPDATE past_steps SET came_first = start, came_last = stop, left = left - ?", back)
    db.run("UPDATE deletions SET at = at - ?, done = done - ?", back, back)
    inspect.change_catalogue(store, "UPDATE ledger SET at = at - ?", back)
    spell = {"kind": "replay", "name": None, "since": int(began * 1e6), "until": None}
    spell |= {"steps": [1, None], "windows": [1, None]}
    if ended:
        spell |= {"until": int(until * 1e6), "steps": [1, 99], "windows": [1, 99]}
    db.note(spells=json.dumps([spell]))
    store = stand.reopen()
    stand.clock.pass_(DAY)
    store.advance()
    for moment in (began, began + HOUR, until):
        found = store.exposure(moment, moment)
        assert found.rows == 200
        assert not found.exact
        assert found.forgotten.step_rows == 0
        assert {window.number for window in found.windows} == {1, 2}
    stand.clock.pass_(DAY)
    after = store.exposure(stand.clock.now, stand.clock.now)
    assert (after.rows, after.forgotten.step_rows) == (0, 200)


def test_what_another_copy_saw_is_told_as_a_gap(stand: Stand) -> None:
    store = live(stand, 4)
    store.admin.backup(stand.folder / "backup")
    stand.clock.now = START + 3.7 * DAY
    observed(store, rows(99, stand.clock.now))
    store.close()
    stand.clock.now = START + 3.9 * DAY
    restored = Pyramid.restore(stand.folder / "backup", stand.folder / "restored", **stand.given)
    stand.held(restored)
    noon = int((START + 3.5 * DAY) * 1e6), int(stand.clock.now * 1e6)
    found = restored.exposure(START + 3.6 * DAY, START + 3.8 * DAY)
    assert [(gap.start, gap.stop) for gap in found.gaps] == [noon]
    assert not found.exact
    assert restored.exposure(START + 2 * DAY, START + 3 * DAY).gaps == ()


def test_a_column_that_was_withdrawn_since_is_told(stand: Stand) -> None:
    store = live(stand, 2)
    store.groups.withdraw("b", why="request")
    settled(store)
    assert "b" not in store.schema.columns
    assert store.exposure(START, stand.clock.now).columns == ("t", "a", "y", "b")
    stand.clock.pass_(HOUR)
    assert "b" not in store.exposure(stand.clock.now, stand.clock.now).columns


def test_a_column_can_be_read_until_its_withdrawal_is_complete(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = live(stand, 2)
    holder = inspect.keys(store).holder
    failing_once(monkeypatch, holder, "drop", StorageError("not now"))
    with pytest.raises(StorageError, match="not now"):
        store.groups.withdraw("b", why="request")
    stand.clock.pass_(HOUR)
    broken_off = stand.clock.now
    assert "b" in store.exposure(broken_off, broken_off).columns
    stand.clock.pass_(HOUR)
    store.admin.reseed(why="again")
    stand.clock.pass_(HOUR)
    assert "b" in store.exposure(broken_off, broken_off).columns
    assert "b" not in store.exposure(stand.clock.now, stand.clock.now).columns


def test_rows_of_a_step_that_left_are_counted_whole_where_it_is_cut() -> None:
    step = StepLife(1, (Came(10, 20, 100, (10, 20)),), 50)
    assert step.rows(None, 15) == (100, False)
    assert step.rows(12, 30) == (100, False)
    assert step.rows(None, 20) == (100, True)
    assert step.rows(21, 30) == (0, True)


# --- models --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("trainer")
def test_rows_in_models_are_those_that_were_hot_while_one_was_registered(stand: Stand) -> None:
    store = live(stand, 14, size=40)
    hour = stand.clock.pass_(HOUR)
    store.register("late", LogisticRegression())
    stand.clock.pass_(2 * HOUR)
    store.models.unregister("late")
    stand.clock.pass_(HOUR)
    for component in ("store", "edge"):
        during = store.exposure(hour, hour + HOUR, component=component)
        assert [model.name for model in during.models.registered] == ["late"]
        assert during.models.rows == 120
        assert len(during.models.ranges) == 3
        before = store.exposure(hour - HOUR / 2, hour - 1, component=component)
        after = store.exposure(hour + 2.5 * HOUR, stand.clock.now, component=component)
        assert not before.models.registered
        assert not after.models.registered
        assert before.models.rows == after.models.rows == 0
    assert store.exposure(hour, hour, component="tables").models.rows == 0


def test_a_store_that_does_not_say_which_models_it_had_may_have_had_some(stand: Stand) -> None:
    store = live(stand, 2)
    inspect.catalogue(store).run("DELETE FROM about WHERE name = 'spells'")
    found = store.exposure(START, stand.clock.now)
    assert [model.name for model in found.models.registered] == [None]
    assert found.models.rows == 20


# --- people and the vault -------------------------------------------------------------------------


def test_with_people_the_promise_is_composed_over_all_visible_windows(stand: Stand) -> None:
    schema = Schema(label=Label("y", classes=[0, 1]), features=[Categorical("a")], unit="who")
    store = stand.create(schema, delta=0, hot_window="2d", max_skew="1h", count_window="2d")
    for day in range(9):
        stand.clock.now = START + day * DAY + HOUR
        store.advance()
        observed(store, pa.table({"y": [0, 1], "a": ["p", "q"], "who": ["ann", "bob"]}))
    found = store.exposure(stand.clock.now, stand.clock.now)
    assert found.unit == "who"
    assert len(found.windows) > 3
    assert found.epsilon == pytest.approx(sum(window.epsilon for window in found.windows))


def test_people_are_those_whose_rows_arrived_in_the_ranges(stand: Stand) -> None:
    store = live(stand, 6)
    found = store.exposure(START + 4.6 * DAY, START + 4.7 * DAY)
    noons = [int((START + (day + 0.5) * DAY) * 1e6) for day in range(6)]
    assert [first for first, _ in found.ranges] == noons[2:5]
    vault = pa.record_batch({"who": [f"of day {day}" for day in range(6)], "_arrived": noons})
    assert persons_of([vault, vault], "who", found.ranges) == ["of day 2", "of day 3", "of day 4"]
    with pytest.raises(SchemaError, match="no column '_arrived'"):
        persons_of([vault.select(["who"])], "who", found.ranges)


def entry(kind: str, at: float, **facts: Any) -> Any:
    return SimpleNamespace(kind=kind, at=int(at * 1e6), facts=facts)


def granted(stand: Stand, store: Pyramid, a: float, b: float, *log: Any) -> Exposure:
    now = int(stand.clock.now * 1e6)
    return exposure_of(
        inspect.parts(store).lifecycle, int(a * 1e6), int(b * 1e6), "store", now, log
    )


def test_grants_that_were_open_are_told(stand: Stand) -> None:
    store = live(stand, 2)
    log = (
        entry("vault.granted", START + HOUR, grant="g1", expires=int((START + 3 * HOUR) * 1e6)),
        entry("vault.opened", START + 2 * HOUR, grant="g1", rows=5),
        entry("vault.granted", START + HOUR, grant="g2", expires="1972-09-27T12:00:00Z"),
        entry("vault.revoked", START + 1.5 * HOUR, grant="g2"),
        entry("vault.granted", START + 9 * HOUR, grant="g3", expires=None),
    )
    found = granted(stand, store, START + 1.8 * HOUR, START + 2.5 * HOUR, *log).vault.grants
    assert found is not None
    assert [(grant.grant, grant.opened) for grant in found] == [("g1", 1)]
    late = granted(stand, store, START + 20 * HOUR, START + 20 * HOUR, *log).vault.grants
    assert late is not None
    assert [(grant.grant, grant.until) for grant in late] == [("g3", None)]
    assert store.exposure(START, START).vault.grants == ()  # as the store's own log says


def test_all_grants_for_a_broker_that_ran_then_are_told_and_why(stand: Stand) -> None:
    store = live(stand, 2)
    ends = int((START + 3 * HOUR) * 1e6)
    log = (
        entry("vault.broker", START, broker="b0"),
        entry("vault.granted", START + 0.1 * HOUR, grant="other", expires=ends),
        entry("vault.expired", START + 0.2 * HOUR, grant="other"),
        entry("vault.broker", START + 0.5 * HOUR, broker="b1"),
        entry("vault.granted", START + HOUR, grant="before", expires=ends),
        entry("vault.expired", START + 1.2 * HOUR, grant="before"),
        entry("vault.granted", START + 8 * HOUR, grant="after", expires=None),
        entry("vault.broker", START + 9 * HOUR, broker="b2"),
        entry("vault.granted", START + 10 * HOUR, grant="next", expires=None),
    )
    found = granted(stand, store, START + 2 * HOUR, START + 2.5 * HOUR, *log)
    assert found.vault.grants is not None
    assert {grant.grant: grant.why for grant in found.vault.grants} == {
        "before": "over before, given to a broker that still ran then",
        "after": "given later to a broker that ran then",
    }
    told = " ".join(sentences(found))
    assert "Given earlier or later to a broker that ran then: 2 grants" in told
    assert "Open then" not in told


def test_files_of_the_vault_are_counted_as_sealed(stand: Stand) -> None:
    store = live(stand, 2)
    for name, day in (("one", 0), ("two", 1)):
        at = int((START + day * DAY) * 1e6)
        inspect.catalogue(store).run(
            "INSERT INTO vault_files VALUES (?, ?, ?, 1, 2, 10, 'd', 'e', NULL, NULL, NULL)",
            name,
            at,
            at,
        )
    found = store.exposure(START + HOUR, START + 2 * HOUR).vault
    assert (found.files, found.rows) == (1, 10)


def test_the_record_holds_no_more_than_numbers_times_and_names(stand: Stand) -> None:
    store = live(stand, 6)
    told = inspect.catalogue(store).all("SELECT * FROM past_steps")
    noon = int((START + 0.5 * DAY) * 1e6)
    assert tuple(told[0]) == (1, noon, noon, 10, int((START + 3.5 * DAY) * 1e6), noon, noon)
