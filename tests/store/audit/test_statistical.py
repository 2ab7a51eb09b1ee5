"""Canaries through whole stores: quiet at the stated guarantee, loud where less is done."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from pyramidion import Categorical, Continuous, Label, Schema, SchemaError, Settings
from pyramidion.privacy import table_noise
from pyramidion.privacy.audit import gaussian_epsilon
from pyramidion.privacy.ledger import Ledger
from pyramidion.store.audit import statistical
from pyramidion.store.audit.canaries import Canaries, counts, plain_schema, schema_like, seen
from pyramidion.store.audit.statistical import Measured, measure
from pyramidion.store.audit.trial import for_trial, trial

EPSILON = 3.0  # here 8,000 canaries find halved noise by ten standard deviations
SURE = 0.99999
"""Of each rate. The noise is the operating system's, and at the usual confidence one of these
tests would cry wolf in a hundred thousand runs: the bounds of both rates together lie 4.6
deviations from what is promised. At this one they lie 6."""

FLIGHTS = Schema(
    features=[
        Categorical("tail"),
        Categorical("carrier", domain=["AA", "UA"]),
        Continuous("distance", edges=[500, 1_500]),
        Categorical("label"),  # a name that the audit would have used itself
    ],
    label=[Label("late", classes=[0, 1]), Label("gain", edges=[0, 5])],
    groups=[("tail", "carrier"), ("carrier", "distance")],
    time="time",
    weight="p",
)

GAUSSIAN: list[dict[str, Any]] = [
    {},
    {"k": 3},
    {"p_min": 0.1, "weight_unit": 3},
    {"sketch": "count-min", "rows": 2},
    {"selection_share": 0.3},
]


@pytest.fixture(autouse=True)
def sure(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gaussian_loss", "pure_loss"):
        surely = partial(getattr(statistical, name), confidence=SURE)
        monkeypatch.setattr(statistical, name, surely)


def halved(monkeypatch: pytest.MonkeyPatch) -> None:
    scale, variance = table_noise.laplace_scale, table_noise.gaussian_variance
    monkeypatch.setattr(table_noise, "laplace_scale", lambda **given: scale(**given) / 2)
    monkeypatch.setattr(table_noise, "gaussian_variance", lambda **given: variance(**given) / 4)


def must_be_quiet(found: Measured) -> None:
    told = f"{found.unit} is at least {found.bound:.3f}, ledger {found.promised:.3f}"
    assert not found.alarm, told


def gaussian(**given: Any) -> Measured:
    return measure(Settings(epsilon=EPSILON, **given), canaries=8_000)


def pure(rows: int, canaries: int, **given: Any) -> Measured:
    return measure(Settings(epsilon=1.0, delta=0, rows=rows, **given), canaries=canaries)


@pytest.mark.parametrize("given", GAUSSIAN, ids=str)
def test_gaussian_stores_leak_no_more_than_their_ledger_says(given: dict[str, Any]) -> None:
    must_be_quiet(gaussian(**given))


@pytest.mark.parametrize("given", GAUSSIAN, ids=str)
def test_halved_gaussian_noise_is_found(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    halved(monkeypatch)
    assert gaussian(**given).alarm


@pytest.mark.parametrize(("rows", "canaries"), [(1, 4_000), (5, 30_000)])
def test_pure_stores_leak_no_more_than_their_ledger_says(rows: int, canaries: int) -> None:
    must_be_quiet(pure(rows, canaries))


@pytest.mark.parametrize(("rows", "canaries"), [(1, 4_000), (5, 30_000)])
def test_halved_laplace_noise_is_found(
    rows: int, canaries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    halved(monkeypatch)
    assert pure(rows, canaries).alarm
    assert pure(rows, canaries, k=2).alarm


def test_tables_like_those_of_a_schema_are_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(epsilon=EPSILON, p_min=0.2, shares={"tail": 3, "tail,carrier": 2})
    found = measure(settings, canaries=8_000, like=FLIGHTS)
    assert (found.tables, found.alarm) == (6, False)
    halved(monkeypatch)
    assert measure(settings, canaries=8_000, like=FLIGHTS).alarm


def test_a_store_that_charges_too_little_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Ledger.open

    def cheap(self: Ledger, window: int, tables: Any, *others: Any) -> None:
        real(self, window, {name: share / 4 for name, share in tables.items()}, *others)

    monkeypatch.setattr(Ledger, "open", cheap)
    assert gaussian().alarm


def test_the_bound_is_near_the_truth_with_many_canaries() -> None:
    found = measure(Settings(epsilon=EPSILON, weights="equal"), canaries=10_000, rounds=3)
    assert 0.65 * found.promised < found.bound <= found.promised
    assert found.epsilon == pytest.approx(gaussian_epsilon(mu=found.bound, delta=1e-9))
    assert found.ledger_epsilon == pytest.approx(EPSILON)
    assert found.promised == pytest.approx(math.sqrt(2 * found.spent))


def test_only_what_was_spent_is_allowed_and_not_the_whole_budget() -> None:
    equal = {"weights": "equal"}  # nothing else is kept back
    whole, part = gaussian(**equal), gaussian(**equal, selection_share=0.3)
    assert part.spent == pytest.approx(0.7 * float(whole.spent))


def test_a_report_is_printed_and_is_json() -> None:
    told = []
    settings = Settings(epsilon=EPSILON)
    found = measure(settings, canaries=500, rounds=2, seed=1, progress=told.append)
    assert told == [500, 500]
    data = json.loads(json.dumps(found.to_dict()))
    assert data["canaries"] * data["rounds"] == 1_000
    assert data["alarm"] is False
    assert Fraction(data["spent"]) == found.spent
    assert data["confidence"] == 0.999
    assert "1,000 canaries in 2 stores" in str(found)
    assert "within the ledger" in str(found)


@pytest.mark.parametrize(
    ("settings", "canaries", "rounds", "sentence"),
    [
        ({"epsilon": math.inf}, 1_000, 1, "nothing to audit"),
        ({"epsilon": 1}, 99, 1, "at least 100 canaries"),
        ({"epsilon": 1}, 1_000, 0, "at least 100 canaries and 1 round"),
    ],
)
def test_what_cannot_be_audited_is_refused(
    settings: dict[str, Any], canaries: int, rounds: int, sentence: str
) -> None:
    with pytest.raises(SchemaError, match=sentence):
        measure(Settings(**settings), canaries=canaries, rounds=rounds)


# --- canaries -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sketch", ["count-median", "count-min"])
def test_without_noise_what_is_left_in_a_canarys_cells_tells_it_apart_for_certain(
    sketch: Any,
) -> None:
    """The control: the auditor's own arithmetic and the kernels agree on every cell and sign."""
    settings = Settings(epsilon=math.inf, sketch=sketch, k=2, p_min=0.3)
    schema = schema_like(FLIGHTS, 300)
    adapted = for_trial(settings, schema, rows=600, buckets=64)  # many share their cells
    drawn = Canaries.drawn(schema, adapted, 300, np.random.default_rng(0))
    with trial(schema, adapted) as made:
        made.observe(drawn.rows())
        made.end_window()
        arena, keys = made.released(), made.keys(drawn.features())
    assert drawn.weight == 2 * 4
    for own in seen(arena, keys, drawn.labels, drawn.included, weight=drawn.weight):
        np.testing.assert_array_equal(own, np.broadcast_to(8.0 * drawn.included, own.shape))
    weights = 8 * drawn.included.astype(np.int64)
    for table in range(1, len(arena.layout.tables)):
        exact = counts(arena.layout, table, keys[table - 1], drawn.labels, weights)
        np.testing.assert_array_equal(exact, arena.cells(table))


def test_every_canary_has_a_value_of_its_own_in_every_feature() -> None:
    schema = schema_like(FLIGHTS, 200)
    drawn = Canaries.drawn(schema, Settings(epsilon=1, p_min=1), 200, np.random.default_rng(0))
    for name in schema.feature_names:
        assert len(set(drawn.features()[name].to_pylist())) == 200
    dense = [feature for feature in schema.features if feature.dense]
    assert [(feature.name, feature.codes) for feature in dense] == [
        ("carrier", 202),
        ("distance", 202),
    ]


def test_coins_are_fair_and_let_in_k_rows_each() -> None:
    schema = schema_like(plain_schema(4), 10_000)
    drawn = Canaries.drawn(schema, Settings(epsilon=1, k=3), 10_000, np.random.default_rng(0))
    assert abs(drawn.included.mean() - 0.5) < 0.025
    assert drawn.rows().num_rows == 3 * drawn.included.sum()
