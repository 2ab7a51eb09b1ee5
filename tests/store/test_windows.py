"""Count windows: fixed borders, each row in one, and never a way back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyramidion.errors import ObservationError, StateError, StorageError
from pyramidion.storage.catalogue import Catalogue
from pyramidion.storage.hot import Receipt
from pyramidion.store import transitions
from pyramidion.store.schedule import Schedule
from tests.store import inspect
from tests.store.inspect import born, populating, sealed, settled
from tests.store.stores import (
    DAY,
    HOUR,
    SECOND,
    START,
    TIMELESS,
    Stand,
    cells,
    exact,
    failing_once,
    noise,
    observed,
    rows,
    same,
    states,
)

# --- by time -----------------------------------------------------------------------------


def test_event_time_decides_the_window(stand: Stand) -> None:
    store = stand.create(epsilon=float("inf"), max_skew="10d")
    batches = {1: rows(5, START + 9 * DAY, seed=1), 2: rows(6, START + 10 * DAY, seed=2)}
    stand.clock.pass_(9.5 * DAY)
    for batch in batches.values():
        assert observed(store, batch).late == 0
    for number, batch in batches.items():
        arena = populating(store, number)
        assert same(cells(arena), exact(store, arena, [batch]))


@pytest.mark.parametrize("origin", [0.0, 3 * DAY + 1.5, -7 * DAY])
def test_borders_are_multiples_of_the_length_from_the_origin(stand: Stand, origin: float) -> None:
    store = stand.create(origin=origin)
    for _ in range(4):
        observed(store, rows(2, stand.clock.now))
        stand.clock.pass_(7.3 * DAY)
    windows = store.status().windows
    assert len(windows) > 2
    for window in windows:
        assert (window.start - origin * SECOND) % (10 * DAY * SECOND) == 0
        assert window.stop - window.start == 10 * DAY * SECOND


def test_a_row_on_the_border_belongs_to_the_window_that_begins_there(stand: Stand) -> None:
    store = stand.create()
    now = stand.clock.pass_(10 * DAY - 1)
    store.observe(rows(2, [now, now + 1]))
    assert states(store) == {1: ("populating", 1), 2: ("populating", 1)}


def test_late_rows_go_to_the_populating_window_and_are_marked(stand: Stand) -> None:
    store = stand.create(epsilon=float("inf"))
    store.observe(rows(5))
    stand.clock.pass_(12 * DAY)
    store.advance()
    late = rows(3, START + DAY, seed=1)
    assert store.observe(late) == Receipt(3, 0, 3)
    assert states(store) == {1: ("sealed", 5), 2: ("populating", 3)}
    assert same(cells(populating(store, 2)), exact(store, populating(store, 2), [late]))


def test_late_and_timely_rows_of_a_batch_are_told_apart(stand: Stand) -> None:
    store = stand.create()
    store.observe(rows(5))
    now = stand.clock.pass_(12 * DAY)
    store.advance()
    assert store.observe(rows(6, [START, now, START, now, now, START])) == Receipt(6, 0, 3)
    assert states(store)[2] == ("populating", 6)


def test_rows_of_a_window_that_is_over_and_not_sealed_yet_still_go_there(stand: Stand) -> None:
    store = stand.create()
    store.observe(rows(5))
    stand.clock.pass_(10 * DAY + HOUR)
    assert inspect.parts(store).arrivals.take(rows(3, START), store.now) == Receipt(3, 0, 0)
    assert states(store)[1] == ("populating", 8)


def test_rows_older_than_the_store_are_late(stand: Stand) -> None:
    store = stand.create()
    assert store.observe(rows(5, 0.0)) == Receipt(5, 0, 5)
    assert store.status().windows[0].start == START * SECOND


def test_rows_beyond_the_skew_are_refused_by_number_with_the_reason(stand: Stand) -> None:
    store = stand.create()
    batch = rows(4, [START, START + HOUR, START + HOUR + 1, START + 99 * DAY])
    with pytest.raises(ObservationError, match="max_skew") as caught:
        store.observe(batch)
    ((reason, numbers),) = caught.value.problems.items()
    assert numbers == [2, 3]
    assert "'t'" in reason
    assert store.observe(batch, errors="skip") == Receipt(2, 2, 0)


def test_a_batch_may_span_two_windows(stand: Stand) -> None:
    store = stand.create(epsilon=float("inf"))
    now = stand.clock.pass_(10 * DAY - HOUR / 2)
    batch = rows(50, np.where(np.arange(50) % 3, now, now + HOUR))
    assert store.observe(batch) == Receipt(50, 0, 0)
    store = stand.reopen()
    inside = np.arange(50) % 3 != 0
    for number, chosen in ((1, inside), (2, ~inside)):
        part = batch.take(np.flatnonzero(chosen))
        arena = populating(store, number)
        assert same(cells(arena), exact(store, arena, [part]))


def test_a_window_is_sealed_when_its_time_is_over_and_keeps_its_noise(stand: Stand) -> None:
    store = stand.create()
    batch = rows(30)
    store.observe(batch)
    before = noise(store, populating(store), [batch])
    stand.clock.pass_(10 * DAY - 1)
    assert not store.advance().sealed
    stand.clock.pass_(1)
    assert store.advance().sealed == [1]
    assert same(noise(store, sealed(store, 1), [batch]), before)
    assert states(store)[1] == ("sealed", 30)


def test_a_sealed_window_never_changes(stand: Stand) -> None:
    store = stand.create()
    store.observe(rows(30))
    stand.clock.pass_(10 * DAY)
    store.advance()
    before = cells(sealed(store, 1))
    for _ in range(3):
        store.observe(rows(10, START))
        stand.clock.pass_(2 * DAY)
        store.advance()
    assert same(cells(sealed(stand.reopen(), 1)), before)


def test_each_window_has_noise_of_its_own(stand: Stand) -> None:
    store = stand.create()
    for _ in range(3):
        observed(store, rows(20, stand.clock.now))
        stand.clock.pass_(10 * DAY)
    store.advance()
    found = [noise(store, sealed(store, number), [rows(20)]) for number in (1, 2, 3)]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not any((found[one][name] == found[other][name]).all() for name in ("a", "a,b"))


def test_complete_tables_are_the_sum_of_the_sealed_windows(stand: Stand) -> None:
    store = stand.create()
    for _ in range(4):
        observed(store, rows(20, stand.clock.now, seed=int(stand.clock.now)))
        stand.clock.pass_(10 * DAY)
        store.advance()
    numbers = [number for number, (state, _) in states(store).items() if state == "sealed"]
    parts = [cells(sealed(store, number)) for number in numbers]
    complete = cells(inspect.served(store))
    assert len(numbers) == 4
    for name, found in complete.items():
        assert (found == sum(part[name] for part in parts)).all()
    assert same(cells(inspect.served(stand.reopen())), complete)


def test_a_long_pause_seals_what_was_there_and_opens_nothing_in_between(stand: Stand) -> None:
    store = stand.create()
    store.observe(rows(5))
    stand.clock.pass_(37 * DAY)
    assert store.advance().sealed == [1]
    store.observe(rows(5, stand.clock.now))
    assert states(store) == {1: ("sealed", 5), 2: ("populating", 5)}
    assert store.status().windows[1].start == (START + 30 * DAY) * SECOND


def test_a_sealing_that_could_not_be_finished_has_happened_all_the_same(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create(epsilon=float("inf"))
    store.observe(rows(30))
    stand.clock.pass_(10 * DAY)
    left = failing_once(monkeypatch, Catalogue, "truncate_log", StorageError("the log is in use"))
    with pytest.raises(StorageError, match="the log is in use"):
        store.advance()
    assert not left
    store.observe(rows(5, stand.clock.now))
    store.advance()
    for each in (lambda: store, stand.reopen):
        found = each()
        assert states(found) == {1: ("sealed", 30), 2: ("populating", 5)}
        assert same(cells(sealed(found, 1)), exact(found, sealed(found, 1), [rows(30)]))
        assert found.featurize(rows(3)).num_rows == 3


# --- the next window ------------------------------------------------------------------------


def test_the_noise_of_the_next_window_is_ready_before_its_first_row(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create()
    stand.clock.pass_(8.9 * DAY)
    observed(store, rows(5, stand.clock.now))
    assert len(inspect.windows(store)) == 1
    stand.clock.pass_(0.2 * DAY)
    birth = born(store, monkeypatch)
    assert store.advance().opened == [2]
    assert len(birth) == 1
    batch = rows(5, stand.clock.pass_(DAY))
    observed(store, batch)
    assert same(noise(store, populating(store, 2), [batch]), cells(birth[0]))
    assert len(birth) == 1


def test_observing_prepares_the_next_window_behind_the_scenes(stand: Stand) -> None:
    store = stand.create()
    stand.clock.pass_(9.5 * DAY)
    observed(store, rows(5, stand.clock.now))
    assert set(inspect.windows(store)) == {1, 2}
    assert len(stand.files("tables")) == 2


def test_a_prepared_window_that_nobody_came_to_is_dropped_and_stays_charged(stand: Stand) -> None:
    store = stand.create()
    stand.clock.pass_(9.5 * DAY)
    observed(store, rows(5, stand.clock.now))
    stand.clock.pass_(15 * DAY)
    done = store.advance()
    assert (done.sealed, done.dropped) == ([1], [2])
    assert inspect.served(store).rows == 5
    assert [window.number for window in store.ledger.report().windows] == [1, 2]
    assert set(states(stand.reopen())) == {1}


def test_a_row_that_comes_while_an_empty_window_is_dropped_is_not_lost(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create()
    now = stand.clock.pass_(9.5 * DAY)
    observed(store, rows(5, now))
    stand.clock.pass_(12 * DAY)
    parts = inspect.parts(store)
    plan = transitions.plan_abandon

    def slow(tables: Any) -> Any:
        parts.arrivals.take(rows(3, now + DAY), store.now)  # of the window's own time
        return plan(tables)

    monkeypatch.setattr(transitions, "plan_abandon", slow)
    store.advance()
    store = stand.reopen()
    assert sum(count for state, count in states(store).values() if state != "erased") == 8


def test_a_window_is_never_opened_twice_for_the_same_time(stand: Stand) -> None:
    store = stand.create()
    store.observe(rows(5))
    arrivals, then = inspect.parts(store).arrivals, store.now
    stand.clock.pass_(12 * DAY)
    store.advance()
    store.observe(rows(5, stand.clock.now))
    arrivals.take(rows(3, START), then)  # a caller that looked at the clock long ago
    starts = [window.start for window in store.status().windows]
    assert len(set(starts)) == len(starts)
    assert states(store) == {1: ("sealed", 5), 2: ("populating", 8)}


# --- by arrival, by rows ----------------------------------------------------------------------


def test_without_an_event_time_arrival_decides(stand: Stand) -> None:
    store = stand.create(TIMELESS)
    store.observe(rows(5))
    stand.clock.pass_(10 * DAY)
    store.observe(rows(6))
    settled(store)
    assert states(store) == {1: ("sealed", 5), 2: ("populating", 6)}


def test_windows_by_rows_fill_one_after_the_other(stand: Stand) -> None:
    store = stand.create(TIMELESS, count_window=100, epsilon=float("inf"))
    batches = [rows(40, seed=seed) for seed in range(6)]
    for batch in batches:
        assert observed(store, batch) == Receipt(40, 0, 0)
    store.advance()
    assert states(store) == {1: ("sealed", 100), 2: ("sealed", 100), 3: ("populating", 40)}
    together = batches[2].slice(20)
    expected = exact(store, sealed(store, 2), [together, batches[3], batches[4]])
    assert same(cells(sealed(store, 2)), expected)


def test_a_batch_over_the_border_is_split_exactly_there_and_stays_so(stand: Stand) -> None:
    store = stand.create(TIMELESS, count_window=100, epsilon=float("inf"))
    batch, border = rows(70, seed=1), rows(60, seed=2)
    inspect.parts(store).arrivals.take(batch, store.now)
    inspect.parts(store).arrivals.take(border, store.now)
    store = stand.reopen()  # which seals
    assert states(store) == {1: ("sealed", 100), 2: ("populating", 30)}
    first, second = sealed(store, 1), populating(store, 2)
    assert same(cells(first), exact(store, first, [batch, border.slice(0, 30)]))
    assert same(cells(second), exact(store, second, [border.slice(30)]))


def test_a_batch_larger_than_a_window_by_rows_is_refused_whole(stand: Stand) -> None:
    store = stand.create(TIMELESS, count_window=100)
    with pytest.raises(StateError, match="101 rows is more than a window of 100 takes"):
        store.observe(rows(101))
    assert store.status().windows == ()
    assert observed(store, rows(100)).accepted == 100
    assert states(store)[1] == ("sealed", 100)


def test_event_time_does_not_move_the_borders_of_windows_by_rows(stand: Stand) -> None:
    store = stand.create(count_window=10)
    store.observe(rows(7, 0.0))
    assert observed(store, rows(7, START)) == Receipt(7, 0, 0)
    assert states(store) == {1: ("sealed", 10), 2: ("populating", 4)}


def test_refused_rows_do_not_fill_a_window_by_rows(stand: Stand) -> None:
    store = stand.create(TIMELESS, count_window=10)
    batch = rows(12).to_pylist()
    for row in batch[:4]:
        row["y"] = 9
    assert observed(store, batch, errors="skip") == Receipt(8, 4, 0)
    assert states(store)[1] == ("populating", 8)


# --- full ---------------------------------------------------------------------------------------


def test_rows_beyond_what_a_window_holds_are_refused_and_nothing_is_lost(stand: Stand) -> None:
    store = stand.create(max_rows_per_window=100)
    batch = rows(80)
    store.observe(batch)
    before = cells(populating(store))
    with pytest.raises(StateError, match="window 1 has room for 20 rows and 30 came"):
        store.observe(rows(30), key="k")
    assert same(cells(populating(store)), before)
    assert store.observe(rows(20), key="k").accepted == 20
    assert store.status().hot_rows == 100
    stand.clock.pass_(10 * DAY)
    assert observed(store, rows(30, stand.clock.now)).accepted == 30


def test_a_batch_that_does_not_fit_one_of_its_windows_goes_to_none(stand: Stand) -> None:
    store = stand.create(max_rows_per_window=100)
    store.observe(rows(90))
    now = stand.clock.pass_(10 * DAY - HOUR / 2)
    with pytest.raises(StateError, match="room for 10 rows and 20 came"):
        store.observe(rows(40, np.tile([now, now + HOUR], 20)))
    assert states(store)[1] == ("populating", 90)
    assert inspect.populating(store, 2).rows == 0


# --- the only mover -------------------------------------------------------------------------------


def test_a_window_never_goes_back(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    order = ["opening", "populating", "sealed", "retired", "erased"]
    seen: dict[int, int] = {}
    store = stand.create()
    look = Schedule.is_due

    def watched(self: Schedule, now: int, **held: bool) -> bool:
        for row in self._store.sets.windows():
            number, state = row["number"], row["state"]
            assert order.index(state) >= seen.get(number, 0)
            seen[number] = order.index(state)
        return look(self, now, **held)

    monkeypatch.setattr(Schedule, "is_due", watched)
    for day in range(90):
        observed(store, rows(2, stand.clock.now - (day % 3) * 8 * DAY))
        if day % 11 == 0:
            store = stand.reopen()
        stand.clock.pass_(DAY)
    assert {"erased", "sealed", "populating"} <= {order[place] for place in seen.values()}
