"""Several threads and several processes at one store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from pyramidion import Pyramid
from pyramidion.errors import StateError
from tests.store.stores import (
    DAY,
    HOUR,
    START,
    TIMELESS,
    Clock,
    Stand,
    cells,
    exact,
    observed,
    populating,
    rows,
    same,
    sealed,
    states,
)


class Crowd:
    """Threads that do their work over and over until they are told to stop."""

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def add(self, work: Callable[[int], Any]) -> None:
        def run() -> None:
            turn = 0
            try:
                while not self._stop.is_set():
                    work(turn)
                    turn += 1
            except BaseException as problem:
                self.failures.append(problem)

        self._threads.append(threading.Thread(target=run))

    def run(self, seconds: float) -> None:
        for thread in self._threads:
            thread.start()
        time.sleep(seconds)
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert self.failures == []


class Running(Clock):
    """A clock on which days pass while the test runs."""

    def __init__(self, days_a_second: float) -> None:
        super().__init__()
        self._began, self._speed = time.monotonic(), days_a_second * DAY

    def __call__(self) -> float:
        return START + (time.monotonic() - self._began) * self._speed


def test_counts_are_exact_however_many_observe_while_windows_roll(stand: Stand) -> None:
    stand.clock = Running(days_a_second=25)
    store = stand.create(TIMELESS, epsilon=float("inf"), retention="900d", checkpoint_rows=500)
    seen: list[Any] = []

    def observe(turn: int) -> None:
        batch = rows(20, seed=turn)
        assert store.observe(batch).accepted == 20
        seen.append(batch)

    def featurize(_: int) -> None:
        with suppress(StateError):  # until the first window is sealed
            store.featurize(rows(10))

    crowd = Crowd()
    for work in (observe, observe, observe, lambda _: store.advance(), featurize):
        crowd.add(work)
    crowd.run(2.0)
    store = stand.reopen()
    found = states(store)
    assert sum(count for _, count in found.values()) == 20 * len(seen)
    assert sum(state == "sealed" for state, _ in found.values()) >= 3
    arenas = [
        sealed(store, n) if s == "sealed" else populating(store, n) for n, (s, _) in found.items()
    ]
    total = {name: sum(cells(arena)[name] for arena in arenas) for name in ("", "a", "b", "a,b")}
    assert same(total, exact(store, arenas[0], seen))


def test_windows_by_rows_are_cut_exactly_however_many_observe(stand: Stand) -> None:
    store = stand.create(TIMELESS, count_window=100, epsilon=float("inf"))
    crowd, seen = Crowd(), []
    for _ in range(3):
        crowd.add(lambda turn: seen.append(store.observe(rows(7, seed=turn)).accepted))
    crowd.run(1.0)
    store = stand.reopen()
    found = states(store)
    assert sum(count for _, count in found.values()) == sum(seen)
    assert {count for state, count in found.values() if state == "sealed"} == {100}


def test_an_idempotency_key_counts_once_however_many_send_it(stand: Stand) -> None:
    store = stand.create()
    crowd = Crowd()
    for _ in range(4):
        crowd.add(lambda turn: store.observe(rows(3), key=f"batch {turn % 50}"))
    crowd.run(1.0)
    assert store.status().hot_rows <= 150
    assert store.status().hot_rows == populating(store).rows
    assert store.status().hot_rows % 3 == 0


def test_status_and_backup_do_not_stumble_over_what_rolls(stand: Stand) -> None:
    stand.clock = Running(days_a_second=40)
    store = stand.create(TIMELESS, hot_step="1d")
    crowd = Crowd()
    crowd.add(lambda turn: store.observe(rows(5, seed=turn)))
    crowd.add(lambda _: store.status())
    crowd.add(lambda _: store.backup(stand.folder / "backup"))
    crowd.run(1.5)


def test_groups_come_and_go_while_rows_come_in(stand: Stand) -> None:
    store = stand.create(TIMELESS)
    accepted: list[int] = []

    def change(_: int) -> None:
        store.withdraw("a,b", why="on trial")
        store.add_group(["a", "b"])

    crowd = Crowd()
    for _ in range(2):
        crowd.add(lambda turn: accepted.append(store.observe(rows(5, seed=turn)).accepted))
    crowd.add(change)
    crowd.run(1.0)
    assert stand.reopen().status().hot_rows == sum(accepted)


def test_a_snapshot_in_use_is_whole_until_it_expires(stand: Stand) -> None:
    stand.clock = Running(days_a_second=60)
    store = stand.create(TIMELESS, retention="20d", count_window="10d")

    def featurize(_: int) -> None:
        with suppress(StateError):  # expired just now, or none is there
            first = store.snapshot()
            assert (first.array(rows(50)) == first.array(rows(50))).all()

    crowd = Crowd()
    crowd.add(lambda turn: store.observe(rows(5, seed=turn)))
    for _ in range(2):
        crowd.add(featurize)
    crowd.run(1.5)
    assert any(state == "erased" for state, _ in states(store).values())


@pytest.fixture
def interrupted() -> Iterator[Callable[[float, Callable[[], Any]], bool]]:
    """Does some work and presses Ctrl-C after a while; whether that came in time."""
    inside = False

    def handler(*_: Any) -> None:
        if inside:
            raise KeyboardInterrupt

    def run(after: float, work: Callable[[], Any]) -> bool:
        nonlocal inside
        timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        try:
            inside = True
            work()
        except KeyboardInterrupt:
            return True
        finally:
            inside = False
            timer.join()
        return False

    old = signal.signal(signal.SIGUSR1, handler)
    yield run
    signal.signal(signal.SIGUSR1, old)


def test_ctrl_c_while_observing_leaves_the_store_whole(stand: Stand, interrupted: Any) -> None:
    store = stand.create()
    accepted: list[int] = []

    def observe() -> None:
        accepted.append(store.observe(rows(20)).accepted)

    stopped = [interrupted(0.0003 * turn, observe) for turn in range(40)]
    assert any(stopped)
    observed(store, rows(1))
    hot = store.status().hot_rows
    assert sum(accepted) + 1 <= hot <= 40 * 20 + 1
    assert populating(store).rows == hot
    before = cells(populating(store))
    store = stand.reopen()
    assert store.status().hot_rows == hot
    assert same(cells(populating(store)), before)


def test_ctrl_c_while_advancing_leaves_the_store_whole(stand: Stand, interrupted: Any) -> None:
    store = stand.create(TIMELESS, epsilon=float("inf"), retention="900d")
    batches = []
    for turn in range(15):
        batches.append(rows(20, seed=turn))
        store.observe(batches[-1])
        stand.clock.pass_(4 * DAY)
        interrupted(0.001 * turn, store.advance)
    store = stand.reopen()
    found = states(store)
    assert sum(count for _, count in found.values()) == 300
    arenas = [
        sealed(store, n) if s == "sealed" else populating(store, n) for n, (s, _) in found.items()
    ]
    total = {name: sum(cells(arena)[name] for arena in arenas) for name in ("", "a", "b", "a,b")}
    assert same(total, exact(store, arenas[0], batches))
    assert stand.key.read_text().count(":") == 1


# --- one owner ----------------------------------------------------------------------------


def test_a_store_has_one_owner(stand: Stand) -> None:
    store = stand.create()
    with pytest.raises(StateError, match=rf"open in another process \({os.getpid()}\); close it"):
        Pyramid.open(stand.path, **stand.given)
    store.observe(rows(5))
    assert stand.reopen().status().hot_rows == 5


def test_another_process_is_refused_while_it_is_open(stand: Stand) -> None:
    stand.create()
    code = "import sys; from pyramidion import Pyramid; Pyramid.open(sys.argv[1], keys=sys.argv[2])"
    command = [sys.executable, "-c", code, str(stand.path), f"file:{stand.key}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert f"is open in another process ({os.getpid()})" in done.stderr
    stand.close()
    assert subprocess.run(command, check=False).returncode == 0


def test_the_lock_of_a_process_that_died_does_not_stand_in_the_way(stand: Stand) -> None:
    stand.create()
    stand.close()
    code = (
        "import os, sys; from pyramidion import Pyramid\n"
        "store = Pyramid.open(sys.argv[1], keys=sys.argv[2]); os._exit(9)"
    )
    command = [sys.executable, "-c", code, str(stand.path), f"file:{stand.key}"]
    assert subprocess.run(command, check=False).returncode == 9
    stand.open()


def in_a_child(work: Callable[[], Any]) -> str:
    """What a forked child says of some work."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)  # nobody waits for a child that hangs
        try:
            said = repr(work())
        except BaseException as problem:
            said = f"{type(problem).__name__}: {problem}"
        os.write(write, said.encode()[:4_000])
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as told:
        return told.read()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_is_refused_and_the_parent_goes_on(stand: Stand) -> None:
    store = stand.create()
    store.observe(rows(5))
    for work in (lambda: store.observe(rows(5)), store.status, store.advance, store.snapshot):
        assert "belongs to the process that this one was forked from" in in_a_child(work)
    assert observed(store, rows(5)).accepted == 5
    assert stand.reopen().status().hot_rows == 10


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_that_closes_the_store_closes_nothing(stand: Stand) -> None:
    store = stand.create()
    store.observe(rows(5))
    log = stand.path / "catalogue.db-wal"
    before = log.read_bytes()
    assert in_a_child(store.close) == "None"
    assert log.read_bytes() == before
    with pytest.raises(StateError, match="open in another process"):
        Pyramid.open(stand.path, **stand.given)
    assert observed(store, rows(5)).accepted == 5
    stand.clock.pass_(HOUR)
    assert stand.reopen().status().hot_rows == 10
