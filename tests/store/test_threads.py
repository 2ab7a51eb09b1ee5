"""Several threads and several processes at one store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from pyramidion import Pyramid
from pyramidion.errors import StateError
from pyramidion.privacy import table_noise
from pyramidion.privacy.noise import Noise
from pyramidion.storage import fault_points as killpoints
from pyramidion.workers import ASIDE, BEHIND, KEEPER, Aside, Threads
from tests.store import inspect
from tests.store.archive import on_reach
from tests.store.inspect import populating, sealed
from tests.store.stores import (
    DAY,
    HOUR,
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
from tests.waiting import PATIENCE as LONG

UNHEARD = "ignore::pytest.PytestUnraisableExceptionWarning"
"""Ctrl-C that comes while something is finalised is printed, and not raised."""


class Crowd:
    """Threads at once: some have so many turns, others go on for as long as those do.

    What was done in the end is the same on a fast machine and on a busy one.
    """

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self._stop = threading.Event()
        self._counted: list[threading.Thread] = []
        self._others: list[threading.Thread] = []

    def add(self, work: Callable[[int], Any], turns: int | None = None) -> None:
        def run() -> None:
            try:
                for turn in count() if turns is None else range(turns):
                    if self._stop.is_set():
                        return
                    work(turn)
            except BaseException as problem:
                self.failures.append(problem)
                self._stop.set()

        (self._others if turns is None else self._counted).append(threading.Thread(target=run))

    def run(self) -> None:
        for thread in (*self._others, *self._counted):
            thread.start()
        for thread in self._counted:
            thread.join()
        self._stop.set()
        for thread in self._others:
            thread.join()
        assert self.failures == []


@pytest.mark.slow
def test_counts_are_exact_however_many_observe_while_windows_roll(stand: Stand) -> None:
    store = stand.create(TIMELESS, epsilon=float("inf"), retention="900d", checkpoint_rows=500)
    seen: list[Any] = []

    def observe(turn: int) -> None:
        stand.clock.now = max(stand.clock.now, START + turn * 1.5 * DAY)
        batch = rows(20, seed=turn)
        assert store.observe(batch).accepted == 20
        seen.append(batch)

    def featurize(_: int) -> None:
        with suppress(StateError):  # until the first window is sealed
            store.featurize(rows(10))

    crowd = Crowd()
    for _ in range(3):
        crowd.add(observe, turns=40)
    for work in (lambda _: store.advance(), featurize):
        crowd.add(work)
    crowd.run()
    store = stand.reopen()
    found = states(store)
    assert sum(rows for _, rows in found.values()) == 20 * len(seen) == 20 * 3 * 40
    assert sum(state == "sealed" for state, _ in found.values()) == 5  # of the 58.5 days
    arenas = [
        sealed(store, n) if s == "sealed" else populating(store, n) for n, (s, _) in found.items()
    ]
    total = {name: sum(cells(arena)[name] for arena in arenas) for name in ("", "a", "b", "a,b")}
    assert same(total, exact(store, arenas[0], seen))


def test_windows_by_rows_are_cut_exactly_however_many_observe(stand: Stand) -> None:
    store = stand.create(TIMELESS, count_window=100, epsilon=float("inf"))
    crowd, seen = Crowd(), []
    for _ in range(3):
        crowd.add(lambda turn: seen.append(store.observe(rows(7, seed=turn)).accepted), turns=60)
    crowd.run()
    store = stand.reopen()
    found = states(store)
    assert sum(rows for _, rows in found.values()) == sum(seen) == 3 * 60 * 7
    assert [rows for state, rows in found.values() if state == "sealed"] == [100] * 12


def test_an_idempotency_key_counts_once_however_many_send_it(stand: Stand) -> None:
    store = stand.create()
    crowd = Crowd()
    for _ in range(4):
        crowd.add(lambda turn: store.observe(rows(3), key=f"batch {turn % 50}"), turns=75)
    crowd.run()
    assert store.status().hot_rows == populating(store).rows == 150


def rolling(stand: Stand, store: Pyramid) -> Callable[[int], Any]:
    """Observes a few rows, some a day and a half after the others."""

    def observe(turn: int) -> None:
        stand.clock.pass_(1.5 * DAY)
        store.observe(rows(5, seed=turn))

    return observe


def test_status_and_backup_do_not_stumble_over_what_rolls(stand: Stand) -> None:
    store = stand.create(TIMELESS, hot_step="1d")
    crowd = Crowd()
    crowd.add(rolling(stand, store), turns=40)
    crowd.add(lambda _: store.status())
    crowd.add(lambda _: store.admin.backup(stand.folder / "backup"))
    crowd.run()


def test_groups_come_and_go_while_rows_come_in(stand: Stand) -> None:
    store = stand.create(TIMELESS)
    accepted: list[int] = []

    def change(_: int) -> None:
        store.groups.withdraw("a,b", why="on trial")
        store.groups.add(["a", "b"])

    crowd = Crowd()
    for _ in range(2):
        crowd.add(
            lambda turn: accepted.append(store.observe(rows(5, seed=turn)).accepted), turns=60
        )
    crowd.add(change)
    crowd.run()
    assert stand.reopen().status().hot_rows == sum(accepted) == 2 * 60 * 5


@pytest.mark.slow
def test_a_snapshot_in_use_is_whole_until_it_expires(stand: Stand) -> None:
    store = stand.create(TIMELESS, retention="20d", count_window="10d")

    def featurize(_: int) -> None:
        with suppress(StateError):  # expired just now, or none is there
            first = store.snapshot()
            assert (first.array(rows(50)) == first.array(rows(50))).all()

    crowd = Crowd()
    crowd.add(rolling(stand, store), turns=60)
    for _ in range(2):
        crowd.add(featurize)
    crowd.run()
    store.advance()
    assert any(state == "erased" for state, _ in states(store).values())


class CtrlC:
    """Presses Ctrl-C while some work is done; the signal is one that nobody else hears."""

    def __init__(self) -> None:
        self._inside, self._pressed, self._heard = False, False, threading.Event()

    def hear(self, *_: Any) -> None:
        """In the main thread, which waits for the work."""
        if self._pressed:  # or it was pressed once more than needed
            self._pressed = False
            self._heard.set()
            if self._inside:
                raise KeyboardInterrupt

    def press(self, *_: Any) -> None:
        """Press it in another thread, again and again until it is heard.

        A signal that meets a thread right before that sleeps does not wake it.
        """
        self._heard.clear()
        self._pressed = True
        end = time.monotonic() + LONG
        while not self._heard.is_set():
            assert time.monotonic() < end
            os.kill(os.getpid(), signal.SIGUSR1)
            self._heard.wait(0.05)

    def stops(self, work: Callable[[], Any]) -> bool:
        """Whether it was pressed while the work was done."""
        try:
            self._inside = True
            work()
        except KeyboardInterrupt:
            return True
        finally:
            self._inside = False
        return False

    def at(self, points: Collection[str], work: Callable[[], Any]) -> str | None:
        """Press it at the first of some kill points that the work comes to: which one that was."""
        pressed = list[str]()

        def reached(name: str) -> None:
            if name in points and not pressed:
                pressed.append(name)
                self.press()

        with on_reach(reached):
            stopped = self.stops(work)
        assert stopped == bool(pressed)
        return pressed[0] if pressed else None


@pytest.fixture
def ctrl_c() -> Iterator[CtrlC]:
    made = CtrlC()
    old = signal.signal(signal.SIGUSR1, made.hear)
    yield made
    signal.signal(signal.SIGUSR1, old)


OBSERVING = ("append.before", "append.written", "append.synced", "commit.before", "commit.after")
MOVING = [
    point
    for point in killpoints.POINTS
    if point.startswith(("checkpoint.", "seal.", "step.", "erase.", "rewrap."))
]


@pytest.mark.filterwarnings(UNHEARD)
def test_ctrl_c_while_observing_leaves_the_store_whole(stand: Stand, ctrl_c: CtrlC) -> None:
    store = stand.create()
    observed(store, rows(1))
    for point in OBSERVING:
        assert ctrl_c.at({point}, lambda: store.observe(rows(20)))
        inspect.parts(store).threads.take(lambda: None)  # it goes on to its end
    observed(store, rows(1))
    assert store.status().hot_rows == populating(store).rows == 1 + 20 * len(OBSERVING) + 1
    before = cells(populating(store))
    store = stand.reopen()
    assert store.status().hot_rows == 1 + 20 * len(OBSERVING) + 1
    assert same(cells(populating(store)), before)


@pytest.mark.filterwarnings(UNHEARD)
def test_ctrl_c_while_advancing_leaves_the_store_whole(stand: Stand, ctrl_c: CtrlC) -> None:
    store = stand.create(
        TIMELESS, epsilon=float("inf"), retention="900d", hot_window="8d", hot_step="4d"
    )
    batches, points = [], set(MOVING)
    while points:
        assert len(batches) < 100, f"advancing never comes to {points}"
        batches.append(rows(20, seed=len(batches)))
        observed(store, batches[-1])
        stand.clock.pass_(4 * DAY)
        points.discard(ctrl_c.at(points, store.advance) or "")
        inspect.parts(store).threads.move(lambda: None)  # it goes on to its end
    store = stand.reopen()
    found = states(store)
    assert sum(rows for _, rows in found.values()) == 20 * len(batches)
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


@pytest.mark.slow
def test_another_process_is_refused_while_it_is_open(stand: Stand) -> None:
    stand.create()
    code = "import sys; from pyramidion import Pyramid; Pyramid.open(sys.argv[1], keys=sys.argv[2])"
    command = [sys.executable, "-c", code, str(stand.path), f"file:{stand.key}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert f"is open in another process ({os.getpid()})" in done.stderr
    stand.close()
    assert subprocess.run(command, check=False).returncode == 0


@pytest.mark.slow
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
    observed(store, rows(5))
    log = stand.path / "catalogue.db-wal"
    before = log.read_bytes()
    assert in_a_child(store.close) == "None"
    assert log.read_bytes() == before
    with pytest.raises(StateError, match="open in another process"):
        Pyramid.open(stand.path, **stand.given)
    assert observed(store, rows(5)).accepted == 5
    stand.clock.pass_(HOUR)
    assert stand.reopen().status().hot_rows == 10


@pytest.mark.usefixtures("ranks")
def test_the_keeper_stands_back_from_who_asks_and_who_sends() -> None:
    def rank() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    def started() -> int:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(rank).result()

    threads = Threads()
    try:
        behind = min(rank() + BEHIND, 19)
        assert threads.move(rank) == threads.move(started) == behind
        assert threads.take(rank) == rank()
    finally:
        threads.close()


def test_much_noise_of_the_keepers_is_drawn_aside(
    monkeypatch: pytest.MonkeyPatch, stand: Stand
) -> None:
    drawn: list[str] = []
    fill = Noise.fill

    def noted(*given: Any) -> None:
        drawn.append(threading.current_thread().name)
        fill(*given)

    monkeypatch.setattr(Noise, "fill", noted)
    store = stand.create()
    drawn.clear()
    store.admin.reseed(why="a test")  # a few cells: who waits for it waits for nobody else
    assert drawn
    assert all(name.startswith(KEEPER) for name in drawn)
    drawn.clear()
    monkeypatch.setattr(table_noise, "MUCH", 1)
    store.admin.reseed(why="a test")
    assert drawn
    assert all(name.startswith(ASIDE) for name in drawn)


@pytest.mark.usefixtures("ranks")
def test_what_is_done_aside_is_in_a_class_that_gives_way_at_once() -> None:
    def rank() -> int:
        return os.sched_getscheduler(threading.get_native_id())

    def ranks() -> tuple[int, int]:
        with Aside() as aside:
            return aside.do(rank), rank()

    threads = Threads()
    try:
        assert threads.move(ranks) == (os.SCHED_IDLE, os.SCHED_OTHER)
        assert ranks()[0] == os.SCHED_OTHER  # who is not the keeper does it itself
    finally:
        threads.close()


def test_work_that_stood_aside_for_too_long_goes_on_in_the_keeper(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed = [0.0]
    clock = SimpleNamespace(monotonic=lambda: passed[0])
    monkeypatch.setattr("pyramidion.workers.time", clock)

    def where() -> list[str]:
        with Aside(patience=60.0) as aside:
            first = aside.do(lambda: threading.current_thread().name)
            passed[0] = 60.0
            return [first, aside.do(lambda: threading.current_thread().name)]

    threads = Threads()
    try:
        first, second = threads.move(where)
    finally:
        threads.close()
    assert first.startswith(ASIDE)
    assert second.startswith(KEEPER)


def test_what_fails_aside_fails_in_the_keeper_and_leaves_no_thread() -> None:
    def failing() -> None:
        with Aside() as aside:
            aside.do(lambda: 1 // 0)

    threads = Threads()
    try:
        with pytest.raises(ZeroDivisionError):
            threads.move(failing)
        assert not [t for t in threading.enumerate() if t.name.startswith(ASIDE)]
    finally:
        threads.close()
