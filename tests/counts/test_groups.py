"""Features of groups: shrunk to what their parts say together, and what they say beyond."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import tests.reference_counts as naive
from pyramidion import Categorical, Label, Schema, Settings
from pyramidion.counts.snapshot import Snapshot
from pyramidion.learn.counting import Counting

LETTERS, DIGITS = list("abcdefgh"), list("01234")


def snapshot_of(rows: pa.Table, *, dense: bool = True, **given: Any) -> Snapshot:
    """Counts of a letter, a digit and both together."""
    letter = Categorical("letter", domain=LETTERS if dense else None)
    digit = Categorical("digit", domain=DIGITS if dense else None)
    schema = Schema(
        features=[letter, digit],
        label=Label("y", classes=sorted(set(rows["y"].to_pylist()))),
        groups=[("letter", "digit")],
    )
    chosen = Settings(**{"epsilon": math.inf, "columns": ("log-odds",)} | given)
    counting = Counting(schema, chosen)
    counting.add(counting.door.observations(rows), threads=1)
    return counting.snapshot()


def drawn(rates: NDArray[np.float64], size: int = 40_000, seed: int = 0) -> pa.Table:
    """Rows whose label has a rate for each letter and digit."""
    random = np.random.default_rng(seed)
    letter, digit = random.integers(0, len(LETTERS), size), random.integers(0, len(DIGITS), size)
    return pa.table(
        {
            "letter": np.array(LETTERS)[letter],
            "digit": np.array(DIGITS)[digit],
            "y": (random.random(size) < rates[letter, digit]).astype(int),
        }
    )


def added_up(seed: int = 1, size: float = 1.0) -> NDArray[np.float64]:
    """Log-odds of letters and digits, each its own, summed."""
    random = np.random.default_rng(seed)
    return random.normal(0, size, (len(LETTERS), 1)) + random.normal(0, size, (1, len(DIGITS)))


def rate(odds: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-odds))


def of_all_cells(snapshot: Snapshot) -> dict[str, NDArray[np.float64]]:
    """Each column, by letter and digit."""
    pairs = list(itertools.product(LETTERS, DIGITS))
    rows = pa.table({"letter": [a for a, _ in pairs], "digit": [b for _, b in pairs]})
    found = np.asarray(snapshot.array(rows), dtype=np.float64)
    shape = len(LETTERS), len(DIGITS)
    return {n: found[:, i].reshape(shape) for i, n in enumerate(snapshot.names)}


def test_a_group_has_one_more_column_its_surplus() -> None:
    names = snapshot_of(drawn(rate(added_up()))).names
    assert names == [
        "logit(y=1|letter)",
        "logit(y=1|digit)",
        "logit(y=1|letter*digit)",
        "surplus(y=1|letter*digit)",
    ]


@pytest.mark.parametrize("dense", [True, False])
def test_a_group_swamped_by_noise_says_what_its_parts_say_together(dense: bool) -> None:
    rows = drawn(rate(added_up()))
    shares = {"letter": 1e5, "digit": 1e5, "letter,digit": 1e-3}
    snapshot = snapshot_of(rows, dense=dense, epsilon=10.0, shares=shares)
    told, prior = of_all_cells(snapshot), snapshot.estimates.prior
    parts = told["logit(y=1|letter)"] + told["logit(y=1|digit)"] - naive.logit(float(prior[1]))
    assert np.ptp(parts) > 2
    off = told["logit(y=1|letter*digit)"] - parts
    assert np.abs(off).mean() < 0.1 * np.abs(parts - parts.mean()).mean()
    np.testing.assert_allclose(told["surplus(y=1|letter*digit)"], off, atol=1e-5)


@pytest.mark.parametrize("dense", [True, False])
def test_what_a_group_says_beyond_its_parts_is_its_surplus(dense: bool) -> None:
    only_together = np.zeros((len(LETTERS), len(DIGITS)))
    only_together[2, 3], only_together[5, 1] = 2.0, -2.0
    told = of_all_cells(snapshot_of(drawn(rate(only_together)), dense=dense))
    surplus = told["surplus(y=1|letter*digit)"]
    assert surplus[2, 3] == surplus.max() > 0.8
    assert surplus[5, 1] == surplus.min() < -0.8
    assert np.median(np.abs(surplus)) < 0.2


def test_with_many_rows_a_group_says_what_it_counted_whatever_its_parts_say() -> None:
    truth = rate(added_up(2) * np.random.default_rng(3).normal(0, 1, (len(LETTERS), len(DIGITS))))
    told = of_all_cells(snapshot_of(drawn(truth, 400_000)))
    np.testing.assert_allclose(rate(told["logit(y=1|letter*digit)"]), truth, atol=0.03)


def test_of_the_scatter_of_a_group_that_of_its_parts_is_taken_off() -> None:
    alone = snapshot_of(drawn(rate(added_up()), 200_000)).estimates
    mixed = rate(np.random.default_rng(4).normal(0, 1.4, (len(LETTERS), len(DIGITS))))
    together = snapshot_of(drawn(mixed, 200_000)).estimates
    of_parts, own = (1 / (e.strength[:, 0] + 1) for e in (alone, together))
    assert of_parts[3] < 0.2 * (of_parts[1] + of_parts[2])
    assert own[3] > 0.5 * (own[1] + own[2])


def test_at_least_a_tenth_of_its_scatter_is_a_group_s_own() -> None:
    estimates = snapshot_of(drawn(rate(added_up(size=0.3)), 200_000)).estimates
    whole = estimates._scatter[3, 0]
    assert estimates._scatter[1:3, 0].sum() > 0.9 * whole
    assert 1 / (estimates.strength[3, 0] + 1) == pytest.approx(whole / 10)


def test_groups_of_classes_are_shrunk_to_their_parts_too() -> None:
    random = np.random.default_rng(5)
    rows = drawn(rate(added_up()))
    classes = rows["y"].to_numpy() + random.integers(0, 2, len(rows))
    rows = rows.set_column(2, "y", pa.array(classes))
    shares = {"letter": 1e5, "digit": 1e5, "letter,digit": 1e-3}
    given: dict[str, Any] = {"epsilon": 10.0, "shares": shares, "columns": ("probability",)}
    snapshot = snapshot_of(rows, **given)
    told = of_all_cells(snapshot)
    prior, off = list(map(float, snapshot.estimates.prior)), 0.0
    for a, b in itertools.product(range(len(LETTERS)), range(len(DIGITS))):
        of = {part: [float(told[f"P(y={c}|{part})"][a, b]) for c in range(3)] for part in PARTS}
        expected = naive.joined(prior, [of["letter"], of["digit"]])
        np.testing.assert_allclose(of["letter*digit"], expected, atol=0.1)
        off += np.abs(np.array(of["letter*digit"]) - expected).mean()
    assert off / (len(LETTERS) * len(DIGITS)) < 0.02


PARTS = ("letter", "digit", "letter*digit")


def test_parts_that_say_the_prior_leave_a_rare_class_as_rare_as_it_is() -> None:
    size = len(LETTERS) * len(DIGITS)
    pairs = list(itertools.product(LETTERS, DIGITS))
    rows = pa.table(
        {
            "letter": [a for a, _ in pairs],
            "digit": [b for _, b in pairs],
            "y": [0, 1] * (size // 2),
            "p": [1e-6] * size,  # each weighs as a million: 40 million, none of the third class
        }
    )
    schema = Schema(
        features=[Categorical("letter", domain=LETTERS), Categorical("digit", domain=DIGITS)],
        label=Label("y", classes=[0, 1, 2]),
        groups=[("letter", "digit")],
        weight="p",
    )
    counting = Counting(schema, Settings(epsilon=math.inf, p_min=1e-6))
    counting.add(counting.door.observations(rows), threads=1)
    snapshot = counting.snapshot()
    assert snapshot.estimates.prior[2] < 1e-7
    told = of_all_cells(snapshot)
    assert told["P(y=2|letter)"].max() < 1e-7
    assert told["P(y=2|letter*digit)"].max() < 2e-6  # logarithms are taken of a millionth


def test_the_paper_s_ratio_knows_no_parts() -> None:
    snapshot = snapshot_of(drawn(rate(added_up())), estimate="ratio")
    assert not any(name.startswith("surplus") for name in snapshot.names)
    assert snapshot._columns.family(2) == [2]
    counts = np.zeros((len(LETTERS), len(DIGITS)))
    told = of_all_cells(snapshot)["logit(y=1|letter*digit)"]
    rows = drawn(rate(added_up())).to_pydict()
    liked = counts.copy()
    for a, b, y in zip(rows["letter"], rows["digit"], rows["y"], strict=True):
        counts[LETTERS.index(a), DIGITS.index(b)] += 1
        liked[LETTERS.index(a), DIGITS.index(b)] += y
    np.testing.assert_allclose(rate(told), liked / counts, atol=1e-4)


def test_threads_write_the_same_features() -> None:
    rows = drawn(rate(added_up()), 10_000)
    snapshot = snapshot_of(rows, epsilon=1.0)
    np.testing.assert_array_equal(snapshot.array(rows, threads=2), snapshot.array(rows))
