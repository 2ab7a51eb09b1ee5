"""Kill -9, at every kill point and before calls: whatever was acknowledged is there, once.

Two stores live through a plan of verbs and are killed some fifty times each. After a
kill they are reopened and compared with a model that was not killed. One fixture does all
of it; each test asks for one fact. In a campaign many stores are killed, at other moments.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import pytest

import pyramidion
from pyramidion import Pyramid
from pyramidion.storage.data_keys import DataKeys
from pyramidion.storage.fault_points import CHANGES, POINTS
from pyramidion.store import recovery, schedule
from pyramidion.store.state import StoreState
from pyramidion.store.windows import TableSet
from tests.dying import died
from tests.memory import in_memory
from tests.store import killing_workload as work
from tests.store.killing import CALLS, KILLS, Aftermath, Ordeal, lived_through, places

SEEDS = (0, 4)
"""Of stores whose windows are cut by time, and by rows."""
MANY = 20  # stores of a campaign


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with in_memory() as made:
        yield made


@pytest.fixture(
    scope="module", params=[False, pytest.param(True, marks=pytest.mark.campaign)],
    ids=["by plan", "at random"],
)  # fmt: skip
def aftermath(request: pytest.FixtureRequest, folder: Path, campaign_seed: int) -> Aftermath:
    if not request.param:
        lives = [lived_through(folder, seed) for seed in SEEDS]
    else:
        seeds = range(campaign_seed * MANY, (campaign_seed + 1) * MANY)
        # Fresh processes: small, so that forking them is quick, and without other tests' threads.
        with ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("spawn")) as pool:
            lives = list(pool.map(partial(lived_through, folder / "random", hurried=True), seeds))
    return Aftermath([kill for life in lives for kill in life.kills],
                     [problem for life in lives for problem in life.problems])  # fmt: skip


# --- the kills --------------------------------------------------------------------------


def test_every_kill_point_is_at_one_place_in_the_source() -> None:
    source = Path(pyramidion.__file__).parent
    called = [
        name
        for file in source.rglob("*.py")
        for name in re.findall(r'^ *reach\("([a-z.]+)"\)$', file.read_text(), re.MULTILINE)
    ]
    for_all = r'^ *reach\(f"\{change\.name\}\.([a-z]+)"\)$'
    text = (source / "store" / "change.py").read_text()
    stages = re.findall(for_all, text, re.MULTILINE)
    called += [f"{name}.{stage}" for name in CHANGES for stage in stages]
    assert sorted(called) == sorted(POINTS)


def test_each_store_is_killed_at_each_point_and_before_calls() -> None:
    for seed in SEEDS:
        kills = [kill.partition(":")[0] for kill in places(seed)]
        assert set(KILLS) <= set(kills)
        assert sum(kill.isdecimal() for kill in kills) == CALLS


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
    given = {"clock": lambda: work.START}
    what, call, seen = (work.SCHEMA, work.BY_TIME), 0, list[bool]()
    while True:
        call += 10 if seen and seen[-1] else 1  # each call until it is there, then some more
        path, keys = folder / f"new {call}" / "store", f"file:{folder / f'new {call}' / 'key'}"
        dead = died(lambda: Pyramid.create(path, *what, keys=keys, **given).close(), call=call)  # noqa: B023
        seen.append((path / "catalogue.db").exists())
        verb, more = (Pyramid.open, ()) if seen[-1] else (Pyramid.create, what)
        with verb(path, *more, keys=keys, **given) as store:
            assert store.status().hot_rows == 0
        if not dead:
            break
    assert seen == sorted(seen)
    assert not seen[0]
    assert seen[-2]


# --- a broken store is found out ------------------------------------------------------------


def _replays_twice() -> None:
    replay = recovery._replay

    def twice(store: StoreState) -> None:
        replay(store)
        replay(store)

    recovery._replay = twice


def _draws_noise_anew() -> None:
    checkpoint = schedule.checkpoint_tables

    def anew(store: StoreState, tables: TableSet, now: int) -> None:
        tables.arena._flat(1)[:] += 1
        checkpoint(store, tables, now)

    schedule.checkpoint_tables = anew


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
            assert ordeal.run(f"rewrap.before:{random.randint(1, 3)}", sabotage=sabotage) or (
                not ordeal.sound
            )
            ordeal.check()
            if not ordeal.sound:
                assert fact in {of for of, _ in ordeal.problems}
                return
    pytest.fail("nobody noticed")
