"""Counts become probabilities that know the noise: formulas, moments, and the losses they save."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pyramidion import Categorical, Continuous, Label, Schema, Settings
from pyramidion.counts import kernels, rate_kernels
from pyramidion.counts.arena import Arena
from pyramidion.counts.columns import Columns
from pyramidion.counts.estimates import MEAN_NEAR_MEDIAN, MEDIAN_OF_LAPLACE, Classes, Estimates
from pyramidion.counts.layout import PRIOR, Kind, Layout, Table
from pyramidion.counts.snapshot import Snapshot
from pyramidion.errors import StateError
from pyramidion.privacy.noise import DiscreteGaussian, DiscreteLaplace, Noise
from pyramidion.privacy.randomness import Randomness
from pyramidion.privacy.table_noise import TableDesign
from pyramidion.rows.encoding import TableShape
from pyramidion.rows.observations import Door
from tests import reference_counts as naive

INF = float("inf")
Floats = NDArray[np.float64]


def schema_of(sizes: Sequence[int], weight: str | None = None) -> Schema:
    labels = [Label(f"y{m}", classes=range(size)) for m, size in enumerate(sizes)]
    return Schema(features=[Categorical("x")], label=labels, weight=weight)


def noise_of(mechanism: str, deviation: float) -> Noise | None:
    if mechanism == "none" or deviation == 0:
        return None
    if mechanism == "gaussian":
        return DiscreteGaussian.at_least(deviation**2)
    return DiscreteLaplace.at_least(deviation / 2**0.5)


@dataclass
class Sealed:
    """One table of given joint counts under noise, and the estimates it gives."""

    counts: NDArray[np.int64]  # [key, joint label]
    kind: Kind = "dense"
    rows: int = 1
    width: int = 65_536
    mechanism: str = "none"
    deviation: float = 0.0
    windows: int = 1
    estimate: str = "shrinkage"
    sizes: tuple[int, ...] | None = None
    seed: int = 0
    weighted: bool = False
    total_rows: int = 0
    more: dict[str, Any] | None = None

    @property
    def label_sizes(self) -> tuple[int, ...]:
        return self.sizes or (self.counts.shape[1],)

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        if self.kind == "dense":
            return np.arange(len(self.counts), dtype=np.uint64)
        random = np.random.default_rng(99)
        return random.integers(0, 2**64 - 1, len(self.counts), dtype=np.uint64)

    @cached_property
    def arena(self) -> Arena:
        keys, labels = self.counts.shape
        width = keys if self.kind == "dense" else self.width
        noise = noise_of(self.mechanism, self.deviation)
        variance = noise.variance * self.windows if noise else 0.0
        tables = (
            Table(PRIOR, "dense", 1, 1, 1 << 50),
            Table("x", self.kind, self.rows, width, 1 << 50, variance, self.windows),
        )
        arena = Arena.exact(Layout(tables, labels, b"%d" % self.seed))
        arena._flat(0)[:] = self.counts.sum(axis=0)
        self._count(arena)
        source = Randomness.insecure_from_seed(b"%d" % self.seed)
        for _ in range(self.windows if noise else 0):
            draw = np.zeros_like(arena._flat(1))
            assert noise is not None
            noise.fill(draw, source)
            arena._flat(1)[:] += draw
        arena.rows = self.total_rows
        arena.seal()
        return arena

    def _count(self, arena: Arena) -> None:
        size, labels = self.counts.shape
        plan, cells = arena.layout.plan, arena._block.view(np.int64)
        batch = (
            np.repeat(self.keys, labels),
            np.tile(np.arange(labels), size),
            self.counts.reshape(-1),
        )
        if self.kind == "dense":
            kernels.add_dense(plan, 1, cells, np.uint64(labels), *batch)
        else:
            slots = arena._slots(size * labels)
            kernels.add_sketch(plan, 1, cells, np.uint64(labels), *batch, *slots)

    @cached_property
    def estimates(self) -> Estimates:
        epsilon = INF if self.mechanism == "none" else 1.0
        chosen = Settings(
            epsilon=epsilon,
            delta=0.0 if self.mechanism == "laplace" else 1e-9,
            estimate=self.estimate,  # type: ignore[arg-type]
            **(self.more or {}),
        )
        columns = sum(self.label_sizes)
        template = [(rate_kernels.PROBABILITY, i) for i in range(columns)]
        template += [(rate_kernels.BACK_OFF, m) for m in range(len(self.label_sizes))]
        schema = schema_of(self.label_sizes, "p" if self.weighted else None)
        shown = Columns(schema, chosen, [TableShape(("x",), None)])
        shown.template = np.array(template, dtype=np.int64)
        shown.makeup = np.array([[0, 0], [0, len(template)]])
        return Estimates(schema, chosen, self.arena, shown)

    @cached_property
    def features(self) -> Floats:
        columns = sum(self.label_sizes) + len(self.label_sizes)
        out = np.empty((columns, len(self.keys)), dtype=np.float32)
        self.estimates.features(self.keys[None, :], out)
        return out.T.astype(np.float64)

    @property
    def chances(self) -> Floats:
        return self.features[:, : sum(self.label_sizes)]

    @property
    def backed_off(self) -> NDArray[np.bool_]:
        return self.features[:, sum(self.label_sizes) :].astype(np.bool_)


@dataclass
class World:
    """Keys of Zipf sizes whose rates scatter around a prior with strength a, and their counts."""

    a: float = 10.0
    prior: tuple[float, ...] = (0.5, 0.5)
    keys: int = 4_000
    total: int = 400_000
    seed: int = 1

    def __post_init__(self) -> None:
        random = np.random.default_rng(self.seed)
        share = 1.0 / np.arange(1, self.keys + 1)
        self.sizes = random.multinomial(self.total, share / share.sum())
        rates = random.dirichlet(self.a * np.array(self.prior), self.keys).clip(1e-9)
        self.rates: Floats = rates / rates.sum(axis=1, keepdims=True)
        self.counts: NDArray[np.int64] = random.multinomial(self.sizes, self.rates)

    def loss(self, chances: Floats) -> float:
        """Log loss on new observations beyond that of who knows the rates."""
        known = np.log(self.rates) - np.log(np.clip(chances, 1e-6, 1.0))
        return float((self.sizes[:, None] * self.rates * known).sum() / self.sizes.sum())


BINARY, SKEWED = (0.5, 0.5), (0.9, 0.1)
FIVE = (0.4, 0.3, 0.15, 0.1, 0.05)


# --- formulas ------------------------------------------------------------------------------


@pytest.mark.parametrize("prior", [BINARY, FIVE])
def test_without_noise_shrinkage_is_the_usual_smoothing(prior: tuple[float, ...]) -> None:
    counts = World(prior=prior, keys=200, total=9_000).counts
    table = Sealed(counts)
    a, pi = table.estimates.strength[1, 0], table.estimates.prior
    expected = (counts + a * pi) / (counts.sum(axis=1, keepdims=True) + a)
    np.testing.assert_allclose(table.chances, expected, atol=1e-6)
    np.testing.assert_array_equal(table.backed_off[:, 0], counts.sum(axis=1) < a)


@pytest.mark.parametrize("kind", ["dense", "count-median"])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_counts_swamped_by_noise_give_the_prior(kind: Kind, mechanism: str) -> None:
    world = World(prior=SKEWED, keys=500, total=5_000)
    table = Sealed(world.counts, kind, 5 if kind != "dense" else 1, 4096, mechanism, 1e5)
    off = np.abs(table.chances - table.estimates.prior)
    assert np.quantile(off, 0.99) < 0.1
    assert off.mean() < 0.02


@given(
    st.lists(st.lists(st.integers(-(2**40), 2**40), min_size=6, max_size=6), min_size=1),
    st.sampled_from(["dense", "count-min", "count-median"]),
    st.sampled_from(["shrinkage", "ratio"]),
    st.sampled_from([(6,), (2, 3)]),
    st.sampled_from(["none", "gaussian", "laplace"]),
)
@settings(max_examples=80, deadline=None)
def test_whatever_the_cells_probabilities_are_probabilities(
    cells: Any, kind: Kind, estimate: str, sizes: tuple[int, ...], mechanism: str
) -> None:
    """Cells of either sign and any size: empty, all negative, of a class never seen."""
    table = Sealed(
        np.array(cells, dtype=np.int64),
        kind,
        1 if kind == "dense" else 3,
        2,
        mechanism,
        50.0,
        estimate=estimate,
        sizes=sizes,
    )
    chances = table.chances
    assert np.isfinite(chances).all()
    assert (chances >= 0).all()
    assert (chances <= 1).all()
    for label in table.estimates._classes.of_label:
        np.testing.assert_allclose(chances[:, label].sum(axis=1), 1.0, atol=1e-5)
        assert table.estimates.prior[label].sum() == pytest.approx(1.0)
    assert (table.estimates.prior > 0).all()


@pytest.mark.parametrize("counts", [[[0, 0]], [[2**61, 0]], [[-(2**61), -5]], [[-3, 2**61]]])
def test_no_prior_is_so_sure_that_a_class_is_impossible(counts: list[list[int]]) -> None:
    table = Sealed(np.array(counts), mechanism="gaussian", deviation=3.0)
    assert (table.estimates.prior > 0).all()
    assert (table.estimates.prior < 1).all()
    assert np.isfinite(table.estimates.spread).all()
    assert np.isfinite(table.chances).all()


def test_keys_without_a_count_give_the_prior_and_say_so() -> None:
    counts = np.array([[300, 100], [0, 0], [100, 300]])
    for estimate in ("shrinkage", "ratio"):
        table = Sealed(counts, estimate=estimate)
        np.testing.assert_allclose(table.chances[1], table.estimates.prior, atol=1e-6)
        assert table.backed_off[:, 0].tolist() == [False, True, False]


def test_the_ratio_backs_off_exactly_where_its_deviation_passes_the_threshold() -> None:
    """Prior a half: √(¼/n) > ⅛ below n = 16, and at 16 it is ⅛ to the last bit."""
    sizes = np.arange(1, 60)
    counts = np.concatenate([np.stack([sizes, 0 * sizes], 1), np.stack([0 * sizes, sizes], 1)])
    table = Sealed(counts, estimate="ratio", more={"backoff_deviation": 0.125})
    few = counts.sum(axis=1) < 16
    np.testing.assert_array_equal(table.backed_off[:, 0], few)
    np.testing.assert_allclose(table.chances[few], 0.5)
    np.testing.assert_allclose(table.chances[~few, 0], counts[~few, 0] > 0)


def test_noise_makes_the_ratio_back_off_earlier() -> None:
    """Variance ½·½(n + V) over n², V = 2v for two even classes: v = 25 moves 25 to 59."""
    sizes = np.arange(1, 120)
    counts = np.concatenate([np.stack([sizes, 0 * sizes], 1), np.stack([0 * sizes, sizes], 1)])
    table = Sealed(counts, mechanism="gaussian", deviation=5.0, estimate="ratio")
    noisy = table.arena.cells(1)[0].clip(0)
    n = noisy.sum(axis=1)
    expected = 0.25 * (n + 2 * 25.0) > 0.01 * n.astype(float) ** 2
    np.testing.assert_array_equal(table.backed_off[:, 0], expected)
    assert expected.sum() > (n < 25).sum()


def test_a_limit_of_infinity_never_backs_off_where_there_is_a_count() -> None:
    table = Sealed(np.array([[1, 0], [0, 0], [9, 9]]), estimate="ratio")
    table.more = {"backoff_deviation": INF}
    np.testing.assert_allclose(table.chances[[0, 2], 0], [1.0, 0.5])
    assert table.backed_off[:, 0].tolist() == [False, True, False]


# --- what is known of the noise ------------------------------------------------------------


@pytest.mark.parametrize("averaged", [False, True])
def test_efficiencies_are_what_a_simulation_finds(averaged: bool) -> None:
    random = np.random.default_rng(0)
    for rows in range(1, 17):
        draws = random.normal(size=(60_000, rows)) if averaged else None
        if draws is None:
            draws = random.laplace(0, 2**-0.5, (60_000, rows))
        middle = np.median(draws, axis=1)
        if averaged:
            near = np.abs(draws - middle[:, None]) <= 3.0
            with np.errstate(invalid="ignore"):
                means = (draws * near).sum(axis=1) / near.sum(axis=1)
            middle = np.where(near.any(axis=1), means, middle)
        claimed = (MEAN_NEAR_MEDIAN if averaged else MEDIAN_OF_LAPLACE)[rows - 1]
        assert middle.var() == pytest.approx(claimed, rel=0.03), rows


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize(("kind", "rows"), [("dense", 1), ("count-median", 1), ("count-median", 5)])
@pytest.mark.parametrize("windows", [1, 4])
@pytest.mark.parametrize("sizes", [(3,), (2, 3)])
def test_the_claimed_variance_of_an_estimate_is_its_measured_error(
    mechanism: str, kind: Kind, rows: int, windows: int, sizes: tuple[int, ...]
) -> None:
    joint = World(prior=(1 / math.prod(sizes),) * math.prod(sizes), keys=20_000, total=40_000)
    exact = Classes.of(schema_of(sizes)).summed(joint.counts)
    table = Sealed(joint.counts, kind, rows, 65_536, mechanism, 40.0, windows, "ratio", sizes)
    errors = table.estimates.counts(1, table.keys) - exact
    for label in table.estimates._classes.of_label:
        pi, error = table.estimates.prior[label], errors[:, label]
        off = error - pi * error.sum(axis=1, keepdims=True)
        claimed = table.estimates.spread[1, label] * pi * (1 - pi)
        np.testing.assert_allclose((off**2).mean(axis=0), claimed, rtol=0.1)
        assert np.abs(error.mean(axis=0)).max() < 4 * error.std() / 20_000**0.5


def test_the_mean_of_near_rows_beats_their_median_under_gaussian_noise() -> None:
    """privacy.md: 30 against 35 for 5 rows whose deviation is 66."""
    counts = World(keys=5_000, total=10_000).counts
    table = Sealed(counts, "count-median", 5, 65_536, "gaussian", 66.0)
    averaged = (table.estimates.counts(1, table.keys) - counts).std()
    table.estimates.deviations[:] = 0.0
    median = (table.estimates.counts(1, table.keys) - counts).std()
    assert averaged == pytest.approx(30, abs=1)
    assert median == pytest.approx(35, abs=1)


def test_a_heavy_key_in_one_row_does_not_carry_the_mean_away() -> None:
    counts = np.ones((2_000, 2), dtype=np.int64)
    counts[:40] = 1_000_000
    table = Sealed(counts, "count-median", 5, 1024, "gaussian", 30.0)
    errors = table.estimates.counts(1, table.keys[40:]) - 1
    assert np.quantile(np.abs(errors), 0.9) < 60


def test_crowded_sketches_without_noise_know_their_collisions() -> None:
    """V is 0 where keys have buckets of their own, and grows with the crowd."""
    counts = World(keys=3_000, total=300_000).counts
    spreads = [
        Sealed(counts, "count-median", 5, width, estimate="ratio").estimates.spread[1, 0]
        for width in (65_536, 8_192, 2_048, 512)
    ]
    assert spreads[0] < 1
    assert spreads[0] < spreads[1] < spreads[2] < spreads[3]


def test_shrinkage_beats_the_ratio_in_a_crowded_sketch_without_noise() -> None:
    world = World(a=3.0, keys=5_000, total=500_000)
    sketch = ("count-median", 5, 8_192)
    shrunk = Sealed(world.counts, *sketch)
    ratio = Sealed(world.counts, *sketch, estimate="ratio")
    assert world.loss(shrunk.chances) < 0.6 * world.loss(ratio.chances)


# --- strength ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("a", [3.0, 30.0])
@pytest.mark.parametrize("prior", [BINARY, (0.8, 0.2), FIVE])
@pytest.mark.parametrize("deviation", [0.0, 10.0])
@pytest.mark.parametrize("kind", ["dense", "count-median"])
def test_the_strength_of_the_prior_is_found_again(
    a: float, prior: tuple[float, ...], deviation: float, kind: Kind
) -> None:
    rows = 1 if kind == "dense" else 5
    found = [
        Sealed(
            World(a=a, prior=prior, seed=seed).counts,
            kind,
            rows,
            65_536,
            "gaussian" if deviation else "none",
            deviation,
        ).estimates.strength[1, 0]
        for seed in range(3)
    ]
    assert a / 1.5 < np.exp(np.mean(np.log(found))) < a * 1.5


def test_the_strength_is_typical_where_nothing_stands_out() -> None:
    table = Sealed(np.ones((500, 2), dtype=np.int64), mechanism="gaussian", deviation=1e4)
    assert table.estimates.strength[1, 0] == pytest.approx(10.0)


def test_every_label_has_a_strength_of_its_own() -> None:
    """The first label hangs on the key, the second does not."""
    random = np.random.default_rng(0)
    strong = World(a=2.0).counts
    joint = np.stack([random.binomial(strong[:, i], 0.5) for i in range(2)], axis=1)
    both = np.stack([joint, strong - joint], axis=2).reshape(-1, 4)  # [key, (strong, weak)]
    found = Sealed(both, sizes=(2, 2)).estimates.strength[1]
    assert found[0] == pytest.approx(2.0, rel=0.5)
    assert found[1] > 200


# --- losses --------------------------------------------------------------------------------


def smoothed(counts: Floats, prior: Floats, strength: float) -> Floats:
    """Smoothing with a fixed weight of the prior, which does not know the noise."""
    counts = np.maximum(counts, 0.0)
    chances: Floats = (counts + strength * prior) / (counts.sum(axis=1, keepdims=True) + strength)
    return chances


@pytest.mark.parametrize("prior", [BINARY, SKEWED, FIVE])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize(("kind", "rows"), [("dense", 1), ("count-median", 5)])
def test_shrinkage_beats_the_ratio_and_fixed_smoothing_under_noise(
    prior: tuple[float, ...], mechanism: str, kind: Kind, rows: int
) -> None:
    world = World(prior=prior)
    given = (world.counts, kind, rows, 65_536, mechanism, 30.0)
    shrunk, ratio = Sealed(*given), Sealed(*given, estimate="ratio")
    counts, pi = shrunk.estimates.counts(1, shrunk.keys), shrunk.estimates.prior
    loss = world.loss(shrunk.chances)
    assert loss < 0.95 * world.loss(ratio.chances)
    for fixed in (1.0, 10.0):
        assert loss < 0.8 * world.loss(smoothed(counts, pi, fixed))
    bare = np.where(counts.clip(0).sum(axis=1, keepdims=True) > 0, smoothed(counts, pi, 1e-9), pi)
    assert loss < 0.5 * world.loss(bare)


@pytest.mark.parametrize("prior", [SKEWED, FIVE])
def test_moving_impossible_counts_beats_clipping_the_result(prior: tuple[float, ...]) -> None:
    world = World(prior=prior, a=3.0)
    table = Sealed(world.counts, mechanism="gaussian", deviation=30.0)
    e, counts = table.estimates, table.estimates.counts(1, table.keys)
    s = counts.sum(axis=1, keepdims=True)
    n = s.clip(0)
    linear = e.prior + (counts - e.prior * s) * n / (n * n + e.strength[1] * n + e.spread[1])
    linear = linear.clip(0, 1) / linear.clip(0, 1).sum(axis=1, keepdims=True)
    assert world.loss(table.chances) < 0.95 * world.loss(linear)
    assert table.chances.min() > 0


@pytest.mark.parametrize("prior", [BINARY, SKEWED])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_shrinkage_takes_off_the_negative_bias_of_noisy_count_min(
    prior: tuple[float, ...], mechanism: str
) -> None:
    world = World(prior=prior)
    table, twin = (Sealed(world.counts, "count-min", 5, 8192, mechanism, 30.0) for _ in range(2))
    probes = table.estimates.counts(1, np.arange(3_000, dtype=np.uint64) << np.uint64(50))
    assert table.estimates.shift[1].max() < -10
    assert table.estimates.shift[1] == pytest.approx(np.median(probes, axis=0), abs=4)
    twin.estimates.shift[:] = 0.0
    assert world.loss(table.chances) < 0.95 * world.loss(twin.chances)


def test_what_collisions_add_to_count_min_is_left_to_shrink_keys() -> None:
    world = World(prior=SKEWED)
    table, twin = (Sealed(world.counts, "count-min", 5, 1024) for _ in range(2))
    assert not table.estimates.shift.any()
    twin.estimates.shift[1] = np.median(twin.estimates.counts(1, twin.keys[:1000] + 1), axis=0)
    assert twin.estimates.shift[1].min() > 0
    assert world.loss(table.chances) < world.loss(twin.chances)


def test_the_paper_s_ratio_keeps_the_bias_of_count_min() -> None:
    table = Sealed(World().counts, "count-min", 5, 1024, "laplace", 30.0, estimate="ratio")
    assert not table.estimates.shift.any()


@pytest.mark.slow
def test_movielens_gains_what_the_design_says(movielens: Path) -> None:
    """privacy.md, the movie table with noise deviation 30: 0.618, and 1.392 with five classes."""
    raw = [line.split("::") for line in (movielens / "ratings.dat").read_text().splitlines()]
    ratings = np.array(raw, dtype=np.int64)
    ratings = ratings[np.argsort(ratings[:, 3], kind="stable")]
    cut = len(ratings) * 4 // 5
    for bound, labels in ((0.620, ratings[:, 2] // 4), (1.395, ratings[:, 2] - 1)):
        tables = np.zeros((2, ratings[:, 1].max() + 1, labels.max() + 1), dtype=np.int64)
        for table, part in zip(tables, (slice(0, cut), slice(cut, None)), strict=True):
            np.add.at(table, (ratings[part, 1], labels[part]), 1)
        chances = Sealed(tables[0], mechanism="gaussian", deviation=30.0).chances
        assert -(tables[1] * np.log(chances)).sum() / tables[1].sum() < bound


# --- weights -------------------------------------------------------------------------------


def weighed(world: World, weights: Sequence[int], shares: Sequence[float]) -> NDArray[np.int64]:
    """Cells when each observation weighs one of some weights, by chance."""
    random = np.random.default_rng(0)
    drawn = random.multinomial(world.counts, shares)  # [key, label, weight]
    cells: NDArray[np.int64] = drawn @ np.array(weights)
    return cells


@pytest.mark.parametrize(
    ("weights", "shares", "grain"),
    [
        ((40,), (1.0,), 40.0),
        ((10, 30), (0.5, 0.5), 25.0),
        ((4, 400), (0.9, 0.1), 367.3),
    ],
)
@pytest.mark.parametrize("a", [5.0, 50.0])
def test_weights_count_for_as_many_observations_as_they_are(
    weights: Sequence[int], shares: Sequence[float], grain: float, a: float
) -> None:
    """The grain is E[w²]/E[w]; taking a weight of 40 for 40 observations costs dearly."""
    world = World(a=a, prior=(0.8, 0.2), keys=2_000, total=200_000)
    more = {"weight_unit": 4, "p_min": 4 / max(*weights, 100)}
    given = {"weighted": True, "total_rows": 200_000, "more": more}
    cells = weighed(world, weights, shares)
    table = Sealed(cells, **given)  # type: ignore[arg-type]
    ratio = Sealed(cells, estimate="ratio", **given)  # type: ignore[arg-type]
    assert ratio.estimates.strength[1, 0] == pytest.approx(grain, rel=0.35)
    assert table.estimates.strength[1, 0] / grain == pytest.approx(a, rel=0.7)
    plain = Sealed(cells)  # takes every unit for an observation
    assert world.loss(table.chances) < 0.8 * world.loss(plain.chances)


def test_counts_are_told_in_observations_and_not_in_cell_units() -> None:
    cells = np.array([[40, 8], [4, 0]])
    more = {"weight_unit": 4, "p_min": 0.1}
    table = Sealed(cells, weighted=True, total_rows=5, more=more)
    np.testing.assert_allclose(table.estimates.counts(1, table.keys), cells / 4)


def test_a_weight_unit_without_weights_means_nothing() -> None:
    cells = np.array([[40, 8], [4, 0]])
    table = Sealed(cells, more={"weight_unit": 4, "p_min": 0.1})
    np.testing.assert_allclose(table.estimates.counts(1, table.keys), cells)


# --- keys ----------------------------------------------------------------------------------


def test_codes_beyond_a_dense_table_are_refused() -> None:
    estimates = Sealed(np.ones((3, 2), dtype=np.int64)).estimates
    assert estimates.counts(1, np.array([2], dtype=np.uint64)).tolist() == [[1.0, 1.0]]
    assert estimates.counts(1, np.empty(0, dtype=np.uint64)).shape == (0, 2)
    for key in (3, 2**63, 2**64 - 1):
        with pytest.raises(StateError, match="has 3 codes"):
            estimates.counts(1, np.array([0, key], dtype=np.uint64))


def test_four_thousand_joint_labels_are_studied_and_told() -> None:
    sizes = (2,) * 12
    random = np.random.default_rng(0)
    counts = random.poisson(0.05, (40, 4096))
    table = Sealed(counts, "count-median", 5, 128, "gaussian", 2.0, sizes=sizes)
    for label in table.estimates._classes.of_label:
        np.testing.assert_allclose(table.chances[:, label].sum(axis=1), 1.0, atol=1e-5)
    exact = Classes.of(schema_of(sizes)).summed(counts)
    errors = table.estimates.counts(1, table.keys) - exact
    assert errors.std() == pytest.approx(2.0 * (2048 * MEAN_NEAR_MEDIAN[4]) ** 0.5, rel=0.1)


# --- columns, through the whole path -------------------------------------------------------

RATING = Label("rating", edges=[2, 3, 4])
LATE = Label("late", classes=[0, 1])


def rows_of(size: int = 600) -> pa.Table:
    random = np.random.default_rng(5)
    return pa.table(
        {
            "color": np.array(["red", "blue", "other", None], dtype=object)[
                random.integers(0, 4, size)
            ],
            "size": random.normal(size=size),
            "shop": random.zipf(1.5, size) % 30,
            "rating": random.uniform(1.0, 5.0, size),
            "late": random.integers(0, 2, size),
            "p": random.choice([0.25, 0.5, 1.0], size),
        }
    )


def features_of(
    label: Label | list[Label], table: pa.Table, weight: str | None = None, **given: Any
) -> tuple[list[str], Floats]:
    schema = Schema(
        features=[
            Categorical("color", domain=["red", "blue", "other"]),
            Continuous("size", edges=[0.0]),
            Categorical("shop"),
        ],
        label=label,
        groups=[("color", "size")],
        weight=weight,
    )
    door = Door(schema, Settings(**{"epsilon": INF, "buckets": 65_536} | given), b"secret")
    birth = TableDesign(door.settings, door.encoder.shapes, schema.cardinality, b"secret")
    arena = birth.arena()
    arena.add(door.observations(table))
    arena.seal()
    snapshot = Snapshot(door, arena, birth.guarantee(1))
    return snapshot.names, np.asarray(snapshot.array(table), dtype=np.float64)


def test_marginals_of_jointly_counted_labels_are_those_of_each_label_alone() -> None:
    table = rows_of()
    names, joint = features_of([LATE, RATING], table)
    for label in (LATE, RATING):
        own, alone = features_of(label, table)
        places = [names.index(name) for name in own]
        np.testing.assert_allclose(joint[:, places], alone, rtol=1e-4)


def test_a_binned_label_gives_its_expected_value() -> None:
    names, found = features_of(RATING, rows_of())
    for part in ("color", "size", "shop", "color*size"):
        bins = [f"P(rating {name}|{part})" for name in ("<2", "2..3", "3..4", ">=4")]
        chances = found[:, [names.index(name) for name in bins]]
        expected = chances @ np.array([1.5, 2.5, 3.5, 4.5])
        np.testing.assert_allclose(found[:, names.index(f"E(rating|{part})")], expected, rtol=1e-5)


def test_log_odds_are_those_of_the_probabilities() -> None:
    names, found = features_of(LATE, rows_of(), columns=("probability", "log-odds"))
    p = found[:, names.index("P(late=1|shop)")]
    logits = found[:, names.index("logit(late=1|shop)")]
    np.testing.assert_allclose(logits, [naive.logit(x) for x in p], atol=1e-4)


def test_counts_are_in_observations_and_weighed_ones_in_units_of_one_over_f() -> None:
    table = rows_of()
    color = np.array(table["color"].to_pylist(), dtype=object)
    late, p = table["late"].to_numpy(), table["p"].to_numpy()
    for weight, unit in ((None, 1), ("p", 1), ("p", 4)):
        names, found = features_of(
            LATE, table, weight, columns=("count",), p_min=0.25, weight_unit=unit
        )
        assert "count(late=0|color)" in names  # of both classes, unlike probabilities
        counts = found[:, names.index("count(late=1|color)")]
        weights = np.floor(unit / p) / unit if weight else np.ones(len(p))
        expected = [(weights * (color == c) * late).sum() for c in color]
        np.testing.assert_allclose(counts, expected, rtol=1e-6)


def test_back_off_flags_say_where_the_prior_weighs_more() -> None:
    chosen = {"columns": ("probability", "back-off"), "estimate": "ratio"}
    names, found = features_of(LATE, rows_of(), backoff_deviation=0.1, **chosen)
    chances, flags = (found[:, names.index(n)] for n in ("P(late=1|shop)", "backoff(late|shop)"))
    assert set(flags) == {0.0, 1.0}
    assert len(set(chances[flags == 1.0])) == 1  # the prior
    assert len(set(chances[flags == 0.0])) > 1


def test_small_finite_features_pass_through_one_hot() -> None:
    table = rows_of()
    names, found = features_of(LATE, table, passthrough=5)
    shown = ["color=red", "color=blue", "color=other", "color=other (2)", "color=missing"]
    hot = found[:, [names.index(name) for name in shown]]
    assert names[-8:] == [*shown, "size <0", "size >=0", "size missing"]
    np.testing.assert_array_equal(found[:, -8:].sum(axis=1), 2.0)
    for value, column in (("red", 0), ("blue", 1), ("other", 2), (None, 4)):
        rows = np.array([v == value for v in table["color"].to_pylist()])
        np.testing.assert_array_equal(hot[:, column], rows)
    assert not hot[:, 3].any()  # nothing outside the domain came
    narrower, _ = features_of(LATE, table, passthrough=4)
    assert narrower[-3:] == ["size <0", "size >=0", "size missing"]
    assert "color=red" not in narrower


EVERY = ("probability", "log-odds", "count", "back-off")


@given(
    st.lists(st.sampled_from(["a", "b", "a*b", "late=1", "{}", "x (2)"]), min_size=2, unique=True),
    st.lists(
        st.sampled_from(["other", "missing", "other (2)", "", "1", 1]), min_size=1, unique=True
    ),
)
@settings(max_examples=60)
def test_names_are_unique_whatever_features_and_values_are_called(
    features: list[str], domain: list[Any]
) -> None:
    schema = Schema(
        features=[Categorical(name, domain=domain) for name in features],
        label=[Label("late", classes=["1", "=1"]), Label("late=", classes=["1", "2", "3"])],
        groups=[tuple(pair) for pair in itertools.combinations(features, 2)],
    )
    shapes = [TableShape(parts, 9) for parts in schema.tables]
    names = Columns(schema, Settings(epsilon=1.0, columns=EVERY, passthrough=99), shapes).names
    assert len(set(names)) == len(names)
    shown = (1 + 3) + (1 + 3) + (2 + 3) + 2  # P, logit, count of both labels, back-offs
    surplus = (1 + 3) * len(schema.groups)
    assert len(names) == shown * len(shapes) + surplus + (len(domain) + 2) * len(features)


def test_names_hold_nothing_that_lightgbm_refuses() -> None:
    schema = Schema(
        features=[
            Categorical("a", domain=["x"]),
            Categorical("b"),
            Continuous("c", edges=[-1, 0.5]),
        ],
        label=[LATE, Label("size", edges=[1e-9, 0.25, 3e12])],
        groups=[("a", "b"), ("a", "b", "c")],
    )
    shapes = [TableShape(parts, 4 if len(parts) == 1 else None) for parts in schema.tables]
    names = Columns(schema, Settings(epsilon=1.0, columns=EVERY, passthrough=9), shapes).names
    assert not any(re.search(r'[",:\[\]{}]', name) for name in names)
    lightgbm = pytest.importorskip("lightgbm")
    data = np.random.default_rng(0).normal(size=(50, len(names)))
    booster = lightgbm.train(
        {"verbose": -1, "num_iterations": 1, "num_threads": 1},
        lightgbm.Dataset(data, data[:, 0] > 0, feature_name=names),
    )
    assert len(set(booster.feature_name())) == len(names)
