"""Trees of windows in a plan: where they are proposed, what they take, what noise they leave."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from pyramidion import Categorical, Label, Plan, Schema, Settings, plan
from pyramidion.config.window_tree import Levels, best, tree
from pyramidion.counts.arena import Arena
from pyramidion.privacy.prediction import born, complete, populating_bytes
from pyramidion.privacy.randomness import Randomness

SCHEMA = Schema(
    features=[Categorical("user"), Categorical("genre", domain=["a", "b"])],
    label=Label("liked", classes=[0, 1]),
)


def planned(windows: int, **asked: Any) -> Plan:
    given = {"rows": 20_000, "epsilon": 1.0, "distinct": {"user": 5_000}}
    return plan(SCHEMA, windows=windows, **given | asked)


# --- where --------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_a_tree_is_proposed_where_many_windows_are_summed(delta: float) -> None:
    found = planned(1_000, delta=delta)
    assert found.settings.windows == "tree"
    assert found.window_noise < 0.3 * 1_000
    flat = [a.cost for a in found.alternatives if a.windows == "flat"]
    assert found.cost < min(flat)


@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_flat_windows_are_proposed_where_few_are_summed(delta: float) -> None:
    found = planned(4, delta=delta)
    assert found.settings.windows == "flat"
    assert {a.windows for a in found.alternatives} == {"flat"}
    assert found.window_noise == 4


def test_a_tree_that_lowers_the_noise_by_less_than_a_quarter_is_not_proposed() -> None:
    windows = next(each for each in range(2, 200) if best(each, "laplace") is not None)
    levels = best(windows, "laplace")
    assert levels is not None
    assert 0.75 * windows < levels.variance(windows, "laplace") < windows  # less, but not enough
    found = planned(windows, delta=0)
    assert {a.windows for a in found.alternatives} == {"flat"}


def test_flat_windows_are_proposed_where_noise_costs_nothing() -> None:
    """Keys of a million rows each: a tree's memory buys nothing that shows."""
    given = {"rows": 10**7, "epsilon": 30.0, "distinct": {"user": 10}}
    found = planned(1_000, **given)
    assert "flat" in {a.windows for a in found.alternatives}
    assert {a.windows for a in found.alternatives} != {"flat"}  # trees were looked at
    assert found.settings.windows == "flat"


def test_without_privacy_or_with_shards_windows_are_flat() -> None:
    assert planned(1_000, epsilon=float("inf")).settings.windows == "flat"
    assert planned(1_000, shards=2).settings.windows == "flat"


# --- what it takes ------------------------------------------------------------------------------


def test_a_plan_says_what_levels_take_in_memory_and_writes() -> None:
    found = planned(1_000)
    levels = found.settings.levels
    assert levels is not None
    each = [born(SCHEMA, found.settings, level).layout.nbytes for level in range(levels.depth)]
    assert found.window_bytes == sum(each) == populating_bytes(SCHEMA, found.settings)
    assert found.levels == levels.depth > 1
    assert found.writes == 20_000 * levels.depth == found.to_dict()["writes"]
    (told,) = (reason for reason in found.why if reason.startswith("a tree of windows"))
    assert f"{found.writes:,} rows are counted for 20,000" in told
    assert f"{levels.depth} tables in memory for one" in told


def test_flat_windows_write_every_row_once() -> None:
    assert planned(4).levels == 1
    assert planned(4).writes == 20_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("memory", "windows"), [(5_000_000, "tree"), (1_000_000, "tree"), (50_000, "flat")]
)
def test_a_memory_bound_is_kept_by_all_levels_of_a_tree(memory: int, windows: str) -> None:
    found = planned(1_000, memory=memory)
    assert found.settings.windows == windows  # where buckets are dear, flat ones have more of them
    assert found.window_bytes + found.complete_bytes <= memory
    trees = [a for a in found.alternatives if a.windows != "flat"]
    assert trees
    for each in found.alternatives:
        depth = 1 if each.windows == "flat" else int(each.windows.split()[-1])
        sketch = each.rows * each.buckets * 2 * 4  # of one table, two labels, four bytes a cell
        assert (depth + 1) * sketch < each.nbytes <= memory


def test_levels_count_against_the_bound() -> None:
    """What fits flat windows of some buckets does not fit a tree of as many."""
    free = planned(1_000)
    levels = free.settings.levels
    assert levels is not None
    bound = planned(1_000, memory=free.window_bytes // levels.depth + free.complete_bytes)
    assert bound.settings.buckets * bound.settings.rows < free.settings.buckets * free.settings.rows


# --- what noise it leaves -------------------------------------------------------------------------


def covered(first: int, windows: int, levels: Levels) -> Counter[int]:
    """How many nodes of each level have every window once, as few as there can be."""
    found, at, end = Counter[int](), first, first + windows
    while at < end:
        level = max(
            level
            for level in range(levels.depth)
            if at % levels.span(level) == 0 and at + levels.span(level) <= end
        )
        found[level] += 1
        at += levels.span(level)
    return found


def summed(settings: Settings, nodes: Counter[int], source: Randomness) -> Arena:
    """Tables as a store bears them, without a row: noise alone."""
    arenas = []
    for level, number in nodes.items():
        birth = born(SCHEMA, settings, level)
        for _ in range(number):
            arenas.append(birth.arena(source))
            arenas[-1].seal()
    return Arena.total(arenas)


@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_the_noise_of_born_tables_is_the_predicted_one(delta: float) -> None:
    windows, source = 40, Randomness.insecure_from_seed(b"trees")
    levels = tree(windows, 3, 3, "laplace" if delta == 0 else "gaussian")
    shape = {"tree_radix": 3, "tree_depth": 3, "tree_shares": list(levels.shares)}
    settings = Settings(
        epsilon=1.0, delta=delta, windows="tree", buckets=1024, rows=1, weights="equal", **shape
    )
    table = complete(SCHEMA, settings, windows).index["user"]
    variances = []
    for first in range(levels.span(2)):  # wherever the oldest window lies
        arena = summed(settings, covered(first, windows, levels), source)
        variances.append(arena.cells(table).astype(np.float64).var())
    predicted = complete(SCHEMA, settings, windows).tables[table].variance
    assert np.mean(variances) == pytest.approx(predicted, rel=0.06)
    flat = complete(SCHEMA, Settings(**vars_of(settings), windows="flat"), windows).tables[table]
    ratio = levels.variance(windows, settings.mechanism) / windows
    assert predicted / flat.variance == pytest.approx(ratio, rel=0.06)  # nodes keep more back


def vars_of(settings: Settings) -> dict[str, Any]:
    """What is the same for flat windows."""
    names = ("epsilon", "delta", "buckets", "rows", "weights")
    return {name: getattr(settings, name) for name in names}
