"""What a store that protects people promises, refuses and tells."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest

from pyramidion import Categorical, Guarantee, Pyramid, Schema
from pyramidion.counts.layout import PRIOR
from pyramidion.errors import ObservationError, SchemaError
from pyramidion.privacy.budget import budget_of, epsilon_of, laplace_scale
from pyramidion.privacy.noise import DiscreteLaplace
from pyramidion.privacy.table_noise import TableDesign
from tests.store import inspect
from tests.store.inspect import populating
from tests.store.peopling import PEOPLE, of
from tests.store.stores import DAY, SCHEMA, START, Stand, observed, rows, tiny

GIVEN = {"k": 2, "p_min": 0.5}


def peopled(stand: Stand, windows: int, **settings: Any) -> Pyramid:
    """A store with a person in so many windows, the last one populating."""
    store = stand.create(PEOPLE, **GIVEN | settings)
    for number in range(windows):
        stand.clock.now = START + number * 10 * DAY
        store.advance()
        observed(store, of(["a"] * 5, stand.clock.now))
    return store


# --- noise ----------------------------------------------------------------------------------


def test_the_noise_of_a_window_hides_all_rows_that_a_person_can_have_in_it(stand: Stand) -> None:
    store = stand.create(PEOPLE, **GIVEN, delta=0.0, weights="equal")
    observed(store, of(["a"]))
    hidden = 2 * 5  # blocks of three days in ten days and an hour
    assert inspect.parts(store).people.hidden == hidden
    shares = inspect.birth(store, 1).shares
    for table in populating(store).layout.tables:
        scale = laplace_scale(
            epsilon=Fraction(1) * shares[table.name], k=10, omega=2, rows=table.rows
        )
        assert table.variance == DiscreteLaplace.at_least(scale).variance


def test_it_is_that_of_a_store_whose_k_is_as_large(stand: Stand) -> None:
    store = stand.create(PEOPLE, **GIVEN)
    alike = TableDesign(
        tiny(p_min=0.5, k=10), inspect.door(store).encoder.shapes, 2, b"", reserves={}
    ).variances
    assert inspect.birth(store, 2).variances == alike
    assert inspect.birth(store, 2).shares[PRIOR] == Fraction(2, 100)


def test_without_a_unit_the_noise_hides_k_rows(stand: Stand) -> None:
    assert inspect.parts(stand.create(k=3)).people.hidden == 3


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"count_window": 100}, "count windows are cut by rows"),
        ({"hot_window": None, "hot_rows": 100}, "before their block is over"),
        ({"hot_rows": 100}, "before their block is over"),
        ({"unit_block": "1d", "hot_window": None, "hot_rows": 9}, "before their block is over"),
        ({"unit_block": "36h"}, "is not a multiple of 'hot_step'"),
        ({"unit_block": "4d"}, "is longer than 'hot_window'"),
    ],
)
def test_settings_that_cannot_bound_people_are_refused(
    stand: Stand, settings: dict[str, Any], why: str
) -> None:
    with pytest.raises(SchemaError, match=why):
        stand.create(PEOPLE, **GIVEN | settings)
    assert not stand.path.exists()


@pytest.mark.parametrize("block", ["1d", "2d", "3d", None])
def test_blocks_are_some_hot_steps_and_at_most_the_hot_window(
    stand: Stand, block: str | None
) -> None:
    store = stand.create(PEOPLE, **GIVEN, unit_block=block)
    assert inspect.parts(store).people.hidden == 2 * {"1d": 11, "2d": 6, "3d": 5, None: 5}[block]


def test_a_row_of_nobody_is_refused(stand: Stand) -> None:
    store = stand.create(PEOPLE, **GIVEN)
    batch = of(["a", "b"]).set_column(4, "who", pa.array(["a", None]))
    with pytest.raises(ObservationError, match="row 1: column 'who' has no unit"):
        store.observe(batch)
    assert store.observe(batch, errors="skip").refused == 1


def test_a_batch_without_the_column_is_refused(stand: Stand) -> None:
    with pytest.raises(ObservationError, match="who"):
        stand.create(PEOPLE, **GIVEN).observe(of(["a"]).drop_columns(["who"]))


def test_the_unit_is_not_withdrawn(stand: Stand) -> None:
    schema = Schema(label=PEOPLE.label, features=[Categorical("who"), Categorical("a")], unit="who")
    with pytest.raises(SchemaError, match="people are protected by"):
        stand.create(schema).groups.withdraw("who", why="regulation")


# --- promises -----------------------------------------------------------------------------------


def test_snapshots_promise_it_to_every_person_in_each_window(stand: Stand) -> None:
    store = peopled(stand, 3)
    promise = store.snapshot().guarantee
    assert promise == Guarantee(level="P2", epsilon=1.0, delta=1e-9, k=2, windows=2, unit="who")
    assert str(promise) == (
        "P2: (1.0, 1e-09)-differentially private for any person (column 'who'), "
        "in each of 2 windows"
    )
    assert promise.to_dict()["unit"] == "who"
    assert store.status().guarantee == promise


def test_without_a_unit_promises_are_as_they_were(stand: Stand) -> None:
    promise = Guarantee(level="P2", epsilon=1.0, delta=0.0, k=1, windows=1)
    assert set(promise.to_dict()) == {"level", "epsilon", "delta", "k", "windows"}


def test_pure_budgets_of_retained_windows_add_up_for_a_person(stand: Stand) -> None:
    report = peopled(stand, 3, delta=0.0).ledger.report()
    assert (report.epsilon, report.delta) == (1.0, 0.0)
    assert (report.composed_epsilon, report.composed_delta) == (3.0, 0.0)
    assert (report.unit, report.retained) == ("who", 3)


def test_concentrated_budgets_add_up_before_they_become_epsilon_and_delta(stand: Stand) -> None:
    store = peopled(stand, 3)
    report, rho = store.ledger.report(), budget_of(store.settings)[1]
    assert report.composed_epsilon == epsilon_of(rho=float(3 * rho), delta=1e-9)
    assert 1.5 < report.composed_epsilon < 3.0
    assert report.composed_delta == 1e-9


def test_one_window_costs_a_person_what_the_window_costs(stand: Stand) -> None:
    report = peopled(stand, 1).ledger.report()
    assert report.composed_epsilon == report.epsilon == 1.0


def test_a_window_that_is_erased_leaves_the_sum_and_stays_in_the_ledger(stand: Stand) -> None:
    store = peopled(stand, 3, delta=0.0)
    stand.clock.now = START + 50.5 * DAY
    store.advance()
    report = store.ledger.report()
    assert len(report.windows) == 3
    assert (report.retained, report.composed_epsilon) == (2, 2.0)
    stand.clock.now = START + 90 * DAY
    store.advance()
    report = store.ledger.report()
    assert (report.retained, report.composed_epsilon, report.composed_delta) == (0, 0.0, 0.0)


def test_a_reserve_that_is_spent_is_in_the_sum(stand: Stand) -> None:
    store = peopled(stand, 2, delta=0.0, selection_share=0.25)
    assert store.ledger.report().composed_epsilon == 1.5
    store.ledger.spend("selection", Fraction(1, 4), [1], now=0)
    assert store.ledger.report().composed_epsilon == 1.75


def test_ledger_and_status_tell_both_numbers(stand: Stand) -> None:
    store = peopled(stand, 3, delta=0.0)
    assert str(store.ledger.report()).splitlines()[-1] == (
        "spent on any person (column 'who'): (1, 0) in a window, (3, 0) in 3 retained windows "
        "together"
    )
    told = store.ledger.report().to_dict()
    assert (told["epsilon"], told["composed_epsilon"], told["composed_delta"]) == (1.0, 3.0, 0.0)
    assert (told["unit"], told["retained"]) == ("who", 3)
    assert store.status().to_dict()["composed_epsilon"] == 3.0


def test_without_privacy_there_is_no_sum(stand: Stand) -> None:
    store = peopled(stand, 1, epsilon=math.inf)
    assert store.ledger.report().to_dict()["composed_epsilon"] is None
    assert store.status().to_dict()["composed_epsilon"] is None
    assert store.status().composed_epsilon == math.inf


def test_without_a_unit_neither_tells_of_people(stand: Stand) -> None:
    store = stand.create(SCHEMA)
    observed(store, rows(5))
    told = [*store.ledger.report().to_dict(), *store.status().to_dict()]
    assert not [name for name in told if "composed" in name or name in ("unit", "retained")]
    assert "person" not in str(store.ledger.report())
