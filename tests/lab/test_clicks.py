"""Generated clicks: the same rows from anywhere, and truth that is true."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, chisquare, ks_1samp, norm
from sklearn.feature_extraction import FeatureHasher
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from lab import clicks, clicks_kernels
from lab.clicks import entropy, generate, planted
from lab.clicks_columns import CATEGORIES, COUNTS, Category, Count
from pyramidion.errors import SchemaError
from pyramidion.learn.featurizer import CountFeaturizer

ROWS = 10_000_000
MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


# --- a naive twin: one row at a time, Python's own numbers ---------------------------------------


def mix(word: int) -> int:
    word = ((word ^ word >> 30) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ word >> 27) * 0x94D049BB133111EB) & MASK
    return word ^ word >> 31


def at(key: int, number: int) -> int:
    return mix((key + number * GOLDEN) & MASK)


def uniform(word: int) -> float:
    return ((word >> 11) + 0.5) / 2**53


def normal(word: int) -> float:
    return float(clicks_kernels.NORMAL[word >> 52])


def other_normal(word: int) -> float:
    return float(clicks_kernels.NORMAL[word >> 40 & 4095])


def zipf(state: int, most: int, e: float) -> int:
    def area(x: float) -> float:
        return (x ** (1 - e) - 1) / (1 - e)

    def inverse(a: float) -> float:
        return (1 + a * (1 - e)) ** (1 / (1 - e))

    for draw in range(1, 1000):
        a = area(most + 0.5) + uniform(at(state, draw)) * (area(1.5) - 1 - area(most + 0.5))
        k = min(max(math.floor(inverse(a) + 0.5), 1), most)
        # the shortcut only saves work: whoever passes it passes the second test too
        if a >= area(k + 0.5) - k**-e:
            return k
    raise AssertionError("no draw was accepted")


class Twin:
    def __init__(self, seed: int, drift: float, pairs: int) -> None:
        self.seed, self.drift, self.pairs = seed, drift, pairs

    def key(self, role: int, place: int = 0) -> int:
        return at(at(self.seed, role), place + 1)

    def row(self, i: int) -> dict[str, int | None]:
        segment = zipf(at(self.key(1), i), 1000, 1.05) - 1
        columns = (*COUNTS.items(), *CATEGORIES.items())
        return {
            name: self.count(i, place, about, segment)
            if isinstance(about, Count)
            else self.category(i, place, about, segment)
            for place, (name, about) in enumerate(columns)
        }

    def count(self, i: int, place: int, about: Count, segment: int) -> int | None:
        if uniform(at(self.key(5, about.gap), i)) < about.missing:
            return None
        word, share = at(self.key(2, place), i), 0.6 * about.share
        free = (normal(word) + other_normal(word)) * math.sqrt(0.5)
        z = share * normal(at(self.key(3, place), segment)) + math.sqrt(1 - share**2) * free
        return int(math.exp(math.log(about.median) + about.spread * z))

    def category(self, i: int, place: int, about: Category, segment: int) -> int:
        state = at(self.key(2, place), i)
        if uniform(state) < 0.6 * about.link:
            state = at(self.key(3, place), 4 * segment + at(state, 1) % 4)
        value = zipf(state, about.values, about.exponent) - 1
        if about.values > 30:
            phase = uniform(at(self.key(4, place), value))
            value += about.values * math.floor(0.1 * self.drift * i / 1e6 + phase)
        return value

    def score(self, i: int) -> float:
        row, score, angle = self.row(i), 0.0, self.drift * i / 1e6
        for name, about in COUNTS.items():
            value = row[name]
            if value is None:
                score += about.none
                continue
            z = (math.log(value + 0.5) - math.log(about.median)) / about.spread
            score += about.slope * z / math.sqrt(1 + z * z) + about.hump / (1 + z * z)
        for place, (name, category) in enumerate(CATEGORIES.items()):
            word = at(self.key(6, place), row[name] or 0)
            turned = math.cos(angle) * normal(word) + math.sin(angle) * other_normal(word)
            score += category.scale * turned
        for place, (a, b) in enumerate(planted(self.pairs)):
            score += 0.3 * normal(at(at(self.key(7, place), row[a] or 0), row[b] or 0))
        return score


def logit(p: Any) -> Any:
    return np.log(p / (1 - p))


@pytest.mark.parametrize(("seed", "drift", "pairs"), [(0, 0.0, 0), (2**63 - 1, 3.0, 5)])
def test_the_kernels_make_what_a_naive_twin_makes(seed: int, drift: float, pairs: int) -> None:
    made = generate(ROWS, seed=seed, drift=drift, interactions=pairs)
    first, rows, twin = 8_000_000, 100, Twin(seed, drift, pairs)
    table = made.table(first, first + rows).drop_columns(["time", "click"])
    assert table.to_pylist() == [twin.row(i) for i in range(first, first + rows)]
    score = np.array([twin.score(i) for i in range(first, first + rows)])
    intercept_and_strength = np.polyfit(score, logit(made.truth(first, first + rows)), 1)  # type: ignore[misc]
    line = np.polyval(intercept_and_strength, score)
    np.testing.assert_allclose(logit(made.truth(first, first + rows)), line, atol=1e-9)  # type: ignore[misc]


# --- rows from anywhere --------------------------------------------------------------------------


@settings(max_examples=8, deadline=None)
@given(
    cuts=st.lists(st.integers(60_000, 140_000), min_size=3, max_size=4).map(sorted),
    seed=st.integers(0, 1),
)
def test_rows_read_in_pieces_are_the_rows_read_at_once(cuts: list[int], seed: int) -> None:
    made = generate(ROWS, seed=seed)
    pieces = [batch for a, b in pairwise(cuts) for batch in made.read(a, b)]
    whole = list(made.read(cuts[0], cuts[-1]))
    assert sum(batch.num_rows for batch in pieces) == cuts[-1] - cuts[0]
    if whole:
        assert pa.Table.from_batches(pieces).equals(pa.Table.from_batches(whole))
    truth = np.concatenate([made.truth(a, b) for a, b in pairwise(cuts)])  # type: ignore[misc]
    np.testing.assert_array_equal(truth, made.truth(cuts[0], cuts[-1]))  # type: ignore[misc]


def test_the_first_of_many_rows_are_the_rows_of_few() -> None:
    assert generate(1000).table(0, 1000).equals(generate(ROWS).table(0, 1000))


def test_reading_stops_at_the_last_row() -> None:
    made = generate(70_000)
    assert [batch.num_rows for batch in made.read(0, 10**9)] == [65_536, 4_464]


def test_another_process_makes_the_same_rows() -> None:
    told = "from lab.clicks import generate; t = generate(10**7).table(5000, 5100)"
    code = f"{told}; print(t.to_pylist())"
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == str(generate(ROWS).table(5000, 5100).to_pylist())


def test_another_seed_makes_other_rows_and_other_truth() -> None:
    one, other = generate(ROWS), generate(ROWS, seed=1)
    assert one.fingerprint != other.fingerprint
    same = np.mean(one.table(0, 1000)["C7"].to_numpy() == other.table(0, 1000)["C7"].to_numpy())
    assert same < 0.1
    assert abs(np.corrcoef(one.truth(0, 1000), other.truth(0, 1000))[0, 1]) < 0.15  # type: ignore[misc]


def test_rows_come_a_second_apart() -> None:
    assert generate(ROWS).table(70_000, 70_003)["time"].to_pylist() == [70_000, 70_001, 70_002]


def test_a_stream_of_two_million_rows_needs_little_memory() -> None:
    code = """
import resource
from lab.clicks import generate
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
made = generate(10**7)
for batch in made.read(0, 65_536): pass
before = peak()
rows = sum(batch.num_rows for batch in made.read(0, 2_000_000))
print(rows, peak() - before)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rows, grown = map(int, told.stdout.split())
    assert rows == 2_000_000
    assert grown < 200


def test_few_batches_are_made_before_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made = generate(ROWS)
    begun: list[int] = []
    monkeypatch.setattr(clicks._Model, "batch", lambda model, start, stop: begun.append(start))
    reading = made.read(0, ROWS)
    next(reading)
    time.sleep(0.2)  # time enough for threads to run ahead, if they would
    assert len(begun) <= 1 + clicks.AHEAD


# --- what is true --------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "best"), [(0.257, 0.81), (0.0334, 0.91)])
@pytest.mark.parametrize("seed", [0, 1])
def test_rate_and_best_loss_are_what_was_asked_for(rate: float, best: float, seed: int) -> None:
    truth = generate(ROWS, rate=rate, seed=seed).truth(1_000_000, 1_300_000)  # type: ignore[misc]
    assert np.mean(truth) == pytest.approx(rate, rel=0.01)
    assert np.mean(entropy(truth)) / entropy(rate) == pytest.approx(best, abs=0.01)


@pytest.mark.parametrize("rate", [0.257, 0.0334])
def test_labels_are_drawn_from_the_truth(rate: float) -> None:
    made = generate(ROWS, rate=rate)
    truth, click = made.truth(0, 300_000), made.table(0, 300_000)["click"].to_numpy()  # type: ignore[misc]
    losses = -np.where(click == 1, np.log(truth), np.log1p(-truth))
    beyond = (losses - entropy(truth)).mean() / (losses.std() / math.sqrt(losses.size))
    assert abs(beyond) < 4
    for low, high in pairwise(np.quantile(truth, np.linspace(0, 1, 11))):
        here = (low <= truth) & (truth <= high)
        error = math.sqrt((truth * (1 - truth))[here].sum()) / here.sum()
        assert abs(click[here].mean() - truth[here].mean()) < 4 * error


@pytest.mark.parametrize("name", ["C5", "C8", "C20", "C22"])
def test_values_of_a_column_without_links_are_zipf(name: str) -> None:
    about = CATEGORIES[name]
    assert about.link == 0
    seen = np.bincount(generate(ROWS).table(0, 300_000)[name].to_numpy(), minlength=about.values)
    mass = np.arange(1, about.values + 1.0) ** -about.exponent
    expected = 300_000 * mass / mass.sum()
    often = expected >= 10
    if not often.all():
        seen = np.append(seen[often], seen[~often].sum())
        expected = np.append(expected[often], expected[~often].sum())
    assert chisquare(seen, expected).pvalue > 1e-4


def test_values_of_ten_million_are_zipf_too() -> None:
    shape = clicks._shape(10_131_227, 1.02)
    drawn = np.empty(300_000, np.int64)
    clicks_kernels.segments(np.uint64(7), 0, shape, drawn)
    mass = np.arange(1, 10_131_228.0) ** -1.02
    below = np.cumsum(mass) / mass.sum()
    cuts = [0, 1, 2, 3, 5, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_131_227]
    expected = np.diff([0.0, *below[np.array(cuts[1:]) - 1]]) * drawn.size
    assert chisquare(np.histogram(drawn, cuts)[0], expected).pvalue > 1e-4
    assert drawn.max() < 10_131_227


def test_weights_of_values_are_normal() -> None:
    score = np.zeros(20_000)
    clicks_kernels.add_weights(np.uint64(3), 0, 2.0, 0.0, np.arange(20_000), score)
    assert ks_1samp(score / 2.0, norm.cdf).pvalue > 1e-3


def test_columns_follow_their_segment_only_as_far_as_asked() -> None:
    def tie(correlation: float) -> float:
        table = generate(ROWS, correlation=correlation).table(0, 100_000)
        one, other = (np.minimum(table[name].to_numpy(), 20) for name in ("C13", "C24"))
        together = np.histogram2d(one, other, bins=21)[0]
        return float(chi2_contingency(together).pvalue)

    assert tie(0.0) > 1e-4
    assert tie(1.0) < 1e-100


def test_counts_fall_in_all_four_bins_and_are_missing_as_told() -> None:
    table = generate(ROWS).table(0, 200_000)
    for name, about in COUNTS.items():
        column = table[name]
        assert column.null_count / 200_000 == pytest.approx(about.missing, abs=0.01)
        shares = np.histogram(column.drop_null(), [0, *clicks.quartiles(about), 2**31])[0]
        assert shares.min() / shares.sum() > 0.08


@pytest.mark.filterwarnings("ignore:lbfgs failed to converge")
def test_logistic_regression_ends_between_the_truth_and_the_rate() -> None:
    made, rows, past = generate(ROWS), 60_000, 40_000
    table = made.table(0, rows)
    names = ["I1", "I5", "I6", "I7", "I11", "C2", "C7", "C10", "C11", "C14", "C17", "C18"]
    listed = zip(*(table[name].to_pylist() for name in names), strict=True)
    told = ([f"{n}={v}" for n, v in zip(names, row, strict=True)] for row in listed)
    X, y = FeatureHasher(2**14, input_type="string").transform(told), table["click"].to_numpy()
    model = LogisticRegression(C=0.1, max_iter=15)
    lost = log_loss(y[past:], model.fit(X[:past], y[:past]).predict_proba(X[past:]))
    assert log_loss(y[past:], made.truth(past, rows)) < lost < 0.97 * entropy(0.257)  # type: ignore[misc]


# --- pairs and drift -----------------------------------------------------------------------------


def test_planted_pairs_are_all_different_and_few_are_the_first_of_many() -> None:
    pairs = planted(clicks.MOST_PAIRS)
    assert len({frozenset(pair) for pair in pairs}) == clicks.MOST_PAIRS
    assert planted(7) == pairs[:7]


def test_an_interaction_changes_the_truth_by_its_pair_alone() -> None:
    plain, paired = generate(ROWS), generate(ROWS, interactions=1)
    table, one = plain.table(0, 50_000), paired.table(0, 50_000)
    assert table.drop_columns(["click"]).equals(one.drop_columns(["click"]))
    change = logit(paired.truth(0, 50_000)) - logit(plain.truth(0, 50_000))  # type: ignore[misc]
    ((a, b),) = planted(1)
    cell = table[a].to_numpy() * 1000 + table[b].to_numpy()
    order = np.argsort(cell, kind="stable")
    same = np.diff(cell[order]) == 0
    np.testing.assert_allclose(np.diff(change[order])[same], 0, atol=1e-9)
    assert np.std(change) > 0.1
    assert np.mean(paired.truth(200_000, 400_000)) == pytest.approx(0.257, rel=0.01)  # type: ignore[misc]


def weights_at(row: int, drift: float) -> Any:
    score = np.zeros(5000)
    turn = drift / clicks.DRIFT_ROWS
    for value in range(5000):  # one row each, all at the same moment
        one = score[value : value + 1]
        clicks_kernels.add_weights(np.uint64(5), row, 1.0, turn, np.array([value]), one)
    return score


def test_weights_turn_by_the_angle_that_drift_says() -> None:
    first, later = weights_at(0, 0.5), weights_at(2_000_000, 0.5)
    assert np.corrcoef(first, later)[0, 1] == pytest.approx(math.cos(1.0), abs=0.05)
    np.testing.assert_array_equal(weights_at(0, 0.0), weights_at(2_000_000, 0.0))


def rates(drift: float, start: int) -> Any:
    """Mean truth for each value of a small column."""
    made = generate(ROWS, drift=drift)
    value = made.table(start, start + 100_000)["C17"].to_numpy()
    truth = made.truth(start, start + 100_000)  # type: ignore[misc]
    return np.bincount(value, truth, minlength=10) / np.bincount(value, minlength=10)


def test_what_values_mean_stays_without_drift_and_moves_with_it() -> None:
    stays = np.abs(rates(0.0, 5_000_000) - rates(0.0, 0)).max()
    moves = np.abs(rates(0.3, 5_000_000) - rates(0.3, 0)).max()
    assert stays < 0.02
    assert moves > 0.04


def test_new_values_come_with_drift_only_and_never_in_public_domains() -> None:
    for drift in (0.0, 2.0):
        table = generate(ROWS, drift=drift).table(4_000_000, 4_050_000)
        for name, about in CATEGORIES.items():
            new = np.mean(table[name].to_numpy() >= about.values)
            assert (new > 0) == (drift > 0 and about.values > clicks.PUBLIC)
    assert generate(ROWS, drift=2.0).table(0, 1)["C3"].to_numpy()[0] < CATEGORIES["C3"].values


# --- as a data set -------------------------------------------------------------------------------


def test_a_featurizer_counts_generated_rows() -> None:
    made = generate(20_000)
    table = made.table(0, 20_000)
    counts = CountFeaturizer(epsilon=1.0, schema=made.schema).fit(table, table["click"])
    features = np.asarray(counts.transform(table.slice(0, 10)))
    assert features.shape[0] == 10
    assert np.isfinite(features).all()


def test_domains_are_public_only_where_values_are_few() -> None:
    dense = {name for name in CATEGORIES if clicks.schema().feature(name).dense}
    assert dense == {"C6", "C9", "C14", "C17", "C20", "C22", "C23"}


def test_the_title_says_rows_and_rate() -> None:
    title = generate(45_000_000, rate=0.0334).title
    assert title == "generated clicks, 45M rows, click rate 3.34 %"


def test_every_parameter_is_in_the_fingerprint() -> None:
    others: list[dict[str, Any]] = [
        {"rate": 0.0334}, {"drift": 0.3}, {"interactions": 1}, {"seed": 1}, {"best": 0.8},
        {"correlation": 0.0},
    ]  # fmt: skip
    prints = {generate(1000, **other).fingerprint for other in [{}, *others]}
    assert len(prints | {generate(1001).fingerprint}) == len(others) + 2


@pytest.mark.parametrize(
    "bad",
    [
        {"rows": 0}, {"rows": 1.5}, {"rate": 0.0}, {"rate": 1.0}, {"rate": "often"},
        {"drift": -0.1}, {"drift": math.inf}, {"interactions": -1}, {"interactions": 56},
        {"seed": -1}, {"best": 1.0}, {"correlation": 1.1},
    ],
)  # fmt: skip
def test_bad_arguments_are_refused_in_one_sentence(bad: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match=r"^[^\n;]+; write [^\n;]+$"):
        generate(bad.pop("rows", 1000), **bad)


def test_rows_before_the_first_are_refused() -> None:
    with pytest.raises(SchemaError, match="numbered from 0"):
        list(generate(1000).read(-5, 10))
