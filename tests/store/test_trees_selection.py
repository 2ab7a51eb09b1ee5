"""Groups that a store chooses while its windows are a tree: all levels, one budget."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from pyramidion import Pyramid
from pyramidion.privacy.budget import budget_of
from tests.store import inspect
from tests.store.stores import Stand
from tests.store.test_selection import MUCH, SCHEMA, fed, spends, states

TREE = {"windows": "tree", "tree_radix": 2, "tree_depth": 3}
DAYS = (1, 11, 21, 31, 41, 51)


@pytest.fixture
def store(stand: Stand) -> Pyramid:
    """A store that chose a group in its second window, and went on."""
    store = fed(stand, stand.create(SCHEMA, **MUCH | TREE | {"retention": "90d"}), *DAYS[:2])
    assert store.groups.select().groups == ("b,d",)
    return fed(stand, store, *DAYS[2:])


def test_no_window_spends_more_than_its_budget_on_tables_nodes_and_what_it_keeps_back(
    store: Pyramid,
) -> None:
    whole = budget_of(store.settings)[1]
    report = store.ledger.report().windows
    assert [window.number for window in report] == [1, 2, 3, 4, 5, 6]
    for window in report:
        spent = [line.amount for line in window.lines if line.kind in ("table", "node", "reserve")]
        assert sum(spent, Fraction(0)) == whole
        assert sum(line.kind == "node" for line in window.lines) == 2


def test_a_chosen_groups_tables_come_out_of_what_is_kept_back_and_nodes_cost_the_same(
    store: Pyramid,
) -> None:
    whole = budget_of(store.settings)[1]
    lines = {window.number: window.lines for window in store.ledger.report().windows}
    costs = {
        number: sorted(line.amount for line in own if line.kind == "node")
        for number, own in lines.items()
    }
    assert len({tuple(cost) for cost in costs.values()}) == 1
    chosen = {
        number: [line.amount for line in own if (line.kind, line.purpose) == ("table", "b,d")]
        for number, own in lines.items()
    }
    assert [number for number, amounts in chosen.items() if amounts] == [3, 4, 5, 6]
    kept = [
        line.amount for line in lines[6] if (line.kind, line.purpose) == ("reserve", "selection")
    ]
    assert sum(chosen[6] + kept, Fraction(0)) == whole * Fraction("0.4")
    assert spends(store)[2] == [whole * Fraction("0.4")]


def test_in_a_window_other_tables_keep_their_noise_and_in_a_node_all_share_it(stand: Stand) -> None:
    store = fed(stand, stand.create(SCHEMA, **MUCH | TREE | {"retention": "90d"}), 1)

    def noise(level: int) -> dict[str, float]:
        birth = inspect.birth(store, 9, level)
        return dict(zip(birth.layout.index, birth.variances, strict=True))

    before = [noise(level) for level in range(3)]
    assert store.groups.select().groups == ("b,d",)
    after = [noise(level) for level in range(3)]
    assert {name: after[0][name] for name in before[0]} == before[0]
    for level in (1, 2):
        assert all(after[level][name] > was for name, was in before[level].items() if name)


def test_the_group_is_judged_by_sealed_windows(store: Pyramid) -> None:
    assert states(store) == {"b,d": "kept"}


def test_a_group_that_is_forgotten_leaves_the_nodes_too(stand: Stand) -> None:
    given = MUCH | TREE | {"epsilon": math.inf, "retention": "60d", "selection": "top-k"}
    store = fed(stand, stand.create(SCHEMA, **given), 1)
    assert store.groups.select().groups == ("b,d",)
    fed(stand, store, 11, 21, 31, 41)
    assert "b,d" in store.snapshot().tables
    fed(stand, store, 66)
    assert "b,d" not in store.snapshot().tables
    assert "b,d" not in {",".join(group) for group in store.schema.groups}
    store = stand.reopen()
    assert "b,d" not in store.snapshot().tables
