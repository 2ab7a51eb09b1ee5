"""The noise of every table follows from ε, δ, k, h, Ω and the shares, and from nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyramidion import Categorical, Label, Schema, SchemaError, Settings
from pyramidion.privacy.budget import rho_of
from pyramidion.privacy.noise import DiscreteGaussian, DiscreteLaplace
from pyramidion.privacy.randomness import Randomness
from pyramidion.privacy.table_noise import TableDesign, shares_of
from pyramidion.rows.encoding import TableShape

SHAPES = (TableShape(("open",), None), TableShape(("dense",), 6), TableShape(("a", "b"), None))


def born(**settings: Any) -> TableDesign:
    return TableDesign(Settings(**settings), SHAPES, 2, b"secret")


@given(
    st.lists(st.text("abc", min_size=1), min_size=1, max_size=6, unique=True),
    st.floats(0.001, 0.9),
    st.floats(0.01, 100),
)
@settings(max_examples=50)
def test_shares_sum_to_exactly_one(names: list[str], prior: float, first: float) -> None:
    chosen: Mapping[str, float] = {names[0]: first}
    shares = shares_of(Settings(epsilon=1.0, prior_share=prior, shares=chosen), names, {})
    assert sum(shares) == 1
    assert shares[0] == Fraction(repr(prior))
    assert all(share > 0 for share in shares)


@given(
    st.lists(st.text("abc", min_size=1), min_size=1, max_size=6, unique=True),
    st.floats(0.001, 0.3),
    st.tuples(*[st.floats(0, 0.2)] * 3),
    st.floats(0.01, 100),
)
@settings(max_examples=50)
def test_shares_and_reserves_sum_to_exactly_one(
    names: list[str], prior: float, kept: tuple[float, float, float], first: float
) -> None:
    reserved = dict(zip(("weights_share", "bins_share", "selection_share"), kept, strict=True))
    chosen = Settings(epsilon=1.0, prior_share=prior, shares={names[0]: first}, **reserved)
    shares = shares_of(chosen, names, chosen.reserves)
    assert sum(shares) + sum(chosen.reserves.values()) == 1
    assert shares[0] == Fraction(repr(prior))
    assert all(share > 0 for share in shares)
    assert all(share == shares[-1] for share in shares[2:])
    assert len(names) == 1 or shares[1] == Fraction(first) * shares[2]


def test_reserves_leave_the_tables_something_however_close_to_one_the_decimals_come() -> None:
    # in binary 0.1 is a little more than 0.1, and these would sum to more than one
    near = Settings(
        epsilon=1.0, prior_share=0.1, weights_share=0.8999999999999999, bins_share=9.9e-17
    )
    shares = shares_of(near, ["a"], near.reserves)
    assert shares[1] == Fraction(1, 10**18)


def test_without_delta_the_epsilons_of_all_tables_sum_to_epsilon() -> None:
    birth = born(epsilon=0.5, delta=0, k=3, rows=5)
    spent = Fraction(0)
    for noise, table in zip(birth.noises, birth.layout.tables, strict=True):
        assert isinstance(noise, DiscreteLaplace)
        spent += Fraction(3 * table.rows) / Fraction(noise.numerator, 2**noise.shift)
    assert Fraction(0.5) * (1 - Fraction(1, 10**9)) < spent <= Fraction(0.5)


def test_with_delta_the_rhos_of_all_tables_sum_to_rho() -> None:
    birth = born(epsilon=0.5, delta=1e-6, k=3, rows=5)
    spent = Fraction(0)
    for noise, table in zip(birth.noises, birth.layout.tables, strict=True):
        assert isinstance(noise, DiscreteGaussian)
        spent += Fraction(9 * table.rows) / (2 * Fraction(noise.squared_scale))
    rho = Fraction(rho_of(epsilon=0.5, delta=1e-6))
    assert rho * (1 - Fraction(1, 10**9)) < spent <= rho


@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_importance_weights_raise_the_noise_by_omega(delta: float) -> None:
    plain = born(epsilon=1.0, delta=delta)
    weighted = born(epsilon=1.0, delta=delta, p_min=0.01, weight_unit=4)
    for a, b in zip(plain.noises, weighted.noises, strict=True):
        assert a is not None
        assert b is not None
        assert b.scale == pytest.approx(400 * a.scale, rel=1e-9)


def test_dense_tables_under_pure_epsilon_have_a_fifth_of_the_noise() -> None:
    _, sketch, dense, _ = born(epsilon=1.0, delta=0).noises
    assert sketch is not None
    assert dense is not None
    assert sketch.scale == pytest.approx(5 * dense.scale)


def test_a_larger_share_means_less_noise() -> None:
    _, favoured, other, _ = born(epsilon=1.0, shares={"open": 4.0}, rows=1).noises
    assert favoured is not None
    assert other is not None
    assert favoured.scale == pytest.approx(other.scale / 2)


def test_shares_of_unknown_tables_are_refused_by_name() -> None:
    with pytest.raises(SchemaError, match=r"'nobody'.*'open'"):
        _ = born(epsilon=1.0, shares={"nobody": 2.0}).noises


def test_epsilon_infinite_means_no_noise_at_all() -> None:
    birth = born(epsilon=math.inf)
    assert birth.noises == (None,) * 4
    arena = birth.arena()
    arena.seal()
    assert not any(arena.cells(table).any() for table in range(4))


def test_every_cell_carries_noise_also_the_prior_and_cells_never_hit() -> None:
    birth = born(epsilon=0.01, buckets=256)
    arena = birth.arena(Randomness.insecure_from_seed(b"cells"))
    arena.seal()
    for table, noise in enumerate(birth.noises):
        assert noise is not None
        cells = arena.cells(table).ravel()
        assert (cells != 0).mean() > 0.9
        if cells.size > 100:
            assert np.std(cells) == pytest.approx(noise.scale, rel=0.1)


def test_two_windows_have_unrelated_noise() -> None:
    birth, source = born(epsilon=1.0), Randomness.insecure_from_seed(b"windows")
    first, second = birth.arena(source), birth.arena(source)
    first.seal()
    second.seal()
    a, b = (arena.cells(1).ravel().astype(float) for arena in (first, second))
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / math.sqrt(a.size)


def test_noise_is_unrelated_between_tables_labels_and_hash_rows() -> None:
    arena = born(epsilon=1.0).arena(Randomness.insecure_from_seed(b"tables"))
    arena.seal()
    cells = [arena.cells(1)[row, :, label] for row in range(5) for label in range(2)]
    cells += [arena.cells(3)[row, :, label] for row in range(5) for label in range(2)]
    correlations = np.corrcoef(np.stack(cells).astype(float))
    off = correlations[~np.eye(len(cells), dtype=bool)]
    assert np.abs(off).max() < 5 / math.sqrt(cells[0].size)


def test_cells_are_64_bit_exactly_where_public_bounds_need_it() -> None:
    most = 2**31 - 1
    bound = born(epsilon=1.0).noises[1].bound  # type: ignore[union-attr]
    fits = born(epsilon=1.0, max_rows_per_window=most - bound)
    wide = born(epsilon=1.0, max_rows_per_window=most - bound + 1)
    assert not fits.layout.tables[1].wide
    assert wide.layout.tables[1].wide


@pytest.mark.parametrize(
    ("settings", "rows", "deviation"),
    [
        ({"delta": 0.0}, 5, 116),
        ({"delta": 0.0}, 1, 55),
        ({"delta": 1e-6}, 5, 29),
        ({"delta": 1e-6}, 1, 28),
    ],
)
def test_39_tables_at_epsilon_one_have_the_known_deviation_of_one_estimate(
    settings: dict[str, float], rows: int, deviation: float
) -> None:
    from pyramidion.counts.estimates import MEAN_NEAR_MEDIAN, MEDIAN_OF_LAPLACE

    shapes = [TableShape((f"f{j}",), None) for j in range(39)]
    birth = TableDesign(
        Settings(epsilon=1.0, rows=rows, prior_share=1e-6, **settings), shapes, 2, b"s"
    )
    middle = MEDIAN_OF_LAPLACE if settings["delta"] == 0 else MEAN_NEAR_MEDIAN
    measured = math.sqrt(birth.variances[1] * middle[rows - 1])
    assert measured == pytest.approx(deviation, rel=0.03)


def test_the_guarantee_is_what_was_asked_for() -> None:
    guarantee = born(epsilon=0.25, delta=1e-7, k=4).guarantee(3)
    assert guarantee.level == "P2"
    assert (guarantee.epsilon, guarantee.delta, guarantee.k, guarantee.windows) == (
        0.25,
        1e-7,
        4,
        3,
    )
    assert born(epsilon=0.25, delta=0).guarantee(1).delta == 0
    assert "NO privacy" in str(born(epsilon=math.inf).guarantee(1))


def test_a_schema_has_one_table_per_feature_and_group_besides_the_prior() -> None:
    schema = Schema(
        features=[Categorical("a"), Categorical("b")],
        label=Label("y", classes=[0, 1]),
        groups=[("a", "b")],
    )
    shapes = [TableShape(parts, None) for parts in schema.tables]
    birth = TableDesign(Settings(epsilon=1.0), shapes, schema.cardinality, b"secret")
    assert [table.name for table in birth.layout.tables] == ["", "a", "b", "a,b"]
