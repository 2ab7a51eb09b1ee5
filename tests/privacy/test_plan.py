"""The planner: what it chooses, from what, and what it refuses."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyramidion import Categorical, Continuous, Label, Plan, Schema, SchemaError, Settings, plan
from pyramidion.privacy.population import Expected, Population
from pyramidion.privacy.prediction import Predictor, born
from pyramidion.privacy.table_noise import TableDesign

LIKED = Label("liked", classes=[0, 1])
MOVIES = Schema(
    features=[
        Categorical("user"),
        Categorical("movie"),
        Categorical("genre", domain=["action", "drama", "war"]),
    ],
    label=LIKED,
    groups=[("user", "genre")],
)
KNOWN = {"user": 6_040, "movie": 3_700}


def movies(**asked: Any) -> Plan:
    return plan(MOVIES, **({"rows": 1_000_000, "distinct": KNOWN} | asked))


@cache
def usual() -> Plan:
    return movies(epsilon=1.0)


@cache
def many() -> Plan:
    return plan(open_features(60), rows=10**6, epsilon=1.0)


def open_features(number: int) -> Schema:
    return Schema(features=[Categorical(f"x{i}") for i in range(number)], label=LIKED)


# --- what is chosen ------------------------------------------------------------------------


@pytest.mark.slow
def test_few_tables_get_laplace_noise_and_many_gaussian() -> None:
    assert plan(open_features(3), rows=10**6, epsilon=1.0).settings.delta == 0
    assert (many().settings.mechanism, many().settings.delta) == ("gaussian", 1e-9)


def test_the_noise_not_chosen_is_shown_beside_the_other() -> None:
    shown = {alternative.mechanism for alternative in usual().alternatives}
    assert shown == {"laplace", "gaussian"}
    costs = [alternative.cost for alternative in usual().alternatives]
    assert costs == sorted(costs)


def test_delta_0_leaves_laplace_alone() -> None:
    assert {a.mechanism for a in movies(epsilon=1.0, delta=0).alternatives} == {"laplace"}


def test_hash_rows_cost_under_laplace_noise_and_hardly_under_gaussian() -> None:
    cost = {(a.mechanism, a.rows): a.cost for a in many().alternatives}
    assert cost["laplace", 5] > 1.1 * cost["laplace", 1]
    assert cost["gaussian", 5] < 1.1 * cost["gaussian", 1]


def test_a_minimum_is_only_taken_where_there_is_no_noise() -> None:
    assert {a.sketch for a in usual().alternatives} == {"count-median"}
    assert "count-min" in {a.sketch for a in movies(epsilon=math.inf).alternatives}


def test_the_settings_make_tables_as_planned() -> None:
    proposed = usual()
    tables = born(MOVIES, proposed.settings).layout.tables[1:]
    told = [(t.name, t.kind, t.rows, t.width, t.cell_noise) for t in proposed.tables]
    assert told == [(t.name, t.kind, t.rows, t.width, t.variance**0.5) for t in tables]


def test_less_memory_takes_fewer_buckets_and_is_kept() -> None:
    free, bound = usual(), movies(epsilon=1.0, memory=300_000)
    assert bound.window_bytes + bound.complete_bytes <= 300_000
    assert bound.settings.rows * bound.settings.buckets < free.settings.rows * free.settings.buckets
    assert bound.cost > free.cost


def test_too_little_memory_is_refused_with_what_it_takes() -> None:
    with pytest.raises(SchemaError, match=r"smallest tables .* take [\d,]+ bytes.*raise memory"):
        movies(epsilon=1.0, memory=1_000)


def test_ten_times_the_rows_fit_a_window() -> None:
    assert usual().settings.max_rows_per_window == 10_000_000


def test_cells_stay_narrow_where_twice_the_rows_fit_them() -> None:
    proposed = movies(epsilon=1.0, rows=400_000_000)
    assert proposed.settings.max_rows_per_window == 800_000_000
    assert not any(t.wide for t in born(MOVIES, proposed.settings).layout.tables)


def test_a_finite_group_is_dense_where_a_sketch_takes_no_less() -> None:
    finite = Schema(
        features=[
            Categorical("a", domain=range(400)),
            Categorical("b", domain=range(400)),
            Categorical("user"),
        ],
        label=LIKED,
        groups=[("a", "b")],
    )
    proposed = plan(finite, rows=10**7, epsilon=1.0, distinct={"user": 50_000})
    assert proposed.table("a,b").kind == "dense"
    assert proposed.settings.dense_limit >= 402 * 402


def test_a_schema_without_sketches_is_planned() -> None:
    finite = Schema(features=[Continuous("age", edges=[18, 40, 65])], label=LIKED)
    proposed = plan(finite, rows=10_000, epsilon=0.5)
    assert [t.kind for t in proposed.tables] == ["dense"]
    assert proposed.table("age").distinct == 4
    assert not any("hash row" in sentence for sentence in proposed.why)


def test_shares_follow_the_sizes_of_keys_that_are_told() -> None:
    shares = dict(usual().settings.shares or ())
    assert shares["user,genre"] > shares["user"] > shares["movie"] > shares["genre"] >= 0.5


def test_guesses_make_no_shares() -> None:
    proposed = movies(epsilon=1.0, distinct={"user": 6_040})
    assert proposed.settings.shares is None
    assert [t.name for t in proposed.tables if t.guessed] == ["movie"]
    assert any("equal shares" in sentence for sentence in proposed.why)


def test_shares_by_hand_stay() -> None:
    by_hand = Settings(epsilon=1.0, shares={"user": 3})
    assert movies(settings=by_hand).settings.shares == (("user", 3.0),)


def test_knobs_that_are_not_the_planner_s_stay() -> None:
    base = Settings(epsilon=2.0, k=3, hot_window="3d", prior_share=0.05, estimate="ratio")
    chosen = movies(settings=base).settings
    kept = ("epsilon", "k", "hot_window", "prior_share", "estimate")
    assert [getattr(chosen, name) for name in kept] == [getattr(base, name) for name in kept]


def test_what_is_told_goes_before_the_settings() -> None:
    base = Settings(epsilon=2.0, k=3, delta=0)
    chosen = plan(open_features(30), rows=10**6, epsilon=1.0, k=2, delta=1e-3, settings=base)
    assert (chosen.settings.epsilon, chosen.settings.k, chosen.settings.delta) == (1.0, 2, 1e-3)


@pytest.mark.parametrize(
    ("knobs", "windows"),
    [
        ({"count_window": "30d", "retention": "365d"}, 12),
        ({"count_window": "30d", "retention": "60d"}, 1),
        ({"count_window": 1_000}, 1),
    ],
)
def test_windows_are_those_that_retention_holds(knobs: Any, windows: int) -> None:
    assert movies(settings=Settings(epsilon=1.0, **knobs)).expected.windows == windows


def test_propensities_are_counted_in_fine_units_and_cost_noise() -> None:
    weighted = Schema(features=[Categorical("x")], label=LIKED, weight="p")
    base = Settings(epsilon=1.0, p_min=0.1)
    proposed = plan(weighted, rows=10**6, windows=1, distinct={"x": 1_000}, settings=base)
    assert proposed.settings.weight_unit == 16
    plain = Schema(features=[Categorical("x")], label=LIKED)
    unweighted = replace(proposed.settings, p_min=None, weight_unit=1)
    (without,) = Predictor(plain, proposed.expected).predict(unweighted).tables
    assert proposed.table("x").noise == pytest.approx(10 * without.noise, rel=0.05)


def test_k_multiplies_the_noise() -> None:
    one, four = usual(), movies(epsilon=1.0, k=4)
    assert four.table("user").cell_noise > 3 * one.table("user").cell_noise


# --- errors, and the ε of a target ---------------------------------------------------------


@pytest.mark.slow
@given(
    st.floats(0.01, 20.0),
    st.floats(1.05, 10.0),
    st.sampled_from([0.0, 1e-9]),
    st.sampled_from([1, 5]),
    st.integers(1, 4),
)
@settings(max_examples=25, deadline=None)
def test_more_epsilon_never_has_more_error(
    epsilon: float, factor: float, delta: float, rows: int, windows: int
) -> None:
    predictor = Predictor(MOVIES, Expected(1_000_000, windows, KNOWN))
    less, more = (
        predictor.predict(Settings(epsilon=e, delta=delta, rows=rows))
        for e in (epsilon, epsilon * factor)
    )
    for before, after in zip(less.tables, more.tables, strict=True):
        assert after.noise < before.noise
        # Less noise also means less shrinkage, by which the few keys that collide suffer.
        assert after.deviation < 1.05 * before.deviation
        assert after.cost < 1.05 * before.cost
    assert more.cost < 1.05 * less.cost


@pytest.mark.slow
@given(st.floats(0.05, 5.0), st.floats(1.3, 5.0))
@settings(max_examples=4, deadline=None)
def test_plans_for_more_epsilon_are_no_worse(epsilon: float, factor: float) -> None:
    costs = [movies(epsilon=e).cost for e in (epsilon, epsilon * factor)]
    assert costs[1] < 1.05 * costs[0]  # choices within 2 % are taken for the same


@pytest.mark.slow
@pytest.mark.parametrize("target", [0.1, 0.02])
def test_the_epsilon_for_a_target_meets_it_and_hardly_less_does(target: float) -> None:
    proposed = movies(target=target)
    assert proposed.worst.cost <= target
    less = Settings(**(proposed.settings.to_dict() | {"epsilon": 0.95 * proposed.epsilon}))  # type: ignore[arg-type]
    assert Predictor(MOVIES, proposed.expected).predict(less).worst.cost > target


def test_a_plan_says_which_epsilon_another_target_takes() -> None:
    proposed = usual()
    needed = {name: proposed.epsilon_for(0.03, name) for name in MOVIES.table_names}
    assert proposed.epsilon_for(0.03) == max(needed.values())
    assert needed["genre"] < needed["movie"] < needed["user"] < needed["user,genre"]
    assert proposed.epsilon_for(proposed.worst.cost * 1.001) == pytest.approx(1.0, rel=0.02)


@pytest.mark.slow
def test_a_target_beyond_reach_is_refused_and_named() -> None:
    with pytest.raises(SchemaError, match=r"no epsilon .*'user,genre'.*rows; raise the target"):
        movies(target=0.001, memory=300_000)
    assert movies(epsilon=1.0, memory=300_000).epsilon_for(0.0001) == math.inf


def test_the_error_in_all_holds_what_few_rows_leave() -> None:
    for table in usual().tables:
        sampling = (0.25 / 11 * 10 / (table.typical + 10)) ** 0.5
        assert table.error == pytest.approx(math.hypot(sampling, table.cost), rel=0.05)


def test_errors_add_up_from_noise_and_collisions() -> None:
    for table in movies(epsilon=1.0, memory=300_000).tables:
        assert table.deviation == pytest.approx(math.hypot(table.noise, table.collisions))


def test_several_labels_sum_more_cells_and_more_noise() -> None:
    labels = [LIKED, Label("stars", classes=range(5))]
    joint = Schema(features=[Categorical("x")], label=labels)
    alone = Schema(features=[Categorical("x")], label=LIKED)
    chosen, expected = Settings(epsilon=1.0), Expected(1_000_000, distinct={"x": 10})
    one, five = (Predictor(s, expected).predict(chosen).tables[0] for s in (alone, joint))
    assert five.noise == pytest.approx(5**0.5 * one.noise, rel=0.01)


# --- what is expected ----------------------------------------------------------------------


@given(st.integers(1, 200_000), st.floats(1, 1e9), st.floats(0, 2))
@settings(max_examples=60, deadline=None)
def test_sizes_of_keys_sum_to_the_rows(distinct: int, rows: float, skew: float) -> None:
    number, size = Population(distinct, rows, skew).groups
    assert number.sum() == distinct
    assert number @ size == pytest.approx(rows)
    assert (size[:-1] >= size[1:]).all()


def test_groups_of_ranks_have_zipf_s_squares() -> None:
    number, size = Population(50_000, 1e6, 1.0).groups
    exact = sum(1 / i for i in range(1, 50_001))
    squares = sum((1e6 / exact / i) ** 2 for i in range(1, 50_001))
    assert number @ size**2 == pytest.approx(squares, rel=0.02)


def test_guesses_come_from_the_rows_and_declared_values_from_the_schema() -> None:
    expected = Expected(rows=1_000_000)
    found = {name: expected.population(MOVIES, name).distinct for name in MOVIES.table_names}
    assert found == {"user": 10_000, "movie": 10_000, "genre": 3, "user,genre": 30_000}


# --- what is said ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base",
    [
        Settings(epsilon=1.0),
        Settings(epsilon=math.inf),
        Settings(epsilon=1.0, hot_window=None, hot_rows=100, columns=("count", "probability")),
        Settings(epsilon=1.0, shares={"user,genre": 2}),
    ],
)
def test_the_toml_gives_the_settings_back(base: Settings) -> None:
    proposed = movies(settings=base)
    assert Settings.from_toml(proposed.to_toml()) == proposed.settings


def test_the_toml_stands_below_a_schema() -> None:
    proposed = usual()
    text = f"{MOVIES.to_toml()}\n{proposed.to_toml()}"
    assert Schema.from_toml(text) == MOVIES
    assert Settings.from_toml(text) == proposed.settings


def test_a_plan_is_told_as_plain_values() -> None:
    told = json.loads(json.dumps(movies(epsilon=math.inf).to_dict(), allow_nan=False))
    assert told["settings"]["epsilon"] is None
    assert [t["name"] for t in told["tables"]] == list(MOVIES.table_names)
    assert "NO privacy" in told["why"][0]


def test_a_large_epsilon_is_told_to_hide_little() -> None:
    assert any("hides little" in sentence for sentence in movies(epsilon=8.0).why)
    assert not any("hides little" in sentence for sentence in usual().why)


def test_the_same_question_has_the_same_answer() -> None:
    assert movies(epsilon=1.0) == usual()


def test_planning_spends_and_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TableDesign, "arena", lambda *_: pytest.fail("a plan makes no tables"))
    movies(epsilon=0.9)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({}, "needs either epsilon or a target"),
        ({"epsilon": 1.0, "target": 0.1}, "needs either epsilon or a target"),
        ({"epsilon": -1.0}, "setting 'epsilon' must be above 0"),
        ({"target": 0.0}, "target is the standard deviation of a probability"),
        ({"target": 2}, "target is the standard deviation of a probability"),
        ({"epsilon": 1.0, "rows": 0}, "rows, the expected rows of a window,"),
        ({"epsilon": 1.0, "windows": 0}, "windows, the windows that are summed,"),
        ({"epsilon": 1.0, "distinct": {"usr": 5}}, "did you mean 'user'"),
        ({"epsilon": 1.0, "distinct": {"user": 0}}, "the distinct values of 'user'"),
        ({"epsilon": 1.0, "skew": -1}, "skew must be from 0"),
        ({"epsilon": 1.0, "memory": 0}, "memory"),
    ],
)
def test_what_cannot_be_planned_is_refused(asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SchemaError, match=sentence):
        movies(**asked)


def test_propensities_need_their_smallest() -> None:
    weighted = Schema(features=[Categorical("x")], label=LIKED, weight="p")
    with pytest.raises(SchemaError, match="smallest propensity; give"):
        plan(weighted, rows=1_000, epsilon=1.0)


def test_a_table_that_is_not_there_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"no table 'usr'; did you mean 'user'"):
        usual().table("usr")


# --- shards --------------------------------------------------------------------------------


def test_the_noise_of_shards_adds_up_in_a_prediction() -> None:
    one = Settings(epsilon=1.0, rows=1, weights="equal")
    predictor = Predictor(MOVIES, Expected(1_000_000, 4, KNOWN))
    alone, four = predictor.predict(one), predictor.predict(replace(one, shards=4))
    assert [t.noise for t in four.tables] == pytest.approx([2 * t.noise for t in alone.tables])
    assert [t.cell_noise for t in four.tables] == [t.cell_noise for t in alone.tables]
    assert four.cost > alone.cost


def test_a_plan_for_shards_is_one_that_a_stream_of_shards_can_have() -> None:
    planned = plan(open_features(3), rows=10**6, epsilon=1.0, windows=300, shards=3)
    assert (planned.settings.shards, planned.settings.windows) == (3, "flat")
    assert not planned.settings.weighted
    assert planned.window_noise == 900
    assert planned.to_dict()["shards"] == 3
    assert Settings.from_toml(planned.to_toml()).shards == 3


def test_a_plan_says_what_the_shards_cost() -> None:
    planned = movies(epsilon=1.0, shards=3)
    (told,) = [sentence for sentence in planned.why if "shards" in sentence]
    assert f"would cost a row's probabilities {planned.on_shards(1):.4f}" in told
    assert f"and not {planned.cost:.4f}" in told
    assert not [sentence for sentence in usual().why if "shard" in sentence]
