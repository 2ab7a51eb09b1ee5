"""Kill -9, at every kill point and from outside: whatever was acknowledged is there, once.

Twenty stores live through a plan of verbs and are killed some thirty times each. After a
kill they are reopened and compared with a model that was not killed. One fixture does all
of it; each test asks for one fact.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import pytest

import pyramidion
from pyramidion import Pyramid, awakening
from pyramidion.killpoints import POINTS
from pyramidion.lifecycle import Lifecycle
from pyramidion.populating import Window
from pyramidion.storage.data_keys import DataKeys
from tests.forking import forked
from tests.store import killing_workload as work
from tests.store.killing import KILLS, OUTSIDE, Aftermath, Ordeal, lived_through

STORES, HITS = 20, 20


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder in memory, where there is one: a kill loses nothing that was written to a file."""
    memory = Path("/dev/shm")  # noqa: S108
    made = tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None)
    yield Path(made)
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def aftermath(folder: Path) -> Aftermath:
    began = time.monotonic()
    cores = min(4, len(os.sched_getaffinity(0)))
    # Fresh processes: small, so that forking them is quick, and without threads of other tests.
    with ProcessPoolExecutor(cores, get_context("spawn")) as pool:
        lives = list(pool.map(lived_through, [folder] * STORES, range(STORES)))
    return Aftermath(
        hits=sum((life.hits for life in lives), Counter()),
        outside=sum(life.outside for life in lives),
        twice=sum(life.twice for life in lives),
        problems=[problem for life in lives for problem in life.problems],
        seconds=time.monotonic() - began,
    )


# --- the kills --------------------------------------------------------------------------


def test_every_kill_point_is_at_one_place_in_the_source() -> None:
    source = Path(pyramidion.__file__).parent
    called = [
        name
        for file in source.rglob("*.py")
        for name in re.findall(r'^ *reach\("([a-z.]+)"\)$', file.read_text(), re.MULTILINE)
    ]
    assert sorted(called) == sorted(POINTS)


def test_every_kill_point_kills_at_least_twenty_times(
    aftermath: Aftermath, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        print("\n\nkilled at             times")
        for name in KILLS:
            print(f"{name:<20} {aftermath.hits[name]:>6}")
        print(f"{'from outside':<20} {aftermath.outside:>6}")
        print(f"{'again at once':<20} {aftermath.twice:>6}")
        print(f"in {aftermath.seconds:.0f} s")
    assert {name: hits for name in KILLS if (hits := aftermath.hits[name]) < HITS} == {}


def test_kills_from_outside_come_at_random_delays(aftermath: Aftermath) -> None:
    assert aftermath.outside >= STORES * OUTSIDE


# --- what holds after each ----------------------------------------------------------------


def test_a_killed_store_opens_and_goes_on(aftermath: Aftermath) -> None:
    assert aftermath.against("reopens") == []


def test_a_batch_sent_again_is_counted_once_whether_or_not_its_first_sender_was_killed(
    aftermath: Aftermath,
) -> None:
    assert aftermath.against("receipts") == []


def test_tables_hold_each_acknowledged_row_once_and_the_noise_of_their_birth(
    aftermath: Aftermath,
) -> None:
    assert aftermath.against("counted once") == []


def test_complete_tables_are_the_sum_of_the_sealed_windows(aftermath: Aftermath) -> None:
    assert aftermath.against("complete") == []


def test_windows_are_in_the_state_their_time_says_with_their_row_totals(
    aftermath: Aftermath,
) -> None:
    assert aftermath.against("states") == []


def test_hot_rows_are_the_acknowledged_rows_of_the_live_steps_in_order(
    aftermath: Aftermath,
) -> None:
    assert aftermath.against("hot") == []


def test_the_vault_gets_every_acknowledged_batch(aftermath: Aftermath) -> None:
    assert aftermath.against("vault") == []


def test_a_checkpoint_that_opens_lacks_only_rows_that_are_hot(aftermath: Aftermath) -> None:
    assert aftermath.against("checkpoints") == []


def test_the_ledger_forgets_nothing_and_is_ahead_of_what_it_pays_for(
    aftermath: Aftermath,
) -> None:
    assert aftermath.against("ledger") == []


def test_the_catalogue_knows_every_file_and_every_file_it_knows_is_there(
    aftermath: Aftermath,
) -> None:
    assert aftermath.against("files") == []


def test_every_key_is_used_and_opens_and_the_holder_has_one_store_key(
    aftermath: Aftermath,
) -> None:
    assert aftermath.against("keys") == []


def test_what_was_withdrawn_is_gone_everywhere_or_nowhere(aftermath: Aftermath) -> None:
    assert aftermath.against("withdrawn") == []


def test_every_erasure_that_began_is_recorded_and_complete(aftermath: Aftermath) -> None:
    assert aftermath.against("deletions") == []


def test_the_audit_log_is_sound(aftermath: Aftermath) -> None:
    assert aftermath.against("audit log") == []


# --- a store that is being made -----------------------------------------------------------


def test_a_store_killed_while_it_is_made_is_there_whole_or_not_at_all(folder: Path) -> None:
    random, made = Random(0), Counter[bool]()
    for run in range(20):
        path, keys = folder / f"new {run}" / "store", f"file:{folder / f'new {run}' / 'key'}"
        child = forked()
        if child == 0:
            try:
                while run == 0:  # however fast it is, this one is killed before it has begun
                    signal.pause()
                Pyramid.create(path, work.SCHEMA, work.BY_TIME, keys=keys, clock=lambda: work.START)
                signal.pause()
            finally:
                os._exit(0)
        # The first is killed at once and the last when it is done; the others in between.
        time.sleep(0 if run == 0 else random.uniform(0, 0.04))
        while run == 19 and not (path / "catalogue.db").exists():
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        opens = (path / "catalogue.db").exists()
        made[opens] += 1
        verb = Pyramid.open if opens else Pyramid.create
        given: tuple[Any, ...] = () if opens else (work.SCHEMA, work.BY_TIME)
        with verb(path, *given, keys=keys, clock=lambda: work.START) as store:
            assert store.status().hot_rows == 0
    assert min(made[True], made[False]) > 0


# --- a broken store is found out ------------------------------------------------------------


def _replays_twice() -> None:
    replay = awakening._replay

    def twice(store: Lifecycle) -> None:
        replay(store)
        replay(store)

    awakening._replay = twice


def _draws_noise_anew() -> None:
    checkpoint = Lifecycle.checkpoint

    def anew(self: Lifecycle, window: Window) -> None:
        window.arena._flat(1)[:] += 1
        checkpoint(self, window)

    Lifecycle.checkpoint = anew  # type: ignore[method-assign]


def _keeps_keys() -> None:
    DataKeys._drop = lambda self, keys: None  # type: ignore[method-assign]


def _destroys_the_store_key_too_early() -> None:
    rewrap = DataKeys._rewrap

    def early(self: DataKeys, fresh: Any) -> None:
        rewrap(self, fresh)
        self.holder.drop(set(self.holder.keys()) - {fresh.name})

    DataKeys._rewrap = early  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("sabotage", "fact"),
    [
        (_replays_twice, "counted once"),
        (_draws_noise_anew, "counted once"),
        (_keeps_keys, "keys"),
        (_destroys_the_store_key_too_early, "reopens"),
    ],
)
def test_a_store_that_breaks_its_word_is_found_out(
    folder: Path, sabotage: Callable[[], None], fact: str
) -> None:
    random = Random(fact)
    for seed in range(3):
        ordeal = Ordeal(folder / f"{sabotage.__name__} {seed}", seed, work.BY_TIME)
        for _ in range(8):
            ordeal.run(f"rewrap.before:{random.randint(1, 3)}", sabotage=sabotage)
            ordeal.check()
            if not ordeal.sound:
                assert fact in {of for of, _ in ordeal.problems}
                return
    pytest.fail("nobody noticed")
