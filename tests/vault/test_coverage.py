"""Batches that a vault must have: what is in no file, hot neither, nor explained is told."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyramidion import Pyramid
from pyramidion.vault.coverage import gaps, united, unowed
from tests.store import inspect
from tests.store.stores import CUSTODIAN, DAY, HOUR, Stand, observed, rows
from tests.vault.vaults import opened, refusing, vault_of

RANGES = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=8)


def numbers(ranges: list[tuple[int, int]]) -> set[int]:
    return {number for first, last in ranges for number in range(first, last + 1)}


@given(RANGES, st.integers(0, 35))
def test_ranges_and_gaps_are_those_of_the_numbers_in_them(
    ranges: list[tuple[int, int]], last: int
) -> None:
    made = united(ranges)
    assert numbers(made) == numbers(ranges)
    assert all(one[1] + 1 < two[0] for one, two in pairwise(made))
    assert all(first <= end for first, end in gaps(last, ranges))
    assert numbers(gaps(last, ranges)) == set(range(1, last + 1)) - numbers(ranges)


def wrong(store: Pyramid) -> list[str]:
    return [problem.name for problem in vault_of(store).verify()]


def _filled(stand: Stand, batches: int = 4, **settings: Any) -> Pyramid:
    """A store with a stored file for each batch."""
    store = stand.create(**settings)
    for seed in range(batches):
        observed(store, rows(3, stand.clock.now, seed=seed))
        vault_of(store).seal()
        stand.clock.pass_(60)
    vault_of(store).carry()
    return store


def test_a_file_that_is_gone_from_catalogue_and_place_is_missed_by_its_batches(
    stand: Stand,
) -> None:
    store = _filled(stand)
    assert wrong(store) == []
    for file in vault_of(store).files()[1:3]:
        inspect.catalogue(store).run("DELETE FROM vault_files WHERE name = ?", file.name)
        for suffix in ("parquet", "json"):
            vault_of(store).place.delete(f"{file.name}.{suffix}")
    (problem,) = vault_of(store).verify()
    assert problem.name == "batches 2 to 3"
    assert "no vault.lost" in problem.why


def test_rows_that_are_hot_and_wait_for_their_file_are_not_missed(stand: Stand) -> None:
    store = stand.create()
    observed(store, rows(3))
    assert wrong(store) == []
    assert wrong(stand.reopen()) == []


@pytest.mark.parametrize("told", [True, False])
def test_rows_that_left_unsealed_are_missed_unless_the_log_tells_of_them(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    store = stand.create(vault_every="30d")
    observed(store, rows(5))
    if not told:
        monkeypatch.setattr(vault_of(store)._log, "note", lambda *_, **__: None)
    with monkeypatch.context() as patched:
        refusing(patched, 1)
        stand.clock.pass_(4 * DAY)
        with pytest.raises(OSError, match="the disk refuses"):
            store.advance()
    assert wrong(store) == ([] if told else ["batch 1"])
    observed(store, rows(5, stand.clock.now))
    vault_of(store).seal()
    assert wrong(stand.reopen()) == ([] if told else ["batch 1"])


def test_files_past_their_time_are_not_missed(stand: Stand) -> None:
    store = _filled(stand, vault_retention="2d")
    stand.clock.pass_(2 * DAY - 150)
    store.advance()
    vault_of(store).carry()
    assert 0 < len(vault_of(store).files()) < 4
    assert wrong(store) == []
    stand.clock.pass_(DAY)
    store.advance()
    vault_of(store).carry()
    assert vault_of(store).files() == []
    assert wrong(stand.reopen()) == []
    assert unowed(inspect.catalogue(stand.reopen())) == [(1, 4)]


def test_a_file_that_was_replaced_is_owed_as_before(stand: Stand) -> None:
    store = _filled(stand)
    vault = vault_of(store)
    one, two, *_ = vault.envelopes()
    vault.replace(one.header.name, [opened(vault, one)])
    vault.replace(two.header.name, [])
    vault.carry()
    assert wrong(store) == []
    assert unowed(inspect.catalogue(store)) == [(2, 2)]


def test_what_came_before_there_was_a_vault_is_not_missed(stand: Stand) -> None:
    place, stand.vault = stand.vault, None
    stand.create().observe(rows(3))
    store = stand.reopen()
    store.admin.attach_vault(str(place), CUSTODIAN.public)
    store.observe(rows(4))
    vault_of(store).seal()
    assert wrong(store) == []


def test_numbers_that_a_restored_store_leaves_out_are_not_missed(stand: Stand) -> None:
    store = stand.create()
    observed(store, rows(3))
    store.admin.backup(stand.folder / "backup")
    stand.close()
    again = Pyramid.restore(stand.folder / "backup", stand.folder / "restored", **stand.given)
    store = stand.held(again)
    stand.clock.pass_(HOUR)
    observed(store, rows(4, stand.clock.now))
    vault_of(store).seal()
    assert len(vault_of(store).files()) == 2
    assert wrong(store) == []
