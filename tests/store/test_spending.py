"""The ledger on a store: durable before what it pays for, and just as strict after a restart."""

from __future__ import annotations

import sqlite3
from fractions import Fraction
from typing import Any

import pytest

from pyramidion.errors import PrivacyError, StateError, StorageError
from pyramidion.privacy.budget import budget_of
from pyramidion.privacy.table_noise import TableDesign
from pyramidion.storage.table_files import TableFiles
from tests.store.inspect import populating
from tests.store.stores import DAY, Stand, cells, exact, failing_once, observed, rows, same, states


def charged(store: Any) -> dict[int, set[tuple[str, str]]]:
    return {
        window.number: {(line.kind, line.purpose) for line in window.lines}
        for window in store.ledger.report().windows
    }


def test_a_window_is_charged_for_its_tables_and_reserves_at_birth(stand: Stand) -> None:
    store = stand.create(selection_share=0.1, bins_share=0.05, weights_share=0.02)
    store.observe(rows(5))
    assert charged(store)[1] == {
        ("budget", "rho"),
        *(("table", name) for name in ("", "a", "b", "a,b")),
        *(("reserve", name) for name in ("selection", "weights")),  # no column has bins to read
    }
    (window,) = store.ledger.report().windows
    unit, whole = budget_of(store.settings)
    assert (window.unit, window.budget) == (unit, whole)
    assert sum(line.amount for line in window.lines if line.kind != "budget") == whole
    assert store.ledger.left(1, "selection") == whole / 10


def test_the_charge_is_durable_before_the_noise_is_drawn(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create()
    seen = []
    real = TableDesign.arena

    def drawn(self: TableDesign, *given: Any) -> Any:
        seen.append(committed(stand))
        return real(self, *given)

    monkeypatch.setattr(TableDesign, "arena", drawn)
    store.observe(rows(5))
    assert seen == [5]


def committed(stand: Stand) -> int:
    """Lines of the ledger that another connection sees."""
    with sqlite3.connect(stand.path / "catalogue.db") as db:
        found = int(db.execute("SELECT count(*) FROM ledger").fetchone()[0])
    db.close()
    return found


def test_noise_that_could_not_be_drawn_stays_charged_and_a_new_window_opens(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create()
    failing_once(monkeypatch, TableDesign, "arena", MemoryError())
    with pytest.raises(MemoryError):
        store.observe(rows(5))
    assert set(charged(store)) == {1}
    assert store.observe(rows(5)).accepted == 5
    assert set(charged(store)) == {1, 2}
    store = stand.reopen()
    assert set(charged(store)) == {1, 2}
    assert states(store) == {2: ("populating", 5)}
    assert store.ledger.report().epsilon <= store.settings.epsilon


def test_noise_that_could_not_be_written_is_never_used(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create(epsilon=float("inf"))
    failing_once(monkeypatch, TableFiles, "write", StorageError("full"))
    with pytest.raises(StorageError, match="full"):
        store.observe(rows(5))
    assert not stand.files("tables")
    store.observe(rows(7))
    assert same(cells(populating(store, 2)), exact(store, populating(store, 2), [rows(7)]))


def test_overspending_is_refused_also_after_a_restart(stand: Stand) -> None:
    store = stand.create(selection_share=0.1)
    store.observe(rows(5))
    most = store.ledger.left(1, "selection")
    store.ledger.spend("selection", most * 2 / 3, [1], now=7, why="groups")
    for _ in range(2):
        with pytest.raises(PrivacyError, match=r"window 1 has rho .* left for selection"):
            store.ledger.spend("selection", most / 2, [1], now=8)
        store = stand.reopen()
    store.ledger.spend("selection", most / 3, [1], now=9)
    assert stand.reopen().ledger.left(1, "selection") == 0


def test_a_computation_is_charged_to_every_window_or_to_none(stand: Stand) -> None:
    store = stand.create(selection_share=0.1)
    observed(store, rows(5))
    stand.clock.pass_(10 * DAY)
    observed(store, rows(5, stand.clock.now))
    most = store.ledger.left(1, "selection")
    store.ledger.spend("selection", most, [1], now=7)
    with pytest.raises(PrivacyError, match="window 1"):
        store.ledger.spend("selection", most / 2, [2, 1], now=8)
    assert stand.reopen().ledger.left(2, "selection") == most


def test_what_was_spent_survives_exactly(stand: Stand) -> None:
    store = stand.create(selection_share=0.1)
    store.observe(rows(5))
    part = store.ledger.left(1, "selection") / 1_000
    for number in range(30):
        store.ledger.spend("selection", part, [1], now=number)
    before = store.ledger.report()
    assert stand.reopen().ledger.report() == before
    assert before.windows[0].used("selection") == 30 * part
    assert isinstance(before.windows[0].spent, Fraction)


@pytest.mark.parametrize(("delta", "unit"), [(0.0, "epsilon"), (1e-6, "rho")])
def test_every_window_reports_what_its_observations_were_promised(
    stand: Stand, delta: float, unit: str
) -> None:
    store = stand.create(delta=delta, epsilon=0.5)
    for _ in range(3):
        observed(store, rows(5, stand.clock.now))
        stand.clock.pass_(10 * DAY)
        store.advance()
    report = store.ledger.report()
    assert {window.unit for window in report.windows} == {unit}
    for window in report.windows:
        assert window.epsilon == pytest.approx(0.5)
        assert window.delta == delta
    assert report.epsilon <= 0.5
    assert store.snapshot().guarantee.epsilon == 0.5


def test_without_privacy_the_report_says_so(stand: Stand) -> None:
    store = stand.create(epsilon=float("inf"))
    observed(store, rows(5))
    assert store.ledger.report().epsilon == float("inf")
    stand.clock.pass_(10 * DAY)
    store.advance()
    assert store.snapshot().guarantee.level == "P1"


def test_a_window_is_never_charged_twice(stand: Stand) -> None:
    store = stand.create()
    for day in range(25):
        observed(store, rows(3, stand.clock.now))
        stand.clock.pass_(DAY)
        if day % 6 == 0:
            store = stand.reopen()
    for window in store.ledger.report().windows:
        assert [line.kind for line in window.lines].count("budget") == 1
        assert window.spent == window.budget


def test_a_ledger_of_a_closed_store_says_that_it_is_closed(stand: Stand) -> None:
    store = stand.create()
    store.close()
    with pytest.raises(StateError, match="closed; open it again"):
        store.ledger.report()
