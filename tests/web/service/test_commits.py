"""Commits: senders share them, a full queue says so, and nobody waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from copy import copy
from typing import Any

import pytest

from pyramidion import Arrival
from pyramidion.errors import BusyError, ObservationError, StorageError
from pyramidion.storage.hot import Receipt
from pyramidion.web.service import commits
from pyramidion.web.service.commits import Commits, Load
from tests.store import inspect
from tests.store.conftest import stand
from tests.store.inspect import populating
from tests.store.stores import Stand, noise, rows, same
from tests.waiting import PATIENCE as LONG

ROOM = {"most_requests": 1_000, "most_rows": 10_000, "most_bytes": 1_000_000}

__all__ = ["stand"]


class Store:
    """Takes groups when it is let; remembers them."""

    def __init__(self) -> None:
        self.groups: list[list[Any]] = []
        self.go = threading.Event()
        self.began = threading.Event()
        self.go.set()

    def observe_all(self, arrivals: Sequence[Arrival]) -> list[Any]:
        self.groups.append([arrival.batch for arrival in arrivals])
        self.began.set()
        assert self.go.wait(LONG)
        return [Receipt(1, 0, 0) for _ in arrivals]

    def hold(self, gathering: Commits) -> Future[Receipt]:
        """Begin a group that does not end until it is let."""
        self.go.clear()
        self.began.clear()
        first = gathering.submit(Arrival("first"), 1, 1)
        assert self.began.wait(LONG)
        return first


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def made(store: Store) -> Iterator[Callable[..., Commits]]:
    """Makes commits that are closed at the end."""
    all_made: list[Commits] = []

    def make(observe_all: Any = store.observe_all, **room: int) -> Commits:
        all_made.append(Commits(observe_all, **ROOM | room))
        return all_made[-1]

    yield make
    store.go.set()
    for each in all_made:
        each.close()


def test_one_that_comes_alone_is_committed_at_once(made: Callable[..., Commits]) -> None:
    gathering = made()
    assert gathering.submit(Arrival("a"), 1, 1).result(LONG) == Receipt(1, 0, 0)
    assert gathering.load == Load()


def test_what_comes_during_a_commit_is_the_next_group_in_order(
    store: Store, made: Callable[..., Commits]
) -> None:
    gathering = made()
    first = store.hold(gathering)
    others = [gathering.submit(Arrival(n), 1, 1) for n in range(50)]
    store.go.set()
    wait([first, *others], LONG)
    assert store.groups == [["first"], list(range(50))]


def test_a_group_has_a_bounded_number_of_rows_and_one_request_may_have_more(
    store: Store, made: Callable[..., Commits], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "GROUP_ROWS", 10)
    gathering = made()
    first = store.hold(gathering)
    others = [gathering.submit(Arrival(size), size, 1) for size in (4, 6, 5, 12, 1)]
    store.go.set()
    wait([first, *others], LONG)
    assert store.groups == [["first"], [4, 6], [5], [12], [1]]


def test_each_has_its_own_answer(made: Callable[..., Commits]) -> None:
    bad = ObservationError("1 of 1 rows cannot be counted")
    known = {"good": Receipt(1, 0, 0), "bad": bad}
    gathering = made(lambda arrivals: [known[arrival.batch] for arrival in arrivals])
    answers = [gathering.submit(Arrival(name), 1, 1) for name in ("good", "bad", "good")]
    assert answers[0].result(LONG) == answers[2].result(LONG) == Receipt(1, 0, 0)
    assert answers[1].exception(LONG) is bad


# --- full --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("room", "rows_", "size"),
    [({"most_requests": 3}, 1, 1), ({"most_rows": 30}, 10, 1), ({"most_bytes": 3_000}, 1, 1_000)],
)
def test_a_full_queue_refuses_and_takes_again_once_there_is_room(
    store: Store, made: Callable[..., Commits], room: dict[str, int], rows_: int, size: int
) -> None:
    gathering = made(**room)
    first = store.hold(gathering)
    taken = [gathering.submit(Arrival("x"), rows_, size) for _ in range(2)]
    with pytest.raises(BusyError, match="send them again in 1 seconds") as busy:
        [gathering.submit(Arrival("x"), rows_, size) for _ in range(2)]
    assert busy.value.status == 429
    assert busy.value.retry_after == 1
    store.go.set()
    wait([first, *taken], LONG)
    assert gathering.submit(Arrival("x"), rows_, size).result(LONG)


def test_one_that_comes_alone_has_room_however_large_it_is(made: Callable[..., Commits]) -> None:
    gathering = made(most_rows=10, most_bytes=10)
    assert gathering.submit(Arrival("x"), 1_000, 1_000).result(LONG)


def test_when_to_come_back_follows_how_quickly_the_queue_went_down(
    store: Store, made: Callable[..., Commits]
) -> None:
    gathering = made(most_requests=10)
    store.hold(gathering)
    for pace, due in ((0.01, 1), (0.35, 4), (100.0, 60)):
        gathering._pace = pace
        with pytest.raises(BusyError) as busy:
            [gathering.submit(Arrival("x"), 1, 1) for _ in range(11)]
        assert busy.value.retry_after == due


def test_the_error_of_a_full_queue_can_be_copied_whole() -> None:
    found = copy(BusyError("too much; come back", retry_after=7))
    assert (str(found), found.retry_after) == ("too much; come back", 7)


# --- failures and the end ------------------------------------------------------------------


@pytest.mark.parametrize("problem", [StorageError("a full disk"), ZeroDivisionError("a bug")])
def test_a_group_that_fails_fails_each_of_it_and_the_next_one_is_taken(
    made: Callable[..., Commits], problem: Exception
) -> None:
    problems = [problem]

    def observe_all(arrivals: Sequence[Arrival]) -> list[Any]:
        if problems:
            raise problems.pop()
        return [Receipt(1, 0, 0) for _ in arrivals]

    gathering = made(observe_all)
    with pytest.raises(type(problem), match=str(problem)):
        gathering.submit(Arrival("a"), 1, 1).result(LONG)
    assert gathering.submit(Arrival("a"), 1, 1).result(LONG) == Receipt(1, 0, 0)
    assert gathering.load == Load()


def test_too_few_answers_fail_all_instead_of_leaving_some_waiting(
    made: Callable[..., Commits],
) -> None:
    gathering = made(lambda arrivals: [])
    assert isinstance(gathering.submit(Arrival("a"), 1, 1).exception(LONG), RuntimeError)


def test_who_has_given_up_waiting_is_not_observed(
    store: Store, made: Callable[..., Commits]
) -> None:
    gathering = made()
    store.hold(gathering)
    gone, stays = (gathering.submit(Arrival(name), 1, 1) for name in ("gone", "stays"))
    assert gone.cancel()
    store.go.set()
    assert stays.result(LONG)
    assert store.groups == [["first"], ["stays"]]
    assert gathering.load == Load()


def test_closing_under_load_answers_what_was_taken_and_refuses_the_rest(store: Store) -> None:
    gathering = Commits(store.observe_all, **ROOM)
    first = store.hold(gathering)
    taken = [gathering.submit(Arrival(n), 1, 1) for n in range(20)]
    with ThreadPoolExecutor(1) as beside:
        closing = beside.submit(gathering.close)
        while not gathering._closed:
            pass
        with pytest.raises(BusyError, match="being closed; send the observations again later"):
            gathering.submit(Arrival("late"), 1, 1)
        assert not closing.done()
        store.go.set()
        closing.result(LONG)
    assert all(each.done() and each.result() for each in (first, *taken))
    gathering.close()


def test_senders_that_hammer_a_store_are_each_answered_and_counted_once(stand: Stand) -> None:
    store = stand.create()
    store.observe(rows(1))
    batch = rows(240, seed=1)
    sent = batch.to_pylist()
    full, refused = threading.Event(), [0]

    def observe_all(arrivals: Sequence[Arrival]) -> list[Any]:
        assert full.wait(LONG)  # the first group waits until the queue behind it is full
        return store.observe_all(arrivals)

    gathering = Commits(observe_all, **ROOM | {"most_requests": 12})

    def send(place: int) -> None:
        for number in range(place, len(sent), 24):
            while True:
                try:
                    arrival = Arrival([sent[number]], f"row {number}")
                    assert gathering.submit(arrival, 1, 100).result(LONG) == Receipt(1, 0, 0)
                    break
                except BusyError:
                    refused[0] += 1
                    full.set()
                    threading.Event().wait(0.001)

    before = noise(store, populating(store), [rows(1)])
    with ThreadPoolExecutor(24) as senders:
        list(senders.map(send, range(24)))
    gathering.close()
    assert refused[0] > 0
    assert same(noise(store, populating(store), [rows(1), batch]), before)
    hot = inspect.hot(store)
    assert hot.rows == 241
    assert len(hot.steps[0].batches) <= 241 - 10  # the second group had eleven at least
