"""Trees of windows: nodes stand for windows, and everything that holds for windows holds for them.

Without noise the complete tables are the exact counts of the rows in retained sealed windows,
whatever comes and goes; with noise they have just the noise that is predicted.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyramidion import Pyramid
from pyramidion.auditing.witness import Witness
from pyramidion.counts.arena import Arena
from pyramidion.levels import best, tree, used
from pyramidion.privacy.budget import budget_of
from tests.store.stores import DAY, SCHEMA, Stand, cells, exact, observed, rows, same, tiny

TREE = {"windows": "tree", "tree_radix": 2, "tree_depth": 3, "retention": "90d"}
EXACT = TREE | {"epsilon": float("inf")}


def complete(store: Pyramid) -> Arena:
    found = store._lifecycle.complete
    assert found is not None
    return found


def kept(store: Pyramid, batches: dict[int, list[Any]]) -> list[Any]:
    """The batches that are in sealed windows, by what the catalogue says."""
    query = "SELECT number FROM windows WHERE state = 'sealed'"
    return [b for row in store._lifecycle.catalogue.all(query) for b in batches.get(row[0], ())]


def lived(stand: Stand, store: Pyramid, windows: int, seed: int = 0) -> dict[int, list[Any]]:
    """Observe a batch in each of so many windows; the batches by window."""
    batches: dict[int, list[Any]] = {}
    for number in range(windows):
        batch = rows(6, stand.clock.now, seed=seed + number)
        observed(store, batch)
        (window,) = [w.number for w in store.status().windows if w.state == "populating"][-1:]
        batches.setdefault(window, []).append(batch)
        stand.clock.pass_(10 * DAY)
        store.advance()
    return batches


def nodes(store: Pyramid, state: str) -> dict[int, tuple[int, tuple[int, ...]]]:
    return {n.number: (n.level, n.windows) for n in store.status().nodes if n.state == state}


# --- life ---------------------------------------------------------------------------------


def test_nodes_are_born_with_their_first_window_and_sealed_with_their_last(stand: Stand) -> None:
    store = stand.create(**EXACT)
    observed(store, rows(6, stand.clock.now))
    assert nodes(store, "populating") == {1: (2, (1,)), 2: (1, (1,))}
    stand.clock.pass_(10 * DAY)
    store.advance()
    observed(store, rows(6, stand.clock.now))
    assert nodes(store, "populating") == {1: (2, (1, 2)), 2: (1, (1, 2))}
    stand.clock.pass_(10 * DAY)
    assert store.advance().nodes == [2]
    assert nodes(store, "sealed") == {2: (1, (1, 2))}
    assert store.verify() == []


def test_a_node_goes_with_the_first_of_its_windows(stand: Stand) -> None:
    store = stand.create(**EXACT)
    batches = lived(stand, store, 10)
    gone = [w.number for w in store.status().windows if w.state == "erased"]
    assert gone
    over = nodes(store, "sealed") | nodes(store, "populating")
    assert not {n for _, members in over.values() for n in members}.intersection(gone)
    held = exact(store, complete(store), kept(store, batches))
    assert same(cells(complete(store)), held)
    assert store.status().summarised_rows == 6 * len(kept(store, batches))


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    plan=st.lists(
        st.sampled_from(["rows", "rows", "window", "window", "far", "reopen", "reseed", "checkpoint"]),
        min_size=5,
        max_size=40,
    ),
    radix=st.integers(2, 3),
    by_rows=st.booleans(),
)
def test_complete_tables_are_the_counts_of_retained_sealed_windows(
    plan: list[str], radix: int, by_rows: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stand = Stand(tmp_path_factory.mktemp("tree"))
    given = EXACT | {"tree_radix": radix} | ({"retention": "120d"} if radix == 3 else {})
    given |= {"count_window": "5 rows"} if by_rows else {}
    store = stand.create(**given)
    batches: dict[int, list[Any]] = {}
    for number, move in enumerate(plan):
        if move == "rows":
            before = {w.number: w.rows for w in store.status().windows}
            batch = rows(5, stand.clock.now, seed=number)
            observed(store, batch)
            start = 0
            for w in sorted(store.status().windows, key=lambda w: w.number):
                more = w.rows - before.get(w.number, 0)
                if more:
                    batches.setdefault(w.number, []).append(batch.slice(start, more))
                    start += more
        elif move in ("window", "far"):
            stand.clock.pass_((10 if move == "window" else 35) * DAY)
            store.advance()
        elif move == "reopen":
            store = stand.reopen()
        elif move == "reseed":
            store.reseed(why="test")
        else:
            for node in store._lifecycle.nodes.all():
                store._lifecycle.checkpoint(node)
        found = store._lifecycle.complete
        expected = kept(store, batches)
        assert (found is None) == (not expected)
        if found is not None:
            assert same(cells(found), exact(store, found, expected))
        assert store.verify() == []
    stand.close()


# --- noise --------------------------------------------------------------------------------


def test_every_observation_is_in_one_node_of_each_level_and_each_is_charged(stand: Stand) -> None:
    store = stand.create(**TREE, delta=0.0, selection_share=0.1)
    witness = Witness(store)
    lived(stand, store, 8)
    assert all(witness.draws) and len(witness.draws) > 8
    assert all(witness.acknowledgements)
    _, budget = budget_of(store.settings)
    levels = store.settings.levels
    assert levels is not None
    for report in store.ledger.report().windows:
        lines = [line for line in report.lines if line.kind == "node"]
        paid = sorted(line.amount for line in lines)
        expected = sorted(budget * Fraction(s) * (1 - Fraction("0.12")) for s in levels.shares[1:])
        assert paid == expected
        tables = sum(line.amount for line in report.lines if line.kind == "table")
        reserved = sum(line.amount for line in report.lines if line.kind == "reserve")
        assert tables + sum(paid) + reserved == budget


def test_the_noise_of_the_complete_tables_is_the_predicted_one(stand: Stand) -> None:
    store = stand.create(**TREE, buckets=4096, rows=1)
    batches = lived(stand, store, 7)
    arena = complete(store)
    counts = exact(store, arena, kept(store, batches))
    table = arena.layout.index["a"]
    noise = cells(arena)["a"] - counts["a"]
    predicted = arena.layout.tables[table].variance
    assert 0.9 < noise.var() / predicted < 1.1
    flat = store._lifecycle.birth(1).variances[table] * 7
    assert predicted < flat


def test_a_node_stands_for_its_windows_where_it_has_less_noise(stand: Stand) -> None:
    store = stand.create(**TREE, tree_shares=[3, 2, 1])
    lived(stand, store, 4)
    sealed = {row["node"]: row for row in store._lifecycle.tables.nodes("sealed")}
    assert len(sealed) == 3
    best_ = store._lifecycle.tables.total()[0]
    without = store._lifecycle.tables.total(nodes=dict.fromkeys(sealed))[0]
    assert best_ is not None and without is not None
    assert best_.layout.tables[1].variance < without.layout.tables[1].variance
    assert best_.rows == without.rows == 24


@pytest.mark.parametrize(
    ("windows", "equal", "dyadic_laplace", "gaussian", "laplace"),
    [(52, 34, 204, 24.8, 50.3), (1000, 100, 996, 74.2, 243.1)],
)
def test_the_search_finds_what_the_design_says(
    windows: int, equal: float, dyadic_laplace: float, gaussian: float, laplace: float
) -> None:
    """Equal dyadic splits are the design's; its best (23, 46; 65, 216) takes retired windows off
    nodes, which we do not: see docs/privacy.md."""
    depth = windows.bit_length()
    nodes_ = used(windows, 2, depth)
    assert round(depth * sum(nodes_)) == equal
    assert round(depth**2 * sum(nodes_)) == pytest.approx(dyadic_laplace, abs=1)
    for mechanism, expected in (("gaussian", gaussian), ("laplace", laplace)):
        found = best(windows, mechanism)  # type: ignore[arg-type]
        assert found is not None
        assert found.variance(windows, mechanism) == pytest.approx(expected, abs=0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize(("windows", "radix", "depth"), [(52, 4, 3), (10, 2, 3), (100, 5, 3)])
def test_as_many_nodes_are_used_as_is_said(windows: int, radix: int, depth: int) -> None:
    period = radix ** (depth - 1)
    told = np.zeros(depth)
    for start in range(period):
        spans = [(start, start + windows)]
        for level in reversed(range(depth)):
            size, left = radix**level, []
            for low, high in spans:
                first, last = -(-low // size), high // size
                if first < last:
                    told[level] += last - first
                    left += [(low, first * size), (last * size, high)]
                else:
                    left.append((low, high))
            spans = left
    assert used(windows, radix, depth) == pytest.approx(told / period)
    assert tree(windows, radix, depth, "gaussian").depth == depth
