"""No window ever spends more than its budget, and the report says what it spent."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import pytest

from pyramidion import PrivacyError, Settings
from pyramidion.privacy.budget import budget_of, epsilon_of, rho_of
from pyramidion.privacy.ledger import Ledger, Line, MemoryBook
from pyramidion.privacy.table_noise import reserves_of, shares_of
from tests.privacy.ledgers import EVERY, KEPT, PURE, RESERVES, TABLES, lines_of, opened

# TableDesign


@pytest.mark.parametrize("settings", EVERY)
def test_a_birth_is_written_as_budget_tables_and_reserves(settings: dict[str, Any]) -> None:
    unit, budget = budget_of(Settings(**settings))
    wanted = [("budget", unit, budget)]
    wanted += [("table", name, share * budget) for name, share in TABLES.items()]
    wanted += [("reserve", name, share * budget) for name, share in RESERVES.items() if share]
    if unit == "none":
        wanted = wanted[:4]
    ledger = opened(7, **settings)
    assert [(line.kind, line.purpose, line.amount) for line in lines_of(ledger)] == wanted
    assert {(line.window, line.at, line.why) for line in lines_of(ledger)} == {(7, 7, "")}


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_shares_of_the_tables_and_the_reserves_are_the_budget(delta: float) -> None:
    settings = Settings(
        epsilon=0.7, delta=delta, weights_share=0.0, bins_share=0.07, shares={"b": 0.3}
    )
    kept = reserves_of(settings)
    shares = shares_of(settings, ["a", "b"], kept)
    ledger = Ledger(MemoryBook(), settings)
    ledger.open(0, dict(zip(["", "a", "b"], shares, strict=True)), kept, now=0)
    _, budget = budget_of(settings)
    assert ledger.left(0, "bins") == budget * Fraction(7, 100)
    assert ledger.spent(0) + ledger.left(0, "bins") == budget


def test_budgets_are_rho_with_delta_epsilon_without_and_nothing_without_privacy() -> None:
    rho = Fraction(rho_of(epsilon=0.7, delta=1e-6))
    assert budget_of(Settings(epsilon=0.7, delta=1e-6)) == ("rho", rho)
    assert budget_of(Settings(epsilon=0.7, delta=0)) == ("epsilon", Fraction(0.7))
    assert budget_of(Settings(epsilon=math.inf)) == ("none", Fraction(0))


def test_tables_and_reserves_may_take_the_whole_budget_and_no_more() -> None:
    most = Fraction(1) - sum(RESERVES.values())
    opened().open(0, {"": most}, KEPT, now=0)
    ledger = opened()
    with pytest.raises(PrivacyError, match=r"epsilon 3 .* 2\.55001, its reserves for 0\.45; give"):
        ledger.open(0, {"": most + Fraction(1, 10**30)}, KEPT, now=0)
    assert not lines_of(ledger)


@pytest.mark.parametrize("share", [Fraction(0), Fraction(-1, 100), 0.1, True])
def test_a_share_that_is_not_positive_and_exact_is_refused(share: Any) -> None:
    ledger = opened()
    with pytest.raises(PrivacyError):
        ledger.open(0, TABLES | {"bad": share}, KEPT, now=0)
    assert not lines_of(ledger)


def test_a_window_is_born_once() -> None:
    ledger = opened(0, 1)
    before = lines_of(ledger)
    with pytest.raises(PrivacyError, match="window 1 is charged already"):
        ledger.open(1, TABLES, KEPT, now=9)
    assert lines_of(ledger) == before


# Spending


def test_all_of_a_reserve_can_be_spent_and_then_nothing() -> None:
    ledger = opened(0)
    ledger.spend("selection", PURE / 10, [0], now=1)
    assert ledger.left(0, "selection") == 0
    assert ledger.left(0, "weights") == PURE / 20
    with pytest.raises(PrivacyError, match="epsilon 0 left"):
        ledger.spend("selection", Fraction(1, 10**40), [0], now=1)


def test_a_thousand_thousandths_are_exactly_the_reserve() -> None:
    ledger = opened(0)
    for _ in range(1000):
        ledger.spend("selection", PURE / 10_000, [0], now=1)
    assert ledger.left(0, "selection") == 0
    assert ledger.spent(0) == PURE * (sum(TABLES.values()) + Fraction(1, 10))


def test_every_window_pays_in_full_sealed_ones_too() -> None:
    ledger = opened(0, 1, 2, 3)
    ledger.spend("weights", Fraction(1, 10), [1, 2, 3], now=5, why="quantiles")
    paid = [line for line in lines_of(ledger) if line.kind == "spend"]
    wanted = [Line(w, "spend", "weights", Fraction(1, 10), 5, "quantiles") for w in (1, 2, 3)]
    assert paid == wanted


@pytest.mark.parametrize("poor", [1, 2, 3])
def test_all_windows_pay_or_none_does(poor: int) -> None:
    ledger = opened(1, 2, 3)
    ledger.spend("selection", Fraction(1, 5), [poor], now=1)
    before = lines_of(ledger)
    with pytest.raises(PrivacyError, match=rf"^window {poor} has epsilon 0\.1 left"):
        ledger.spend("selection", Fraction(1, 4), [1, 2, 3], now=2)
    assert lines_of(ledger) == before


def test_a_window_named_twice_pays_once() -> None:
    ledger = opened(0)
    ledger.spend("selection", Fraction(1, 5), [0, 0], now=1)
    assert ledger.left(0, "selection") == Fraction(1, 10)


def test_a_refusal_says_what_was_asked_what_is_left_and_what_would_fit() -> None:
    ledger = opened(2, 3, 4)
    ledger.spend("selection", Fraction(1, 5), [3], now=1)
    ledger.spend("selection", Fraction(1, 4), [4], now=1)
    with pytest.raises(PrivacyError) as refused:
        ledger.spend("selection", Fraction(3, 10), [2, 3, 4], now=1)
    assert str(refused.value) == (
        "window 3 has epsilon 0.1 left for selection and 0.3 was asked; ask for at most 0.05, "
        "or raise `selection_share` for windows to come, "
        "or wait until only window 5 and later are read"
    )


def test_a_refusal_promises_nothing_that_would_not_help() -> None:
    ledger = opened(0)
    with pytest.raises(PrivacyError) as refused:
        ledger.spend("bins", Fraction(1, 5), [0], now=1)
    assert str(refused.value) == (
        "window 0 has epsilon 0 left for bins and 0.2 was asked; "
        "raise `bins_share` for windows to come"
    )


def test_what_a_refusal_says_would_fit_does_fit() -> None:
    ledger = opened(0, delta=1e-6)
    with pytest.raises(PrivacyError, match="ask for at most") as refused:
        ledger.spend("selection", Fraction(1), [0], now=1)
    most = str(refused.value).split("at most ")[1].split(",")[0]
    assert Fraction(most) > 0
    ledger.spend("selection", Fraction(most), [0], now=1)


@pytest.mark.parametrize(
    ("amount", "why"),
    [(0, "above 0"), (Fraction(-1, 9), "above 0"), (0.1, "exact"), (True, "exact")],
)
def test_only_exact_amounts_above_zero_can_be_spent(amount: Any, why: str) -> None:
    ledger = opened(0)
    before = lines_of(ledger)
    with pytest.raises(PrivacyError, match=why):
        ledger.spend("selection", amount, [0], now=1)
    assert lines_of(ledger) == before


@pytest.mark.parametrize("settings", EVERY)
def test_a_spend_that_some_or_every_window_does_not_know_is_refused(
    settings: dict[str, Any],
) -> None:
    ledger = opened(0, **settings)
    before = lines_of(ledger)
    with pytest.raises(PrivacyError, match="window 8 has no budget"):
        ledger.spend("selection", Fraction(1, 10**6), [0, 8], now=1)
    with pytest.raises(PrivacyError, match="no window pays"):
        ledger.spend("selection", Fraction(1, 10**6), [], now=1)
    for ask in (ledger.spent, lambda window: ledger.left(window, "selection")):
        with pytest.raises(PrivacyError, match="window 8 has no budget"):
            ask(8)
    assert lines_of(ledger) == before


@pytest.mark.parametrize("purpose", ["carrier", "", "epsilon", "models"])
def test_only_what_a_window_reserves_for_can_be_spent_on(purpose: str) -> None:
    ledger = opened(0)
    with pytest.raises(PrivacyError, match="has no reserve for"):
        ledger.spend(purpose, Fraction(1, 100), [0], now=1)
    with pytest.raises(PrivacyError, match="only for: bins, rebuild, selection, weights"):
        ledger.left(0, purpose)


def test_without_privacy_nothing_is_refused_and_spends_are_written_as_zero() -> None:
    ledger = opened(0, 1, epsilon=math.inf)
    ledger.spend("selection", Fraction(10), [0, 1], now=1)
    ledger.spend("anything", Fraction(0), [1], now=2, why="told")
    ledger.forfeit([0, 1], now=3, why="restored")
    paid = [line for line in lines_of(ledger) if line.kind == "spend"]
    assert [line.window for line in paid] == [0, 1, 1]
    assert {line.amount for line in paid} == {0}
    assert ledger.spent(1) == ledger.left(1, "selection") == 0


def test_a_window_charged_in_one_unit_does_not_pay_in_another() -> None:
    book = MemoryBook()
    opened(0, book=book, delta=1e-6)
    for settings in ({"delta": 0}, {"epsilon": math.inf}):
        with pytest.raises(PrivacyError, match="was charged in the unit 'rho'"):
            opened(book=book, **settings).spend("weights", Fraction(1, 10**6), [0], now=1)


def test_a_forfeit_gives_up_what_is_left_of_every_reserve() -> None:
    ledger = opened(0, 1, 2)
    ledger.spend("selection", Fraction(1, 10), [0, 1], now=1)
    ledger.forfeit([0, 1, 1], now=2, why="restored")
    ledger.forfeit([0, 1], now=3, why="restored")
    given = [line for line in lines_of(ledger) if line.kind == "forfeit"]
    assert [(line.window, line.purpose, line.amount) for line in given] == [
        (w, *left) for w in (0, 1) for left in (("weights", PURE / 20), ("selection", PURE / 15))
    ]
    assert ledger.left(1, "selection") == 0
    assert ledger.spent(1) == PURE
    assert ledger.left(2, "selection") == PURE / 10


def test_forfeiting_an_unknown_window_writes_nothing() -> None:
    ledger = opened(0)
    before = lines_of(ledger)
    with pytest.raises(PrivacyError, match="window 1 has no budget"):
        ledger.forfeit([0, 1], now=1, why="restored")
    assert lines_of(ledger) == before


# Report


def test_the_epsilon_of_a_window_is_that_of_the_rho_it_spent() -> None:
    ledger = opened(0, 1, delta=1e-6, k=4)
    ledger.spend("weights", Fraction(1, 1000), [1], now=1)
    report = ledger.report()
    for window in report.windows:
        rho = ledger.spent(window.number)
        assert (window.spent, window.left) == (rho, window.budget - rho)
        assert window.epsilon == epsilon_of(rho=float(rho), delta=1e-6) < 3
        assert window.delta == 1e-6
    assert report.windows[0].epsilon < report.windows[1].epsilon == report.epsilon
    assert (report.delta, report.k) == (1e-6, 4)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_window_that_spent_all_has_the_epsilon_of_the_settings(delta: float) -> None:
    ledger = opened(0, delta=delta)
    ledger.forfeit([0], now=1, why="restored")
    assert ledger.report().windows[0].left == 0
    assert (ledger.report().epsilon, ledger.report().delta) == (3, delta)


def test_a_pure_epsilon_is_reported_as_spent_and_never_rounded_down() -> None:
    ledger = opened(0)
    ledger.open(1, {"": Fraction(1, 7)}, KEPT, now=1)
    first, second = ledger.report().windows
    for window, spent in ((first, Fraction(255, 100)), (second, Fraction(3, 7))):
        assert window.spent == spent <= Fraction(window.epsilon)
        assert window.epsilon == pytest.approx(float(spent), rel=1e-15)
    assert ledger.report().delta == first.delta == 0


def test_without_privacy_the_report_says_so() -> None:
    report = opened(0, epsilon=math.inf).report()
    assert (report.epsilon, report.windows[0].unit) == (math.inf, "none")
    assert report.to_dict()["epsilon"] is None
    assert "inf" in str(report)


def test_a_rho_without_a_delta_promises_nothing() -> None:
    book = MemoryBook()
    opened(0, book=book, delta=1e-6)
    assert opened(book=book, delta=0).report().epsilon == math.inf


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_lower_epsilon_in_the_settings_does_not_lower_what_was_spent(delta: float) -> None:
    book = MemoryBook()
    before = opened(0, book=book, delta=delta).report()
    assert opened(book=book, delta=delta, epsilon=1).report() == before


def test_an_empty_ledger_has_spent_nothing() -> None:
    report = opened().report()
    assert (report.windows, report.epsilon, report.delta) == ((), 0, 0)


def test_a_report_goes_through_json_with_exact_amounts() -> None:
    ledger = opened(0, delta=1e-6)
    ledger.spend("weights", Fraction(1, 1000), [0], now=5, why="quantiles")
    told = json.loads(json.dumps(ledger.report().to_dict(), allow_nan=False))
    (window,) = told["windows"]
    assert Fraction(window["spent_exact"]) == ledger.spent(0)
    assert window["spent"] == float(ledger.spent(0))
    assert window["lines"][-1] == {
        "kind": "spend",
        "purpose": "weights",
        "amount": 0.001,
        "amount_exact": "1/1000",
        "at": 5,
        "why": "quantiles",
    }
    assert (told["k"], told["delta"], window["unit"], window["number"]) == (1, 1e-6, "rho", 0)


def test_a_report_reads_as_a_table() -> None:
    ledger = opened(0, 10)
    ledger.spend("selection", Fraction(1, 5), [10], now=1)
    assert str(ledger.report()).splitlines() == [
        "window     unit  tables  weights  selection  left     ε  δ",
        "     0  epsilon    2.55        0          0  0.45  2.55  0",
        "    10  epsilon    2.55        0        0.2  0.25  2.75  0",
        "spent on any 1 observation: (2.75, 0)",
    ]


# --- shards --------------------------------------------------------------------------------


def test_a_report_tells_the_shards_and_what_their_sum_has_of_noise() -> None:
    shards = {"shards": 3, "weights": "equal", "selection_share": 0.0}
    alone, report = opened(0).report(), opened(0, **shards).report()
    assert (report.shards, report.noise_variance) == (3, 3)
    assert (report.epsilon, report.delta) == (alone.epsilon, alone.delta)
    assert "3 shards" in str(report)
    assert "3 times the noise variance" in str(report)
    assert "shard" not in str(alone)
    assert report.to_dict()["noise_variance"] == 3
    assert "shards" not in alone.to_dict()
