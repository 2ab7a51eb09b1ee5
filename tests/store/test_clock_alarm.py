"""Clocks that jump: nothing is erased until a person has said which clock is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyramidion import Categorical, Label, Pyramid, Schema
from pyramidion.errors import ObservationError, SchemaError, StateError
from pyramidion.store.clocks import LIMIT, Alarm, SystemClock
from tests.store import inspect
from tests.store.inspect import settled
from tests.store.stores import (
    DAY,
    HOUR,
    SCHEMA,
    SECOND,
    START,
    TIMELESS,
    Stand,
    cells,
    exact,
    observed,
    rows,
    same,
    states,
)
from tests.store.test_time import saved

PEOPLE = Schema(
    label=Label("y", classes=[0, 1]), features=[Categorical("b", domain=["x"])], unit="who"
)


class Machine:
    """Its clocks: time passes on all of them, and people set one."""

    def __init__(self) -> None:
        self.wall, self.boot, self.starts = START, 77.0, 1

    @property
    def clock(self) -> SystemClock:
        """As a store that is opened sees them."""
        return SystemClock(lambda: self.wall, lambda: self.boot, lambda: f"start {self.starts}")

    def pass_(self, seconds: float) -> None:
        """Time passes, asleep or awake."""
        self.wall += seconds
        self.boot += seconds

    def jump(self, seconds: float) -> None:
        """Somebody sets the clock."""
        self.wall += seconds

    def restart(self) -> None:
        """The machine is started again."""
        self.boot, self.starts = 5.0, self.starts + 1


class Place(Stand):
    """A stand by the clocks of a machine."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.machine = Machine()

    @property
    def given(self) -> dict[str, Any]:
        """What a store is created and opened with."""
        return super().given | {"clock": self.machine.clock}


@pytest.fixture
def place(stand: Stand) -> Any:
    made = Place(stand.folder)
    yield made
    made.close()


@pytest.fixture
def full(place: Place) -> Pyramid:
    """A store with two sealed windows, one that populates, and three hot days."""
    store = place.create()
    for _ in range(25):
        observed(store, rows(10, place.machine.wall))
        place.machine.pass_(DAY)
        settled(store).advance()
    return store


def kept(store: Pyramid) -> tuple[int, int]:
    """Hot rows, and rows in all windows that are there."""
    status = settled(store).status()
    return status.hot_rows, sum(w.rows for w in status.windows if w.state != "erased")


def entries(store: Pyramid) -> list[str]:
    return [entry.kind for entry in store.audit_log.entries()]


# --- the alarm ----------------------------------------------------------------------------


@pytest.mark.parametrize("days", [400, -400])
def test_jump_erases_nothing(place: Place, full: Pyramid, days: float) -> None:
    before, windows = kept(full), states(full)
    place.machine.jump(days * DAY)
    for _ in range(3):
        place.machine.pass_(1)
        assert not full.advance()
    assert (kept(full), states(full)) == (before, windows)
    assert full.now == (START + 25 * DAY + 3) * SECOND
    assert full.clock.alarm is not None


def test_jump_for_three_seconds_keeps_the_alarm(place: Place, full: Pyramid) -> None:
    place.machine.jump(400 * DAY)
    full.advance()
    place.machine.pass_(3)
    place.machine.jump(-400 * DAY)
    place.machine.pass_(4 * DAY)
    full.advance()
    assert "agrees again with the store's own time" in full.clock.problem
    assert kept(full) == (20, 250)  # of three hot days the first has left before
    assert full.now == (START + 29 * DAY + 3) * SECOND


def test_jump_is_told(place: Place, full: Pyramid) -> None:
    place.machine.jump(400 * DAY)
    full.advance()
    problem = "the system's clock is 34,560,000 seconds ahead of the store's own time"
    assert full.clock.problem.startswith(problem)
    told = full.status().to_dict()["clock"]
    assert told == full.clock.to_dict()
    assert told["alarm"] == int((START + 25 * DAY) * SECOND)  # type: ignore[index]
    (entry,) = [e for e in full.audit_log.entries() if e.kind == "clock.alarm"]
    assert (entry.at, entry.facts["ahead"]) == (int((START + 25 * DAY) * SECOND), 34_560_000)


@pytest.mark.parametrize("seconds", [-LIMIT / SECOND, LIMIT / SECOND])
def test_small_steps_are_followed(place: Place, seconds: float) -> None:
    store = place.create()
    place.machine.jump(seconds)
    assert store.clock.alarm is None
    place.machine.jump(np.sign(seconds) * 1)
    assert store.clock.alarm is not None


def test_slewing_is_followed(place: Place, full: Pyramid) -> None:
    for _ in range(100):
        place.machine.pass_(DAY)
        place.machine.jump(DAY / 2_000)  # as fast as NTP turns a clock
        full.advance()
    assert full.clock.alarm is None


def test_many_small_steps_are_a_jump(place: Place) -> None:
    store = place.create()
    for _ in range(6):
        place.machine.jump(200)
        store.advance()
    assert store.clock.alarm is not None


def test_sleep_is_no_jump(place: Place, full: Pyramid) -> None:
    place.machine.pass_(30 * DAY)
    full.advance()
    assert full.clock.alarm is None
    assert kept(full)[0] == 0


def test_alarm_outlives_the_process(place: Place, full: Pyramid) -> None:
    before = kept(full)
    place.machine.jump(400 * DAY)
    full.advance()
    place.machine.pass_(HOUR)
    store = place.reopen()
    assert store.now == (START + 25 * DAY + HOUR) * SECOND
    assert kept(store) == before
    place.close()
    place.machine.restart()
    store = place.open()
    assert store.now == (START + 25 * DAY) * SECOND  # at least
    assert (kept(store), entries(store).count("clock.alarm")) == (before, 1)


def test_reader_does_not_note_an_alarm(place: Place, full: Pyramid) -> None:
    place.close()
    place.machine.jump(-400 * DAY)
    store = place.held(Pyramid.open(place.path, **place.given, advance=False))
    assert store.clock.alarm is not None
    assert inspect.catalogue(store).about("clock_alarm", "") == ""


def test_stored_clock_that_is_ahead_raises_the_alarm(place: Place, full: Pyramid) -> None:
    place.close()
    place.machine.jump(-30 * HOUR)  # the last rows came a day ago
    store = place.open()
    assert "is 21,600 seconds behind the store's own time" in store.clock.problem
    place.machine.pass_(9 * DAY)
    store.advance()
    assert kept(store) == (20, 250)


def test_closed_for_weeks_opens_as_usual(place: Place, full: Pyramid) -> None:
    place.close()
    place.machine.restart()
    place.machine.jump(30 * DAY)
    said: list[Any] = []
    store = place.held(Pyramid.open(place.path, **place.given, announce=said.append))
    assert store.clock.alarm is None
    assert kept(store)[0] == 0
    assert said[0].steps == 2


def test_given_clock_is_trusted(stand: Stand) -> None:
    store = stand.create()
    observed(store, rows(10))
    stand.clock.pass_(400 * DAY)
    store.advance()
    stand.clock.pass_(-300 * DAY)
    assert store.clock.alarm is None
    assert kept(store) == (0, 0)


# --- rows that come during the alarm -----------------------------------------------------------


@pytest.mark.parametrize("days", [400, -400])
@pytest.mark.parametrize("by", ["store", "system"])
def test_rows_come_by_either_clock(place: Place, full: Pyramid, days: float, by: str) -> None:
    before = kept(full)
    place.machine.jump(days * DAY)
    at = full.now / SECOND if by == "store" else place.machine.wall
    receipt = observed(full, rows(30, at), key="during")
    assert receipt.accepted == 30
    assert receipt.late == (30 if by == "system" else 0)
    assert kept(full) == (before[0] + 30, before[1] + 30)
    assert full.observe(rows(30, at), key="during") == receipt
    (window,) = [w for w in full.status().windows if w.rows == 30]
    assert window.start is not None
    assert window.start <= full.now  # none is opened in the future
    store = place.reopen()
    assert kept(store) == (before[0] + 30, before[1] + 30)


def test_rows_later_than_all_clocks_are_refused(place: Place, full: Pyramid) -> None:
    place.machine.jump(400 * DAY)
    with pytest.raises(ObservationError, match="max_skew"):
        full.observe(rows(3, place.machine.wall + 2 * HOUR))


def test_alarm_that_lasts_rolls_no_window(place: Place, full: Pyramid) -> None:
    place.machine.jump(400 * DAY)
    for _ in range(15):
        observed(full, rows(10, place.machine.wall))
        place.machine.pass_(DAY)
        full.advance()
    assert kept(full) == (20 + 150, 400)
    found = [(w.state, w.rows) for w in full.status().windows if w.rows]
    assert found[:3] == [("sealed", 100), ("sealed", 100), ("populating", 50)]
    assert found[3:] == [("populating", 50), ("populating", 100)]  # since then: of others


def test_history_waits_for_the_clock(place: Place, full: Pyramid, tmp_path: Path) -> None:
    place.machine.jump(400 * DAY)
    with pytest.raises(StateError, match="a history is not taken while clocks disagree"):
        full.replay(saved(tmp_path))
    with pytest.raises(StateError, match="a history is not taken while clocks disagree"):
        full.bulk()


# --- a person answers -----------------------------------------------------------------------------


def test_corrected_clock_goes_on(place: Place, full: Pyramid) -> None:
    place.machine.jump(400 * DAY)
    observed(full, rows(30, full.now / SECOND))
    with pytest.raises(StateError, match="34,560,000 seconds ahead of the store's own time; set"):
        full.admin.correct_clock(why="a battery")
    place.machine.jump(-400 * DAY)
    full.admin.correct_clock(why="a battery")
    assert full.clock.problem == ""
    assert kept(full) == (50, 280)
    place.machine.pass_(2 * DAY)
    full.advance()
    assert kept(full) == (30, 280)  # as ever
    place.machine.pass_(3 * DAY)
    full.advance()
    assert [w.state for w in full.status().windows] == ["sealed"] * 4
    assert [e.facts["why"] for e in full.audit_log.entries() if e.kind == "clock.corrected"] == [
        "a battery"
    ]
    assert place.reopen().clock.alarm is None


def test_confirmed_jump_keeps_what_came_during_the_alarm(place: Place, full: Pyramid) -> None:
    place.machine.jump(400 * DAY)
    observed(full, rows(30, place.machine.wall))
    due = full.admin.due(place.machine.wall)
    assert (due.retired, due.steps, due.rows) == ((1, 2, 3), 2, 20)
    done = full.admin.confirm_clock(why="it was asleep")
    assert (done.retired, done.steps) == ([1, 2, 3], 2)
    assert kept(full) == (30, 30)
    assert full.now == place.machine.wall * SECOND
    place.machine.pass_(2 * DAY)
    assert kept(place.reopen()) == (30, 30)  # for a whole hot window from when they came
    place.machine.pass_(2 * DAY)
    assert kept(place.reopen()) == (0, 30)
    place.machine.pass_(47 * DAY)
    assert kept(place.reopen()) == (0, 0)  # and for the whole retention


def test_confirmed_small_jump_keeps_the_windows(place: Place, full: Pyramid) -> None:
    place.machine.jump(2 * HOUR)
    observed(full, rows(30, place.machine.wall))
    full.admin.confirm_clock(why="a pause")
    assert [w.state for w in full.status().windows] == ["sealed"] * 2 + ["populating"] * 2
    assert kept(full) == (50, 280)


def test_stored_clock_is_set_back(place: Place, full: Pyramid) -> None:
    place.machine.jump(-400 * DAY)  # it was ahead all the time
    observed(full, rows(30, place.machine.wall))
    full.admin.confirm_clock(why="it was ahead")
    assert full.now == place.machine.wall * SECOND
    assert kept(full) == (50, 280)
    assert full.audit_log.verify().sound
    (entry,) = [e for e in full.audit_log.entries() if e.kind == "clock.confirmed"]
    assert entry.at == full.now
    observed(full, rows(5, place.machine.wall))
    place.machine.pass_(2 * DAY)
    assert kept(place.reopen()) == (55, 285)
    place.machine.pass_(2 * DAY)
    assert kept(place.reopen()) == (0, 285)
    place.machine.pass_(47 * DAY)
    assert kept(place.reopen()) == (0, 0)  # nothing stays for the days that it was ahead


def test_report_has_a_gap_where_the_time_was_set_back(place: Place) -> None:
    machine = place.machine
    store = place.create()
    machine.pass_(DAY)
    machine.jump(300 * DAY)
    store = place.reopen()
    observed(store, rows(10, machine.wall))
    truth = machine.wall - 300 * DAY
    machine.jump(-300 * DAY)
    store.admin.confirm_clock(why="the clock was ahead")
    report = store.exposure(truth - HOUR, truth)
    assert [gap.stop for gap in report.gaps] == [int(truth * SECOND)]
    machine.pass_(2 * HOUR)
    report = store.exposure(machine.wall - HOUR, machine.wall)
    assert (report.rows, report.gaps) == (10, ())
    assert [window.number for window in report.windows]
    assert all(record.at <= machine.wall * SECOND for record in store.status().deletions)


def test_report_has_a_gap_where_the_time_was_behind(place: Place, full: Pyramid) -> None:
    machine = place.machine
    machine.pass_(HOUR)
    alarm = machine.wall
    machine.jump(30 * DAY)
    observed(full, rows(10, machine.wall))
    full.admin.confirm_clock(why="right")
    (gap,) = full.exposure(alarm + 7 * DAY, alarm + 8 * DAY).gaps
    assert gap.start is not None
    assert gap.start <= alarm * SECOND
    assert gap.stop == machine.wall * SECOND


def test_confirmed_twice_is_refused(place: Place, full: Pyramid) -> None:
    place.machine.jump(400 * DAY)
    with pytest.raises(SchemaError, match="give a reason"):
        full.admin.confirm_clock(why="")
    full.admin.confirm_clock(why="right")
    for answer in (full.admin.confirm_clock, full.admin.correct_clock):
        with pytest.raises(StateError, match="the clocks agree"):
            answer(why="right")


def test_imported_history_is_confirmed_to_the_present(place: Place, tmp_path: Path) -> None:
    place.machine.jump(4_000 * DAY)
    store = place.create()
    list(store.replay(saved(tmp_path)))
    store.admin.confirm_clock(why="nothing comes any more")
    assert kept(store) == (0, 0)
    assert place.reopen().clock.follows == "system"


def test_clock_is_compared_again_after_an_answer(place: Place, full: Pyramid) -> None:
    place.machine.jump(2 * HOUR)
    full.advance()
    full.admin.confirm_clock(why="right")
    place.machine.jump(2 * HOUR)
    assert full.clock.alarm is not None


@pytest.mark.parametrize("days", [400, -400, 5])
def test_crash_in_an_answer_leaves_one_time(
    place: Place, full: Pyramid, days: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.machine.jump(days * DAY)
    observed(full, rows(30, place.machine.wall))
    catalogue, real = inspect.catalogue(full), inspect.catalogue(full).note

    def failing(**facts: object) -> None:
        if "clock" in facts:
            raise OSError("no")
        real(**facts)

    monkeypatch.setattr(catalogue, "note", failing)
    with pytest.raises(OSError, match="no"):
        full.admin.confirm_clock(why="right")
    store = place.reopen()
    assert store.clock.alarm is not None
    assert kept(store) == (50, 280)
    store.admin.confirm_clock(why="right")
    assert kept(store)[1] == {400: 30, -400: 280, 5: 280}[days]


# --- people ------------------------------------------------------------------------------------


def visits(who: list[str]) -> pa.Table:
    return pa.table({"who": who, "b": ["x"] * len(who), "y": [1] * len(who)})


def counted(store: Pyramid, window: int, who: list[str]) -> int:
    """How many rows of people are counted in a window."""
    found = 0
    for number, table, parts in inspect.hot(store).batches():
        flags = inspect.hot(store).counted(number)
        assert flags is not None
        mine = [w for w, size in parts for _ in range(size)]
        people = table["who"].to_pylist()
        found += sum(
            bool(f) and w == window and p in who
            for f, w, p in zip(flags, mine, people, strict=True)
        )
    return found


@pytest.mark.parametrize("days", [400, -400, 2])
def test_nobody_has_more_rows_in_a_window_than_its_noise_hides(place: Place, days: float) -> None:
    store = place.create(PEOPLE, hot_window="500d", retention="600d", unit_block="2d", k=1)
    hidden = inspect.parts(store).people.hidden
    for _ in range(8):
        observed(store, visits(["ada"] * 3))
        place.machine.pass_(DAY)
    place.machine.jump(days * DAY)
    for _ in range(8):
        observed(store, visits(["ada"] * 3))
        place.machine.pass_(DAY)
    store.admin.confirm_clock(why="right")
    for _ in range(12):
        observed(store, visits(["ada"] * 3))
        place.machine.pass_(DAY)
        store = place.reopen()
    windows = [window.number for window in store.status().windows]
    most = [counted(store, window, ["ada"]) for window in windows]
    assert 0 < max(most) <= hidden
    assert store.status().hot_rows == 3 * 28


def test_erased_person_stays_uncounted_when_the_clock_is_set_back(place: Place) -> None:
    store = place.create(PEOPLE, hot_window="8d", unit_block="2d", k=2)
    observed(store, visits(["ada", "bob"]))
    store.erase_person("ada")
    place.machine.jump(-400 * DAY)
    store.admin.confirm_clock(why="right")
    store = place.reopen()
    assert store.observe(visits(["ada", "bob"])).accepted == 2
    last = inspect.hot(store).steps[-1].batches[-1].number
    flags = inspect.hot(store).counted(last)
    assert flags is not None
    assert flags.tolist() == [False, True]


# --- other stores ---------------------------------------------------------------------------


def test_alarm_is_written_as_json() -> None:
    alarm = Alarm(5, 6, 7, "x", 8, 9)
    assert Alarm.from_json(alarm.to_json()) == alarm
    assert Alarm.from_json("") is None
    assert json.loads(alarm.to_json())["step"] == 8


def test_rows_without_a_time_come_during_an_alarm(place: Place) -> None:
    store = place.create(TIMELESS)
    observed(store, rows(10).drop_columns(["t"]))
    place.machine.jump(400 * DAY)
    observed(store, rows(10).drop_columns(["t"]))
    assert kept(store) == (20, 20)


def test_windows_by_rows_roll_on_after_an_answer(place: Place) -> None:
    store = place.create(SCHEMA, count_window=100)
    for days in (0, 400, -800):
        place.machine.jump(days * DAY)
        observed(store, rows(70, store.now / SECOND))
        observed(store, rows(70, store.now / SECOND))
        if days:
            store.admin.confirm_clock(why="right")
    assert settled(store).status().hot_rows == 280
    assert kept(place.reopen())[1] == 280


@pytest.mark.parametrize("days", [400, -400, 25])
def test_tree_counts_each_row_once_after_an_answer(place: Place, days: float) -> None:
    tree = {"windows": "tree", "tree_radix": 2, "tree_depth": 3, "epsilon": float("inf")}
    store, batches = place.create(retention="900d", hot_window="800d", **tree), []
    for turn in range(9):
        if turn == 4:
            place.machine.jump(days * DAY)
        batches.append(rows(6, place.machine.wall, seed=turn))
        observed(store, batches[-1])
        if turn == 5:
            store.admin.confirm_clock(why="right")
        place.machine.pass_(10 * DAY)
        store = place.reopen()
    store.advance()
    arena = inspect.served(store)
    assert arena is not None
    assert arena.rows == 6 * 9
    assert same(cells(arena), exact(store, arena, batches))


def test_vault_files_stay_during_an_alarm(place: Place) -> None:
    place.vault = place.folder / "vault"
    store = place.create(vault_retention="2d")
    observed(store, rows(10))
    assert store.vault is not None
    store.vault.seal()
    files = store.vault.status().files
    place.machine.jump(400 * DAY)
    store.advance()
    place.machine.pass_(3 * DAY)
    store.advance()
    assert store.vault.status().files == files == 1
    store.admin.confirm_clock(why="right")
    assert store.vault.status().files == 0
