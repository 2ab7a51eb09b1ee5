"""Off-policy estimates: naive twins, the truth of a small bandit, and how often intervals hold."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from pyramidion.errors import SchemaError
from pyramidion.learn.bandit import (
    Estimate,
    doubly_robust,
    importance_weights,
    ips,
    moved,
    snips,
)

P_MIN = 0.1
Rows = list[tuple[float, float, float, float, float]]

some_rows = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.25, 1.0]),
        st.sampled_from([0.0, 0.5, 1.0]),
        st.floats(0.01, 1.0),
        st.floats(0.0, 1.0),
        st.floats(0.0, 1.0),
    ),
    min_size=1,
    max_size=30,
)


def weight(p: float) -> float:
    return 1 / (p if p > P_MIN else P_MIN)


def columns(rows: Rows) -> dict[str, list[float]]:
    reward, agreed, odds, _, _ = zip(*rows, strict=True)
    return {"rewards": list(reward), "agreed": list(agreed), "propensities": list(odds)}


@settings(max_examples=40)
@given(some_rows)
def test_estimates_are_those_of_naive_sums(rows: Rows) -> None:
    total = weights = robust = 0.0
    for reward, agreed, p, guessed, expected in rows:
        total += agreed * weight(p) * reward
        weights += agreed * weight(p)
        robust += expected + agreed * weight(p) * (reward - guessed)
    mean = sum(row[0] for row in rows) / len(rows)
    log = columns(rows)
    guesses = {"guessed": [r[3] for r in rows], "expected": [r[4] for r in rows]}
    assert ips(**log, p_min=P_MIN).value == pytest.approx(total / len(rows))
    assert snips(**log, p_min=P_MIN).value == pytest.approx(total / weights if weights else mean)
    found = doubly_robust(**log, **guesses, p_min=P_MIN)
    assert found.value == pytest.approx(robust / len(rows))
    assert found.rows == len(rows)


def twin(z: list[float], least: float, most: float) -> float:
    """The largest Σ log(1 + λz) over many λ for which no row has a weight below 0."""
    steps = np.linspace(-1 / most, -1 / least, 4_001)[1:-1]
    return 2 * max(sum(math.log1p(step * value) for value in z) for step in steps)


@pytest.mark.parametrize("z", [[-0.5, 1.0, -0.1], [-0.2] * 5, [0.4, 0.3], [-0.3, 0.3]])
def test_what_rows_must_be_moved_is_that_of_a_search(z: list[float]) -> None:
    found = moved(np.array([*z, -1.0, 2.0]))
    assert found == pytest.approx(twin(z, -1.0, 2.0), rel=1e-3, abs=1e-6)


def test_an_interval_ends_where_rows_must_be_moved_as_far_as_chance_moves_them() -> None:
    random = np.random.default_rng(0)
    rewards, odds = random.integers(0, 2, 60), random.uniform(0.2, 1, 60)
    agreed = random.integers(0, 2, 60)
    found = ips(rewards, agreed, odds, p_min=P_MIN)
    far = float(chi2.ppf(0.95, 1))
    for end in (found.low, found.high):
        z = [a * weight(p) * r - end for r, a, p in zip(rewards, agreed, odds, strict=True)]
        assert twin(z, -end, 1 / P_MIN - end) == pytest.approx(far, rel=1e-2)
    wider = ips(rewards, agreed, odds, p_min=P_MIN, confidence=0.99)
    assert wider.low < found.low < found.value < found.high < wider.high


def test_without_a_click_the_upper_end_is_what_few_rows_allow() -> None:
    none = np.zeros(1_000)
    found = ips(none, none + 1, none + 0.1, p_min=0.1)
    assert (found.value, found.low) == (0, 0)
    assert found.high == pytest.approx(1.92 / (0.1 * 1_000), rel=0.01)
    assert snips(none, none, none + 0.5, p_min=0.1).value == 0


# --- a bandit whose truth is known ---------------------------------------------------------------

CHANCES = np.array([[0.05, 0.30, 0.10], [0.40, 0.10, 0.02], [0.05, 0.05, 0.20], [0.1, 0.2, 0.3]])
ODDS = np.array([[0.8, 0.1, 0.1], [0.1, 0.3, 0.6], [0.4, 0.4, 0.2], [0.34, 0.33, 0.33]])
POLICY = CHANCES.argmax(axis=1)
VALUE = float(CHANCES.max(axis=1).mean())
"""All contexts are as likely."""


def logged(rows: int, seed: int) -> dict[str, Estimate]:
    random = np.random.default_rng(seed)
    context = random.integers(0, len(ODDS), rows)
    action = (ODDS[context].cumsum(axis=1) < random.random(rows)[:, None]).sum(axis=1)
    reward = (random.random(rows) < CHANCES[context, action]).astype(float)
    agreed = (action == POLICY[context]).astype(float)
    log = (reward, agreed, ODDS[context, action])
    wrong = np.array([0.3, 0.1, 0.05])  # a model that knows nothing of contexts
    guesses = {"guessed": wrong[action], "expected": wrong[POLICY[context]]}
    return {
        "ips": ips(*log, p_min=P_MIN),
        "snips": snips(*log, p_min=P_MIN),
        "dr": doubly_robust(*log, **guesses, p_min=P_MIN),
    }


@cache
def logs() -> list[dict[str, Estimate]]:
    return [logged(400, seed) for seed in range(250)]


@pytest.mark.parametrize(("way", "bias"), [("ips", 0.0), ("snips", 0.004), ("dr", 0.0)])
def test_estimates_are_unbiased_on_a_bandit_of_known_value(way: str, bias: float) -> None:
    values = np.array([log[way].value for log in logs()])
    error = values.std() / math.sqrt(len(values))
    assert abs(values.mean() - VALUE) < 4 * error + bias


@pytest.mark.parametrize("way", ["ips", "snips", "dr"])
def test_intervals_hold_the_value_as_often_as_they_say(way: str) -> None:
    held = np.mean([log[way].low <= VALUE <= log[way].high for log in logs()])
    assert 0.95 - 4 * math.sqrt(0.95 * 0.05 / len(logs())) < held < 0.985


def test_self_normalised_estimates_vary_less() -> None:
    spread = {way: np.std([log[way].value for log in logs()]) for way in ("ips", "snips")}
    assert spread["snips"] < spread["ips"]


# --- what is refused ---------------------------------------------------------------------


@pytest.mark.parametrize("odds", [[0.0], [-0.1], [1.5], [math.nan]])
def test_what_is_no_propensity_is_refused(odds: list[float]) -> None:
    with pytest.raises(SchemaError, match="not above 0 and at most 1"):
        importance_weights(odds, 0.1)


def test_what_is_no_log_is_refused() -> None:
    with pytest.raises(SchemaError, match="differ in length"):
        ips([1.0], [1.0, 0.0], [0.5, 0.5], p_min=0.1)
    with pytest.raises(SchemaError, match="reward is not within 0 and 1"):
        ips([2.0], [1.0], [0.5], p_min=0.1)
    with pytest.raises(SchemaError, match="confidence is not between"):
        ips([1.0], [1.0], [0.5], p_min=0.1, confidence=1.0)
