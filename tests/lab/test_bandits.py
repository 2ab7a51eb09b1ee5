"""Bandits: the generated one and its truth, policies that learn it, and Open Bandit's choices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lab import bandits, open_bandit_log, policies
from lab.bandits import ACTIONS, P_MIN, SIZES, Bandit, Choices, World, asked
from lab.experiments import EXPERIMENTS, concerns, data_sets
from lab.experiments import bandit as experiment
from lab.policies import CountPolicy, RawPolicy
from pyramidion.learn.bandit import doubly_robust, ips, snips

ROWS = 3_000


@pytest.fixture(scope="module")
def made() -> Bandit:
    return bandits.generate(ROWS, seed=5)


def world(made: Bandit) -> World:
    assert made.world is not None
    return made.world


# --- the generated bandit ------------------------------------------------------------


def test_rows_are_the_same_however_they_are_read(made: Bandit) -> None:
    whole = made.table(0, made.rows)
    assert whole.num_rows == made.rows == 7 * ROWS
    assert made.table(2_900, 6_100).equals(whole.slice(2_900, 3_200))
    times = whole["time"].to_numpy()
    assert (np.diff(times) >= 0).all()
    assert [times[start] // 86_400 for start, _ in made.days] == list(range(7))


def test_propensities_are_those_of_the_draw_and_none_is_below_p_min(made: Bandit) -> None:
    rows = made.table(0, ROWS)
    contexts = {name: rows[name].to_numpy() for name in SIZES}
    odds = world(made).propensities(contexts)
    np.testing.assert_allclose(odds.sum(axis=1), 1)
    assert odds.min() >= P_MIN == made.p_min
    logged = rows["propensity"].to_numpy()
    np.testing.assert_allclose(logged, odds[np.arange(ROWS), rows["article"].to_numpy()])
    weight = (1 / logged).mean()
    assert weight == pytest.approx(ACTIONS, rel=0.1)  # Σ p · 1/p


def test_clicks_come_as_often_as_is_true(made: Bandit) -> None:
    rows = made.table(0, made.rows)
    contexts = {name: rows[name].to_numpy() for name in SIZES}
    chance = world(made).chances(contexts)[np.arange(made.rows), rows["article"].to_numpy()]
    error = np.sqrt((chance * (1 - chance)).mean() / made.rows)
    assert abs(rows["click"].to_numpy().mean() - chance.mean()) < 4 * error


def test_the_value_of_a_policy_is_estimated_from_the_log_of_another(made: Bandit) -> None:
    rows = made.table(0, made.rows)
    contexts = {name: rows[name].to_numpy() for name in SIZES}
    chance = world(made).chances(contexts)
    best = chance.argmax(axis=1)
    agreed = (best == rows["article"].to_numpy()).astype(float)
    log = (rows["click"].to_numpy(), agreed, rows["propensity"].to_numpy())
    value = chance.max(axis=1).mean()
    rate = np.full(made.rows, 0.1)
    for found in (
        ips(*log, p_min=P_MIN),
        snips(*log, p_min=P_MIN),
        doubly_robust(*log, guessed=rate, expected=rate, p_min=P_MIN),
    ):
        error = (found.high - found.low) / 4
        assert abs(found.value - value) < 4 * error
        assert found.high - found.low < 0.1


def test_the_best_choice_is_the_first_of_the_highest_scores() -> None:
    choices = Choices(pa.table({"a": range(6)}), np.array([2, 1, 3]))
    scores = np.array([0.1, 0.2, 0.0, 0.5, 0.7, 0.7])
    assert choices.best(scores).tolist() == [1, 2, 4]


def test_what_was_taken_is_found_among_the_choices(made: Bandit) -> None:
    rows = made.table(10, 20)
    choices = made.choices(rows)
    taken = choices.rows.take(pa.array(made.taken(rows, choices)))
    assert taken["article"].to_pylist() == rows["article"].to_pylist()
    assert taken["interest"].to_pylist() == rows["interest"].to_pylist()


# --- policies ------------------------------------------------------------


def value(made: Bandit, policy: policies.Policy, days: int = 2) -> float:
    choices, chance, _ = asked(world(made), 2_000)
    with policy:
        for start, stop in made.days[:days]:
            policy.learn(made.table(start, stop))
        return float(chance[choices.best(policy.scores(choices))].mean())


def even(made: Bandit) -> float:
    return float(asked(world(made), 2_000)[1].mean())


def test_policies_on_raw_rows_and_on_counts_learn_what_to_show(made: Bandit) -> None:
    raw, counts = value(made, RawPolicy(made)), value(made, CountPolicy(made))
    assert raw > 1.5 * even(made)
    assert counts > 1.5 * even(made)


def test_a_policy_that_learns_the_contrary_shows_what_nobody_clicks(made: Bandit) -> None:
    """Costs have the right sign."""

    def table(start: int, stop: int) -> pa.Table:
        rows = made.table(start, stop)
        clicks = pa.array(1 - rows["click"].to_numpy())
        return rows.set_column(rows.column_names.index("click"), "click", clicks)

    choices, chance, _ = asked(world(made), 2_000)
    with RawPolicy(made) as raw:
        raw.learn(table(0, ROWS))
        assert chance[choices.best(raw.scores(choices))].mean() < even(made)


def test_the_store_of_a_policy_keeps_the_whole_promise(made: Bandit) -> None:
    with CountPolicy(made, 1.0) as policy:
        policy.learn(made.table(0, ROWS))
        store, _ = policy._store
        assert store.settings.omega == policies.UNIT / P_MIN
        assert store.snapshot().guarantee.epsilon <= 1.0
        assert store.status().hot_rows == ROWS
        weights = store.training_set().weights
        exact = 1 / made.table(0, ROWS)["propensity"].to_numpy()
        assert (weights <= exact + 1e-9).all()
        np.testing.assert_allclose(weights, exact, atol=1 / policies.UNIT)


def test_a_larger_p_min_bounds_what_a_row_weighs(made: Bandit) -> None:
    with CountPolicy(replace(made, p_min=0.1), 1.0) as policy:
        policy.learn(made.table(0, ROWS))
        assert policy._store[0].training_set().weights.max() == 10


# --- experiments ------------------------------------------------------------


def test_bandits_are_for_the_bandit_alone(made: Bandit) -> None:
    assert [name for name in EXPERIMENTS if concerns(name, made)] == ["bandit"]
    assert "bandit" not in [data.name for data in data_sets(None, quick=True, on=None)]
    found = data_sets(None, quick=True, on=None, names=["bandit"])
    assert [data.name for data in found] == ["bandit", "clicks"]


def test_ratios_are_to_the_raw_policy_after_all_days(made: Bandit) -> None:
    short = replace(made, days=made.days[:1])
    planned = experiment.plan(short, quick=True, seeds=1)
    assert planned is not None
    figure, jobs = planned
    points = [point for job in jobs for point in job.run()]
    assert figure.baseline_at == 1
    assert [p.series for p in points if p.detail.get("baseline")] == [experiment.RAW]
    best = {p.loss for p in points if p.series == "best possible"}
    assert all(p.loss >= min(best) for p in points)
    assert {p.series for p in points} >= {experiment.COUNTS, experiment.PRIVATE, "editors"}


def test_open_bandit_is_judged_on_what_was_shown_at_random(open_bandit: Path) -> None:
    data = open_bandit_log.load(open_bandit)
    assert (data.rows, len(data.days)) == (60_000, 7)
    day = data.table(*data.days[1])
    judged = data.judged(day)
    assert set(judged["policy"].to_pylist()) == {"random"}
    choices = data.choices(judged)
    taken = data.taken(judged, choices)
    assert len(taken) == judged.num_rows
    np.testing.assert_allclose(1 / choices.sizes, judged["propensity_score"].to_numpy())
    known = choices.rows.take(pa.array(taken))
    for name in ("item", "item_feature_1", "user_feature_2", "position"):
        assert known[name].to_pylist() == judged[name].to_pylist()
