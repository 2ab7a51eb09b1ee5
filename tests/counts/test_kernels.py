"""The loops over the arena do what their naive twins do, and hash as the estimates assume."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from pyramidion.counts import estimate_kernels, kernels, rate_kernels
from pyramidion.counts.arena import Arena
from pyramidion.counts.layout import PRIOR, Kind, Layout, Table
from pyramidion.privacy.noise import DiscreteLaplace
from pyramidion.privacy.randomness import Randomness
from tests import reference_counts as naive

KINDS: tuple[Kind, ...] = ("dense", "count-min", "count-median")
NARROW, WIDE = 1 << 30, 1 << 40
EDGES = (0, 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1)  # where signed and unsigned words differ

every_table = pytest.mark.parametrize(
    ("kind", "rows", "width"),
    [
        ("dense", 1, 5),
        ("dense", 1, 1),
        *(("count-min", rows, 8) for rows in (1, 2, 5)),
        *(("count-median", rows, 8) for rows in (1, 2, 3, 4, 5, 7, 16)),
        ("count-min", 3, 2),
        ("count-median", 5, 2),
    ],
)


def laid_out(
    kind: Kind, rows: int, width: int, *, labels: int, bound: int = WIDE, secret: bytes = b"s"
) -> Layout:
    """A layout whose table 1 is the one to look at; one more lies behind it."""
    prior, behind = Table(PRIOR, "dense", 1, 1, NARROW), Table("behind", "dense", 1, 2, NARROW)
    return Layout((prior, Table("x", kind, rows, width, bound), behind), labels, secret)


def slot_table(slots: int, labels: int) -> tuple[NDArray[Any], ...]:
    return (
        np.empty(slots, dtype=np.uint64),
        np.zeros(slots, dtype=np.uint8),
        np.zeros(slots * labels, dtype=np.int64),
        np.empty(slots, dtype=np.uint32),
    )


def words(keys: Any) -> NDArray[np.uint64]:
    return np.array(keys, dtype=np.uint64)


def added(
    layout: Layout, keys: Any, codes: Any, weights: Any = (1,), slots: int = 16, table: int = 1
) -> Arena:
    """An exact arena with observations in one of its tables, sealed."""
    arena, labels = Arena.exact(layout), layout.labels
    spec = layout.tables[table]
    cells = arena._block.view(np.int64 if spec.wide else np.int32)
    given = (words(keys), np.array(codes, dtype=np.int64), np.array(weights, dtype=np.int64))
    if spec.kind == "dense":
        kernels.add_dense(layout.plan, table, cells, np.uint64(labels), *given)
    else:
        scratch = slot_table(slots, labels)
        kernels.add_sketch(layout.plan, table, cells, np.uint64(labels), *given, *scratch)
        assert not scratch[1].any()
        assert not scratch[2].any()
    arena.seal()
    return arena


def some_keys(random: np.random.Generator, kind: Kind, width: int, size: int) -> list[int]:
    if kind == "dense":
        return [int(k) for k in random.integers(0, width, size)]
    different = [*EDGES, *(int(k) for k in random.integers(0, 2**64 - 1, 60, dtype=np.uint64))]
    return [different[int(i)] for i in random.integers(0, len(different), size)]


# --- add -----------------------------------------------------------------------------------


@every_table
@pytest.mark.parametrize("labels", [2, 3, 7])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bound", [NARROW, WIDE])
def test_adding_is_what_the_twin_does(
    kind: Kind, rows: int, width: int, labels: int, weighted: bool, bound: int
) -> None:
    random = np.random.default_rng(rows * width + labels)
    layout = laid_out(kind, rows, width, labels=labels, bound=bound)
    keys = some_keys(random, kind, width, 150)  # 66 keys in 16 slots: it empties several times
    codes = random.integers(0, labels, 150).tolist()
    weights = random.integers(1, 1000, 150).tolist() if weighted else [3]
    twin = naive.NaiveTable.of(layout, 1)
    twin.add_all(keys, codes, weights)
    arena = added(layout, keys, codes, weights)
    assert arena.cells(1).tolist() == twin.listed()
    assert not arena.cells(0).any()
    assert not arena.cells(2).any()


@given(
    st.sampled_from(["count-min", "count-median"]),
    st.lists(st.tuples(st.sampled_from(EDGES) | st.integers(0, 40), st.integers(0, 2))),
    st.sampled_from([2, 4, 16]),
)
@settings(max_examples=60, deadline=None)
def test_the_size_of_the_slot_table_changes_nothing(
    kind: Kind, rows: list[tuple[int, int]], slots: int
) -> None:
    layout = laid_out(kind, 3, 4, labels=3)
    keys, codes = [key for key, _ in rows], [code for _, code in rows]
    twin = naive.NaiveTable.of(layout, 1)
    twin.add_all(keys, codes, [1])
    assert added(layout, keys, codes, slots=slots).cells(1).tolist() == twin.listed()


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_the_largest_size_and_negative_ones_add_up_exactly(kind: Kind) -> None:
    layout = laid_out(kind, 1, 2, labels=2, bound=2**61)
    keys, codes = [0, 1, 0, 1, 1], [0, 1, 0, 1, 0]
    weights = [2**59 + 1, 2**59 + 3, 2**59 + 5, -7, -(2**60)]
    twin = naive.NaiveTable.of(layout, 1)
    twin.add_all(keys, codes, weights)
    assert added(layout, keys, codes, weights).cells(1).tolist() == twin.listed()


def test_more_labels_than_slots_are_counted_one_by_one() -> None:
    layout = laid_out("count-median", 5, 4, labels=4096)
    random = np.random.default_rng(0)
    keys, codes = some_keys(random, "count-median", 4, 60), random.integers(0, 4096, 60).tolist()
    twin = naive.NaiveTable.of(layout, 1)
    twin.add_all(keys, codes, [1])
    assert added(layout, keys, codes, slots=4).cells(1).tolist() == twin.listed()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", [[1], []])
def test_an_empty_batch_adds_nothing(kind: Kind, weights: list[int]) -> None:
    assert not added(laid_out(kind, 1, 2, labels=2), [], [], weights)._block.any()


# --- distinct ------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(EDGES) | st.integers(0, 9), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_distinct_keys_come_in_the_order_of_their_first_row(given_keys: list[int]) -> None:
    keys = words([[0] * len(given_keys), given_keys])
    slots = 2 ** math.ceil(math.log2(2 * len(given_keys)))
    found, which = words([0] * len(given_keys)), np.zeros(len(given_keys), dtype=np.int32)
    slot_at = np.empty(slots, dtype=np.int32)
    count = estimate_kernels.distinct(keys, 1, words([0] * slots), slot_at, found, which)
    assert found[:count].tolist() == list(dict.fromkeys(given_keys))
    assert found[which].tolist() == given_keys


# --- counts and estimates ------------------------------------------------------------------


def filled(layout: Layout, seed: int) -> tuple[Arena, list[naive.NaiveTable]]:
    """Random cells of either sign in every table, and the twins that hold the same."""
    random, arena = np.random.default_rng(seed), Arena.exact(layout)
    twins = []
    for table, spec in enumerate(layout.tables):
        flat = arena._flat(table)
        flat[:] = random.integers(-30, 300, flat.size)
        twin = naive.NaiveTable.of(layout, table)
        shape = (spec.rows, spec.width, layout.labels)
        for place, count in zip(itertools.product(*map(range, shape)), flat.tolist(), strict=True):
            twin.cells[place] = count
        twins.append(twin)
    arena.seal()
    return arena, twins


def joint_columns(sizes: tuple[int, ...]) -> NDArray[np.int64]:
    joint = [naive.class_columns(j, sizes) for j in range(math.prod(sizes))]
    return np.array(joint, dtype=np.int64).T.copy()


@every_table
@pytest.mark.parametrize("sizes", [(2,), (5,), (2, 3), (2, 2, 2)])
@pytest.mark.parametrize("deviation", [0.0, 20.0])
def test_counts_are_what_the_twin_reads(
    kind: Kind, rows: int, width: int, sizes: tuple[int, ...], deviation: float
) -> None:
    for bound in (NARROW, WIDE):
        layout = laid_out(kind, rows, width, labels=math.prod(sizes), bound=bound)
        arena, twins = filled(layout, seed=rows)
        keys = some_keys(np.random.default_rng(1), kind, width, 30)
        out = np.empty((len(keys), sum(sizes)))
        deviations = np.full((3, sum(sizes)), deviation)
        deviations[1] += np.arange(sum(sizes))  # every column has its own
        estimate_kernels.counts_of(
            layout.plan,
            1,
            *arena.views(),
            np.uint64(layout.labels),
            words(keys),
            joint_columns(sizes),
            deviations * (deviation > 0),
            out,
        )
        expected = [
            twins[1].counts(key, sizes, list(deviations[1] * (deviation > 0))) for key in keys
        ]
        np.testing.assert_allclose(out, expected, rtol=1e-12)


def expected_columns(
    template: list[tuple[int, int]],
    counts: list[float],
    found: list[tuple[list[float], bool]],
    centers: list[float],
    unit: float,
    toward: list[float],
) -> list[float]:
    p = [chance for chances, _ in found for chance in chances]
    sizes = [len(chances) for chances, _ in found]
    starts = [sum(sizes[:m]) for m in range(len(sizes))]
    sources: dict[int, Callable[[int], float]] = {
        rate_kernels.PROBABILITY: lambda i: p[i],
        rate_kernels.LOG_ODDS: lambda i: naive.logit(p[i]),
        rate_kernels.COUNT: lambda i: counts[i] / unit,
        rate_kernels.BACK_OFF: lambda i: float(found[i][1]),
        rate_kernels.SURPLUS: lambda i: naive.logit(p[i]) - naive.logit(toward[i]),
        rate_kernels.EXPECTED: lambda i: sum(
            chance * centers[starts[i] + j] for j, chance in enumerate(found[i][0])
        ),
    }
    return [sources[source](index) for source, index in template]


@pytest.mark.slow
@every_table
@pytest.mark.parametrize("sizes", [(2,), (5,), (2, 3)])
@pytest.mark.parametrize("method", [estimate_kernels.SHRINKAGE, estimate_kernels.RATIO])
@pytest.mark.parametrize("grouped", [False, True])
def test_estimates_are_what_the_twin_works_out(
    kind: Kind, rows: int, width: int, sizes: tuple[int, ...], method: int, grouped: bool
) -> None:
    """With ``grouped``, table 2 counts a group of which table 1 is a part."""
    layout = laid_out(kind, rows, width, labels=math.prod(sizes))
    arena, twins = filled(layout, seed=width)
    random = np.random.default_rng(2)
    columns, labels = sum(sizes), len(sizes)
    borders = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    prior = random.uniform(0.1, 1.0, columns)
    for start, stop in itertools.pairwise(borders):
        prior[start:stop] /= prior[start:stop].sum()
    strength = random.uniform(1.0, 90.0, (3, labels))
    spread = np.array([0.0, 3e6, 10.0])[:, None] * random.uniform(0.1, 1.0, (3, columns))
    shift = random.uniform(-9.0, 9.0, (3, columns))
    deviations, centers = random.uniform(5.0, 50.0, (3, columns)), random.normal(size=columns)
    template = [
        (s, i) for s in (rate_kernels.PROBABILITY, rate_kernels.LOG_ODDS) for i in range(columns)
    ]
    template += [(rate_kernels.COUNT, i) for i in range(columns)]
    template += [
        (s, m) for s in (rate_kernels.BACK_OFF, rate_kernels.EXPECTED) for m in range(labels)
    ]
    template += [(rate_kernels.SURPLUS, i) for i in range(columns)]
    limit, unit, start = 0.35, 4.0, 3
    keys = [[*some_keys(random, kind, width, 25)], [int(i) for i in random.integers(0, 2, 25)]]
    grouped = grouped and method == estimate_kernels.SHRINKAGE
    if grouped:  # the key of a group tells those of its parts
        keys[0] = [keys[0][group] for group in keys[1]]
    width = len(template)
    makeup = np.array([[0, 0, 0], [width, width, 0], [0, width, int(grouped)]])
    out = np.full((2 * width, start + 25), np.nan, dtype=np.float32)
    estimate_kernels.estimate(
        layout.plan,
        *arena.views(),
        np.uint64(layout.labels),
        joint_columns(sizes),
        borders,
        prior,
        strength,
        spread,
        shift,
        deviations,
        centers,
        np.array(template, dtype=np.int64),
        makeup,
        method,
        limit,
        unit,
        words(keys),
        np.array([1, 2]),
        0,
        out,
        start,
    )
    assert np.isnan(out[:, :start]).all()
    flags, of_part = set(), dict[int, list[float]]()
    for t, i in itertools.product(range(2), range(25)):
        counts = twins[t + 1].counts(keys[t][i], sizes, list(deviations[t + 1]))
        found, toward = [], list[float]()
        for m, (low, high) in enumerate(itertools.pairwise(borders)):
            own, of = slice(low, high), (t + 1, slice(low, high))
            target, scale = prior[own], np.ones(high - low)
            if grouped and t == 1:
                target = np.array(naive.joined(prior[own], [of_part[i][own]]))
                scale = prior[own] * (1 - prior[own]) / (target * (1 - target))
            toward += list(target)
            if method == estimate_kernels.SHRINKAGE:
                told = naive.shrunk(
                    counts[own], target, strength[t + 1, m], spread[of] * scale, shift[of]
                )
            else:
                told = naive.ratio(counts[own], prior[own], strength[t + 1, m], spread[of], limit)
            found.append(told)
            flags.add(told[1])
        if t == 0:
            of_part[i] = [chance for chances, _ in found for chance in chances]
        expected = expected_columns(template, counts, found, list(centers), unit, toward)
        place = slice(makeup[t + 1, 0], makeup[t + 1, 0] + width)
        np.testing.assert_allclose(out[place, start + i], expected, rtol=2e-6, atol=2e-6)
    assert len(flags) == 2  # both ways were taken


def test_estimates_of_no_rows_write_nothing() -> None:
    layout = laid_out("count-median", 5, 2, labels=2)
    arena, _ = filled(layout, seed=0)
    ones, out = np.ones((3, 2)), np.full((2, 1), np.nan, dtype=np.float32)
    estimate_kernels.estimate(
        layout.plan,
        *arena.views(),
        np.uint64(2),
        joint_columns((2,)),
        np.array([0, 2]),
        np.array([0.5, 0.5]),
        np.ones((3, 1)),
        ones,
        ones,
        ones,
        np.zeros(2),
        np.array([(rate_kernels.PROBABILITY, 1)], dtype=np.int64),
        np.array([[0, 0], [0, 1], [1, 1]]),
        estimate_kernels.SHRINKAGE,
        0.1,
        1.0,
        np.empty((2, 0), dtype=np.uint64),
        np.array([1, 2]),
        0,
        out,
        0,
    )
    assert np.isnan(out).all()


# --- buckets and signs ---------------------------------------------------------------------

MANY = 40_000
LIKELY = 1e-4  # of a fair hash failing a test; the seeds are fixed


def placed(
    secret: bytes = b"s", name: str = "x", *, width: int = 64, rows: int = 5, kind: str = "hashed"
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Bucket and sign of many keys in each hash row, read off the cells of single counts.

    Keys are hashes in practice; ``kind="counted"`` takes 0, 1, 2, ... instead.
    """
    table = Table(name, "count-median", rows, width, NARROW)
    layout = Layout((Table(PRIOR, "dense", 1, 1, NARROW), table), 1, secret)
    keys = np.arange(MANY, dtype=np.uint64)
    if kind == "hashed":
        keys = np.random.default_rng(7).integers(0, 2**64 - 1, MANY, dtype=np.uint64)
    row = layout.plan[1]
    multipliers = row[kernels.PLAN_MULTIPLIER :][:rows, None]
    addends = row[kernels.PLAN_ADDEND :][:rows, None]
    buckets = ((multipliers * keys + addends) >> row[kernels.PLAN_SHIFT]).astype(np.int64)
    # The signs themselves come from the kernel: one weight per key, a power of each row alone.
    cells = np.zeros(layout.nbytes // 4, dtype=np.int32)
    signs = np.empty((rows, MANY), dtype=np.int64)
    for i, key in enumerate(keys):
        one = key[None]
        kernels.add_sketch(layout.plan, 1, cells, np.uint64(1), one, ZERO, ONE, *SLOTS)
        at = int(row[kernels.PLAN_OFFSET]) + np.arange(rows) * width + buckets[:, i]
        signs[:, i] = cells[at]
        cells[at] = 0
    assert not cells.any()
    return buckets, signs


ZERO, ONE = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
SLOTS = slot_table(16, 1)


@pytest.fixture(scope="module")
def hashed() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return placed()


def test_every_hash_row_has_signs_as_even_as_a_coin(hashed: Any) -> None:
    _, signs = hashed
    assert set(np.unique(signs)) == {-1, 1}
    for row in signs:
        assert stats.binomtest(int((row > 0).sum()), MANY).pvalue > LIKELY


def test_signs_of_two_hash_rows_are_independent(hashed: Any) -> None:
    _, signs = hashed
    for one, other in itertools.combinations(signs, 2):
        assert stats.binomtest(int((one == other).sum()), MANY).pvalue > LIKELY


def test_signs_are_independent_of_buckets(hashed: Any) -> None:
    buckets, signs = hashed
    for b, s in itertools.product(buckets, signs):
        seen = np.histogram2d(b, s, bins=[np.arange(65) - 0.5, [-2, 0, 2]])[0]
        assert stats.chi2_contingency(seen).pvalue > LIKELY


def test_signs_of_colliding_keys_cancel_on_average(hashed: Any) -> None:
    buckets, signs = hashed
    for b, s in zip(buckets, signs, strict=True):
        order = np.argsort(b, kind="stable")
        same = b[order][1:] == b[order][:-1]
        agree = (s[order][1:] == s[order][:-1])[same]
        assert stats.binomtest(int(agree.sum()), agree.size).pvalue > LIKELY


@pytest.mark.parametrize("kind", ["hashed", "counted"])
def test_buckets_are_uniform(hashed: Any, kind: str) -> None:
    buckets, _ = hashed if kind == "hashed" else placed(kind=kind)
    for row in buckets:
        tally = np.bincount(row, minlength=64)
        if kind == "hashed":
            assert stats.chisquare(tally).pvalue > LIKELY
        else:  # multiply-shift spreads numbers in a row evenly, more evenly than chance
            assert tally.max() < 2 * tally.mean()


def test_buckets_of_two_hash_rows_are_independent(hashed: Any) -> None:
    buckets, _ = hashed
    for one, other in itertools.combinations(buckets, 2):
        seen = np.histogram2d(one // 4, other // 4, bins=[np.arange(17) - 0.5] * 2)[0]
        assert stats.chi2_contingency(seen).pvalue > LIKELY


@pytest.mark.parametrize(("secret", "name"), [(b"s", "y"), (b"t", "x")])
def test_other_tables_and_other_secrets_place_keys_elsewhere(
    hashed: Any, secret: bytes, name: str
) -> None:
    (buckets, signs), (elsewhere, others) = hashed, placed(secret, name)
    for one, other in zip(buckets, elsewhere, strict=True):
        seen = np.histogram2d(one // 4, other // 4, bins=[np.arange(17) - 0.5] * 2)[0]
        assert stats.chi2_contingency(seen).pvalue > LIKELY
    for one, other in zip(signs, others, strict=True):
        assert stats.binomtest(int((one == other).sum()), MANY).pvalue > LIKELY


# --- bias ----------------------------------------------------------------------------------


def read(arena: Arena, keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    out = np.empty((keys.size, 1))
    deviations = np.zeros((3, 1))
    estimate_kernels.counts_of(
        arena.layout.plan, 1, *arena.views(), np.uint64(1), keys, ZERO[None], deviations, out
    )
    return out[:, 0]


def zipf_errors(kind: Kind, secret: bytes, rows: int = 5) -> NDArray[np.float64]:
    """Error of every key's count after a Zipf stream of 2,000 keys in 256 buckets."""
    random = np.random.default_rng(3)
    keys = random.integers(0, 2**64 - 1, 2000, dtype=np.uint64)
    counts = np.floor(20_000 / np.arange(1, 2001)).astype(np.int64)
    layout = laid_out(kind, rows, 256, labels=1, secret=secret)
    arena = added(layout, keys, np.zeros(2000), counts, slots=4096)
    return read(arena, keys) - counts


def test_count_median_is_unbiased_on_a_zipf_stream() -> None:
    by_secret = [zipf_errors("count-median", b"%d" % i).mean() for i in range(40)]
    assert abs(np.mean(by_secret)) < 4 * stats.sem(by_secret)
    assert np.std(by_secret) > 0


def test_count_min_without_noise_never_counts_too_little() -> None:
    errors = zipf_errors("count-min", b"s")
    assert errors.min() >= 0
    assert errors.mean() > 10


def expected_minimum(noise: DiscreteLaplace, draws: int) -> float:
    """E[min] = Σ_{x >= 1} P(min >= x) - Σ_{x <= 0} P(min < x), from the exact mass."""
    reach = math.ceil(60 * noise.scale)
    mass = np.array([noise.mass(x) for x in range(-reach, reach + 1)])
    tail = mass[::-1].cumsum()[::-1] ** draws  # P(min >= x), x = -reach ... reach
    return float(tail[reach + 1 :].sum() - (1 - tail[: reach + 1]).sum())


def unseen(kind: Kind, noise: DiscreteLaplace) -> NDArray[np.float64]:
    layout = laid_out(kind, 5, 65_536, labels=1)
    seed = Randomness.insecure_from_seed(b"unseen")
    arena = Arena.noisy(layout, 1, lambda _, cells: noise.fill(cells, seed))
    arena.seal()
    return read(arena, np.random.default_rng(4).integers(0, 2**64 - 1, 10_000, dtype=np.uint64))


def test_noisy_count_min_has_the_papers_negative_bias_and_count_median_none() -> None:
    noise = DiscreteLaplace.at_least(195.0)  # 39 tables, 5 hash rows, k = 1, ε = 1
    expected = expected_minimum(noise, 5)
    assert expected == pytest.approx(-310, abs=1)
    least, middle = unseen("count-min", noise), unseen("count-median", noise)
    assert abs(least.mean() - expected) < 4 * stats.sem(least)
    assert abs(middle.mean()) < 4 * stats.sem(middle)
    assert middle.std() == pytest.approx(116, rel=0.03)  # privacy.md
