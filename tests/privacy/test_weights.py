"""Weights: what is read and paid for, and shares that do what their rules say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyramidion import Categorical, Label, PrivacyError, Schema, Settings
from pyramidion.counts.layout import Kind
from pyramidion.privacy import weights
from pyramidion.privacy.randomness import Randomness
from pyramidion.privacy.table_noise import Size, TableDesign, sizes_of
from pyramidion.privacy.weights import (
    combined,
    efficiency,
    least_of,
    public_quantile,
    read,
    tables_read,
    weights_of,
)
from pyramidion.rows.encoding import TableShape
from pyramidion.rows.observations import Door, Observations

SCHEMA = Schema(
    features=[
        Categorical("user"),
        Categorical("gender", domain=["f", "m"]),
        Categorical("item"),
        Categorical("code", domain=list(range(2_000))),
    ],
    label=Label("y", classes=[0, 1]),
    groups=[("user", "gender")],
)
SETTINGS = Settings(epsilon=1.0)
DOOR = Door(SCHEMA, SETTINGS, b"secret")
SHAPES = DOOR.encoder.shapes
READ = ("user", "item", "code", "user,gender")


def observed(rows: int, *, seed: int = 0) -> Observations:
    rng = np.random.default_rng(seed)
    return DOOR.observations(
        pa.table(
            {
                "user": rng.integers(0, 3_000, rows),
                "gender": rng.choice(["f", "m"], rows),
                "item": rng.integers(0, 300, rows),
                "code": rng.integers(0, 2_000, rows),
                "y": rng.integers(0, 2, rows),
            }
        )
    )


# --- reading -----------------------------------------------------------------------------------


def test_sketches_and_large_dense_tables_are_read_and_small_dense_ones_are_not() -> None:
    assert tables_read(SETTINGS, SHAPES) == READ


def test_which_tables_are_read_follows_from_public_facts() -> None:
    shapes = [TableShape(("a",), 999), TableShape(("b",), 1_000)]
    assert tables_read(replace(SETTINGS, weights_quantile=0.1), shapes) == ("b",)
    assert tables_read(replace(SETTINGS, weights_quantile=0.5), shapes) == ("a", "b")


def test_what_rows_and_codes_say_is_the_mean_within_the_bounds() -> None:
    assert public_quantile(600, 4) == 150
    assert public_quantile(3, 4) == 1
    assert public_quantile(10**9, 4) == 10_000


@pytest.mark.parametrize("method", ["exponential", "smooth"])
def test_quantiles_are_found_where_budget_and_keys_are_many(method: Any) -> None:
    found = read(
        [observed(50_000), observed(50_000, seed=1)],
        replace(SETTINGS, quantiles=method, weights_quantile=0.1),
        shapes=SHAPES,
        budget=Fraction(8),
        unit="epsilon",
        k=1,
        randomness=Randomness.insecure_from_seed(b"read"),
    )
    assert list(found) == [shape.name for shape in SHAPES]
    assert found["gender"] == 10_000
    assert found["user"] == pytest.approx(26, rel=0.25)
    assert found["item"] == pytest.approx(310, rel=0.25)
    assert found["code"] == pytest.approx(41, rel=0.25)
    assert found["user,gender"] == pytest.approx(11, rel=0.25)


Asked = list[tuple[list[int], dict[str, Any]]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What is asked of private quantiles, instead of an answer."""
    calls: Asked = []

    def note(counts: Any, **told: Any) -> float:
        calls.append((sorted(counts.tolist()), told))
        return 2.0

    monkeypatch.setattr(weights, "count_quantile", note)
    return calls


def reading(*batches: Observations, settings: Settings = SETTINGS, **told: Any) -> dict[str, float]:
    given: dict[str, Any] = {"budget": Fraction(1, 50), "unit": "epsilon", "k": 1} | told
    return read(batches, settings, shapes=SHAPES, **given)


def expected(batch: Observations, table: int, kept: Any = slice(None)) -> list[int]:
    keys = batch.keys(table, 0, len(batch))[kept]
    return sorted(np.unique(keys, return_counts=True)[1].tolist())


def test_private_quantiles_are_asked_of_the_rows_per_key_of_all_batches(asked: Asked) -> None:
    whole = observed(5_000)
    parts = [
        whole.take(np.arange(start, min(start + 999, 5_000))) for start in range(0, 5_000, 999)
    ]
    reading(*parts)
    assert [counts for counts, _ in asked] == [expected(whole, table) for table in (0, 2, 3, 4)]


def test_batches_longer_than_a_chunk_are_counted_whole(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "CHUNK", 700)
    whole = observed(5_000)
    each = replace(whole, weights=np.arange(5_000) % 3)
    reading(each)
    assert asked[0][0] == expected(whole, 0, np.arange(5_000) % 3 > 0)


def test_blanked_rows_are_not_counted_and_heavy_ones_once(asked: Asked) -> None:
    whole = observed(2_000)
    weighed = np.where(np.arange(2_000) % 5 == 0, 0, 7)
    reading(replace(whole, weights=weighed))
    assert asked[0][0] == expected(whole, 0, weighed > 0)
    asked.clear()
    reading(replace(whole, weights=np.zeros(1, dtype=np.int64)))
    assert asked[0][0] == []


@pytest.mark.parametrize("method", ["exponential", "smooth"])
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_what_is_read_costs_at_most_the_budget_and_hardly_less(
    asked: Asked, method: Any, unit: Any
) -> None:
    budget = Fraction(3, 1000)
    chosen = replace(SETTINGS, quantiles=method, weights_quantile=0.25)
    reading(observed(100), settings=chosen, budget=budget, unit=unit, k=6)
    spent = Fraction(0)
    for _, told in asked:
        each = told["epsilon"]
        pure = each if unit == "epsilon" else each**2 / 2
        spent += pure / 4 if (unit, method) == ("rho", "exponential") else pure
        assert (told["k"], told["p"], told["method"]) == (6, 0.25, method)
    assert len(asked) == 4
    assert budget * (1 - Fraction(1, 10**12)) < spent <= budget


def test_rows_that_were_never_observed_are_read_too(asked: Asked) -> None:
    assert reading()["gender"] == 1.0
    assert [counts for counts, _ in asked] == [[]] * 4


def test_reading_without_a_budget_is_refused() -> None:
    with pytest.raises(PrivacyError):
        reading(observed(10), budget=Fraction(0))


def test_windows_combine_by_the_median_and_tables_may_begin_late() -> None:
    found = combined([{"a": 1.0}, {"a": 9_000.0, "b": 4.0}, {"a": 3.0, "b": 8.0}])
    assert found == {"a": 3.0, "b": 6.0}
    assert combined([]) == {}


# --- shares ------------------------------------------------------------------------------------

quantiles = st.floats(1, 10_000)
RULES = ["equal", "proportional", "least-error", "half"]
NOISES = {"laplace": {"delta": 0.0}, "gaussian": {"delta": 1e-9}}
SKETCHES = [
    {"rows": 1},
    {"rows": 5},
    {"rows": 4, "sketch": "count-min"},
    {"rows": 5, "sketch": "count-min", "estimate": "ratio"},
]


def chosen(rule: str, noise: str, **more: Any) -> Settings:
    return Settings(epsilon=1.0, **(NOISES[noise] | {"weights": rule} | more))


def sized(settings: Settings, count: int) -> tuple[list[TableShape], list[Size]]:
    """Sketches and dense tables, by turns."""
    shapes = [TableShape((f"t{i}",), 50 if i % 2 else None) for i in range(count)]
    return shapes, sizes_of(settings, shapes)


def named(found: Sequence[float]) -> dict[str, float]:
    return {f"t{i}": q for i, q in enumerate(found)}


@given(
    st.lists(quantiles, min_size=1, max_size=8),
    st.sampled_from(RULES),
    st.sampled_from(sorted(NOISES)),
    st.sampled_from(SKETCHES),
)
def test_weights_are_positive_fractions_that_sum_to_one(
    found: list[float], rule: str, noise: str, sketch: dict[str, Any]
) -> None:
    settings = chosen(rule, noise, **sketch)
    shares = weights_of(settings, sized(settings, len(found))[1], named(found))
    assert list(shares) == [f"t{i}" for i in range(len(found))]
    assert sum(shares.values()) == 1
    assert all(isinstance(share, Fraction) and share > 0 for share in shares.values())


def scales_of(settings: Settings, found: Sequence[float]) -> list[float]:
    """The scale of the noise that tables are born with under these weights."""
    shapes, sizes = sized(settings, len(found))
    shares = weights_of(settings, sizes, named(found))
    birth = TableDesign(settings, shapes, 2, b"secret", weights=shares)
    assert sum(birth.shares.values()) == 1
    return [noise.scale for noise in birth.noises[1:] if noise is not None]


@pytest.mark.parametrize("noise", sorted(NOISES))
@pytest.mark.parametrize("sketch", SKETCHES)
def test_proportional_noise_is_proportional_to_the_quantile(
    noise: str, sketch: dict[str, Any]
) -> None:
    found = [10.0, 20.0, 500.0, 80.0]
    scales = scales_of(chosen("proportional", noise, **sketch), found)
    ratio = [scale / q for scale, q in zip(scales, found, strict=True)]
    assert ratio == pytest.approx([ratio[0]] * 4, rel=1e-3)


def error(settings: Settings, sizes: list[Size], found: Sequence[float], shares: Any) -> float:
    """Σ Var / q², from the noise formulas alone: 2 b² with b = h / ε_j, or h / 2ρ_j."""
    whole = 0.0
    for (_, kind, h, _), q, share in zip(sizes, found, shares, strict=True):
        variance = 2 * (h / share) ** 2 if settings.mechanism == "laplace" else h / (2 * share)
        whole += efficiency(settings, kind, h) * variance / q**2
    return whole


@given(
    st.lists(quantiles, min_size=2, max_size=6),
    st.sampled_from(sorted(NOISES)),
    st.sampled_from(SKETCHES),
    st.data(),
)
def test_no_other_shares_have_a_smaller_error_than_least_error(
    found: list[float], noise: str, sketch: dict[str, Any], data: st.DataObject
) -> None:
    settings = chosen("least-error", noise, **sketch)
    _, sizes = sized(settings, len(found))
    best = [float(share) for share in weights_of(settings, sizes, named(found)).values()]
    factors = data.draw(
        st.lists(st.floats(0.1, 10), min_size=len(found), max_size=len(found)), "factors"
    )
    other = [share * factor for share, factor in zip(best, factors, strict=True)]
    other = [share / sum(other) for share in other]
    least = error(settings, sizes, found, best)
    assert least <= error(settings, sizes, found, other) * (1 + 1e-9)


@pytest.mark.parametrize("noise", sorted(NOISES))
def test_least_error_noise_follows_the_formulas(noise: str) -> None:
    settings, found = chosen("least-error", noise, rows=5), [10.0, 20.0, 500.0, 80.0]
    scales = scales_of(settings, found)
    for i, (scale, q) in enumerate(zip(scales, found, strict=True)):
        h, e = (1, 1.0) if i % 2 else (5, 0.176 if noise == "laplace" else 0.21)
        formula = (
            (h * q**2 / e) ** (1 / 3) if noise == "laplace" else math.sqrt(q * math.sqrt(h / e))
        )
        scales[i] = scale / formula
    assert scales == pytest.approx([scales[0]] * 4, rel=1e-3)


@given(st.lists(quantiles, min_size=1, max_size=8), st.sampled_from(sorted(NOISES)))
def test_half_never_has_more_than_twice_the_noise_of_equal(found: list[float], noise: str) -> None:
    half = scales_of(chosen("half", noise, rows=5), found)
    equal = scales_of(chosen("equal", noise, rows=5), found)
    most = 2 if noise == "laplace" else math.sqrt(2)
    assert all(a <= b * most * (1 + 1e-9) for a, b in zip(half, equal, strict=True))


@given(st.lists(quantiles, min_size=1, max_size=12), st.sampled_from(sorted(NOISES)))
def test_half_makes_no_table_noisier_by_more_than_it_makes_another_quieter(
    found: list[float], noise: str
) -> None:
    half = scales_of(chosen("half", noise, rows=5), found)
    equal = scales_of(chosen("equal", noise, rows=5), found)
    changed = [a / b for a, b in zip(half, equal, strict=True)]
    assert max(changed) <= 1 / min(changed) * (1 + 1e-6)


@pytest.mark.parametrize("noise", sorted(NOISES))
@pytest.mark.parametrize(
    ("found", "kept"),
    [
        ([2.0] * 26 + [2_000.0] * 13, 1.0),  # many need what few could give
        ([80.0, 8.0] + [10_000.0] * 18, 0.5),  # few need what many can give
        ([10.0] * 4 + [10_000.0] * 6, None),  # between: a table of four has 2.5 shares or less
    ],
)
def test_half_moves_the_less_the_more_tables_need_it(
    noise: str, found: list[float], kept: float | None
) -> None:
    sizes: list[Size] = [(f"t{i}", "dense", 1, 1024) for i in range(len(found))]
    settings, each = chosen("half", noise), named(found)
    half = weights_of(settings, sizes, each)
    best = weights_of(replace(settings, weights="least-error"), sizes, each)
    part = kept or 1 / (len(found) * float(max(best.values())) - 1)
    assert 0.5 <= part <= 1
    for name, share in half.items():
        by_hand = part / len(found) + (1 - part) * float(best[name])
        assert float(share) == pytest.approx(by_hand, rel=1e-9)


def test_half_is_equal_where_nothing_differs() -> None:
    sizes: list[Size] = [(f"t{i}", "dense", 1, 1024) for i in range(3)]
    found = weights_of(chosen("half", "laplace"), sizes, named([7.0] * 3))
    assert set(found.values()) == {Fraction(1, 3)}


@pytest.mark.parametrize("rule", RULES[1:])
@pytest.mark.parametrize("noise", sorted(NOISES))
def test_tables_of_low_counts_get_less_noise(rule: str, noise: str) -> None:
    scales = scales_of(chosen(rule, noise), [10.0, 500.0, 1_000.0])
    assert scales[0] < scales[2] / 1.1


@pytest.mark.parametrize("rule", RULES)
def test_equal_quantiles_of_equal_tables_give_equal_weights(rule: str) -> None:
    sizes: list[Size] = [(f"t{i}", "count-median", 5, 1024) for i in range(3)]
    found = weights_of(chosen(rule, "gaussian"), sizes, named([70.0] * 3))
    assert set(found.values()) == {Fraction(1, 3)}


def test_a_table_that_was_never_read_has_the_median_of_the_others() -> None:
    sizes: list[Size] = [(f"t{i}", "count-median", 5, 1024) for i in range(4)]
    settings = chosen("least-error", "gaussian")
    found = weights_of(settings, sizes, named([10.0, 70.0, 900.0]))
    assert found == weights_of(settings, sizes, named([10.0, 70.0, 900.0, 70.0]))
    assert set(weights_of(settings, sizes, {}).values()) == {Fraction(1, 4)}


def test_quantiles_beyond_the_bounds_count_as_the_bounds() -> None:
    sizes: list[Size] = [(f"t{i}", "dense", 1, 9) for i in range(2)]
    settings = chosen("proportional", "laplace")
    assert weights_of(settings, sizes, named([0.001, 10**9])) == weights_of(
        settings, sizes, named([1.0, 10_000.0])
    )


# --- the error of estimates ---------------------------------------------------------------------


@pytest.mark.parametrize("laplace", [True, False])
@pytest.mark.parametrize("rows", [1, 2, 5, 16])
def test_the_least_of_some_rows_has_the_mean_and_variance_that_were_integrated(
    laplace: bool, rows: int
) -> None:
    rng = np.random.default_rng(7)
    draws = (
        rng.laplace(0, 0.5**0.5, (200_000, rows)) if laplace else rng.normal(size=(200_000, rows))
    )
    least = draws.min(axis=1)
    mean, variance = least_of(rows, laplace=laplace)
    assert mean == pytest.approx(least.mean(), abs=0.01)
    assert variance == pytest.approx(least.var(), rel=0.03)


@pytest.mark.parametrize(
    ("kind", "noise", "estimate", "expected"),
    [
        ("dense", "laplace", "ratio", 1.0),
        ("count-median", "laplace", "shrinkage", 0.176),
        ("count-median", "gaussian", "shrinkage", 0.21),
        ("count-min", "gaussian", "shrinkage", 0.4475),
        ("count-min", "gaussian", "ratio", 0.4475 + 1.16296**2),
    ],
)
def test_efficiencies_are_those_of_the_estimates(
    kind: Kind, noise: str, estimate: str, expected: float
) -> None:
    settings = chosen("half", noise, estimate=estimate)
    assert efficiency(settings, kind, 5) == pytest.approx(expected, rel=1e-3)
